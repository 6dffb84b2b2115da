"""The background loop: calls from any thread, contexts, interrupts, forks, streams."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from evalve.gate.background import BackgroundLoop

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.stop()


async def thread_and_caller() -> tuple[str, str]:
    return threading.current_thread().name, WHO.get()


async def fail() -> None:
    raise LookupError("lost")


def test_a_call_returns_from_the_loops_own_thread(background: BackgroundLoop) -> None:
    token = WHO.set("somebody")
    seen = background.call(thread_and_caller())
    WHO.reset(token)
    assert seen == ("evalve-background", "somebody")


def test_a_call_raises_what_the_coroutine_raises(background: BackgroundLoop) -> None:
    with pytest.raises(LookupError, match="lost"):
        background.call(fail())


def test_all_threads_share_one_loop(background: BackgroundLoop) -> None:
    async def which() -> int:
        return id(asyncio.get_running_loop())

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        loops = set(threads.map(lambda _: background.call(which()), range(64)))
    assert len(loops) == 1


def test_a_thread_that_runs_a_loop_may_call(background: BackgroundLoop) -> None:
    async def caller() -> tuple[str, str]:
        return background.call(thread_and_caller())

    assert asyncio.run(caller()) == ("evalve-background", "nobody")


def test_a_call_from_the_loop_itself_is_refused_instead_of_waiting_forever(
    background: BackgroundLoop,
) -> None:
    async def inner() -> None:
        background.call(fail())

    with pytest.raises(RuntimeError, match="would wait for itself"):
        background.call(inner())


def test_an_interrupted_call_cancels_the_coroutine(background: BackgroundLoop) -> None:
    cancelled = threading.Event()

    async def hang() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        background.call(hang())
    assert cancelled.wait(60)


def test_a_call_interrupted_while_it_is_handed_over_is_cancelled_too(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def hang() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    background.call(thread_and_caller())
    hand_over = asyncio.BaseEventLoop.call_soon_threadsafe
    interrupts = iter([True])

    def interrupted(loop: asyncio.BaseEventLoop, *args: Any, **more: Any) -> asyncio.Handle:
        handle = hand_over(loop, *args, **more)
        if next(interrupts, False):
            assert began.wait(60)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        background.call(hang())
    assert cancelled.wait(60)


def test_a_call_interrupted_before_it_is_handed_over_never_runs(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    async def note() -> None:
        ran.append("ran")

    background.call(thread_and_caller())
    hand_over = asyncio.BaseEventLoop.call_soon_threadsafe
    interrupts = iter([True])

    def interrupted(loop: asyncio.BaseEventLoop, *args: Any, **more: Any) -> asyncio.Handle:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return hand_over(loop, *args, **more)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        background.call(note())
    background.call(thread_and_caller())
    assert ran == []


def test_a_stopped_loop_cancels_what_is_under_way_and_starts_again(background: BackgroundLoop) -> None:
    began = threading.Event()

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(background.call, hang())
        began.wait(60)
        background.stop()
        with pytest.raises(asyncio.CancelledError):  # no `Exception`, which the caller's code may swallow
            hanging.result(60)
    assert background.call(thread_and_caller())[0] == "evalve-background"


@asynccontextmanager
async def counting(story: list[str], *, up_to: int, fails: bool = False) -> AsyncIterator[int]:
    story.append("entered")
    try:
        yield up_to
        if fails:
            raise LookupError("at the end")
    finally:
        story.append("left")


async def numbers(up_to: int) -> AsyncIterator[int]:
    for number in range(up_to):
        yield number


async def one_then_silence(up_to: int) -> AsyncIterator[int]:
    yield up_to
    await asyncio.Event().wait()


def test_a_stream_is_read_to_its_end(background: BackgroundLoop) -> None:
    story: list[str] = []
    stream = background.open(counting(story, up_to=100), numbers)
    assert stream.opened == 100
    assert list(stream) == list(range(100))
    assert story == ["entered", "left"]
    stream.close()
    assert list(stream) == []


def test_a_stream_reads_only_a_little_ahead(background: BackgroundLoop) -> None:
    made: list[int] = []

    async def noted(up_to: int) -> AsyncIterator[int]:
        async for number in numbers(up_to):
            made.append(number)
            yield number

    async def nothing() -> None: ...

    stream = background.open(counting([], up_to=1000), noted)
    for _ in range(100):
        background.call(nothing())
    stream.close()
    assert len(made) == 17


def test_a_stream_raises_what_reading_or_leaving_raises(background: BackgroundLoop) -> None:
    stream = background.open(counting([], up_to=2, fails=True), numbers)
    items = iter(stream)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(LookupError, match="at the end"):
        next(items)


def test_opening_raises_what_entering_raises(background: BackgroundLoop) -> None:
    @asynccontextmanager
    async def closed_door() -> AsyncIterator[int]:
        await fail()
        yield 1

    with pytest.raises(LookupError, match="lost"):
        background.open(closed_door(), numbers)


def test_closing_a_stream_leaves_its_context_before_it_returns(background: BackgroundLoop) -> None:
    story: list[str] = []
    stream = background.open(counting(story, up_to=5), one_then_silence)
    assert next(iter(stream)) == 5
    stream.close()
    assert story == ["entered", "left"]


def test_a_stream_that_is_dropped_is_left(background: BackgroundLoop) -> None:
    left = threading.Event()

    @asynccontextmanager
    async def noting() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            left.set()

    stream = background.open(noting(), one_then_silence)
    del stream
    gc.collect()
    assert left.wait(60)


@pytest.mark.parametrize("way", ["returns", "raises", "is cancelled"])
def test_work_that_nobody_waits_for_any_more_ends_without_a_word(
    background: BackgroundLoop, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    go_on = threading.Event()

    async def work() -> None:
        await asyncio.to_thread(go_on.wait, 60)
        if way == "raises":
            raise ValueError("late")
        if way == "is cancelled":
            raise asyncio.CancelledError

    outcome = background.submit(work())
    outcome.cancel()
    go_on.set()
    background.stop()

    assert caplog.records == []


PROGRAM = """
import asyncio, gc, os, threading, warnings
warnings.simplefilter("error")
from evalve.gate.background import BackgroundLoop

background = BackgroundLoop()

async def pid():
    return os.getpid()

assert background.call(pid()) == os.getpid()
child = os.fork()
if child == 0:
    ok = background.call(pid()) == os.getpid()
    background.stop()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert background.call(pid()) == os.getpid()

began = threading.Event()

async def clean_up():
    try:
        began.set()
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)

background._work(clean_up()).begin()
assert began.wait(60)
asyncio.run_coroutine_threadsafe(pid(), background._loop).result()  # so that it waits now
gc.collect()  # which takes what nobody holds
print("child", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_a_forked_child_has_a_loop_of_its_own_and_the_end_of_the_program_cleans_up() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("child 0\ncleaned up\n", "", 0)
