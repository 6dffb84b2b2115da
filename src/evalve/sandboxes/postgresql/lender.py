"""`evalve.sandboxes.postgres`: lends each attempt a PostgreSQL database in a known state. Start reading here.

A database is lent → the attempt uses it → it is rolled back, proven unchanged, or dropped and cloned anew.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from evalve.callers import at_caller, caller
from evalve.contracts import SampleContext
from evalve.errors import DeclarationError, LenderError, OptionError
from evalve.sandboxes.postgresql.copies import Copy, Walls
from evalve.sandboxes.postgresql.database import Database
from evalve.sandboxes.postgresql.kept import RESETS, Reset, reset_by
from evalve.sandboxes.postgresql.loan import Loan
from evalve.sandboxes.postgresql.pool import LEAST_SPARE, CopyPool
from evalve.sandboxes.postgresql.servers import Server, parsed
from evalve.sandboxes.postgresql.templates import Script, digest_of, read_script
from evalve.sandboxes.postgresql.tenancy import OWN_CONNECTIONS, Tenancy
from evalve.secrecy import discreet

WAITS_FOR_DATABASE = "database"
"""Why a sample waits (`Tally.waiting`) while others have all databases."""
_MOST = 16
"""Databases at once where nobody says how many."""


class Postgres:
    """Lends each attempt a database of its own; made by `evalve.sandboxes.postgres`."""

    def __init__(
        self,
        schema: str | os.PathLike[str],
        seed: str | os.PathLike[str] | None = None,
        *,
        url: str | None = None,
        size: int | None = None,
        walls: Walls | None = None,
        volatile: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise DeclarationError(f"size= is a whole number, 1 or more; got {size!r}")
        if url is not None:
            parsed(url)
        self._url = discreet(url)
        self._size = size
        self._walls = walls or Walls()
        self._volatile = tuple(volatile)
        self._scripts = tuple(_script(path, folder) for path in (schema, seed) if path is not None)
        self._connections_each = self._walls.connections
        """Of each database, so many count."""
        self._lock = threading.Lock()
        self._pool: CopyPool | None = None
        self._users = 0
        self._holders: set[tuple[Any, ...]] = set()

    @property
    def settings(self) -> dict[str, str]:
        """The state that samples begin with. Where the server is, and how large, is no part of that."""
        return {"state": digest_of(self._scripts)}

    def keeps_addresses(self) -> None:
        """Where attempts are told no address, evalve's own connection is the only one to a database."""
        self._connections_each = 1

    # -- a run

    async def run_begins(self, at_once: int | None = None) -> None:
        """Start the server, build the template and check that there is room, before anything is spent."""
        await asyncio.to_thread(self._begin, at_once if isinstance(at_once, int) else None)

    async def run_ends(self) -> str:
        """Drop everything, and say what the server then says is left."""
        return await asyncio.to_thread(self._end)

    def close(self) -> None:
        """Drop its databases, outside of runs."""
        with self._lock:
            self._users = min(self._users, 1)
        self._end()

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[Database]:
        pool = self._pool
        if pool is None:
            pool = await context.parked(asyncio.to_thread(self._opened), WAITS_FOR_DATABASE)
        attempt = (context.experiment, context.evaluation_key, context.sample_id, context.repeat)
        if context.surroundings is not None and attempt in self._holders:
            raise LenderError(
                f"{context.argument!r} and another argument are one lender: samples would wait for each "
                "other; give each argument its own evalve.sandboxes.postgres(…)"
            )
        self._holders.add(attempt)
        try:
            copy = await _taken(pool, context)
            loan = Loan(pool, copy, context, self._volatile)
            try:
                yield loan.database
            except BaseException as error:
                await loan.give_back(error)
                raise
            await loan.give_back()
        finally:
            self._holders.discard(attempt)

    # -- in threads

    def _begin(self, at_once: int | None) -> None:
        pool = self._opened(at_once)
        with self._lock:
            self._users += 1
        try:
            pool.warm_up(min(at_once or 1, pool.size))
        except BaseException:
            self._end()
            raise

    def _opened(self, at_once: int | None = None) -> CopyPool:
        with self._lock:
            if self._pool is None:
                tenancy = tenancy_at(self._url)
                tenancy.open()
                size = self._fitting(tenancy, at_once)
                pool = CopyPool(tenancy, self._scripts, self._walls, size)
                pool.template()
                tenancy.reserve(size * self._connections_each + OWN_CONNECTIONS)
                self._pool = pool
            return self._pool

    def _fitting(self, tenancy: Tenancy, at_once: int | None) -> int:
        """How many databases there may be: all their roles may use all of their connections at once."""
        room = tenancy.room()
        each = self._connections_each
        at_once = at_once or _MOST
        wanted = self._size or min(_MOST, at_once + max(LEAST_SPARE, at_once // 4))
        fitting = (room.free - OWN_CONNECTIONS) // each
        if fitting >= wanted or (self._size is None and fitting >= 1):
            return min(wanted, fitting)
        databases = "1 database" if wanted == 1 else f"{wanted} databases"
        raise OptionError(
            f"{tenancy.server.shown} has too few connections: {databases} with {each} each, and "
            f"{OWN_CONNECTIONS} of evalve's own, are {wanted * each + OWN_CONNECTIONS}, and "
            f"{max(0, room.free)} are free ({room.words}); lower size= or connections=, or raise "
            "max_connections"
        )

    def _end(self) -> str:
        with self._lock:
            self._users = max(0, self._users - 1)
            if self._users or self._pool is None:
                return ""
            pool, self._pool = self._pool, None
        pool.close()
        left = pool.tenancy.left_in_words(pool.size * self._connections_each + OWN_CONNECTIONS)
        return f"postgres: {left} ({pool.counts})"


async def _taken(pool: CopyPool, context: SampleContext) -> Copy:
    asked: Future[Copy] = pool.take()
    if asked.done():
        return asked.result()
    try:
        return await context.parked(asyncio.wrap_future(asked), WAITS_FOR_DATABASE)
    except BaseException:
        if not asked.cancel() and asked.exception() is None:
            pool.give_back(asked.result(), "clean")  # it came in the same moment
        raise


def _script(path: str | os.PathLike[str], folder: Path | None) -> Script:
    meant = Path(path).expanduser()
    candidates = [Path.cwd() / meant, *([] if folder is None else [folder.absolute() / meant])]
    for candidate in candidates:
        if candidate.is_file():
            return read_script(candidate)
    looked = " and in ".join(dict.fromkeys(str(candidate.parent) for candidate in candidates))
    raise DeclarationError(f"there is no file {str(path)!r}; looked in {looked}")


# -- the process


def tenancy_at(url: str | None) -> Tenancy:
    """This process's own at that server."""
    with _LOCK:
        key = os.getpid(), url
        if key not in _TENANCIES:
            _TENANCIES[key] = tenancy = Tenancy(Server(url))
            atexit.register(tenancy.close)
        return _TENANCIES[key]


def close_all() -> None:
    """Leave every server, and nothing on it."""
    with _LOCK:
        mine = [key for key in _TENANCIES if key[0] == os.getpid()]
        closing = [_TENANCIES.pop(key) for key in mine]
    for tenancy in closing:
        atexit.unregister(tenancy.close)
        tenancy.close()


_TENANCIES: dict[tuple[int, str | None], Tenancy] = {}
"""Locks and connections belong to the process."""
_LOCK = threading.Lock()


def postgres(
    schema: str | os.PathLike[str],
    seed: str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    size: int | None = None,
    connections: int = 5,
    statement_timeout_s: float = 30.0,
    lock_timeout_s: float = 10.0,
    idle_in_transaction_timeout_s: float = 600.0,
    volatile: Sequence[str] = (),
    reset: Reset = "conversation",
) -> Any:
    """For an argument of an evaluation: each attempt is lent a PostgreSQL database that these files describe.

    `schema` and `seed` are files of SQL. `url` is a server, where the user may make databases and roles;
    without it, an embedded one is started. There are at most `size` databases, with `connections` each.

    With `reset="lane"`, the samples of a lane are lent the same database, one after another, and find what
    those before them left; with `reset="never"`, all samples are, as one lane.
    """
    __tracebackhide__ = True  # of a mistake, pytest shows the line that a person wrote
    if reset not in RESETS:
        raise at_caller(DeclarationError(f"reset= is one of: {', '.join(RESETS)}; got {reset!r}"))
    try:
        lender = Postgres(
            schema,
            seed,
            url=url,
            size=size,
            walls=Walls(connections, statement_timeout_s, lock_timeout_s, idle_in_transaction_timeout_s),
            volatile=volatile,
            folder=Path(caller().rpartition(":")[0]).parent,
        )
    except DeclarationError as error:
        raise at_caller(error) from None
    return reset_by(lender, reset)
