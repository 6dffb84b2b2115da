"""Strategies: how many samples are in flight, and when the next may start.

A strategy is any object with `execute(tasks, progress_callback)`: an async generator that takes tasks
from the async iterator `tasks`, awaits each one once, and yields what it returned. evalve's own tasks
return how the turn ended: "done", "failed", "cancelled", "waiting" (for its next try) or "parked" (for what
is not its own work). The last two will come back through `tasks`.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext
from typing import Any

from evalve.adaptation import Controller
from evalve.callers import caller
from evalve.checked_numbers import number, whole
from evalve.clock import LOOP_CLOCK, Clock
from evalve.contracts import NO_CALLS, RunSignals, Strategy, Task
from evalve.errors import OptionError
from evalve.options import MaxConcurrency, Options

Callback = Callable[[Any], None]

AsyncConcurrencyStrategy = Strategy


class Sequential:
    """One after another."""

    max_concurrency = 1

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        async for task in tasks:
            yield _told(await task(), progress_callback)


class Batch:
    """`batch_size` at once; the next batch starts when the whole one has ended."""

    def __init__(self, batch_size: int = 10) -> None:
        self.batch_size = whole("Batch: batch_size", batch_size, minimum=1)

    @property
    def max_concurrency(self) -> int:
        return self.batch_size

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        batch: list[Task] = []
        async for task in tasks:
            batch.append(task)
            if len(batch) == self.batch_size:
                for result in await _together(batch):
                    yield _told(result, progress_callback)
                batch = []
        for result in await _together(batch):
            yield _told(result, progress_callback)


class SlidingWindow:
    """Up to `max_concurrency` at once; as one ends the next starts, `throttle_s` after the last start."""

    def __init__(
        self, max_concurrency: int = 10, throttle_s: float = 0.0, *, clock: Clock = LOOP_CLOCK
    ) -> None:
        self.max_concurrency = whole("SlidingWindow: max_concurrency", max_concurrency, minimum=1)
        self.throttle_s = number("SlidingWindow: throttle_s", throttle_s)
        self._clock = clock

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        if self.throttle_s:
            tasks = Spaced(tasks, self.throttle_s, clock=self._clock)
        async with aclosing(Window(tasks, self.max_concurrency).results()) as results:
            async for result in results:
                yield _told(result, progress_callback)


class Adaptive:
    """Finds the concurrency by itself, from throughput, failures, providers and the machine.

    It grows while more in flight gives more per second and at least `increase_threshold` of the turns
    succeed, steps back where growth brought nothing, and cuts where fewer than `decrease_threshold`
    succeed, where calls are refused or lost, and where memory, swap, load or open files run out.
    `history` keeps every decision.
    """

    def __init__(
        self,
        initial_concurrency: int = 5,
        min_concurrency: int = 1,
        max_concurrency: int = 100,
        adaptation_interval: float = 2.0,
        increase_threshold: float = 0.98,
        decrease_threshold: float = 0.90,
        *,
        clock: Clock = LOOP_CLOCK,
    ) -> None:
        initial = whole("Adaptive: initial_concurrency", initial_concurrency, minimum=1)
        lowest = whole("Adaptive: min_concurrency", min_concurrency, minimum=1)
        highest = whole("Adaptive: max_concurrency", max_concurrency, minimum=1)
        if lowest > highest:
            raise OptionError(
                f"{caller()}: Adaptive: min_concurrency must not be above max_concurrency; "
                f"got {lowest} and {highest}"
            )
        self.min_concurrency = lowest
        self.max_concurrency = highest
        self._clock = clock
        self._signals: RunSignals | None = None
        self._controller = Controller(
            limit=min(max(initial, lowest), highest),
            minimum=lowest,
            maximum=highest,
            interval_s=number("Adaptive: adaptation_interval", adaptation_interval),
            increase_threshold=number("Adaptive: increase_threshold", increase_threshold, maximum=1),
            decrease_threshold=number("Adaptive: decrease_threshold", decrease_threshold, maximum=1),
        )

    @property
    def concurrency(self) -> int:
        """How many may be in flight now."""
        return self._controller.allowed

    @property
    def history(self) -> list[dict[str, Any]]:
        return self._controller.history

    def watch(self, signals: RunSignals) -> None:
        """Take into account what the gate knows about the samples' calls, and what the machine says."""
        self._signals = signals

    def with_limit(self, max_concurrency: int) -> Adaptive:
        """The same strategy under another ceiling, with nothing learnt yet."""
        limited = copy.copy(self)
        limited.max_concurrency = max_concurrency
        limited.min_concurrency = min(self.min_concurrency, max_concurrency)
        limited._controller = self._controller.anew(minimum=limited.min_concurrency, maximum=max_concurrency)
        return limited

    async def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        controller, signals = self._controller, self._signals
        window = Window(tasks, controller.allowed)
        controller.start(self._clock.now_s())
        own_failures = signals.own_failures() if signals is not None else 0
        with _looking(lambda: self._look(window)) if signals is not None else nullcontext():
            async with aclosing(window.results()) as results:
                async for result in results:
                    if result == "parked":  # which is neither a success nor a failure yet
                        yield _told(result, progress_callback)
                        continue
                    succeeded = result not in ("failed", "waiting")
                    if signals is not None and result == "failed" and signals.own_failures() > own_failures:
                        # a mistake in the evaluation is no reason for fewer samples at once
                        own_failures, succeeded = own_failures + 1, True
                    self._observe(window, succeeded=succeeded)
                    yield _told(result, progress_callback)

    def _observe(self, window: Window, *, succeeded: bool) -> None:
        """A turn has ended: the provider's side."""
        controller, signals = self._controller, self._signals
        held_back = signals.held_back() if signals is not None else 0
        controller.observe(succeeded=succeeded, in_flight=window.take_peak(), held_back=held_back)
        calls = signals.calls() if signals is not None else NO_CALLS
        if controller.adapt(self._clock.now_s(), calls):
            self._resize(window)

    def _look(self, window: Window) -> None:
        """Some time has passed: the host's side."""
        assert self._signals is not None
        pressure = self._signals.pressure()
        if self._controller.look(self._clock.now_s(), pressure, in_flight=window.in_flight):
            self._resize(window)

    def _resize(self, window: Window) -> None:
        window.resize(self._controller.allowed)
        if self._signals is not None and self.history and self.history[-1]["to"] == self.concurrency:
            self._signals.decided(self.history[-1])


LOOK_EVERY_S = 2.0
"""How often the machine is looked at: a process that takes memory does so within seconds."""


@contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    """In the block, look now and then."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def again() -> None:
        nonlocal timer
        look()
        timer = loop.call_later(LOOK_EVERY_S, again)

    timer = loop.call_later(LOOK_EVERY_S, again)
    try:
        yield
    finally:
        timer.cancel()


SequentialStrategy = Sequential
BatchStrategy = Batch
SlidingWindowStrategy = SlidingWindow
AdaptiveStrategy = Adaptive


class Window:
    """Workers on one iterator of tasks, as many as the limit says.

    A larger limit hires at once; under a smaller one, workers leave as their tasks end. There is no
    semaphore that could be swapped or leak a permit.
    """

    def __init__(self, tasks: AsyncIterator[Task], limit: int) -> None:
        # an async generator cannot be asked by two workers at once
        self._tasks = OneAtATime(tasks) if isinstance(tasks, AsyncGenerator) else tasks
        self._limit = limit
        self._peak = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._exhausted = False
        self._results: deque[Any] = deque()
        self._news = asyncio.Event()
        self._error: BaseException | None = None

    def resize(self, limit: int) -> None:
        self._limit = limit
        self._hire()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def take_peak(self) -> int:
        """How many were in flight at once since this was last asked."""
        peak, self._peak = self._peak, self._in_flight
        return peak

    async def results(self) -> AsyncGenerator[Any, None]:
        self._hire()
        try:
            while True:
                while self._results:
                    yield self._results.popleft()
                if self._error is not None:
                    raise self._error
                if not self._workers:
                    return
                self._news.clear()
                await self._news.wait()
        finally:
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)

    def _hire(self) -> None:
        """One more worker, if there is room; each worker that finds a task calls this again."""
        if not self._exhausted and len(self._workers) < self._limit:
            self._workers.add(asyncio.get_running_loop().create_task(self._work()))

    async def _work(self) -> None:
        try:
            while len(self._workers) <= self._limit:
                task = await anext(self._tasks, None)
                if task is None:
                    self._exhausted = True
                    return
                self._in_flight += 1
                self._peak = max(self._peak, self._in_flight)
                if self._in_flight == len(self._workers):
                    self._hire()
                try:
                    self._results.append(await task())
                finally:
                    self._in_flight -= 1
                self._news.set()
        except Exception as error:
            self._error = error
        finally:
            me = asyncio.current_task()
            if me is not None:
                self._workers.discard(me)
            self._news.set()


class OneAtATime:
    """Tasks of an iterator that several may ask, and that must not be asked while it answers."""

    def __init__(self, tasks: AsyncIterator[Task]) -> None:
        self._tasks = tasks
        self._lock = asyncio.Lock()

    def __aiter__(self) -> OneAtATime:
        return self

    async def __anext__(self) -> Task:
        async with self._lock:
            return await anext(self._tasks)


class Spaced:
    """Tasks of another iterator, handed out at least `throttle_s` apart."""

    def __init__(self, tasks: AsyncIterator[Task], throttle_s: float, *, clock: Clock = LOOP_CLOCK) -> None:
        self._tasks = tasks
        self._throttle_s = throttle_s
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._next_s = float("-inf")

    def __aiter__(self) -> Spaced:
        return self

    async def __anext__(self) -> Task:
        async with self._one_at_a_time:
            task = await anext(self._tasks)
            wait_s = self._next_s - self._clock.now_s()
            if wait_s > 0:
                await self._clock.sleep(wait_s)
            self._next_s = self._clock.now_s() + self._throttle_s
            return task


class Throttled:
    """Any strategy, with at least `throttle_s` between two starts.

    A strategy may hold tasks before it starts them, as `Batch` does, so it is the starts that wait here.
    """

    def __init__(self, strategy: Strategy, throttle_s: float, *, clock: Clock = LOOP_CLOCK) -> None:
        self.strategy = strategy
        self.throttle_s = throttle_s
        self._clock = clock
        self._next_s = float("-inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.strategy, name)

    def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        return self.strategy.execute(_Wrapped(tasks, self._start), progress_callback)

    async def _start(self, task: Task) -> Any:
        now_s = self._clock.now_s()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + self.throttle_s
        if start_s > now_s:
            await self._clock.sleep(start_s - now_s)
        return await task()


class Sharing:
    """Any strategy, whose turns take places that other runs on this loop take as well."""

    def __init__(self, strategy: Strategy, places: asyncio.Semaphore) -> None:
        self.strategy = strategy
        self.max_concurrency = getattr(strategy, "max_concurrency", None)
        self._places = places

    def execute(
        self, tasks: AsyncIterator[Task], progress_callback: Callback | None = None
    ) -> AsyncIterator[Any]:
        return self.strategy.execute(_Wrapped(tasks, self._start), progress_callback)

    async def _start(self, task: Task) -> Any:
        async with self._places:
            return await task()


class _Wrapped:
    """Tasks of another iterator, each to be started by `start`."""

    def __init__(self, tasks: AsyncIterator[Task], start: Callable[[Task], Awaitable[Any]]) -> None:
        self._tasks = tasks
        self._start = start

    def __aiter__(self) -> _Wrapped:
        return self

    async def __anext__(self) -> Task:
        return functools.partial(self._start, await anext(self._tasks))


def name_of(strategy: Strategy) -> str:
    """`Batch`; `Batch, throttled`."""
    if isinstance(strategy, Throttled):
        return f"{name_of(strategy.strategy)}, throttled"
    if isinstance(strategy, Sharing):
        return name_of(strategy.strategy)
    return type(strategy).__name__


def choose(
    declared: Strategy | None,
    *,
    is_async: bool,
    workers: int | None = None,
    max_concurrency: MaxConcurrency | None = None,
    throttle_s: float | None = None,
) -> Strategy:
    """The strategy of a run: what was declared, bent to what was asked for on this occasion.

    `workers` is the number of processes that sync functions run in, or `None` where they run in this one.
    """
    strategy = declared if declared is not None else _default(is_async=is_async, workers=workers)
    if max_concurrency == "auto":
        strategy = strategy if isinstance(strategy, Adaptive) else Adaptive()
    elif max_concurrency is not None:
        strategy = limited(strategy, max_concurrency)
    if throttle_s is None:
        return strategy
    if isinstance(strategy, SlidingWindow):
        return _with(strategy, throttle_s=throttle_s)
    return Throttled(strategy, throttle_s) if throttle_s else strategy


def workers_for(asked: Options) -> int | None:
    """How many processes a sync function is spread over; `None` where it stays in this one."""
    return (asked.workers or cores()) if asked.engine == "processes" else None


def cores() -> int:
    """How many this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _default(*, is_async: bool, workers: int | None) -> Strategy:
    if is_async:
        return SlidingWindow()
    return Sequential() if workers is None else SlidingWindow(workers)


def limited(strategy: Strategy, max_concurrency: int) -> Strategy:
    if isinstance(strategy, Sequential):
        return strategy if max_concurrency == 1 else SlidingWindow(max_concurrency)
    if isinstance(strategy, Adaptive):
        return strategy.with_limit(max_concurrency)
    if isinstance(strategy, Batch):
        return _with(strategy, batch_size=max_concurrency)
    if hasattr(strategy, "max_concurrency"):
        return _with(strategy, max_concurrency=max_concurrency)
    raise OptionError(
        f"max_concurrency={max_concurrency} cannot be applied to {type(strategy).__name__}: "
        "it has no attribute max_concurrency; give it one, or leave the option out"
    )


def _with(strategy: Strategy, **attributes: Any) -> Strategy:
    """A copy of the strategy, which may be of a person's own class, with other settings."""
    changed = copy.copy(strategy)
    for name, value in attributes.items():
        setattr(changed, name, value)
    return changed


def _told(result: Any, progress_callback: Callback | None) -> Any:
    if progress_callback is not None:
        progress_callback(result)
    return result


async def _together(batch: list[Task]) -> list[Any]:
    return list(await asyncio.gather(*(task() for task in batch)))
