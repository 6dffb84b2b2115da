"""Who is making a call now, among all processes: one row for each call in flight, in the cache database.

A lease of a dead process on this machine is taken over at once; of a process that cannot be seen from
here (another container), when it has not been renewed for a while, by the date. The date may be set while
calls are in flight, so of a process that is seen to live it says nothing: whether that one hangs, who waits
for it sees by whether the lease is renewed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from evalve import processes
from evalve.clock import LOOP_CLOCK, Clock
from evalve.gate.cache.writer import Writer

LASTS_S = 30.0
_RENEWED_EVERY_S = 10.0

_TAKE = """
    INSERT INTO leases (key, token, pid, pid_started, host, expires_at) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET token = excluded.token, pid = excluded.pid,
        pid_started = excluded.pid_started, host = excluded.host, expires_at = excluded.expires_at
    WHERE leases.token IN (excluded.token, ?)
        OR leases.host != excluded.host AND leases.expires_at NOT BETWEEN ? AND ?
"""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that makes calls."""

    token: str
    pid: int
    pid_started: float
    host: str
    lasts_until: float = 0.0
    """What the lease says now; another figure later, because the holder renews it."""


class Leases:
    """The leases of one process."""

    def __init__(self, writer: Writer, *, clock: Clock = LOOP_CLOCK) -> None:
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._held: set[bytes] = set()
        self._me: Holder | None = None
        self._closed = threading.Event()

    async def take(self, key: str, *, instead_of: Holder | None = None) -> Taken:
        """Ours, or whose it is; `instead_of` says whose lease counts for nothing.

        A cache that cannot be written keeps nobody from calling.
        """
        raw_key, me = bytes.fromhex(key), self._holder()
        with self._lock:
            self._held.add(raw_key)
        ignored = instead_of.token if instead_of is not None else me.token
        taken = await self._writer.do(_Take(raw_key, me, ignored, self._now_s()))
        return taken if taken is not None else Taken(None, cached=True)  # it may yet be read

    def give_up(self, key: str) -> None:
        """Let others have it. To be called also where `take` was cancelled: it may yet succeed."""
        raw_key = bytes.fromhex(key)
        with self._lock:
            self._held.discard(raw_key)
        self._writer.post(_GiveUp(raw_key, self._holder().token))

    def gone(self, key: str) -> None:
        """The lease went when the answer was kept, in the same transaction."""
        with self._lock:
            self._held.discard(bytes.fromhex(key))

    def is_dead(self, other: Holder) -> bool:
        me = self._holder()
        return is_dead(other, here=me.host)

    def close(self) -> None:
        self._closed.set()

    def _holder(self) -> Holder:
        if self._me is None or self._me.pid != os.getpid():
            with self._lock:
                if self._me is None or self._me.pid != os.getpid():
                    return self._introduced()
        return self._me

    def _introduced(self) -> Holder:
        pid = os.getpid()
        self._held = set()  # a forked child holds nothing
        self._me = Holder(uuid.uuid4().hex, pid, processes.started(pid) or 0.0, processes.here())
        threading.Thread(target=self._renew, name="evalve-leases", daemon=True).start()
        return self._me

    def _renew(self) -> None:
        """On a thread, so that a loop that is blocked for a minute does not lose its leases."""
        while not self._closed.wait(_RENEWED_EVERY_S):
            if self._held and self._me is not None:
                self._writer.post(_Renew(self._me.token, self._now_s()))

    def _now_s(self) -> float:
        return self._clock.utc_now().timestamp()


def is_dead(holder: Holder, *, here: str, started: Callable[[int], float | None] = processes.started) -> bool:
    """Whether it is known to be; of a process elsewhere nothing is known."""
    return holder.host == here and not processes.is_same(started(holder.pid), holder.pid_started)


@dataclass(slots=True)
class Taken:
    """What came of asking for a lease."""

    other: Holder | None
    """Who has it; `None` where it is ours."""
    cached: bool
    """Whether there is, or may be, an answer already."""


@dataclass(slots=True)
class _Take:
    key: bytes
    me: Holder
    ignored: str
    now_s: float

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> Taken:
        me, now_s = self.me, self.now_s
        # in here it costs a fifth of looking again from the caller's thread, which nearly never finds one
        cached = connection.execute("SELECT 1 FROM entries WHERE key = ?", (self.key,)).fetchone() is not None
        until_s = now_s + LASTS_S
        # one that lasts longer than any does was taken before the clock was set back
        lasting = (now_s, until_s + LASTS_S)
        values = (self.key, me.token, me.pid, me.pid_started, me.host, until_s, self.ignored, *lasting)
        if connection.execute(_TAKE, values).rowcount == 1:
            return Taken(None, cached)
        row = connection.execute(
            "SELECT token, pid, pid_started, host, expires_at FROM leases WHERE key = ?", (self.key,)
        ).fetchone()
        return Taken(Holder(*row), cached)


@dataclass(slots=True)
class _GiveUp:
    key: bytes
    token: str

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM leases WHERE key = ? AND token = ?", (self.key, self.token))


@dataclass(slots=True)
class _Renew:
    token: str
    now_s: float

    def prepare(self) -> None:
        """Nothing to prepare."""

    def apply(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE leases SET expires_at = ? WHERE token = ?", (self.now_s + LASTS_S, self.token)
        )
