"""One database, lent to one attempt and given back by the cheapest way that is sure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Literal

import psycopg

from evalve.contracts import SampleContext
from evalve.errors import LenderError, SampleTimeout
from evalve.sandboxes.postgresql.copies import Copy
from evalve.sandboxes.postgresql.database import Database
from evalve.sandboxes.postgresql.pool import CopyPool, Returned
from evalve.sandboxes.postgresql.sessions import Own, OwnAsync, Session
from evalve.sandboxes.postgresql.steps import drive, drive_async

_NAME_BYTES = 63
"""What PostgreSQL keeps of an application's name."""


class Loan:
    """One database, lent to one attempt."""

    def __init__(self, pool: CopyPool, copy: Copy, context: SampleContext, volatile: Sequence[str]) -> None:
        self._pool = pool
        self._copy = copy
        self._context = context
        tenancy = pool.tenancy
        name = f"evalve {tenancy.run} {context.sample_id}"
        if context.repeat:
            name += f" {context.repeat}"
        application = name.encode()[:_NAME_BYTES].decode(errors="ignore")
        dsn = tenancy.server.dsn(copy.name, copy.password, copy.name, application)
        self._session = Session(dsn, copy.kept, application)
        copy.kept = None
        self.database = Database(
            copy.name, dsn, volatile=volatile, session=self._session, look=partial(tenancy.look, copy.name)
        )

    async def give_back(self, error: BaseException | None = None) -> None:
        """By the cheapest way that is sure. After an error nobody knows what is still going on."""
        has_raised = error is not None
        how: Literal["rolled back", "unused", "handed back", "dropped"] = "dropped"
        state: Returned = "dirty"
        wrong: list[str] | None = None
        is_used = self._session.is_open or has_raised
        try:
            if self._session.is_open and not self.database.is_held and not has_raised:
                wrong = await self._rolled_back()
            if wrong == []:
                how, state = "rolled back", "clean"
            elif await asyncio.to_thread(self._pool.tenancy.is_lost, self._copy.generation):
                raise LenderError("the server was lost while the sample had a database of it")
            elif self.database.is_held and not has_raised:  # else it may still go on, in a thread
                how, state = "handed back", "held"
            elif not is_used:
                how, state = "unused", "clean"
        finally:
            goes_on = isinstance(error, SampleTimeout | asyncio.CancelledError)
            await self._close(keep=state == "clean", in_thread=goes_on)
            self._context.lent["database"] = self._copy.name
            self._context.lent["reset"] = how
            if wrong:
                self._pool.quarantine(self._copy, ", ".join(wrong))
            else:
                self._pool.give_back(self._copy, state)
                self._pool.count(how)
        if wrong:
            raise LenderError(
                f"after it was rolled back, {self._copy.name} was not what it had been ({', '.join(wrong)}): "
                "somebody else wrote into it, and the sample's result cannot be trusted"
            )

    async def _rolled_back(self) -> list[str] | None:
        steps = self._session.end(self._copy.parts)
        connection = self._session.connection
        try:
            if isinstance(connection, OwnAsync):
                return await drive_async(connection, steps)
            assert isinstance(connection, Own)
            return await asyncio.to_thread(drive, connection, steps)
        except psycopg.Error:
            return None  # its backend was ended, or refuses: the database is dropped

    async def _close(self, *, keep: bool, in_thread: bool) -> None:
        try:
            await self.database.close_opened()
        finally:  # nothing here waits: a second cancellation finds nothing left open
            connection = self._session.connection
            if connection is not None:
                connection.is_lent = False
            if keep:
                self._copy.kept = self._session.kept()
            elif connection is None:
                self._session.abandon_kept()
            elif isinstance(connection, OwnAsync) or not in_thread:
                connection.pgconn.finish()
            # else the function may still use it: it ends when the database is dropped
