"""Keeps two runs of one experiment apart: a row names the holder, and a dead holder's row is taken over."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from evalve.clock import LOOP_CLOCK, Clock
from evalve.errors import Locked, StorageError
from evalve.storage.database import Database

_LOG = logging.getLogger(__name__)
_HEARTBEAT_S = 10.0
_SILENCE_S = 60.0
_SAME_START_S = 2.0  # two readings of one process's start differ when the machine's clock is corrected


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds an experiment, as its row says."""

    experiment: str
    token: str
    pid: int
    pid_started: float
    host: str
    holder: str
    acquired_at: str
    heartbeat_at: float

    def __str__(self) -> str:
        since = self.acquired_at[:19].replace("T", " ")
        return f"pid {self.pid} on {self.host} ({self.holder}) since {since} UTC"


class Locks:
    """The locks of one database."""

    def __init__(self, database: Database, *, clock: Clock = LOOP_CLOCK, heartbeat: bool = True) -> None:
        self._database = database
        self._clock = clock
        self._heartbeat = heartbeat
        self._held: dict[str, ExperimentLock] = {}

    def take(self, experiment: str, holder: str) -> ExperimentLock:
        now = self._clock.utc_now()
        me = Holder(
            experiment=experiment,
            token=uuid.uuid4().hex,
            pid=os.getpid(),
            pid_started=process_started(os.getpid()) or 0.0,
            host=socket.gethostname(),
            holder=holder,
            acquired_at=now.isoformat(),
            heartbeat_at=now.timestamp(),
        )
        with self._database.writing() as connection:
            other = self.live_holder(connection, experiment)
            if other is not None:
                raise Locked(
                    f"experiment {experiment!r} is being run by {other}; wait until it has ended,"
                    " or give this run another name with --experiment"
                )
            connection.execute(
                "INSERT OR REPLACE INTO locks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    experiment,
                    me.token,
                    me.pid,
                    me.pid_started,
                    me.host,
                    holder,
                    me.acquired_at,
                    me.heartbeat_at,
                ),
            )
        lock = self._held[me.token] = ExperimentLock(self, me, heartbeat=self._heartbeat)
        return lock

    def refuse_if_held(self, connection: sqlite3.Connection, experiment: str, *, to: str) -> None:
        """Raise `Locked` where a live run other than this store's own holds the experiment."""
        other = self.live_holder(connection, experiment)
        if other is not None and other.token not in self._held:
            raise Locked(
                f"experiment {experiment!r} is being run by {other};"
                f" stop it or wait until it has ended, then {to}"
            )

    def live_holder(self, connection: sqlite3.Connection, experiment: str) -> Holder | None:
        row = connection.execute(
            "SELECT experiment, token, pid, pid_started, host, holder, acquired_at, heartbeat_at"
            " FROM locks WHERE experiment = ?",
            (experiment,),
        ).fetchone()
        if row is None:
            return None
        holder = Holder(*row)
        now_s = self._clock.utc_now().timestamp()
        return holder if is_alive(holder, here=socket.gethostname(), now_s=now_s) else None

    def beat(self, token: str) -> bool:
        """Say that the holder lives; False where the lock is no longer its own."""
        now_s = self._clock.utc_now().timestamp()
        with self._database.writing() as connection:
            changed = connection.execute("UPDATE locks SET heartbeat_at = ? WHERE token = ?", (now_s, token))
            return changed.rowcount == 1

    def drop(self, token: str) -> None:
        self._held.pop(token, None)
        with self._database.writing() as connection:
            connection.execute("DELETE FROM locks WHERE token = ?", (token,))

    def release_all(self) -> None:
        for lock in [*self._held.values()]:
            lock.release()


class ExperimentLock:
    """Held until released; its heartbeat tells other machines that the holder lives."""

    def __init__(self, locks: Locks, holder: Holder, *, heartbeat: bool) -> None:
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
                    _LOG.warning("the lock on experiment %r has been taken over", self._holder.experiment)
                    return
            except StorageError as error:  # a busy or full disk; the next beat may succeed
                _LOG.warning("no heartbeat for experiment %r: %s", self._holder.experiment, error)


def process_started(pid: int) -> float | None:
    """When the process started, in seconds since 1970; None where it is gone."""
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_alive(
    holder: Holder,
    *,
    here: str,
    now_s: float,
    started: Callable[[int], float | None] = process_started,
) -> bool:
    """On this machine the process tells; of another machine only the heartbeat is seen."""
    if holder.host != here:
        return now_s - holder.heartbeat_at < _SILENCE_S
    started_s = started(holder.pid)
    return started_s is not None and abs(started_s - holder.pid_started) < _SAME_START_S
