"""Whether a try is worth another: a decision."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import urllib.error
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import tenacity
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    TryAgain,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_fixed,
)
from tenacity.asyncio import retry_if_exception as retry_if_exception_async

from evalve.contracts import Store
from evalve.errors import OptionError
from evalve.runner.retries import (
    STOP,
    NetworkRetries,
    RetryPolicy,
    TenacityRetries,
    Tried,
    Verdict,
    is_network_error,
    retry_policy,
)
from evalve.storage import open_store
from running import records, rows, run, runnable


def tried(number: int, error: BaseException | None = None, value: Any = None, **also: float) -> Tried:
    times = {"first_started_s": 0.0, "ended_s": 1.0, "waited_s": 0.0, **also}
    return Tried(number, error, value, **times)


def after(policy: RetryPolicy, what: Tried) -> Verdict:
    return asyncio.run(policy.after(what))


class TestByDefault:
    def test_three_tries_with_delays_that_double_from_one_second(self) -> None:
        policy = NetworkRetries(jitter=lambda: 0.0)
        gone = ConnectionResetError()

        verdicts = [after(policy, tried(number, gone)) for number in (1, 2, 3)]

        assert verdicts == [Verdict(delay_s=1.0), Verdict(delay_s=2.0), STOP]

    def test_jitter_is_added_to_each_delay(self) -> None:
        policy = NetworkRetries(jitter=lambda: 0.75)

        assert after(policy, tried(2, ConnectionResetError())) == Verdict(delay_s=2.75)

    def test_jitter_is_less_than_a_second(self) -> None:
        delays_s = {after(NetworkRetries(), tried(1, TimeoutError())).delay_s for _ in range(50)}

        assert len(delays_s) > 1
        assert all(delay_s is not None and 1.0 <= delay_s < 2.0 for delay_s in delays_s)

    def test_jitter_is_not_that_of_a_program_that_seeds_its_random_numbers(self) -> None:
        drawn = []
        for _ in range(2):
            random.seed(0)
            drawn.append([after(NetworkRetries(), tried(1, TimeoutError())) for _ in range(4)])

        assert drawn[0] != drawn[1]

    def test_a_delay_is_never_longer_than_half_a_minute(self) -> None:
        assert after(NetworkRetries(tries=99), tried(50, TimeoutError())) == Verdict(delay_s=30.0)

    def test_a_result_is_never_tried_again(self) -> None:
        assert after(NetworkRetries(), tried(1, value=False)) == STOP

    def test_another_error_is_never_tried_again(self) -> None:
        assert after(NetworkRetries(), tried(1, ValueError("no"))) == STOP


class FromAnotherPackage(Exception):
    pass


def from_package(package: str, name: str) -> BaseException:
    """An error as a package raises it that is not installed here."""
    base = type(name, (Exception,), {"__module__": f"{package}._exceptions"})
    error: BaseException = type("Specific", (base,), {"__module__": f"{package}._exceptions"})()
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        ConnectionRefusedError(),
        BrokenPipeError(),
        TimeoutError(),
        TimeoutError(),
        socket.gaierror(-2, "Name or service not known"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
        aiohttp.ClientConnectionError(),
        aiohttp.ServerDisconnectedError(),
        from_package("httpx", "TransportError"),
        from_package("httpx2", "TransportError"),
        from_package("openai", "APIConnectionError"),
        from_package("anthropic", "APIConnectionError"),
        from_package("requests", "ConnectionError"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_network_error_is_known(error: BaseException) -> None:
    assert is_network_error(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        PermissionError(errno.EACCES, "no"),
        OSError(errno.ENOSPC, "No space left on device"),
        urllib.error.URLError("unknown url type: x"),
        from_package("openai", "BadRequestError"),
        from_package("mine", "APIConnectionError"),
        FromAnotherPackage(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_network_error(error: BaseException) -> None:
    assert not is_network_error(error)


class TestDeclaring:
    def test_nothing_said_means_three_tries(self) -> None:
        assert after(retry_policy(None), tried(2, TimeoutError())).delay_s is not None
        assert after(retry_policy(None), tried(3, TimeoutError())) == STOP

    def test_a_number_is_the_number_of_tries(self) -> None:
        assert after(retry_policy(5), tried(4, TimeoutError())).delay_s is not None
        assert after(retry_policy(5), tried(5, TimeoutError())) == STOP

    def test_false_means_one_try(self) -> None:
        assert after(retry_policy(False), tried(1, TimeoutError())) == STOP

    def test_true_means_the_default(self) -> None:
        assert after(retry_policy(True), tried(2, TimeoutError())).delay_s is not None

    def test_zero_tries_are_refused(self) -> None:
        with pytest.raises(OptionError, match=r"^retries=0 must be the number of tries, 1 or more$"):
            retry_policy(0)

    def test_a_tenacity_configuration_is_taken(self) -> None:
        assert isinstance(retry_policy(AsyncRetrying()), TenacityRetries)
        assert isinstance(retry_policy(tenacity.Retrying()), TenacityRetries)

    def test_anything_else_is_refused(self) -> None:
        with pytest.raises(
            OptionError, match=r"^retries= takes a number of tries or a tenacity AsyncRetrying; got str$"
        ):
            retry_policy("3")


class Answer:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


def limited(result: Any) -> bool:
    return hasattr(result, "status_code") and result.status_code == 429


class TestTenacity:
    def test_its_condition_on_exceptions_is_asked(self) -> None:
        policy = TenacityRetries(
            AsyncRetrying(
                retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
                stop=stop_after_attempt(5),
                wait=wait_fixed(2),
            )
        )

        assert after(policy, tried(1, aiohttp.ClientError())) == Verdict(delay_s=2.0)
        assert after(policy, tried(4, TimeoutError())) == Verdict(delay_s=2.0)
        assert after(policy, tried(5, TimeoutError())) == STOP
        assert after(policy, tried(1, ValueError())) == STOP
        assert after(policy, tried(1, value=True)) == STOP

    def test_conditions_on_exceptions_and_results_are_joined(self) -> None:
        policy = TenacityRetries(
            AsyncRetrying(
                retry=(retry_if_exception_type(ValueError) | retry_if_result(limited)),
                stop=stop_after_attempt(10),
                wait=wait_exponential(multiplier=1, min=4, max=60),
            )
        )

        assert after(policy, tried(1, ValueError())) == Verdict(delay_s=4.0)
        assert after(policy, tried(5, value=Answer(429))) == Verdict(delay_s=16.0)
        assert after(policy, tried(9, value=Answer(429))) == Verdict(delay_s=60.0)
        assert after(policy, tried(1, value=Answer(200))) == STOP

    def test_a_stop_after_some_time_counts_from_the_first_try(self) -> None:
        policy = TenacityRetries(AsyncRetrying(stop=stop_after_delay(30), wait=wait_fixed(1)))

        assert after(policy, tried(9, ValueError(), ended_s=29.9)) == Verdict(delay_s=1.0)
        assert after(policy, tried(9, ValueError(), ended_s=30.0)) == STOP

    def test_the_callback_before_a_sleep_sees_try_error_and_delay(self) -> None:
        seen: list[Any] = []

        def note(state: RetryCallState) -> None:
            assert state.outcome is not None
            seen.append(
                (state.attempt_number, state.outcome.exception(), state.upcoming_sleep, state.idle_for)
            )

        error = ValueError("no")
        policy = TenacityRetries(AsyncRetrying(wait=wait_fixed(3), before_sleep=note))

        after(policy, tried(2, error, waited_s=3.0))

        assert seen == [(2, error, 3.0, 3.0)]

    def test_no_sleep_no_callback(self) -> None:
        def never(state: RetryCallState) -> None:
            raise AssertionError("there is no sleep")

        policy = TenacityRetries(AsyncRetrying(stop=stop_after_attempt(1), before_sleep=never))

        assert after(policy, tried(1, ValueError())) == STOP

    def test_the_callback_after_the_last_try_gives_the_result(self) -> None:
        policy = TenacityRetries(
            AsyncRetrying(
                stop=stop_after_attempt(2), retry_error_callback=lambda state: state.attempt_number / 4
            )
        )

        assert after(policy, tried(2, ValueError())) == Verdict(replaced=True, value=0.5)

    def test_its_predicates_and_callbacks_may_be_async(self) -> None:
        slept: list[int] = []

        async def is_value_error(error: BaseException) -> bool:
            return isinstance(error, ValueError)

        async def note(state: RetryCallState) -> None:
            slept.append(state.attempt_number)

        policy = TenacityRetries(
            AsyncRetrying(
                retry=retry_if_exception_async(is_value_error), wait=wait_fixed(1), before_sleep=note
            )
        )

        assert after(policy, tried(1, ValueError())) == Verdict(delay_s=1.0)
        assert after(policy, tried(1, KeyError())) == STOP
        assert slept == [1]

    def test_try_again_is_always_tried_again(self) -> None:
        policy = TenacityRetries(AsyncRetrying(retry=retry_if_exception_type(ValueError)))

        assert after(policy, tried(1, TryAgain())) == Verdict(delay_s=0.0)


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


class TestInARun:
    def test_waits_of_tenacity_pass_in_the_runs_own_time(self, store: Store) -> None:
        starts: list[float] = []

        async def evaluate(id: str) -> bool:
            starts.append(round(asyncio.get_running_loop().time(), 6))
            if len(starts) < 3:
                raise ValueError("not yet")
            return True

        retries = AsyncRetrying(stop=stop_after_attempt(5), wait=wait_fixed(120))
        run(runnable(evaluate, rows("a"), retries=retries), store)

        (record,) = records(store)
        assert starts == [0.0, 120.0, 240.0]
        assert (record.status, record.tries, round(record.wall_s, 6)) == ("done", 3, 240.0)

    def test_a_result_that_asks_for_another_try_is_noted_in_the_history(self, store: Store) -> None:
        calls: list[str] = []

        async def evaluate(id: str) -> Any:
            calls.append(id)
            return Answer(429) if len(calls) == 1 else True

        retries = AsyncRetrying(retry=retry_if_result(limited), wait=wait_fixed(1))
        run(runnable(evaluate, rows("a"), retries=retries), store)

        (record,) = records(store)
        assert (record.status, record.tries) == ("done", 2)
        assert record.history[0].error is not None
        assert record.history[0].error.startswith("ResultError: the evaluation returned Answer ")
        assert record.history[1].error is None

    def test_a_good_result_that_asks_for_another_try_is_said_to_have_asked(self, store: Store) -> None:
        calls: list[str] = []

        async def evaluate(id: str) -> bool:
            calls.append(id)
            return len(calls) == 2

        retries = AsyncRetrying(retry=retry_if_result(lambda right: not right), wait=wait_fixed(1))
        run(runnable(evaluate, rows("a"), retries=retries), store)

        (record,) = records(store)
        assert (record.scores[0].value, [one.error for one in record.history]) == (
            True,
            ["its result asked for another try", None],
        )

    def test_what_the_last_callback_returns_is_the_result(self, store: Store) -> None:
        async def evaluate(id: str) -> bool:
            raise ValueError("never")

        retries = AsyncRetrying(stop=stop_after_attempt(2), retry_error_callback=lambda state: 0.25)
        run(runnable(evaluate, rows("a"), retries=retries), store)

        (record,) = records(store)
        assert (record.status, record.tries, record.scores[0].value) == ("done", 2, 0.25)

    def test_what_the_last_callback_raises_is_the_failure(self, store: Store) -> None:
        async def evaluate(id: str) -> bool:
            raise ValueError("never")

        def again(state: RetryCallState) -> Any:
            assert state.outcome is not None
            return state.outcome.result()

        retries = AsyncRetrying(stop=stop_after_attempt(2), retry_error_callback=again)
        run(runnable(evaluate, rows("a", "b"), retries=retries), store)

        assert [(r.status, r.tries, str(r.failure)) for r in records(store)] == [
            ("failed", 2, "ValueError: never"),
            ("failed", 2, "ValueError: never"),
        ]

    def test_a_sync_function_is_tried_again_too(self, store: Store) -> None:
        calls: list[str] = []

        def evaluate(id: str) -> bool:
            calls.append(id)
            if len(calls) == 1:
                raise ConnectionResetError("gone")
            return True

        run(runnable(evaluate, rows("a", "b")), store)

        assert calls == ["a", "b", "a"]
        assert [(r.status, r.tries) for r in records(store)] == [("done", 2), ("done", 1)]
