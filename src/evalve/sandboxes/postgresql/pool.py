"""The copies of one lender: cloned ahead in the background, lent, reset or replaced when they come back."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import psycopg

from evalve.errors import EvalveError, LenderError
from evalve.sandboxes.postgresql import copies
from evalve.sandboxes.postgresql.copies import Copy, Walls
from evalve.sandboxes.postgresql.servers import ServerAway
from evalve.sandboxes.postgresql.templates import Script, Template, built_template
from evalve.sandboxes.postgresql.tenancy import Tenancy

_LOG = logging.getLogger(__name__)

Returned = Literal["clean", "held", "dirty"]
"""In what state a copy comes back: proven to be as it was; used by somebody who could write; or changed."""
_CLOSED = "the run is over, and its databases are dropped"
_COMES_BACK_WITHIN_S, _ASKS_AGAIN_AFTER_S = 60.0, 0.5
"""A server that was there and is restarted tells nobody that it is back."""
_SPARE_OF = 4
"""One copy is kept ready ahead for this many that are lent."""


@dataclass(slots=True)
class Counts:
    """What has become of copies."""

    lent: int = 0
    rolled_back: int = 0
    unused: int = 0
    unchanged: int = 0
    cloned: int = 0
    quarantined: int = 0


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
        self._no_work = threading.Condition(self._lock)
        self._is_closed = False
        self._away_since_s: float | None = None
        """Since when nobody answers at the server's address."""
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
                self.tenancy.in_use.discard(copy.name)  # gone with the server
            else:
                self._waiting.append(asked)
            self._refill()
        return asked

    def give_back(self, copy: Copy, state: Returned) -> None:
        work: Callable[[Copy], None] | None = {"held": self._restore, "dirty": self._replace}.get(state)
        with self._lock:
            if self._lent.pop(copy.name, None) is None:
                return  # it was dropped when the pool was closed
            self.counts.cloned += state == "dirty"
            if work is None and copy.generation == self.tenancy.generation and not self._is_closed:
                self._offer(copy)
                return
            self._in_work += 1
        self._submit(work or self._replace, copy)

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
        wanted = min(self.size, asked + max(1, asked // _SPARE_OF))
        there = len(self._lent) + len(self._ready) + self._in_work
        for _ in range(wanted - there):
            self._in_work += 1
            self._submit(self._make, None)

    # -- in the makers' threads

    def _submit(self, work: Callable[[Copy], None] | Callable[[None], None], copy: Copy | None) -> None:
        def done() -> None:
            generation = self.tenancy.generation
            try:
                work(copy)  # type: ignore[arg-type]
            except Exception as error:  # the boundary of a maker: whoever waits for a copy is told
                self._work_failed(copy, error, generation)

        try:
            self.tenancy.makers.submit(done)
        except RuntimeError:  # the process ends
            self._work_ends()

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
        self._say_what_is_open(copy)
        self._away_since_s = None
        self._work_ends(copy)

    def _say_what_is_open(self, copy: Copy) -> None:
        """Once: of walls that only a superuser can build."""
        if self._has_said:
            return
        self._has_said = True
        if open_ones := copies.reachable_elsewhere(self.tenancy, copy):
            names = ", ".join(open_ones)
            _LOG.warning(
                "whoever is lent a database at %s may connect to %s too, as everybody may; to prevent it: "
                "REVOKE CONNECT ON DATABASE %s FROM PUBLIC, or name a superuser in url=",
                self.tenancy.server.shown,
                names,
                names,
            )

    def _restore(self, copy: Copy) -> None:
        """Of a copy that somebody held: the same again where it is proven that nothing changed."""
        try:
            is_same = copy.generation == self.tenancy.generation and copies.is_shut_and_unchanged(
                self.tenancy, copy
            )
        except psycopg.Error:  # whatever an agent did that it cannot be read
            is_same = False
        if not is_same:
            self.counts.cloned += 1
            self._replace(copy)
            return
        self.counts.unchanged += 1
        self._work_ends(copy)

    def _replace(self, copy: Copy) -> None:
        self._drop(copy)
        self._work_ends()

    def _drop(self, copy: Copy) -> None:
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
        if isinstance(error, ServerAway) or is_lost:
            is_lost = self._may_come_back()
        if copy is not None and not is_lost:
            _LOG.warning("database %s could not be reset or dropped: %s", copy.name, _brief(error))
        if copy is not None:
            self.tenancy.in_use.discard(copy.name)  # nobody answers for it: it is counted as left
        with self._lock:
            self._in_work -= 1
            if copy is None and not is_lost and self._waiting:
                _fail(self._waiting.popleft(), _told(error))
            elif is_lost or copy is not None:
                self._refill()
            self._no_work.notify_all()

    def _may_come_back(self) -> bool:
        """After a pause: whoever administrates a server restarts it within a while."""
        with self._lock:
            now_s = time.monotonic()
            if self._away_since_s is None:
                self._away_since_s = now_s
                return True
            if now_s - self._away_since_s > _COMES_BACK_WITHIN_S:
                return False
            return not self._no_work.wait_for(lambda: self._is_closed, timeout=_ASKS_AGAIN_AFTER_S)


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
