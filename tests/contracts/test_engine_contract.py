"""What every engine does with a function, on this loop, in a thread or in another process."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

import engine_subjects as subjects
from evalve.concurrency import Sequential, SlidingWindow
from evalve.contracts import (
    SAMPLE,
    TRACEBACK_ELSEWHERE,
    CallLog,
    Engine,
    EvaluationSpec,
    Runnable,
    SampleContext,
)
from evalve.engines.choosing import engine_for
from evalve.engines.inline import InlineEngine
from evalve.engines.loop import LoopEngine
from evalve.engines.processes import ProcessEngine
from evalve.engines.threads import ThreadEngine
from evalve.options import Options
from evalve.records import Artefact
from evalve.runner.attempted import _traceback
from evalve.traces import Trace

KINDS = {"loop": LoopEngine, "inline": InlineEngine, "threads": ThreadEngine, "processes": ProcessEngine}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def running(kind: str, function: Callable[..., Any]) -> AsyncIterator[Engine]:
    """The engine for the function, chosen as a run would choose it."""
    subject = _async_version(function) if kind == "loop" else function
    evaluation = Runnable(
        spec=EvaluationSpec("exp", "eval_x.py::eval_x", "eval_x"),
        function=subject,
        call=subject,
        is_async=inspect.iscoroutinefunction(subject),
        rows=lambda: pytest.fail("engines read no rows"),
        options=Options(engine="processes" if kind == "processes" else None, workers=1),
    )
    engine = engine_for(evaluation, SlidingWindow(2) if kind == "threads" else Sequential())
    assert type(engine) is KINDS[kind]
    try:
        await engine.start()
        yield engine
    finally:
        engine.close()


def _async_version(function: Callable[..., Any]) -> Callable[..., Any]:
    written: Callable[..., Any] | None = getattr(subjects, f"{function.__name__}_async", None)
    if written is not None:
        return written

    @functools.wraps(function)
    async def lifted(**values: Any) -> Any:
        return function(**values)

    return lifted


class Watched:
    """Surroundings that note what they are asked for."""

    def __init__(self, *, ends_waits: bool = False) -> None:
        self.asked: list[str] = []
        self.is_asked = asyncio.Event()
        self._ends_waits = ends_waits

    async def held(self, awaitable: Awaitable[Any], reason: str) -> Any:
        self.asked.append(f"wait for {reason}")
        self.is_asked.set()
        if self._ends_waits:
            close = getattr(awaitable, "close", lambda: None)
            close()
            raise asyncio.CancelledError
        value = await awaitable
        self.asked.append(f"{reason} is over")
        return value

    async def parked(self, awaitable: Awaitable[Any], reason: str) -> Any:
        return await self.held(awaitable, reason)

    def call_begins(self) -> None:
        self.asked.append("a call begins")

    def call_ends(self) -> None:
        self.asked.append("a call ends")

    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None:
        self.asked.append(f"stop: {reason}" + ("; without this sample" if drops_sample else ""))

    def when_committed(self, callback: Callable[[], None]) -> None: ...
    def when_recorded(self, callback: Callable[[], None]) -> None: ...
    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def elsewhere(self) -> AbstractContextManager[None]:
        return nullcontext()


def sample(surroundings: Watched | None = None) -> SampleContext:
    return SampleContext(
        "exp", "eval_x", "s1", 2, 3, calls=CallLog(), surroundings=surroundings, trace=Trace()
    )


async def called(engine: Engine, values: dict[str, Any], context: SampleContext) -> Any:
    """As the runner does: the context is set in the task that calls."""
    SAMPLE.set(context)
    return await engine.call(values, context)


async def raised(kind: str, function: Callable[..., Any], **values: Any) -> BaseException:
    async with running(kind, function) as engine:
        try:
            await called(engine, values, sample())
        except BaseException as error:
            return error
    raise AssertionError("nothing was raised")


async def test_what_the_function_returns_comes_back(kind: str) -> None:
    async with running(kind, subjects.returns) as engine:
        assert await called(engine, {"a": 1, "b": 2}, sample()) == {"sum": 3}


async def test_one_call_follows_another(kind: str) -> None:
    async with running(kind, subjects.returns) as engine:
        sums = [await called(engine, {"a": a, "b": 1}, sample()) for a in range(3)]

    assert sums == [{"sum": 1}, {"sum": 2}, {"sum": 3}]


async def test_an_error_has_its_class_its_message_and_the_frames_of_the_function(kind: str) -> None:
    error = await raised(kind, subjects.raises_value_error, a=1)

    assert (type(error), str(error)) == (ValueError, "no 1")
    assert 'raise ValueError(f"no {a}")\nValueError: no 1\n' in _traceback(error)


async def test_an_error_that_cannot_be_copied_keeps_its_class_its_message_and_what_it_can(kind: str) -> None:
    error = await raised(kind, subjects.raises_odd_error)

    assert isinstance(error, subjects.OddError)
    assert (type(error).__name__, str(error), error.code) == ("OddError", "code 7", 7)


async def test_an_error_whose_class_is_local_keeps_its_name_and_its_bases(kind: str) -> None:
    error = await raised(kind, subjects.raises_local_error)

    assert isinstance(error, ConnectionError)
    assert (type(error).__name__, str(error)) == ("LocalError", "far away")


@pytest.mark.parametrize(
    ("function", "error_name", "message"),
    [(subjects.skips, "Skipped", "does not apply"), (subjects.exits, "SystemExit", "3")],
    ids=["skip", "exit"],
)
async def test_what_is_no_common_exception_comes_too(
    kind: str, function: Callable[..., Any], error_name: str, message: str
) -> None:
    error = await raised(kind, function)

    assert (type(error).__name__, str(error)) == (error_name, message)


async def test_the_function_knows_its_sample(kind: str) -> None:
    async with running(kind, subjects.tells_its_sample) as engine:
        told = await called(engine, {}, sample())

    assert told == ("exp", "eval_x", "s1", 2, 3)


async def test_calls_and_trace_are_in_the_context_afterwards(kind: str) -> None:
    context = sample()
    context.calls.requests = 1
    context.calls.ordinals["question"] = 4
    async with running(kind, subjects.leaves_calls_and_a_trace) as engine:
        await called(engine, {}, context)

    assert (context.calls.requests, context.calls.cost_usd) == (3, 0.5)
    assert context.calls.ordinals == {"question": 5}
    assert context.trace is not None
    assert [(event["kind"], event["text"]) for event in context.trace.events()] == [("note", "seen")]


async def test_files_are_kept_as_they_are_when_they_are_left(kind: str, tmp_path: Path) -> None:
    context = sample()
    context.trace = Trace(keep_file=_keep)
    async with running(kind, subjects.leaves_a_file_that_changes_and_goes) as engine:
        await called(engine, {"folder": str(tmp_path)}, context)

    first, second, third = context.trace.events()
    assert (first["hash"], second["hash"]) == ("draft", "final")
    assert third["problem"] == f"not kept: No such file or directory ({tmp_path / 'plan.txt'})"
    assert context.trace.artefacts == ("draft", "final")


def _keep(source: Path, *, name: str) -> Artefact:
    return Artefact(source.read_text(), 5, name)


async def test_the_surroundings_hear_of_calls_and_waits(kind: str) -> None:
    surroundings = Watched()
    async with running(kind, subjects.waits) as engine:
        assert await called(engine, {}, sample(surroundings)) == "waited"

    asked = surroundings.asked
    assert [each for each in asked if not each.startswith("a call")] == [
        "wait for limits",
        "limits is over",
        "wait for circuit",
        "circuit is over",
    ]
    # a call that waits in another process is told here as one that has ended, and begins again
    assert (asked[0], asked[-1]) == ("a call begins", "a call ends")
    assert asked.count("a call begins") == asked.count("a call ends")


async def test_a_wait_that_the_run_ends_is_cancelled_in_the_function(kind: str) -> None:
    async with running(kind, subjects.waits_for_ever) as engine:
        with pytest.raises(asyncio.CancelledError):
            await called(engine, {}, sample(Watched(ends_waits=True)))


async def test_a_sample_can_stop_the_run(kind: str) -> None:
    surroundings = Watched()
    async with running(kind, subjects.stops_the_run) as engine:
        await called(engine, {}, sample(surroundings))

    assert surroundings.asked == [
        "stop: the account is spent",
        "stop: the budget is spent; without this sample",
    ]


@pytest.mark.parametrize("kind", ["threads", "processes"])
async def test_a_stop_iteration_becomes_an_error_that_can_be_carried(kind: str) -> None:
    error = await raised(kind, subjects.stops_iterating)

    assert (type(error), str(error)) == (RuntimeError, "the evaluation raised StopIteration: early")


@pytest.mark.parametrize("kind", ["loop", "processes"])
async def test_a_cancelled_call_ends_and_leaves_the_engine_in_order(kind: str) -> None:
    surroundings = Watched()
    async with running(kind, subjects.waits_for_ever) as engine:
        call = asyncio.ensure_future(called(engine, {}, sample(surroundings)))
        await surroundings.is_asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_closing_leaves_nothing_running(kind: str) -> None:
    async with running(kind, subjects.returns) as engine:
        await called(engine, {"a": 1, "b": 2}, sample())

    for thread in threading.enumerate():
        if thread.name.startswith(("evalve-sample", "evalve-child")):
            thread.join(30)
    ours = [
        one.name for one in threading.enumerate() if one.name.startswith(("evalve-sample", "evalve-child"))
    ]
    assert ours == []
    assert [child for child in psutil.Process().children() if "worker_process" in str(child.cmdline())] == []


def test_the_text_of_a_traceback_from_elsewhere_is_taken_as_it_is() -> None:
    error = ValueError("no")
    setattr(error, TRACEBACK_ELSEWHERE, "Traceback of another process")

    assert _traceback(error) == "Traceback of another process"
