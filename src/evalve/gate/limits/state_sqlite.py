"""Limits shared by every process of a person on one machine, in one small SQLite database.

It has no server and needs no configuration. Its file is its own: beside the cache's writers, a booking
waited eight times as long. Nothing in it must survive a power cut, so nothing is synced to disk.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from evalve.clock import LOOP_CLOCK, Clock
from evalve.filesystems import taking_turns, use_journal
from evalve.gate.limits.booking import Booking, ScopeState
from evalve.gate.limits.holders import in_words, is_alive, name_of_this_process
from evalve.gate.limits.plain_state import from_plain, to_plain
from evalve.gate.limits.state import ScopeView, Settlement, apply
from evalve.gate.limits.wakeups import Wakeups
from evalve.gate.messages import Cost, Limits
from evalve.processes import boot_id, boot_offset_s

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_TABLES = """
CREATE TABLE IF NOT EXISTS scopes (
    scope TEXT NOT NULL,
    boot TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    used_at REAL NOT NULL,
    PRIMARY KEY (scope, boot)
) WITHOUT ROWID
"""
"""One row for each scope and start of a machine: its clock means nothing to another, which may share the file
through a network, and must not find its own buckets emptied or filled by it."""
_FORM = 6
"""Of the table; what is of another form is learnt anew."""
_FORGOTTEN_AFTER_S = 14 * 86_400.0
"""Scopes that nobody has used for so long: of keys that were replaced, of machines that are gone."""
_BUSY_S = 0.02
"""How long SQLite itself waits for another's transaction, which takes a tenth of a millisecond. Whoever keeps
the file longer is waited for off the event loop."""
_PATIENCE_S = 5.0
_ASK_BUSY_EVERY_S = 0.05
_CHECK_HOLDERS_EVERY_S = 5.0
_CHECK_FILE_EVERY_S = 5.0
_ASK_AGAIN_UNTOLD_S = 0.1
"""When a place is asked for again where nobody can tell of it."""
_NUMBERS = count()
_INHERITED: list[sqlite3.Connection] = []
"""Connections that a fork copied: closing them here would disturb the parent."""


def machine_now_s() -> float:
    """Seconds since the machine started: the same clock in every process, whatever becomes of the date."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME) - boot_offset_s()
    return time.monotonic()


class SqliteState:
    """Any thread and any event loop may use it; a transaction takes about a tenth of a millisecond."""

    def __init__(
        self,
        path: Path,
        *,
        now_s: Callable[[], float] = machine_now_s,
        boot: str | None = None,
        only_look: bool = False,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        """With `only_look` nothing is made or repaired: what is there is read, or raises `sqlite3.Error`."""
        self._path = path
        self._only_look = only_look
        self._now_s = now_s
        self._boot = boot or boot_id()
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._number = next(_NUMBERS)
        self._tell: list[Callable[[], object]] = []
        self._wakeups = Wakeups(path.with_suffix(".waiting"), self._tell_of_place)
        self._checked_at_s: dict[str, float] = {}
        self._written: dict[str, tuple[str, ScopeState]] = {}
        """What this process wrote last: mostly nobody else has written since, and it need not be read."""
        self._told: dict[str, str] = {}
        """The same as text: what is begun and fails leaves it alone."""
        self._carried: dict[str, ScopeState] = {}
        """What it had written to a file that somebody has removed since."""
        self._file = (0, 0)
        """Device and inode of what is open."""
        self._looked_at_s = 0.0

    @property
    def path(self) -> Path:
        return self._path

    def now_s(self) -> float:
        return self._now_s()

    def last_known(self) -> dict[str, ScopeState]:
        """What this process wrote last, for it alone: nobody else is in it. Not to be used here any more."""
        with self._lock:
            self._written.clear()
            self._drop_connection()
            return {scope: state.only_of(self._me()) for scope, state in self._all_told().items()}

    def _all_told(self) -> dict[str, ScopeState]:
        return {scope: from_plain(json.loads(text)) for scope, text in self._told.items()}

    async def exchange(
        self,
        scope: str,
        limits: Limits,
        settlements: Sequence[Settlement],
        costs: Sequence[Cost],
        *,
        horizon_s: float,
    ) -> list[Booking]:
        return await self._patiently(
            lambda: self._exchange(scope, limits, settlements, costs, horizon_s=horizon_s)
        )

    def _exchange(
        self,
        scope: str,
        limits: Limits,
        settlements: Sequence[Settlement],
        costs: Sequence[Cost],
        *,
        horizon_s: float,
    ) -> list[Booking]:
        me = self._me()
        with self._transaction() as connection:
            state = self._read(connection, scope, known=self._written.pop(scope, None))
            now_s = self._now_s()
            self._drop_the_dead(scope, state, now_s)
            bookings = apply(state, limits, settlements, costs, holder=me, now_s=now_s, horizon_s=horizon_s)
            if bookings and not bookings[0].granted:
                if self._drop_the_dead(scope, state, now_s, at_once=True):
                    bookings = apply(state, limits, [], costs, holder=me, now_s=now_s, horizon_s=horizon_s)
                bookings[0] = self._awaited(bookings[0], me, now_s)
            told = state.offer_places(now_s, but=me if costs else None)
            self._write(connection, scope, state)
        self._wake(told)
        return bookings

    def _awaited(self, booking: Booking, me: str, now_s: float) -> Booking:
        """A denied one, now that we listen for a place: before anybody can know that we wait for it."""
        if booking.granted or self._wakeups.listen(me):
            return booking
        return replace(booking, start_s=min(booking.start_s, now_s + _ASK_AGAIN_UNTOLD_S))

    async def _patiently(self, do: Callable[[], T]) -> T:
        """Again and again while another program keeps the file, without holding up the event loop."""
        began_s = self._clock.now_s()
        while True:
            try:
                return do()
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or self._clock.now_s() - began_s >= _PATIENCE_S:
                    raise
            await self._clock.sleep(_ASK_BUSY_EVERY_S)

    async def give_up(self, scope: str) -> None:
        await self._patiently(lambda: self._give_up(scope))

    def _give_up(self, scope: str) -> None:
        with self._transaction() as connection:
            state = self._read(connection, scope, known=self._written.pop(scope, None))
            state.line.leave(self._me())
            told = state.offer_places(self._now_s())
            self._write(connection, scope, state)
        self._wake(told)

    def on_place(self, tell: Callable[[], object]) -> None:
        self._tell.append(tell)

    async def version(self, scope: str) -> int:
        return await self._patiently(lambda: self._version(scope))

    def _version(self, scope: str) -> int:
        with self._lock:
            row = (
                self._connected()
                .execute("SELECT version FROM scopes WHERE scope = ? AND boot = ?", (scope, self._boot))
                .fetchone()
            )
        return int(row[0]) if row is not None else 0

    async def peek(self, scope: str) -> ScopeState:
        return await self._patiently(lambda: self._peek(scope))

    def _peek(self, scope: str) -> ScopeState:
        with self._lock:
            return self._read(self._connected(), scope)

    async def views(self) -> list[ScopeView]:
        return await self._patiently(self._views)

    def _views(self) -> list[ScopeView]:
        with self._lock:
            found = self._connected().execute("SELECT DISTINCT scope FROM scopes ORDER BY scope")
            names = [name for (name,) in found]
            states = {name: self._read(self._connected(), name) for name in names}
        now_s = self._now_s()
        for state in states.values():
            for holder in _dead(state, set(state.holders), now_s):
                state.forget_holder(holder)
        return [
            ScopeView(name, state, now_s, {holder: in_words(holder) for holder in state.holders})
            for name, state in states.items()
        ]

    async def forget(self, scope: str) -> None:
        """Limits, pauses and leases of a scope are learnt anew; calls in flight are not disturbed."""
        await self._patiently(lambda: self._forget(scope))

    def _forget(self, scope: str) -> None:
        with self._transaction() as connection:
            told = list(self._read(connection, scope).line.waits)
            connection.execute("DELETE FROM scopes WHERE scope = ?", (scope,))
        self._wake(told)

    async def close(self) -> None:
        with self._lock:
            self._drop_connection()
            self._wakeups.close()

    def _me(self) -> str:
        """Who holds and waits: this process, and which of its states if it has several."""
        return f"{name_of_this_process()}:{self._number}"

    def _tell_of_place(self) -> None:
        for tell in self._tell:
            tell()

    def _wake(self, holders: Sequence[str]) -> None:
        for holder in holders:
            self._wakeups.wake(holder)

    def _drop_the_dead(self, scope: str, state: ScopeState, now_s: float, *, at_once: bool = False) -> bool:
        """Reclaim what killed processes held; looked at now and then, for it costs a system call each."""
        if not at_once and now_s - self._checked_at_s.get(scope, -1e9) < _CHECK_HOLDERS_EVERY_S:
            return False
        self._checked_at_s[scope] = now_s
        others = {*state.holders, *state.line.waits} - {self._me()}
        dead = _dead(state, others, now_s)
        for holder in dead:
            state.forget_holder(holder)
        return bool(dead)

    def _write(self, connection: sqlite3.Connection, scope: str, state: ScopeState) -> None:
        text = _encoded(to_plain(state))
        connection.execute(
            "INSERT OR REPLACE INTO scopes VALUES (?, ?, ?, ?, ?)",
            (scope, self._boot, state.version, text, time.time()),
        )
        self._written[scope] = text, state
        self._told[scope] = text

    def _read(
        self, connection: sqlite3.Connection, scope: str, *, known: tuple[str, ScopeState] | None = None
    ) -> ScopeState:
        row = connection.execute(
            "SELECT boot, state FROM scopes WHERE scope = ? ORDER BY boot = ? DESC, used_at DESC LIMIT 1",
            (scope, self._boot),
        ).fetchone()
        if row is None:
            return self._carried.pop(scope, None) or ScopeState()
        if known is not None and known[0] == row[1] and row[0] == self._boot:
            return known[1]
        try:
            state = from_plain(json.loads(row[1]))
        except (ValueError, KeyError, TypeError, IndexError):
            return ScopeState()  # written by another version: limits are learnt anew
        if row[0] != self._boot:
            return state.after_reboot()
        return self._of_a_faked_clock(scope, state) if state.is_ahead_of(self._now_s()) else state

    def _of_a_faked_clock(self, scope: str, state: ScopeState) -> ScopeState:
        """A process under faketime, or the like, has written it: we go on with what we know ourselves."""
        told = self._told.get(scope)
        return state.after_reboot() if told is None else from_plain(json.loads(told))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled back already
                    connection.execute("ROLLBACK")
                raise

    def _connected(self) -> sqlite3.Connection:
        """This process's connection; a forked child opens its own."""
        if self._connection is not None and self._pid != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        if self._connection is not None and self._is_removed():
            _LOG.warning("%s was removed while it was in use; it is made again", self._path)
            self._carried = self._all_told()
            self._written.clear()
            self._drop_connection()
        if self._connection is None:
            self._connection = self._opened()
            self._pid = os.getpid()
            self._file = _identity(self._path)
        return self._connection

    def _is_removed(self) -> bool:
        """Others would make the file anew, and know nothing of us."""
        now_s = self._now_s()
        if 0 <= now_s - self._looked_at_s < _CHECK_FILE_EVERY_S or self._only_look:
            return False
        self._looked_at_s = now_s
        return _identity(self._path) != self._file

    def _drop_connection(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._only_look:
            # not mode=ro, with which SQLite would leave its -wal and -shm files behind
            address = f"file:{quote(str(self._path))}?mode=rw"
            connection = sqlite3.connect(address, uri=True, timeout=_BUSY_S, check_same_thread=False)
            connection.execute("PRAGMA query_only = ON")
            return connection
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return _open(self._path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = self._path.with_suffix(f".broken-{os.getpid()}")
            _LOG.warning(
                "%s is not readable (%s); limits start anew, the file is kept as %s", self._path, error, aside
            )
            self._path.rename(aside)
            for beside in ("-wal", "-shm"):  # they belong to the pages that were there
                Path(f"{self._path}{beside}").unlink(missing_ok=True)
            return _open(self._path)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        with taking_turns(path.parent):
            use_journal(connection, "wal")  # on a network, too: there every machine has a file of its own
        connection.execute("PRAGMA synchronous = OFF")
        _make_table(connection)
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_table(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone()[0] != _FORM:
        connection.execute("DROP TABLE IF EXISTS scopes")
    connection.execute(_TABLES)
    connection.execute("DELETE FROM scopes WHERE used_at < ?", (time.time() - _FORGOTTEN_AFTER_S,))
    connection.execute(f"PRAGMA user_version = {_FORM}")
    connection.execute("COMMIT")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _dead(state: ScopeState, holders: set[str], now_s: float) -> list[str]:
    return [each for each in holders if not is_alive(each, unheard_s=state.unheard_s(each, now_s))]
