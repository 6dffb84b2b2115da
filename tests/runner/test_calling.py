"""How the evaluation function is called."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from evalve.runner.calling import AwaitedCalls, InlineCalls, ThreadCalls


def threads_named(prefix: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


class TestInline:
    async def test_the_function_runs_on_the_loops_own_thread(self) -> None:
        calls = InlineCalls(lambda a: (a, threading.current_thread()))

        assert await calls({"a": 1}) == (1, threading.current_thread())

    async def test_it_may_run_a_loop_of_its_own(self) -> None:
        async def answer() -> int:
            return 42

        calls = InlineCalls(lambda: asyncio.run(answer()))

        assert await calls({}) == 42
        assert asyncio.get_running_loop().is_running()

    async def test_it_says_that_it_runs_only_while_it_does(self) -> None:
        seen: list[bool] = []
        calls = InlineCalls(lambda: seen.append(calls.running))

        await calls({})

        assert (seen, calls.running) == ([True], False)

    async def test_what_it_raises_passes_and_the_loop_is_back(self) -> None:
        def broken() -> None:
            raise ValueError("no")

        calls = InlineCalls(broken)

        with pytest.raises(ValueError, match="no"):
            await calls({})
        assert (asyncio.get_running_loop().is_running(), calls.running) == (True, False)


class TestThreads:
    async def test_calls_run_beside_each_other(self) -> None:
        both = threading.Barrier(2, timeout=30)
        calls = ThreadCalls(both.wait)

        places = await asyncio.gather(calls({}), calls({}))
        calls.close()

        assert sorted(places) == [0, 1]

    async def test_a_thread_that_is_free_is_used_again(self) -> None:
        calls = ThreadCalls(threading.get_ident)
        first = await calls({})
        second = await calls({})
        calls.close()

        assert first == second

    async def test_the_function_sees_the_callers_context(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
        variable.set("mine")
        calls = ThreadCalls(variable.get)

        assert await calls({}) == "mine"
        calls.close()

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
    async def test_what_it_raises_comes_to_the_caller(self, error: BaseException) -> None:
        def broken() -> None:
            raise error

        calls = ThreadCalls(broken)
        caught: list[BaseException] = []
        try:
            await calls({})
        except BaseException as raised:
            caught.append(raised)
        calls.close()

        assert caught == [error]

    async def test_a_stop_iteration_becomes_an_error_that_can_be_carried(self) -> None:
        calls = ThreadCalls(lambda: next(iter([])))

        with pytest.raises(RuntimeError, match=r"^the evaluation raised StopIteration: $"):
            await calls({})
        calls.close()

    async def test_a_cancelled_call_does_not_wait_for_the_function(self) -> None:
        started, release = threading.Event(), threading.Event()

        def stuck() -> None:
            started.set()
            release.wait(30)

        calls = ThreadCalls(stuck)
        call = asyncio.ensure_future(calls({}))
        await asyncio.to_thread(started.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        release.set()
        calls.close()

    async def test_closing_ends_its_threads(self) -> None:
        calls = ThreadCalls(lambda: None)
        await calls({})

        calls.close()

        for thread in threads_named("evalve-sample-"):
            thread.join(30)
        assert threads_named("evalve-sample-") == []


async def test_an_async_function_is_awaited_on_the_loop() -> None:
    async def evaluate(a: int) -> Any:
        return a, asyncio.get_running_loop()

    assert await AwaitedCalls(evaluate)({"a": 1}) == (1, asyncio.get_running_loop())
