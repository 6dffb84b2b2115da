"""Limits shared by every process of a person on one machine, in one small SQLite database.

It has no server and needs no configuration. Its file is its own: beside the cache's writers, a booking
waited eight times as long. Nothing in it must survive a power cut, so nothing is synced to disk.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import quote

from evalve.gate.booking import Booking, ScopeState
from evalve.gate.holders import in_words, is_alive, name_of
from evalve.gate.messages import Cost, Limits
from evalve.gate.plain_state import from_plain, to_plain
from evalve.gate.state import ScopeView, Settlement, apply
from evalve.gate.wakeups import Wakeups

_LOG = logging.getLogger(__name__)
_encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

_TABLES = """
CREATE TABLE IF NOT EXISTS scopes (
    scope TEXT PRIMARY KEY,
    boot TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    used_at REAL NOT NULL
) WITHOUT ROWID
"""
_CHECK_HOLDERS_EVERY_S = 5.0
_ASK_AGAIN_UNTOLD_S = 0.1
"""When a place is asked for again where nobody can tell of it."""
_NUMBERS = count()
_INHERITED: list[sqlite3.Connection] = []
"""Connections that a fork copied: closing them here would disturb the parent."""


def machine_now_s() -> float:
    """Seconds since the machine started: the same clock in every process, whatever becomes of the date."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@cache
def boot_id() -> str:
    """Tells one start of the machine from the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(round((time.time() - time.monotonic()) / 60))


class SqliteState:
    """Any thread and any event loop may use it; a transaction takes about a tenth of a millisecond."""

    def __init__(
        self,
        path: Path,
        *,
        now_s: Callable[[], float] = machine_now_s,
        boot: str | None = None,
        only_look: bool = False,
    ) -> None:
        """With `only_look` nothing is made or repaired: what is there is read, or raises `sqlite3.Error`."""
        self._path = path
        self._only_look = only_look
        self._now_s = now_s
        self._boot = boot or boot_id()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self._number = next(_NUMBERS)
        self._tell: list[Callable[[], object]] = []
        self._wakeups = Wakeups(path.with_suffix(".waiting"), self._tell_of_place)
        self._checked_at_s: dict[str, float] = {}
        self._written: dict[str, tuple[str, ScopeState]] = {}
        """What this process wrote last: mostly nobody else has written since, and it need not be read."""

    def now_s(self) -> float:
        return self._now_s()

    async def exchange(
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

    async def give_up(self, scope: str) -> None:
        with self._transaction() as connection:
            state = self._read(connection, scope, known=self._written.pop(scope, None))
            state.line.leave(self._me())
            told = state.offer_places(self._now_s())
            self._write(connection, scope, state)
        self._wake(told)

    def on_place(self, tell: Callable[[], object]) -> None:
        self._tell.append(tell)

    async def version(self, scope: str) -> int:
        with self._lock:
            row = self._connected().execute("SELECT version FROM scopes WHERE scope = ?", (scope,)).fetchone()
        return row[0] if row is not None else 0

    async def peek(self, scope: str) -> ScopeState:
        with self._lock:
            return self._read(self._connected(), scope)

    async def views(self) -> list[ScopeView]:
        with self._lock:
            names = [name for (name,) in self._connected().execute("SELECT scope FROM scopes ORDER BY scope")]
            states = {name: self._read(self._connected(), name) for name in names}
        now_s = self._now_s()
        for state in states.values():
            for holder in [holder for holder in state.holders if not is_alive(holder)]:
                state.forget_holder(holder)
        return [
            ScopeView(name, state, now_s, {holder: in_words(holder) for holder in state.holders})
            for name, state in states.items()
        ]

    async def forget(self, scope: str) -> None:
        """Limits, pauses and leases of a scope are learnt anew; calls in flight are not disturbed."""
        with self._transaction() as connection:
            told = list(self._read(connection, scope).line.waits)
            connection.execute("DELETE FROM scopes WHERE scope = ?", (scope,))
        self._wake(told)

    async def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None
            self._wakeups.close()

    def _me(self) -> str:
        """Who holds and waits: this process, and which of its states if it has several."""
        return f"{name_of(os.getpid())}:{self._number}"

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
        dead = [holder for holder in others if not is_alive(holder)]
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

    def _read(
        self, connection: sqlite3.Connection, scope: str, *, known: tuple[str, ScopeState] | None = None
    ) -> ScopeState:
        row = connection.execute("SELECT boot, state FROM scopes WHERE scope = ?", (scope,)).fetchone()
        if row is None:
            return ScopeState()
        if known is not None and known[0] == row[1] and row[0] == self._boot:
            return known[1]
        try:
            state = from_plain(json.loads(row[1]))
        except (ValueError, KeyError, TypeError, IndexError):
            return ScopeState()  # written by another version: limits are learnt anew
        return state if row[0] == self._boot else state.after_reboot()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def _connected(self) -> sqlite3.Connection:
        """This process's connection; a forked child opens its own."""
        if self._connection is not None and self._pid != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        if self._connection is None:
            self._connection = self._opened()
            self._pid = os.getpid()
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        if self._only_look:
            # not mode=ro, with which SQLite would leave its -wal and -shm files behind
            address = f"file:{quote(str(self._path))}?mode=rw"
            connection = sqlite3.connect(address, uri=True, timeout=30, check_same_thread=False)
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
            return _open(self._path)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        _switch_to_wal(connection, path.parent)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(_TABLES)
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection, directory: Path) -> None:
    """In turns: SQLite does not wait when two connections switch at once, and processes start together."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        os.close(descriptor)
