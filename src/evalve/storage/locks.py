"""Keeps two runs of one experiment apart: a row names each holder, and dead holders' rows are taken over.

One run may be several processes: they hold the experiment as one party, until the last of them has ended.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields

from evalve import processes
from evalve.clock import LOOP_CLOCK, Clock
from evalve.errors import Locked, StorageError
from evalve.storage.database import Database

_LOG = logging.getLogger(__name__)
_HEARTBEAT_S = 10.0
_SILENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds an experiment, as its row says."""

    experiment: str
    token: str
    party: str
    """What the processes that hold it together have in common."""
    pid: int
    pid_started: float
    host: str
    holder: str
    acquired_at: str
    heartbeat_at: float

    def __str__(self) -> str:
        since = self.acquired_at[:19].replace("T", " ")
        return f"pid {self.pid} on {processes.host_of(self.host)} ({self.holder}) since {since} UTC"


_COLUMNS = ", ".join(field.name for field in fields(Holder))
_INSERT = f"INSERT INTO locks ({_COLUMNS}) VALUES ({', '.join('?' for _ in fields(Holder))})"


class Locks:
    """The locks of one database."""

    def __init__(self, database: Database, *, clock: Clock = LOOP_CLOCK, heartbeat: bool = True) -> None:
        self._database = database
        self._clock = clock
        self._heartbeat = heartbeat
        self._held: dict[str, ExperimentLock] = {}
        self._left_behind: set[str] = set()
        """Tokens of locks that were released, and whose rows could not be deleted."""
        self.lost: Locked | None = None
        """Where another run has taken a lock of ours: what would be added now belongs to two runs."""

    def take(self, experiment: str, holder: str, *, party: str | None = None) -> ExperimentLock:
        now = self._clock.utc_now()
        token = uuid.uuid4().hex
        me = Holder(
            experiment=experiment,
            token=token,
            party=party or token,
            pid=os.getpid(),
            pid_started=processes.own_start(),
            host=processes.here(),
            holder=holder,
            acquired_at=now.isoformat(),
            heartbeat_at=now.timestamp(),
        )
        with self._database.writing() as connection:
            live = self._live(connection, experiment)
            for other in live:
                if other.party != me.party:
                    raise Locked(
                        f"experiment {experiment!r} is being run by {other}; wait until it has ended,"
                        f" or give this run another name with --experiment{_unseen(other, now.timestamp())}"
                    )
            if not live:
                connection.execute("DELETE FROM locks WHERE experiment = ?", (experiment,))
            connection.execute(
                f"INSERT INTO locks ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(me)
            )
        self.lost = None
        lock = self._held[me.token] = ExperimentLock(self, me, heartbeat=self._heartbeat)
        return lock

    def refuse_if_held(self, connection: sqlite3.Connection, experiment: str, *, to: str) -> None:
        """Raise `Locked` where a live run other than this store's own holds the experiment."""
        other = self.live_holder(connection, experiment)
        if other is not None and other.party not in {lock.party for lock in self._held.values()}:
            raise Locked(
                f"experiment {experiment!r} is being run by {other};"
                f" stop it or wait until it has ended, then {to}"
            )

    def live_holder(self, connection: sqlite3.Connection, experiment: str) -> Holder | None:
        """The first of the party that holds the experiment."""
        return next(iter(self._live(connection, experiment)), None)

    def others_run(self, connection: sqlite3.Connection) -> bool:
        """Whether another process holds any experiment."""
        rows = connection.execute(f"SELECT {_COLUMNS} FROM locks").fetchall()
        here, now_s = processes.here(), self._clock.utc_now().timestamp()
        return any(
            (holder.host, holder.pid) != (here, os.getpid()) and is_alive(holder, here=here, now_s=now_s)
            for holder in [Holder(*row) for row in rows]
        )

    def _live(self, connection: sqlite3.Connection, experiment: str) -> list[Holder]:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM locks WHERE experiment = ? ORDER BY acquired_at", (experiment,)
        )
        here, now_s = processes.here(), self._clock.utc_now().timestamp()
        return [
            holder
            for row in rows
            if is_alive(holder := Holder(*row), here=here, now_s=now_s)
            and holder.token not in self._left_behind
        ]

    def beat(self, token: str) -> bool:
        """Say that the holder lives; False where the lock is no longer its own."""
        now_s = self._clock.utc_now().timestamp()
        with self._database.writing() as connection:
            changed = connection.execute("UPDATE locks SET heartbeat_at = ? WHERE token = ?", (now_s, token))
            return changed.rowcount == 1

    def note_lost(self, mine: Holder) -> None:
        """The row is gone; where another run has put its own in its place, ours stops."""
        with self._database.reading() as connection:
            others = [other for other in self._live(connection, mine.experiment) if other.party != mine.party]
        if others:
            self.lost = Locked(
                f"experiment {mine.experiment!r} has been taken over by {others[0]}, who could not see that"
                " this run lives; this one stops, and what it has recorded is kept: let one of them run to"
                " its end"
            )

    def drop(self, token: str) -> None:
        self._held.pop(token, None)
        self._left_behind.add(token)
        released = [*self._left_behind]
        try:
            with self._database.writing() as connection:
                connection.executemany("DELETE FROM locks WHERE token = ?", [(one,) for one in released])
        except StorageError as error:  # a full disk: this process knows, and others when it has ended
            _LOG.debug("a lock is left behind: %s", error)
        else:
            self._left_behind.difference_update(released)

    def release_all(self) -> None:
        for lock in [*self._held.values()]:
            lock.release()


def _unseen(holder: Holder, now_s: float) -> str:
    """What a person needs to know who has just seen it die: from here nobody can."""
    if holder.host == processes.here():
        return ""
    return (
        f". It runs in another container or on another machine, and was heard of"
        f" {max(0.0, now_s - holder.heartbeat_at):.0f} s ago: if it was killed, its lock is free after"
        f" {_SILENCE_S:.0f} s of silence"
    )


class ExperimentLock:
    """Held until released; its heartbeat tells other machines that the holder lives."""

    def __init__(self, locks: Locks, holder: Holder, *, heartbeat: bool) -> None:
        self.party = holder.party
        self._locks = locks
        self._holder = holder
        self._released = threading.Event()
        self._thread: threading.Thread | None = None
        if heartbeat:
            self._thread = threading.Thread(target=self._beat, name="evalve-lock", daemon=True)
            self._thread.start()

    def release(self) -> None:
        if self._released.is_set() or os.getpid() != self._holder.pid:  # a forked child holds nothing
            return
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        self._locks.drop(self._holder.token)

    def _beat(self) -> None:
        while not self._released.wait(_HEARTBEAT_S):
            try:
                if not self._locks.beat(self._holder.token):
                    self._locks.note_lost(self._holder)
                    return
            except StorageError as error:  # a busy or full disk; the next beat may succeed
                _LOG.warning("no heartbeat for experiment %r: %s", self._holder.experiment, error)


def is_alive(
    holder: Holder,
    *,
    here: str,
    now_s: float,
    started: Callable[[int], float | None] = processes.started,
) -> bool:
    return process_lives(
        holder.pid,
        holder.pid_started,
        on_this_machine=holder.host == here,
        silent_s=now_s - holder.heartbeat_at,
        started=started,
    )


def process_lives(
    pid: int,
    pid_started: float,
    *,
    on_this_machine: bool,
    silent_s: float,
    started: Callable[[int], float | None] = processes.started,
) -> bool:
    """Here the process tells; of another machine or container only the heartbeat is seen."""
    return processes.is_same(started(pid), pid_started) if on_this_machine else silent_s < _SILENCE_S
