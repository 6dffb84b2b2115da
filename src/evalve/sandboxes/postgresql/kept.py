"""`reset="lane"` and `reset="never"`: a database that the samples of a lane are lent one after another.

Each begins with what those before it left. A try that fails is undone where evalve holds the transaction;
where it may have committed by itself, the state is lost, and what follows in the lane cannot begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from evalve.contracts import SampleContext
from evalve.errors import LaneLost, LenderError, OptionError, SampleTimeout
from evalve.sandboxes.postgresql.database import Database

if TYPE_CHECKING:
    from evalve.sandboxes.postgresql.lender import Postgres

Lane = tuple[str, str, str, int]
"""Experiment, evaluation, lane, repeat."""


@dataclass(slots=True)
class _Held:
    """What a lane has."""

    manager: AbstractAsyncContextManager[Any]
    database: Database
    attempts: int = 0
    """How many have ended in order, and left their changes."""
    can_undo: bool = False
    """Whether the attempt that runs can be undone by itself."""


Reset = Literal["conversation", "lane", "never"]
RESETS: tuple[Reset, ...] = ("conversation", "lane", "never")


def reset_by(lender: Postgres, reset: Reset) -> Postgres | KeptPostgres:
    """The lender, for attempts that each begin anew, or that share a database through a lane or a run."""
    if reset == "conversation":
        return lender
    return KeptPostgres(lender, "lane" if reset == "lane" else "run")


class KeptPostgres:
    """Lends all attempts of a lane, or of a run, the same database; `Postgres` lends it and resets it."""

    def __init__(self, lender: Postgres, kept_through: Literal["lane", "run"]) -> None:
        self.kept_through = kept_through
        self._lender = lender
        self._held: dict[Lane, _Held] = {}
        self._lost: dict[Lane, str] = {}

    @property
    def settings(self) -> dict[str, str]:
        return {**self._lender.settings, "reset": "lane" if self.kept_through == "lane" else "never"}

    async def run_begins(self, at_once: int | None = None) -> None:
        await self._lender.run_begins(1 if self.kept_through == "run" else at_once)

    async def run_ends(self) -> str:
        """Also where lanes were not run to their ends."""
        told = []
        for lane in list(self._held):
            try:
                await self._give_back(lane, None)
            except LenderError as error:
                told.append(f"lane {lane[2]!r}: {error}")
        self._lost.clear()
        return "\n".join([*told, await self._lender.run_ends()])

    def close(self) -> None:
        self._lender.close()

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[Database]:
        if context.lane is None:
            raise OptionError(f"{context.argument!r} is kept through lanes, and the evaluation has none")
        lane = (context.experiment, context.evaluation_key, context.lane.name, context.lane.repeat)
        if lane in self._lost:
            raise LaneLost(self._lost[lane])
        held = await self._begun(lane, context)
        context.lent["database"] = held.database.name
        context.lent["kept"] = f"after {held.attempts} of its lane"
        try:
            yield held.database
        except BaseException as error:
            await self._undo(lane, held, context, error)
            raise
        else:
            if context.ended in ("failed", "retried"):
                await self._undo(lane, held, context, None)
            else:
                await self._end(lane, held, context)
        finally:
            if context.lane.is_ending and context.ended != "retried":
                await self._end_lane(lane, context)

    async def _end_lane(self, lane: Lane, context: SampleContext) -> None:
        try:
            await self._give_back(lane, None)
        except LenderError as error:  # it was not what it had been: nothing of the lane can be trusted
            await self._lose(lane, context, error)
            raise

    async def _begun(self, lane: Lane, context: SampleContext) -> _Held:
        held = self._held.get(lane)
        if held is None:
            manager = self._lender.lend(replace(context, lent={}))
            held = self._held[lane] = _Held(manager, await manager.__aenter__())
            return held
        try:
            held.can_undo = await held.database.begin_part()
        except psycopg.Error as error:
            await self._lose(lane, context, error)
            raise LaneLost(self._lost[lane]) from error
        return held

    async def _end(self, lane: Lane, held: _Held, context: SampleContext) -> None:
        try:
            await held.database.end_part(can_be_undone=held.can_undo)
        except (psycopg.Error, LenderError) as error:
            await self._lose(lane, context, error)
            raise LenderError(self._lost[lane]) from error
        held.attempts += 1
        held.database.has_earlier = True

    async def _undo(
        self, lane: Lane, held: _Held, context: SampleContext, error: BaseException | None
    ) -> None:
        may_go_on = isinstance(error, SampleTimeout | asyncio.CancelledError)
        if not held.attempts:
            await self._give_back(lane, error)  # the next try begins with another, which is the same
        elif held.database.is_held or may_go_on:
            await self._lose(lane, context, error)
        elif held.can_undo:
            try:
                await held.database.undo_part()
            except psycopg.Error as refused:
                await self._lose(lane, context, refused)
        else:
            await self._give_back(lane, error)  # those before it have changed nothing

    async def _lose(self, lane: Lane, context: SampleContext, error: BaseException | None) -> None:
        why = "" if error is None else f" ({type(error).__name__}: {error})".replace("\n", " ")
        self._lost[lane] = (
            f"the state of lane {lane[2]!r} was lost with sample {context.sample_id!r}{why}: what it did"
            " could not be undone, and samples after it would begin with that; run the experiment again: the"
            " lane is then run from its first sample, its calls answered by the cache"
        )
        await self._give_back(lane, error)

    async def _give_back(self, lane: Lane, error: BaseException | None) -> None:
        held = self._held.pop(lane, None)
        if held is None:
            return
        try:
            await held.manager.__aexit__(None if error is None else type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise
