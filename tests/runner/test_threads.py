"""Whose a call from another thread is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalve.contracts import SAMPLE, SampleContext
from evalve.runner.threads import carry_samples_into_threads


@pytest.fixture(autouse=True)
def carrying() -> None:
    carry_samples_into_threads()
    carry_samples_into_threads()  # twice is once


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one_thread:
        yield one_thread


def whose() -> str | None:
    sample = SAMPLE.get()
    return None if sample is None else sample.sample_id


def as_sample(name: str, do: Callable[[], object]) -> object:
    token = SAMPLE.set(SampleContext("x", "eval_x", name, 0, 1))
    try:
        return do()
    finally:
        SAMPLE.reset(token)


def test_work_for_a_pool_is_that_of_the_sample_that_hands_it_over(pool: ThreadPoolExecutor) -> None:
    seen = [as_sample(name, lambda: pool.submit(whose).result()) for name in "ab"]
    mapped = as_sample("c", lambda: list(pool.map(lambda _: whose(), range(2))))

    assert (seen, mapped) == (["a", "b"], ["c", "c"])


def test_a_pools_thread_belongs_to_nobody(pool: ThreadPoolExecutor) -> None:
    as_sample("a", lambda: pool.submit(whose).result())

    assert pool.submit(whose).result() is None


def test_a_pool_passes_arguments_and_errors_on(pool: ThreadPoolExecutor) -> None:
    assert as_sample("a", lambda: pool.submit(int, "11", base=2).result()) == 3
    with pytest.raises(ValueError, match="invalid literal"):
        as_sample("a", lambda: pool.submit(int, "x").result())


async def test_the_loops_own_executor_does_alike() -> None:
    loop = asyncio.get_running_loop()
    futures = [as_sample(name, lambda: loop.run_in_executor(None, whose)) for name in "ab"]

    assert [await future for future in futures] == ["a", "b"]  # type: ignore[misc]


def test_a_bare_thread_is_the_samples_that_starts_it() -> None:
    seen: list[str | None] = []

    class Own(threading.Thread):
        def run(self) -> None:
            seen.append(whose())

    def start_both() -> None:
        for thread in (threading.Thread(target=lambda: seen.append(whose())), Own()):
            thread.start()
            thread.join()

    as_sample("a", start_both)
    start_both()

    assert seen == ["a", "a", None, None]
