"""The engines that run a function in this process."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evalve.contracts import SampleContext
from evalve.engines import threads as engine_threads
from evalve.engines.inline import InlineEngine
from evalve.engines.loop import LoopEngine
from evalve.engines.threads import ThreadEngine

CONTEXT = SampleContext("exp", "eval_x", "1", 0, 1)


def threads_named(prefix: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


MakeEngine = Callable[[Callable[..., Any]], InlineEngine]


@pytest.fixture
def inline() -> Iterator[MakeEngine]:
    """Makes engines, which are closed at the end."""
    made: list[InlineEngine] = []

    def make(function: Callable[..., Any]) -> InlineEngine:
        made.append(InlineEngine(function))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


class TestInline:
    async def test_the_function_runs_on_the_loops_own_thread(self, inline: MakeEngine) -> None:
        engine = inline(lambda a: (a, threading.current_thread()))

        assert await engine.call({"a": 1}, CONTEXT) == (1, threading.current_thread())

    async def test_it_may_run_a_loop_of_its_own(self, inline: MakeEngine) -> None:
        async def answer() -> int:
            return 42

        engine = inline(lambda: asyncio.run(answer()))

        assert await engine.call({}, CONTEXT) == 42
        assert asyncio.get_running_loop().is_running()

    async def test_the_current_loop_is_another_one_and_the_same_for_all_samples(
        self, inline: MakeEngine
    ) -> None:
        async def answer() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        engine = inline(lambda: asyncio.get_event_loop().run_until_complete(answer()))

        first = await engine.call({}, CONTEXT)
        assert await engine.call({}, CONTEXT) is first
        assert asyncio.get_running_loop() is not first

    async def test_a_loop_that_was_closed_or_dropped_is_not_missed_by_the_next_sample(
        self, inline: MakeEngine
    ) -> None:
        async def answer() -> int:
            return 42

        def last() -> int:
            loop = asyncio.get_event_loop()
            loop.run_until_complete(answer())
            loop.close()
            return asyncio.run(answer())

        engine = inline(last)

        assert [await engine.call({}, CONTEXT) for _ in range(2)] == [42, 42]

    async def test_it_says_that_it_runs_only_while_it_does(self, inline: MakeEngine) -> None:
        seen: list[bool] = []
        engine = inline(lambda: seen.append(engine.occupies_loop()))

        await engine.call({}, CONTEXT)

        assert (seen, engine.occupies_loop()) == ([True], False)

    async def test_what_it_raises_passes_and_the_loop_is_back(self, inline: MakeEngine) -> None:
        def broken() -> None:
            raise ValueError("no")

        engine = inline(broken)

        with pytest.raises(ValueError, match="no"):
            await engine.call({}, CONTEXT)
        assert (asyncio.get_running_loop().is_running(), engine.occupies_loop()) == (True, False)


class TestThreads:
    async def test_calls_run_beside_each_other(self) -> None:
        both = threading.Barrier(2, timeout=30)
        engine = ThreadEngine(both.wait)

        places = await asyncio.gather(engine.call({}, CONTEXT), engine.call({}, CONTEXT))
        engine.close()

        assert sorted(places) == [0, 1]

    async def test_a_thread_that_is_free_is_used_again(self) -> None:
        engine = ThreadEngine(threading.get_ident)
        first = await engine.call({}, CONTEXT)
        second = await engine.call({}, CONTEXT)
        engine.close()

        assert first == second

    async def test_the_function_sees_the_callers_context(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        variable.set("mine")
        engine = ThreadEngine(variable.get)

        assert await engine.call({}, CONTEXT) == "mine"
        engine.close()

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
    async def test_what_it_raises_comes_to_the_caller(self, error: BaseException) -> None:
        def broken() -> None:
            raise error

        engine = ThreadEngine(broken)
        caught: list[BaseException] = []
        try:
            await engine.call({}, CONTEXT)
        except BaseException as raised:
            caught.append(raised)
        engine.close()

        assert caught == [error]

    async def test_a_stop_iteration_becomes_an_error_that_can_be_carried(self) -> None:
        engine = ThreadEngine(lambda: next(iter([])))

        with pytest.raises(RuntimeError, match=r"^the evaluation raised StopIteration: $"):
            await engine.call({}, CONTEXT)
        engine.close()

    async def test_a_cancelled_call_does_not_wait_for_the_function(self) -> None:
        started, release = threading.Event(), threading.Event()

        def stuck() -> None:
            started.set()
            release.wait(30)

        engine = ThreadEngine(stuck)
        call = asyncio.ensure_future(engine.call({}, CONTEXT))
        await asyncio.to_thread(started.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        release.set()
        engine.close()

    async def test_engines_that_follow_each_other_share_their_threads(self) -> None:
        idents = []
        for _ in range(3):
            engine = ThreadEngine(threading.current_thread)
            idents.append(await engine.call({}, CONTEXT))
            engine.close()

        assert idents == [idents[0]] * 3

    async def test_a_thread_whose_engine_closed_meanwhile_ends_with_its_function(self) -> None:
        started, release = threading.Event(), threading.Event()
        threads: list[threading.Thread] = []

        def stuck() -> None:
            threads.append(threading.current_thread())
            started.set()
            release.wait(30)

        engine = ThreadEngine(stuck)
        call = asyncio.ensure_future(engine.call({}, CONTEXT))
        await asyncio.to_thread(started.wait, 30)
        call.cancel()
        engine.close()
        later = ThreadEngine(threading.current_thread)
        other = await later.call({}, CONTEXT)
        later.close()
        release.set()
        threads[0].join(30)

        assert (threads[0].is_alive(), other is threads[0]) == (False, False)

    async def test_threads_end_where_no_engine_follows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_threads, "_IDLE_S", 0.01)
        engine = ThreadEngine(lambda: None)
        await engine.call({}, CONTEXT)

        engine.close()

        for thread in threads_named("evalve-sample-"):
            thread.join(30)
        assert threads_named("evalve-sample-") == []


async def test_an_async_function_is_awaited_on_the_loop() -> None:
    async def evaluate(a: int) -> Any:
        return a, asyncio.get_running_loop()

    assert await LoopEngine(evaluate).call({"a": 1}, CONTEXT) == (1, asyncio.get_running_loop())
