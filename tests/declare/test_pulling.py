"""How rows are pulled: never too many, on one thread, handed over early, closed without hanging."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from itertools import count
from typing import Any

import pytest

from evalve.declare.datasets import Dataset
from evalve.errors import DatasetError


def opened(source: Any, limit: int | None = None, **more: Any) -> Any:
    return Dataset(source, ("n",), "eval_x.py:12", **more).open(limit)


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that goes on by `step_s` each time it is read."""
    ticks = count()
    return lambda: next(ticks) * step_s


async def test_an_endless_generator_is_pulled_exactly_as_often_as_asked() -> None:
    pulled = 0

    def endless() -> Iterator[int]:
        nonlocal pulled
        while True:
            pulled += 1
            yield pulled

    rows = opened(endless(), limit=100, now_s=lambda: 0.0)
    sizes = [len(await rows.next(32)) for _ in range(5)]
    await rows.close()

    assert sizes == [32, 32, 32, 4, 0]
    assert pulled == 100


async def test_an_endless_async_generator_is_pulled_exactly_as_often_as_asked() -> None:
    pulled = 0

    async def endless() -> AsyncIterator[int]:
        nonlocal pulled
        while True:
            pulled += 1
            yield pulled

    rows = opened(endless, limit=5, now_s=lambda: 0.0)
    sizes = [len(await rows.next(3)) for _ in range(3)]
    await rows.close()

    assert (sizes, pulled) == ([3, 2, 0], 5)


async def test_a_slow_generator_hands_over_each_row_at_once() -> None:
    rows = opened(iter([1, 2, 3]), now_s=ticking(0.006))

    assert [len(await rows.next(64)) for _ in range(4)] == [1, 1, 1, 0]
    await rows.close()


async def test_a_slow_async_generator_hands_over_each_row_at_once() -> None:
    async def slow() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    rows = opened(slow(), now_s=ticking(0.006))

    assert [len(await rows.next(64)) for _ in range(4)] == [1, 1, 1, 0]
    await rows.close()


async def test_a_generator_lives_on_one_thread_that_is_not_the_loops() -> None:
    threads: list[threading.Thread] = []

    def rows_and_threads() -> Iterator[int]:
        try:
            for n in range(3):
                threads.append(threading.current_thread())
                yield n
        finally:
            threads.append(threading.current_thread())

    rows = opened(rows_and_threads())
    await rows.next(1)
    await rows.next(1)
    await rows.close()
    threads[0].join(timeout=60)

    assert len(threads) == 3
    assert len(set(threads)) == 1
    assert threads[0].daemon
    assert threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()


async def test_a_function_is_called_on_the_thread_of_its_rows() -> None:
    threads: list[threading.Thread] = []

    def load() -> Iterator[int]:
        threads.append(threading.current_thread())
        return (threads.append(threading.current_thread()) or n for n in range(1))  # type: ignore[func-returns-value]

    rows = opened(load)
    await rows.next(1)
    await rows.close()

    assert len(threads) == 2
    assert len({*threads, threading.current_thread()}) == 2


async def test_a_generator_sees_the_callers_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("set")

    def from_context() -> Iterator[str]:
        yield variable.get()

    rows = opened(from_context())

    assert (await rows.next(1))[0].values == {"n": "set"}
    await rows.close()


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_what_a_generator_raises_names_the_row_after_those_before_it(kind: type[BaseException]) -> None:
    cause = kind("no more")

    def breaks() -> Iterator[int]:
        yield 1
        raise cause

    rows = opened(breaks())

    assert len(await rows.next(10)) == 1
    for _ in range(2):
        with pytest.raises(
            DatasetError,
            match=rf"^eval_x.py:12: reading row 2 of generator breaks raised {kind.__name__}: no more",
        ) as caught:
            await rows.next(10)
        assert caught.value.__cause__ is cause
    await rows.close()


async def test_what_an_async_generator_raises_names_the_row() -> None:
    async def breaks() -> AsyncIterator[int]:
        yield 1
        raise ValueError("no more")

    rows = opened(breaks())

    assert len(await rows.next(10)) == 1
    with pytest.raises(DatasetError, match=r"reading row 2 of async generator breaks raised ValueError"):
        await rows.next(10)
    await rows.close()


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_function_raises_is_an_error_of_the_dataset(is_async: bool) -> None:
    def load() -> list[int]:
        raise OSError("no network")

    async def load_later() -> list[int]:
        return load()

    rows = opened(load_later if is_async else load)

    with pytest.raises(DatasetError, match=r"raised OSError: no network"):
        await rows.next(1)
    await rows.close()


async def test_closing_ends_a_generator_and_an_async_generator() -> None:
    ended: list[str] = []

    def sync() -> Iterator[int]:
        try:
            yield from count()
        finally:
            ended.append("sync")

    async def later() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            ended.append("async")

    for source in (sync, later):
        rows = opened(source)
        await rows.next(1)
        await rows.close()
        await rows.close()

    assert ended == ["sync", "async"]


async def test_closing_does_not_wait_for_a_generator_that_is_blocked() -> None:
    blocked, release, ended = threading.Event(), threading.Event(), threading.Event()

    def blocks() -> Iterator[int]:
        try:
            blocked.set()
            release.wait()
            yield 1
        finally:
            ended.set()

    rows = opened(blocks())
    pull = asyncio.create_task(rows.next(1))
    await asyncio.to_thread(blocked.wait)
    await rows.close()
    assert not ended.is_set()

    release.set()
    assert await pull == []
    assert await asyncio.to_thread(ended.wait, 10)


async def test_closing_does_not_wait_for_an_async_generator_that_waits() -> None:
    waiting = asyncio.Event()

    async def waits() -> AsyncIterator[int]:
        waiting.set()
        await asyncio.Event().wait()
        yield 1

    rows = opened(waits())
    pull = asyncio.create_task(rows.next(1))
    await waiting.wait()
    await rows.close()

    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull


async def test_a_cancelled_pull_leaves_a_pass_that_can_be_closed() -> None:
    blocked, release = threading.Event(), threading.Event()

    def blocks() -> Iterator[int]:
        blocked.set()
        release.wait()
        yield 1

    rows = opened(blocks)
    pull = asyncio.create_task(rows.next(1))
    await asyncio.to_thread(blocked.wait)
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull

    release.set()
    await rows.close()


async def test_what_cleaning_up_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def untidy() -> Iterator[int]:
        try:
            yield from count()
        finally:
            raise ValueError("untidy")

    rows = opened(untidy())
    await rows.next(1)
    await rows.close()

    assert "untidy raised" in caplog.text


async def test_the_thread_of_kept_rows_ends_with_their_dataset() -> None:
    threads: list[threading.Thread] = []

    def endless() -> Iterator[int]:
        while True:
            threads.append(threading.current_thread())
            yield 1

    dataset = Dataset(endless(), ("n",), "eval_x.py:12")
    dataset.keep_rows()
    rows = dataset.open(1)
    await rows.next(1)
    await rows.close()
    assert threads[0].is_alive()

    del dataset, rows
    gc.collect()
    threads[0].join(timeout=60)
    assert not threads[0].is_alive()


async def test_lists_and_dicts_need_no_thread() -> None:
    before = set(threading.enumerate())
    for source in ([1, 2], {"a": 1, "b": 2}):
        rows = opened(source)
        assert len(await rows.next(5)) == 2
        assert set(threading.enumerate()) - before == set()
        await rows.close()


async def test_a_dict_that_changes_while_it_is_read_is_an_error() -> None:
    source = {"a": 1, "b": 2}
    rows = opened(source)
    await rows.next(1)
    source["c"] = 3

    with pytest.raises(DatasetError, match=r"reading row 2 of dict of 2 raised RuntimeError"):
        await rows.next(1)
    await rows.close()


def test_a_pass_over_kept_rows_may_follow_on_another_loop() -> None:
    async def go(dataset: Dataset) -> int:
        rows = dataset.open(2)
        samples = await rows.next(5)
        await rows.close()
        return len(samples)

    dataset = Dataset(iter([1, 2, 3]), ("n",), "eval_x.py:12", now_s=lambda: 0.0)
    dataset.keep_rows()

    assert [asyncio.run(go(dataset)), asyncio.run(go(dataset))] == [2, 2]
