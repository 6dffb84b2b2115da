"""What one try is lent of the evaluation's lenders, taken before it and given back after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from evalve.contracts import Lender, SampleContext
from evalve.errors import InfrastructureError, LenderError
from evalve.runner.failing import is_skip

_PASSING = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


@asynccontextmanager
async def lenders_of_run(
    lenders: Mapping[str, Lender], at_once: int | None, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """In the block, those that want to know are ready for the run; what they say at its end is told."""
    begun: list[Any] = []
    try:
        for lender in {id(one): one for one in lenders.values()}.values():
            if hasattr(type(lender), "run_begins"):
                await lender.run_begins(at_once)  # type: ignore[attr-defined]
                begun.append(lender)
        yield
    finally:
        for lender in reversed(begun):
            if text := await lender.run_ends():
                tell(text)


@dataclass(slots=True)
class _Loan:
    """Something that is lent now."""

    lender: Lender
    context: SampleContext
    """The try's, with a `lent` of the lender's own."""
    manager: AbstractAsyncContextManager[Any]


class Loans:
    """Entered and left in one task, as what a lender writes with `async with` needs it."""

    def __init__(self, lenders: Mapping[str, Lender], context: SampleContext) -> None:
        self._lenders = lenders
        self._context = context
        self._taken: list[_Loan] = []

    async def take(self) -> dict[str, Any]:
        """Something of each lender, by argument; a `LenderError` where one cannot lend.

        A lender may also skip the sample: `pytest.skip` passes as it is.
        """
        lent = {}
        for name, lender in self._lenders.items():
            context = replace(self._context, lent={}, argument=name)
            try:
                manager = lender.lend(context)
                if not hasattr(manager, "__aenter__"):
                    raise _no_manager(manager)
                lent[name] = await manager.__aenter__()
            except _PASSING:
                raise
            except BaseException as error:  # the boundary of a lender: the sample may be tried again
                if is_skip(error):
                    raise
                raise _failed(error, f"{name!r} could not be lent", lender) from error
            self._taken.append(_Loan(lender, context, manager))
        return lent

    async def give_back(self, error: BaseException | None) -> LenderError | None:
        """Give everything back, the last first; the first failure of it is returned.

        `error` is what the function raised, for lenders that act on it. They cannot make it undone.
        """
        failure: LenderError | None = None
        cancelled: asyncio.CancelledError | None = None
        while self._taken:
            loan = self._taken.pop()
            name = loan.context.argument
            loan.context.ended = self._context.ended if failure is None else "failed"
            kind = None if error is None else type(error)
            trace = None if error is None else error.__traceback__
            try:
                await loan.manager.__aexit__(kind, error, trace)
            except asyncio.CancelledError as raised:
                if raised is not error:
                    cancelled = raised
            except BaseException as raised:
                if raised is not error and failure is None:
                    failure = _failed(raised, f"{name!r} could not be taken back", loan.lender)
                    failure.__cause__ = raised
            if loan.context.lent:
                self._context.lent[name] = loan.context.lent
        if cancelled is not None:
            raise cancelled
        return failure


def _no_manager(returned: object) -> TypeError:
    close = getattr(returned, "close", None)
    if callable(close):
        close()  # a coroutine: or Python warns later, far from here, that it was never awaited
    return TypeError(
        f"lend() returned a {type(returned).__name__}, where an async context manager is needed: write it as "
        "`async def` with one `yield`, under @contextlib.asynccontextmanager"
    )


def _failed(error: BaseException, what: str, lender: Lender) -> LenderError:
    if isinstance(error, LenderError):
        return error
    said = str(error) if isinstance(error, InfrastructureError) else f"{type(error).__name__}: {error}"
    return LenderError(f"{what} by {type(lender).__qualname__}: {said}")
