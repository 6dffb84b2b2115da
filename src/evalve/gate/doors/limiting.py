"""`evalve.limiter`: the shared budget for code that calls a provider by means of its own.

```python
limiter = evalve.limiter("anthropic/claude-sonnet-5")
async with limiter.acquire(input_tokens=900, output_tokens=200) as permit:
    answer = await my_client.ask(prompt)
    await permit.settle(input_tokens=answer.usage.input, output_tokens=answer.usage.output)
```

The same words without `async` and `await` serve sync code. Without `settle`, what was asked for counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from evalve.contracts import SAMPLE, WAITS_FOR_LIMITS
from evalve.gate.doors.misuse import check_tokens
from evalve.gate.limits.limiter import Limiter, Permit
from evalve.gate.messages import Call, Cost

CallSync = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine for sync code and returns its result."""


class ScopeLimiter:
    """Admission to one model's limits, on the same buckets as every other call with that key."""

    def __init__(self, limiter: Limiter, call: Call, *, combined: bool, call_sync: CallSync) -> None:
        self._limiter = limiter
        self._call = call
        self._combined = combined
        self._call_sync = call_sync

    def __repr__(self) -> str:
        return f"<limiter of {self._call.model} at {self._call.host}>"

    def acquire(self, *, input_tokens: float = 0, output_tokens: float = 0) -> Acquisition:
        """Wait for leave to send one request. In sync code the wait is over when this returns."""
        acquisition = Acquisition(self, self._cost(input_tokens, output_tokens))
        if not _in_async_code():
            acquisition.acquire_now()
        return acquisition

    def settle(self, acquisition: Acquisition, *, input_tokens: float, output_tokens: float) -> Any:
        """Tell what a request really took; await it in async code."""
        return acquisition.settle(input_tokens=input_tokens, output_tokens=output_tokens)

    def _cost(self, input_tokens: float, output_tokens: float) -> Cost:
        check_tokens("input_tokens", input_tokens)
        check_tokens("output_tokens", output_tokens)
        if self._combined:
            return {"requests": 1.0, "tokens": float(input_tokens + output_tokens)}
        return {
            "requests": 1.0,
            "input_tokens": float(input_tokens),
            "output_tokens": float(output_tokens),
            "tokens": float(input_tokens + output_tokens),  # for accounts that limit the sum as well
        }

    async def _admit(self, cost: Cost) -> Permit:
        sample = SAMPLE.get()
        if sample is None:
            return await self._limiter.admit(self._call, cost, learns=False)
        admitted = self._limiter.admit(self._call, cost, group=sample.evaluation, learns=False)
        if sample.account is not None:
            sample.account.scopes.add(self._call.scope)
        permit = await sample.held(admitted, WAITS_FOR_LIMITS)
        for log in sample.calls.counting(sample.role):
            log.waited_s += permit.waited_s
        if sample.account is not None:
            sample.account.note_admitted(permit.scope, permit.started_at_s, permit.cost)
        return permit

    async def _settle(self, permit: Permit, actual: Cost) -> None:
        await self._limiter.settle(permit, actual)


class Acquisition:
    """One place in the queue: awaitable, and a context manager for sync and for async code."""

    def __init__(self, scope: ScopeLimiter, cost: Cost) -> None:
        self._scope = scope
        self._cost = cost
        self._permit: Permit | None = None
        self.waited_s = 0.0

    def acquire_now(self) -> None:
        self._scope._call_sync(self._acquired())

    def settle(self, *, input_tokens: float = 0, output_tokens: float = 0) -> Any:
        """What the request really took. In async code: `await permit.settle(…)`."""
        settling = self._settled(self._scope._cost(input_tokens, output_tokens))
        return settling if _in_async_code() else self._scope._call_sync(settling)

    async def _settled(self, actual: Cost) -> None:
        permit, self._permit = self._permit, None
        if permit is not None:
            await self._scope._settle(permit, actual)

    def __del__(self) -> None:
        """Nobody will settle any more, as after a bare `await limiter.acquire()`."""
        permit, self._permit = self._permit, None
        if permit is not None:
            self._scope._limiter.abandon(permit)

    async def _acquired(self) -> Acquisition:
        if self._permit is None:
            self._permit = await self._scope._admit(self._cost)
            self.waited_s = self._permit.waited_s
        return self

    def __await__(self) -> Generator[Any, None, Acquisition]:
        return self._acquired().__await__()

    async def __aenter__(self) -> Acquisition:
        return await self._acquired()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._settled(self._cost)

    def __enter__(self) -> Acquisition:
        if self._permit is None:
            self.acquire_now()  # in async code: rather a blocked loop than a call without leave
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope._call_sync(self._settled(self._cost))


def _in_async_code() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
