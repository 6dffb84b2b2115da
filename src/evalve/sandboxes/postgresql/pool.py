"""The copies of one lender: cloned ahead in the background, lent, reset or replaced when they come back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal

import psycopg

from evalve.errors import EvalveError, LenderError
from evalve.sandboxes.postgresql import copies
from evalve.sandboxes.postgresql.copies import Copy, Walls
from evalve.sandboxes.postgresql.counts import Counts
from evalve.sandboxes.postgresql.servers import Absence, ServerAway
from evalve.sandboxes.postgresql.templates import Script, Template, built_template
from evalve.sandboxes.postgresql.tenancy import MAKERS, Tenancy

_LOG = logging.getLogger(__name__)

Returned = Literal["clean", "held", "dirty"]
"""In what state a copy comes back: proven to be as it was; used by somebody who could write; or changed."""
_CLOSED = "the run is over, and its databases are dropped"
_SPARE_OF, LEAST_SPARE = 4, MAKERS
"""One copy is kept ready ahead for this many that are lent, and as many as are made at once."""
_MOST_LEAVING = 2 * MAKERS
"""How many copies there may be beside those that are in use, until they are dropped."""
_LOOKS, _LOOKS_AGAIN = 4, 8
"""Whether a copy was changed is looked at until that has been so each time; then now and again."""


class CopyPool:
    """Any thread may use it. At most `size` databases exist at once."""

    def __init__(self, tenancy: Tenancy, scripts: tuple[Script, ...], walls: Walls, size: int) -> None:
        self.counts = Counts()
        self.walls = walls
        self.tenancy = tenancy
        self._scripts = scripts
        self.size = size
        self._lock = threading.RLock()
        self._template_lock = threading.Lock()
        self._built: tuple[int, Template] | None = None
        self._ready: deque[Copy] = deque()
        self._waiting: deque[Future[Copy]] = deque()
        self._lent: dict[str, Copy] = {}
        self._in_work = 0
        """Copies that are being made, reset or dropped."""
        self._to_make = 0
        self._to_drop: deque[Copy] = deque()
        self._leaving = 0
        """How many of them nobody will be lent any more."""
        self._changed_in_a_row = 0
        """Of those that were held, the last so many."""
        self._no_work = threading.Condition(self._lock)
        self._is_closed = False
        self._absence = Absence()
        self._has_said = False

    def template(self) -> Template:
        """Built by the first who asks, and again where the server was lost."""
        with self._template_lock:
            generation = self.tenancy.generation
            if self._built is None or self._built[0] != generation:
                self._built = generation, built_template(self.tenancy, self._scripts)
            return self._built[1]

    def warm_up(self, ahead: int) -> None:
        """Return when this many copies are ready: else the first samples of a run would all wait at once.

        What keeps copies from being made is raised here, before anything is spent.
        """
        asked = [self.take() for _ in range(ahead)]
        try:
            for one in asked:
                one.result()
        finally:
            for one in asked:
                if not one.cancel() and one.exception() is None:
                    self.give_back(one.result(), "clean")
                    self.counts.lent -= 1

    # -- lending

    def take(self) -> Future[Copy]:
        """A copy, now or when there is one. Who does not wait any more cancels it."""
        asked: Future[Copy] = Future()
        with self._lock:
            if self._is_closed:
                _fail(asked, LenderError(_CLOSED))
                return asked
            while self._ready:
                copy = self._ready.popleft()
                if copy.generation == self.tenancy.generation:
                    self._lend(copy, asked)
                    break
                copies.disconnect(copy)
                self.tenancy.in_use.discard(copy.name)  # gone with the server
            else:
                self._waiting.append(asked)
            self._refill()
        return asked

    def give_back(self, copy: Copy, state: Returned) -> None:
        with self._lock:
            if self._lent.pop(copy.name, None) is None:
                copies.disconnect(copy)
                return  # it was dropped when the pool was closed
            if state == "held" and not self._is_worth_a_look():
                state = "dirty"
                self._changed_in_a_row += 1
            self.counts.cloned += state == "dirty"
            if state == "clean" and copy.generation == self.tenancy.generation and not self._is_closed:
                self._offer(copy)
                return
            self._in_work += 1
        self._submit(self._restore if state == "held" else self._replace, copy)

    def _is_worth_a_look(self) -> bool:
        """Agents that have changed something each time will mostly do so again."""
        return self._changed_in_a_row < _LOOKS or self._changed_in_a_row % _LOOKS_AGAIN == 0

    def count(self, how: str) -> None:
        with self._lock:
            self.counts.rolled_back += how == "rolled back"
            self.counts.unused += how == "unused"

    def quarantine(self, copy: Copy, why: str) -> None:
        """Nobody is lent it any more."""
        self.counts.quarantined += 1
        _LOG.warning("database %s is not what its template is, and was taken out of use: %s", copy.name, why)
        self.give_back(copy, "dirty")

    def close(self) -> None:
        """Drop everything. Who still waits is told."""
        with self._lock:
            self._is_closed = True
            # of samples that were left behind, databases are still lent
            ready, self._ready = [*self._ready, *self._lent.values()], deque()
            self._lent.clear()
            waiting, self._waiting = list(self._waiting), deque()
            self._in_work += len(ready)
            self._no_work.notify_all()
        for asked in waiting:
            _fail(asked, LenderError(_CLOSED))
        for copy in ready:
            self._submit(self._replace, copy)
        with self._no_work:
            self._no_work.wait_for(lambda: not self._in_work)

    # -- under the lock

    def _lend(self, copy: Copy, asked: Future[Copy]) -> bool:
        if not asked.set_running_or_notify_cancel():
            return False
        self._lent[copy.name] = copy
        self.counts.lent += 1
        asked.set_result(copy)
        return True

    def _offer(self, copy: Copy) -> None:
        while self._waiting:
            if self._lend(copy, self._waiting.popleft()):
                return
        self._ready.append(copy)

    def _refill(self) -> None:
        if self._is_closed:
            return
        asked = len(self._lent) + len(self._waiting)
        wanted = min(self.size, asked + max(LEAST_SPARE, asked // _SPARE_OF))
        # a new copy is made before an old one is dropped: nobody waits for that
        there = len(self._lent) + len(self._ready) + self._in_work - min(self._leaving, _MOST_LEAVING)
        for _ in range(wanted - there):
            self._in_work += 1
            self._to_make += 1
            self._submit()

    # -- in the makers' threads

    def _submit(self, work: Callable[[Copy], None] | None = None, copy: Copy | None = None) -> None:
        """Without `work`, whatever is most urgent then."""

        def done() -> None:
            nonlocal work, copy
            generation = self.tenancy.generation
            if work is None:
                work, copy = self._most_urgent()
            try:
                work(copy)  # type: ignore[arg-type]
            except Exception as error:  # the boundary of a maker: whoever waits for a copy is told
                self._work_failed(copy, error, generation)

        try:
            self.tenancy.makers.submit(done)
        except RuntimeError:  # the server has been left, or the process ends
            if copy is not None:
                copies.disconnect(copy)
            self._work_ends()

    def _most_urgent(self) -> tuple[Any, Copy | None]:
        with self._lock:
            if not self._to_make:
                return self._drop_left, self._to_drop.popleft()
            self._to_make -= 1
            return self._make, None

    def _make(self, _: None) -> None:
        template = self.template()
        for is_last in (False, True):
            copy = copies.make_copy(self.tenancy, template, self.walls)
            self.tenancy.in_use.add(copy.name)
            try:
                wrong = copies.wrong_with(self.tenancy, copy)
            except BaseException:
                self.tenancy.in_use.discard(copy.name)
                copies.drop_quietly(self.tenancy, copy.name)
                raise
            if not wrong:
                break
            self.counts.quarantined += 1
            self._drop(copy)
            if is_last:
                raise LenderError(
                    f"a fresh copy is not what its template {template.name} is: {', '.join(wrong)}"
                )
        if not self._has_said:
            self._has_said = True
            copies.say_what_is_open(self.tenancy, copy)
        self._absence = Absence()
        self._work_ends(copy)

    def _restore(self, copy: Copy) -> None:
        """Of a copy that somebody held: the same again where it is proven that nothing changed."""
        try:
            is_same = copy.generation == self.tenancy.generation and copies.is_shut_and_unchanged(
                self.tenancy, copy
            )
        except psycopg.Error:  # whatever an agent did that it cannot be read
            is_same = False
        with self._lock:
            self._changed_in_a_row = 0 if is_same else self._changed_in_a_row + 1
            self.counts.unchanged += is_same
            self.counts.cloned += not is_same
        if is_same:
            self._work_ends(copy)
        else:
            self._replace(copy)

    def _replace(self, copy: Copy) -> None:
        """Another one is made for it; then it is dropped."""
        if copy.generation == self.tenancy.generation:
            with suppress(psycopg.Error, LenderError):  # it is dropped all the same
                copies.shut(self.tenancy, copy)
        with self._lock:
            self._leaving += 1
            self._to_drop.append(copy)
            self._refill()
            self._submit()

    def _drop_left(self, copy: Copy) -> None:
        try:
            self._drop(copy)
        finally:
            with self._lock:
                self._leaving -= 1
        self._work_ends()

    def _drop(self, copy: Copy) -> None:
        copies.disconnect(copy)
        if copy.generation == self.tenancy.generation:
            copies.drop_copy(self.tenancy, copy)
        self.tenancy.in_use.discard(copy.name)

    def _work_ends(self, copy: Copy | None = None) -> None:
        with self._lock:
            self._in_work -= 1
            if copy is not None and self._is_closed:
                self._in_work += 1
                self._submit(self._replace, copy)
            elif copy is not None:
                self._offer(copy)
            else:
                self._refill()
            self._no_work.notify_all()

    def _work_failed(self, copy: Copy | None, error: Exception, generation: int) -> None:
        """Where the server was lost since then, it is tried again."""
        is_lost = isinstance(error, psycopg.Error | LenderError) and self.tenancy.is_lost(generation)
        if isinstance(error, ServerAway):
            with self._lock:
                is_lost = self._absence.may_end(self._no_work, lambda: self._is_closed)
        if copy is not None and not is_lost:
            _LOG.warning("database %s could not be reset or dropped: %s", copy.name, _brief(error))
        if copy is not None:
            copies.disconnect(copy)
            self.tenancy.in_use.discard(copy.name)  # nobody answers for it: it is counted as left
        with self._lock:
            self._in_work -= 1
            if copy is None and not is_lost and self._waiting:
                _fail(self._waiting.popleft(), _told(error))
            elif is_lost or copy is not None:
                self._refill()
            self._no_work.notify_all()


def _fail(asked: Future[Copy], error: BaseException) -> None:
    if asked.set_running_or_notify_cancel():
        asked.set_exception(error)


def _told(error: Exception) -> Exception:
    return (
        error
        if isinstance(error, EvalveError)
        else LenderError(f"no database could be made: {_brief(error)}")
    )


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())
