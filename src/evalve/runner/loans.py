"""What one try is lent of the evaluation's lenders, taken before it and given back after it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from evalve.contracts import Lender, SampleContext
from evalve.errors import InfrastructureError, LenderError


class Loans:
    """Entered and left in one task, as what a lender writes with `async with` needs it."""

    def __init__(self, lenders: Mapping[str, Lender], context: SampleContext) -> None:
        self._lenders = lenders
        self._context = context
        self._taken: list[tuple[str, AbstractAsyncContextManager[Any]]] = []

    async def take(self) -> dict[str, Any]:
        """Something of each lender, by argument; a `LenderError` where one cannot lend."""
        lent = {}
        for name, lender in self._lenders.items():
            try:
                loan = lender.lend(self._context)
                lent[name] = await loan.__aenter__()
            except Exception as error:  # the boundary of a lender: the sample may be tried again
                raise _failed(error, f"{name!r} could not be lent", lender) from error
            self._taken.append((name, loan))
        return lent

    async def give_back(self, error: BaseException | None) -> LenderError | None:
        """Give everything back, the last first; the first failure of it is returned.

        `error` is what the function raised, for lenders that act on it. They cannot make it undone.
        """
        failure: LenderError | None = None
        cancelled: asyncio.CancelledError | None = None
        while self._taken:
            name, loan = self._taken.pop()
            kind = None if error is None else type(error)
            trace = None if error is None else error.__traceback__
            try:
                await loan.__aexit__(kind, error, trace)
            except asyncio.CancelledError as raised:
                if raised is not error:
                    cancelled = raised
            except BaseException as raised:
                if raised is not error and failure is None:
                    failure = _failed(raised, f"{name!r} could not be taken back", self._lenders[name])
                    failure.__cause__ = raised
        if cancelled is not None:
            raise cancelled
        return failure


def _failed(error: BaseException, what: str, lender: Lender) -> LenderError:
    if isinstance(error, LenderError):
        return error
    said = str(error) if isinstance(error, InfrastructureError) else f"{type(error).__name__}: {error}"
    return LenderError(f"{what} by {type(lender).__qualname__}: {said}")
