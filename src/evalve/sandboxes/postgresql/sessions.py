"""Evalve's own connection to a lent database: one transaction, a savepoint for each tool call, no commit.

The transaction sets a mark that ends with it. Whoever commits or rolls back in SQL takes the mark away,
which is how it is known at the end that rolling back was enough.
"""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from evalve.errors import LenderError
from evalve.sandboxes.postgresql.checksums import Parts, reset_and_check
from evalve.sandboxes.postgresql.steps import Steps, drive, drive_async, quoted

T = TypeVar("T")

_SAVEPOINT = "evalve_call"
_UNDO = f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}; RELEASE SAVEPOINT {_SAVEPOINT}"
_CHECK = (
    # deferred constraints, as a commit would; then they are deferred again
    "SAVEPOINT evalve_check; SET CONSTRAINTS ALL IMMEDIATE;"
    " ROLLBACK TO SAVEPOINT evalve_check; RELEASE SAVEPOINT evalve_check"
)
_PART = "evalve_part"
_MARK = "evalve.transaction"
_IDLE = "idle_in_transaction_session_timeout"


class _Kept:
    """Of a connection that is not the tool's own: nothing that is called on it ends the transaction."""

    is_lent = False


class Own(psycopg.Connection[Any], _Kept):
    """`commit()` does nothing: what a tool did stays anyway. `rollback()` undoes the tool's call."""

    def commit(self) -> None:
        if not self.is_lent:
            super().commit()

    def rollback(self) -> None:
        if self.is_lent:
            self.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        else:
            super().rollback()

    def close(self) -> None:
        if not self.is_lent:
            super().close()


class OwnAsync(psycopg.AsyncConnection[Any], _Kept):
    """The same for asyncio."""

    async def commit(self) -> None:
        if not self.is_lent:
            await super().commit()

    async def rollback(self) -> None:
        if self.is_lent:
            await self.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        else:
            await super().rollback()

    async def close(self) -> None:
        if not self.is_lent:
            await super().close()


class KeptConnection(NamedTuple):
    """Of an attempt that was rolled back, for the next one."""

    connection: Own | OwnAsync
    loop: asyncio.AbstractEventLoop | None
    """On which alone an async one works."""


class Session:
    """One transaction of one attempt, on a connection that may serve the next attempt too."""

    def __init__(self, dsn: str, kept: KeptConnection | None = None, application: str | None = None) -> None:
        self._dsn = dsn
        self._application = application
        self._mark = os.urandom(8).hex()
        self._kept = kept
        self.connection: Own | OwnAsync | None = None
        self.is_open = False
        self.has_committed = False
        self._calls = threading.Lock()
        self._turns: asyncio.Lock | None = None
        self._caller: object = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def savepoint(self) -> Savepoint:
        return Savepoint(self)

    def kept(self) -> KeptConnection | None:
        """For the next session: the connection that was used, or the one that was not."""
        if self.connection is None:
            return self._kept
        mine = KeptConnection(self.connection, self._loop)
        if _is_as_opened(self.connection):
            # what tools have registered; psycopg makes another one when it is needed
            setattr(self.connection, "_adapters", None)  # noqa: B010 (it is psycopg's own)
            return mine
        abandon(mine)
        return None

    def abandon_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            abandon(kept)

    def _take_kept(self, loop: asyncio.AbstractEventLoop | None) -> Own | OwnAsync | None:
        kept, self._kept, self._loop = self._kept, None, loop
        if kept is None:
            return None
        if kept.loop is loop and not kept.connection.closed:
            return kept.connection
        abandon(kept)
        return None

    # -- a call, sync

    def begin_call(self) -> Own:
        if self._caller == threading.get_ident():
            raise _inside_another()
        self._calls.acquire()
        self._caller = threading.get_ident()
        try:
            if self.connection is None:
                self.connection = self._take_kept(None) or Own.connect(
                    self._dsn, autocommit=True, prepare_threshold=None
                )
            if not isinstance(self.connection, Own):
                raise LenderError("the session of this database is async: use `async with db.savepoint()`")
            drive(self.connection, self._beginning())
            return self.connection
        except BaseException:
            self._caller = None
            self._calls.release()
            raise

    def end_call(self, has_failed: bool) -> None:
        assert isinstance(self.connection, Own)
        try:
            self.connection.is_lent = False
            try:
                drive(self.connection, self._ending_call(has_failed))
            except psycopg.Error:
                drive(self.connection, self._undoing_call())
                raise
        finally:
            self._caller = None
            self._calls.release()

    # -- a call, async

    async def begin_call_async(self) -> OwnAsync:
        task = asyncio.current_task()
        if self._caller is task:
            raise _inside_another()
        self._turns = self._turns or asyncio.Lock()
        await self._turns.acquire()
        self._caller = task
        try:
            if self.connection is None:
                self.connection = self._take_kept(asyncio.get_running_loop()) or await OwnAsync.connect(
                    self._dsn, autocommit=True, prepare_threshold=None
                )
            if not isinstance(self.connection, OwnAsync):
                raise LenderError("the session of this database is sync: use `with db.savepoint()`")
            await drive_async(self.connection, self._beginning())
            return self.connection
        except BaseException:
            self._caller = None
            self._turns.release()
            raise

    async def end_call_async(self, has_failed: bool) -> None:
        assert isinstance(self.connection, OwnAsync) and self._turns is not None
        try:
            self.connection.is_lent = False
            try:
                await drive_async(self.connection, self._ending_call(has_failed))
            except psycopg.Error:
                await drive_async(self.connection, self._undoing_call())
                raise
        finally:
            self._caller = None
            self._turns.release()

    # -- what is said to the server

    def _beginning(self) -> Steps[None]:
        assert self.connection is not None
        if not self.is_open or self._status() is TransactionStatus.IDLE:
            # it stands idle through every call to a model, however long limits hold that back
            begin = f"BEGIN; SET LOCAL {_MARK} = '{self._mark}'; SET LOCAL {_IDLE} = 0"
            if self._application is not None:  # the connection may have been another sample's
                begin += f"; SET LOCAL application_name = {quoted(self._application)}"
            yield begin
            self.is_open = True
        yield f"SAVEPOINT {_SAVEPOINT}"
        self.connection.is_lent = True

    def _ending_call(self, has_failed: bool) -> Steps[None]:
        status = self._status()
        if status is TransactionStatus.IDLE:
            self.has_committed = True  # in SQL; the next call begins another transaction
        elif has_failed or status is TransactionStatus.INERROR:
            yield _UNDO
        else:
            yield f"{_CHECK}; RELEASE SAVEPOINT {_SAVEPOINT}"

    def _undoing_call(self) -> Steps[None]:
        """Of a call that a check at its end refuses, as a commit would."""
        if self._status() is TransactionStatus.INERROR:
            yield _UNDO

    def begin_part(self) -> Steps[None]:
        """From here on, what is done can be undone without what was done before."""
        yield f"SAVEPOINT {_PART}"

    def undo_part(self) -> Steps[None]:
        """Raises where somebody has committed, or the connection is gone."""
        yield f"ROLLBACK TO SAVEPOINT {_PART}; RELEASE SAVEPOINT {_PART}"

    def end_part(self) -> Steps[None]:
        yield f"RELEASE SAVEPOINT {_PART}"

    def end(self, expected: Parts) -> Steps[list[str] | None]:
        """Undo everything. `None` where that is not enough, else what is not as it was."""
        self.is_open = False
        if self._status() in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            yield "SELECT 1"  # raises where the connection is gone
            return None
        if self._status() is TransactionStatus.INTRANS:
            [(mark,)] = yield f"SELECT pg_catalog.current_setting('{_MARK}', true); ROLLBACK"
            self.has_committed = self.has_committed or mark != self._mark
        else:
            yield "ROLLBACK"
        if self.has_committed:
            return None
        yield "DISCARD ALL"
        wrong = yield from reset_and_check(expected)
        return wrong

    def _status(self) -> TransactionStatus:
        assert self.connection is not None
        return self.connection.info.transaction_status


class Savepoint:
    """One tool call: what it did stays for the rest of the sample, or is undone if it raised."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Own:
        return self._session.begin_call()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.end_call(has_failed=kind is not None)

    async def __aenter__(self) -> OwnAsync:
        return await self._session.begin_call_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.end_call_async(has_failed=kind is not None)


def _is_as_opened(connection: Own | OwnAsync) -> bool:
    """Whether tools have left no settings of their own on the object."""
    return (
        connection.row_factory is tuple_row
        and connection.cursor_factory in (psycopg.Cursor, psycopg.AsyncCursor)
        and connection.prepare_threshold is None
        and not getattr(connection, "_notice_handlers", ())
        and not getattr(connection, "_notify_handlers", ())
    )


def abandon(kept: KeptConnection) -> None:
    """Close it, on whatever loop or none."""
    kept.connection.pgconn.finish()


def _inside_another() -> LenderError:
    return LenderError(
        "db.savepoint() inside db.savepoint(): a tool call is one savepoint; end the first one"
    )
