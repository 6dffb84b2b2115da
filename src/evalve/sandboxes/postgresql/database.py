"""What an attempt is lent: a database of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import psycopg

from evalve.errors import LenderError
from evalve.sandboxes.postgresql.fingerprints import Fingerprint, fingerprint, fingerprint_as
from evalve.sandboxes.postgresql.sessions import OwnAsync, Savepoint, Session
from evalve.sandboxes.postgresql.steps import (
    Steps,
    drive,
    drive_async,
    ending_connections_of,
    rolling_back_prepared,
)
from evalve.secrecy import without_credentials


class Dsn(str):
    """An address with a password in it: the text where it is used, and no password where it is only shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_credentials(self))


class Database:
    """A PostgreSQL database that nobody else has.

    Where only `savepoint()` is used, everything is undone by rolling back. Whoever is given the address may
    commit and run DDL, and then the database is dropped.
    """

    def __init__(
        self,
        name: str,
        dsn: str,
        *,
        volatile: Sequence[str] = (),
        session: Session | None = None,
        look: Callable[[], Any] | None = None,
    ) -> None:
        self.name = name
        self._dsn = Dsn(dsn)
        self._volatile = tuple(volatile)
        self._session = session if session is not None else Session(dsn)
        self._look = look
        self.is_held = False
        """Whether somebody has had its address."""
        self.has_earlier = False
        """Whether samples before this one, in its lane, have left it what they did."""
        self._opened: list[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]] = []

    @property
    def dsn(self) -> str:
        """`postgresql://role:password@host:port/database?…`, for programs in any language."""
        self._hold()
        return self._dsn

    def connect(self, **options: Any) -> Any:
        """A psycopg connection: `with db.connect() as connection`, in async code `async with`, or `await`.

        `options` are those of `psycopg.connect`, as in `autocommit=True`.
        """
        self._hold()
        if _is_loop_running():
            return _Opening(self._dsn, options, self._opened)
        connection = psycopg.connect(self._dsn, **options)
        self._opened.append(connection)
        return connection

    def savepoint(self) -> Savepoint:
        """For one tool call, on a connection of evalve's own: `async with db.savepoint() as connection`.

        What it does stays until the sample ends, unless the block raises: then it is undone. Nothing of it is
        ever committed; `connection.commit()` does nothing.
        """
        return self._session.savepoint()

    def fingerprint(self) -> Any:
        """Its state now: a `Fingerprint`; in async code, `await` it."""
        if _is_loop_running():
            return self._fingerprint_async()
        return self._fingerprint_in_thread()

    def diff(self, expected: Fingerprint | Mapping[str, Any]) -> Any:
        """How it differs from an expected state, in words; empty where it does not. Async code awaits it.

        `expected` is a `Fingerprint`, or rows by table, in which tables and columns may be left out.
        """
        if _is_loop_running():
            return self._diff_async(expected)
        found: Fingerprint = self.fingerprint()
        return found.diff(expected)

    def __repr__(self) -> str:
        return f"<database {self.name}>"

    def __reduce__(self) -> Any:
        """To a worker process goes what it needs to connect."""
        self.is_held = True
        return _elsewhere, (self.name, str(self._dsn), self._volatile)

    async def close_opened(self) -> None:
        """Those that the function has left open."""
        for connection in self._opened:
            if isinstance(connection, psycopg.AsyncConnection):
                await connection.close()
            elif not connection.closed:
                connection.close()

    # -- one attempt of several that are lent it, one after another

    async def begin_part(self) -> bool:
        """Whether what is done from here on can be undone without what was done before."""
        if not self._session.is_open or self.is_held:
            return False
        await self._said(self._session.begin_part())
        return True

    async def undo_part(self) -> None:
        await self._said(self._session.undo_part())

    async def end_part(self, *, can_be_undone: bool) -> None:
        """Raises where its state may be lost."""
        await self.close_opened()
        if can_be_undone:
            await self._said(self._session.end_part())
        elif self._session.is_open:
            await self._said(_answering())
        elif self.is_held and self._look is not None:
            await asyncio.to_thread(self._look_into)

    async def _said(self, steps: Steps[None]) -> None:
        connection = self._session.connection
        if isinstance(connection, OwnAsync):
            await drive_async(connection, steps)
        else:
            assert isinstance(connection, psycopg.Connection)
            await asyncio.to_thread(drive, connection, steps)

    def _look_into(self) -> None:
        assert self._look is not None
        with self._look() as connection:
            drive(connection, _answering())

    def _hold(self) -> None:
        self.is_held = True
        self._session.abandon_kept()  # so that whoever has the address has all connections

    def _reading(self) -> Steps[Fingerprint]:
        return fingerprint(self._volatile)

    async def _diff_async(self, expected: Fingerprint | Mapping[str, Any]) -> str:
        return (await self._fingerprint_async()).diff(expected)

    async def _fingerprint_async(self) -> Fingerprint:
        if self._session.is_open and isinstance(self._session.connection, OwnAsync):
            return await drive_async(self._session.connection, self._reading())
        return await asyncio.to_thread(self._fingerprint_in_thread)

    def _fingerprint_in_thread(self) -> Fingerprint:
        if not self._session.is_open:
            return self._fingerprint_outside()
        if not isinstance(self._session.connection, psycopg.Connection):
            raise LenderError("tool calls of this sample were async: `await db.fingerprint()` where they are")
        return drive(self._session.connection, self._reading())

    def _fingerprint_outside(self) -> Fingerprint:
        """What has been committed, over a connection that the function's own limit does not count.

        Whoever still holds a lock on a table then loses what it has not committed.
        """
        if self._look is not None:
            with self._look() as connection:
                try:
                    return drive(connection, fingerprint_as(self.name, self._volatile))
                except psycopg.errors.LockNotAvailable:
                    connection.rollback()
                    drive(connection, ending_connections_of(self.name))
                    drive(connection, rolling_back_prepared())
                    return drive(connection, fingerprint_as(self.name, self._volatile))
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            return drive(connection, self._reading())


def _answering() -> Steps[None]:
    yield "SELECT 1"


class _Opening:
    """A connection that is about to be opened: awaited, or entered."""

    def __init__(self, dsn: str, options: Mapping[str, Any], opened: list[Any]) -> None:
        self._dsn = dsn
        self._options = options
        self._opened = opened
        self._connection: psycopg.AsyncConnection[Any] | None = None

    def __await__(self) -> Generator[Any, None, psycopg.AsyncConnection[Any]]:
        return self._open().__await__()

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        self._connection = await self._open()
        return await self._connection.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        assert self._connection is not None
        await self._connection.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"in async code, wait for the connection: `connection = await db.connect()`, then .{name}"
        )

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(self._dsn, **self._options)
        self._opened.append(connection)
        return connection


def _elsewhere(name: str, dsn: str, volatile: tuple[str, ...]) -> Database:
    return Database(name, dsn, volatile=volatile)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
