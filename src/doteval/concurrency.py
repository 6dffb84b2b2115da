"""doteval's concurrency strategies are evalve's; `Concurrency` of dotevals limits the calls of one client."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import evalve.concurrency
from evalve.clock import LOOP_CLOCK
from evalve.concurrency import (
    AsyncConcurrencyStrategy,
    Batch,
    BatchStrategy,
    Sequential,
    SequentialStrategy,
    SlidingWindow,
    SlidingWindowStrategy,
)
from evalve.contracts import Task

__all__ = [
    "Adaptive",
    "AdaptiveStrategy",
    "AsyncConcurrencyStrategy",
    "AsyncSequential",
    "Batch",
    "BatchStrategy",
    "Concurrency",
    "Sequential",
    "SequentialStrategy",
    "SlidingWindow",
    "SlidingWindowStrategy",
    "adaptive",
    "fixed",
    "sequential",
]

AsyncSequential = Sequential


class Adaptive(evalve.concurrency.Adaptive):
    """evalve's, with doteval's further arguments, for which it has rules of its own, and `get_stats`."""

    def __init__(
        self,
        *args: Any,
        throughput_window: int = 20,
        stability_window: int = 3,
        error_backoff_factor: float = 0.7,
        **how: Any,
    ) -> None:
        super().__init__(*args, **how)
        # shared with the copies that `with_limit` makes: it is this object that a file asks afterwards
        self._ended: Counter[str] = Counter()
        self._times_s = {"from": 0.0, "to": 0.0}

    def get_stats(self) -> dict[str, Any]:
        seconds = self._times_s["to"] - self._times_s["from"]
        completed = self._ended.total()
        return {
            "current_concurrency": self.concurrency,
            "throughput": completed / seconds if seconds > 0 else 0.0,
            "total_completed": completed,
            "total_errors": self._ended["failed"],
            "adaptation_history": self.history,
        }

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callable[[Any], None] | None = None
    ) -> AsyncIterator[Any]:
        self._times_s["from"] = LOOP_CLOCK.now_s()
        async for result in super().execute(tasks, progress_callback):
            if result not in ("waiting", "parked"):
                self._ended[str(result)] += 1
            self._times_s["to"] = LOOP_CLOCK.now_s()
            yield result


AdaptiveStrategy = Adaptive


class ConcurrencyStrategy(Protocol):
    """Decides when the next call of a client may start."""

    async def acquire(self) -> None: ...
    async def release(self, error: Exception | None = None) -> None: ...
    def reset(self) -> None: ...


class fixed:
    """At most `size` calls at once."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reset()

    async def acquire(self) -> None:
        await self._places.acquire()

    async def release(self, error: Exception | None = None) -> None:
        self._places.release()

    def reset(self) -> None:
        self._places = asyncio.Semaphore(self.size)


class sequential(fixed):
    """One call at a time."""

    def __init__(self) -> None:
        super().__init__(1)


class adaptive:
    """Begins with `initial` calls at once; each success allows a little more, each error much less."""

    def __init__(
        self, initial: int = 5, min: int = 1, max: int = 100, error_backoff: float = 0.7, **_: Any
    ) -> None:
        self.initial, self.min_concurrency, self.max_concurrency = initial, min, max
        self.error_backoff = error_backoff
        self.active_count = 0
        self._allowed = float(initial)
        self._changed = asyncio.Condition()

    @property
    def current(self) -> int:
        return int(self._allowed)

    async def acquire(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.active_count < self.current)
            self.active_count += 1

    async def release(self, error: Exception | None = None) -> None:
        async with self._changed:
            self.active_count -= 1
            allowed = (
                self._allowed + 1 / self._allowed if error is None else self._allowed * self.error_backoff
            )
            self._allowed = max(self.min_concurrency, min(self.max_concurrency, allowed))
            self._changed.notify_all()

    def reset(self) -> None:
        self._allowed = float(self.initial)
        self.active_count = 0
        self._changed = asyncio.Condition()


class Concurrency:
    """`Concurrency(fixed(10)).wrap(client)`: a client whose async methods wait for their turn."""

    def __init__(
        self,
        strategy: ConcurrencyStrategy | None = None,
        *,
        before_acquire: Callable[[Any], None] | None = None,
        after_acquire: Callable[[Any], None] | None = None,
        before_release: Callable[[Any, Exception | None], None] | None = None,
        after_release: Callable[[Any, Exception | None], None] | None = None,
    ) -> None:
        self.strategy = strategy if strategy is not None else fixed(10)
        self.before_acquire, self.after_acquire = before_acquire, after_acquire
        self.before_release, self.after_release = before_release, after_release

    async def acquire(self) -> None:
        if self.before_acquire is not None:
            self.before_acquire(self.strategy)
        await self.strategy.acquire()
        if self.after_acquire is not None:
            self.after_acquire(self.strategy)

    async def release(self, error: Exception | None = None) -> None:
        if self.before_release is not None:
            self.before_release(self.strategy, error)
        await self.strategy.release(error)
        if self.after_release is not None:
            self.after_release(self.strategy, error)

    def wrap(self, client: Any) -> ConcurrencyWrapper:
        return ConcurrencyWrapper(client, self)

    async def __aenter__(self) -> Concurrency:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.strategy.reset()


class ConcurrencyWrapper:
    """The client, its async methods limited; those of `client.chat.completions` too."""

    def __init__(self, client: Any, concurrency: Concurrency) -> None:
        self._client = client
        self._concurrency = concurrency

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if inspect.iscoroutinefunction(attribute) or inspect.iscoroutinefunction(
            getattr(attribute, "__call__", None)  # noqa: B004  # a mock, or an object whose call is async
        ):
            return self._limited(attribute)
        if callable(attribute) or isinstance(attribute, str | bytes | int | float | None):
            return attribute
        return ConcurrencyWrapper(attribute, self._concurrency)

    def _limited(self, function: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._concurrency.acquire()
            error: Exception | None = None
            try:
                return await function(*args, **kwargs)
            except Exception as raised:
                error = raised
                raise
            finally:
                await self._concurrency.release(error)

        return call
