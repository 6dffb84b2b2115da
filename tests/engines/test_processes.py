"""Worker processes: what they are handed, how they die, how they are replaced."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

import engine_subjects as subjects
from evalve import ForEach, foreach, model
from evalve.contracts import CallLog, EvaluationSpec, Runnable, SampleContext
from evalve.engines.child import died_in_words
from evalve.engines.crossing import Place, dumped, loaded
from evalve.engines.finding import Modules, importing, loaded_module
from evalve.engines.processes import ProcessEngine
from evalve.errors import (
    CrossingError,
    DeclarationError,
    InfrastructureError,
    OptionError,
    ResultError,
    WorkerDied,
)
from evalve.options import Options
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from evalve.traces import Trace
from running import Notes, runnable, statuses
from running import running as running_whole


def sample(**more: Any) -> SampleContext:
    return SampleContext("exp", "eval_x", "s1", 0, 1, **more)


def evaluation(function: Callable[..., Any], **fields: Any) -> Runnable:
    options = Options(engine="processes", **fields.pop("options", {}))
    return Runnable(
        spec=EvaluationSpec("exp", "eval_x.py::eval_x", "eval_x"),
        function=function,
        call=function,
        is_async=False,
        rows=lambda: pytest.fail("engines read no rows"),
        options=options,
        **fields,
    )


@asynccontextmanager
async def running(
    function: Callable[..., Any], *, workers: int = 1, **fields: Any
) -> AsyncIterator[ProcessEngine]:
    engine = ProcessEngine(evaluation(function, **fields), workers)
    try:
        await engine.start()
        yield engine
    finally:
        engine.close()


def started_in(folder: Path) -> list[psutil.Process]:
    """The worker and the program that its sample has started, as soon as they are there."""
    while not (folder / "pids").exists():
        time.sleep(0.005)
    return [psutil.Process(int(pid)) for pid in (folder / "pids").read_text().split()]


class TestWorkers:
    async def test_a_process_of_its_own_is_used_again(self) -> None:
        async with running(subjects.pid) as engine:
            first = await engine.call({}, sample())
            second = await engine.call({}, sample())

        assert first == second != os.getpid()

    async def test_as_many_work_beside_each_other_as_are_allowed(self) -> None:
        async with running(subjects.pid_of_sample, workers=2) as engine:
            told = await asyncio.gather(*(engine.call({"a": a}, sample()) for a in range(40)))

        assert [a for a, _ in told] == list(range(40))
        assert len({pid for _, pid in told}) <= 2

    async def test_the_function_runs_on_its_main_thread(self) -> None:
        async with running(subjects.is_on_main_thread) as engine:
            assert await engine.call({}, sample()) is True

    async def test_a_method_runs_on_a_copy_of_its_object(self) -> None:
        async with running(subjects.Subject.multiplies, leading=(subjects.Subject(3),)) as engine:
            assert await engine.call({"a": 4}, sample()) == 12

    async def test_what_it_prints_does_not_disturb_the_answers(self) -> None:
        async with running(subjects.prints) as engine:
            assert await engine.call({}, sample()) is True


class Account:
    """What a run knows of its calls."""

    def __init__(self) -> None:
        self.counted = CallLog()

    def count_elsewhere(self, calls: CallLog) -> None:
        self.counted.add(calls)


class Waiting:
    """Surroundings that note what is waited for."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def held(self, awaitable: Awaitable[Any], reason: str) -> Any:
        self.reasons.append(reason)
        return await awaitable

    parked = held

    def call_begins(self) -> None: ...
    def call_ends(self) -> None: ...
    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None: ...
    def when_committed(self, callback: Callable[[], None]) -> None: ...
    def when_recorded(self, callback: Callable[[], None]) -> None: ...
    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def elsewhere(self) -> AbstractContextManager[None]:
        return nullcontext()


class TestWaitingForAWorker:
    async def test_it_is_a_wait_of_the_sample_and_not_its_work(self) -> None:
        first, second = Waiting(), Waiting()
        async with running(subjects.pid) as engine:
            pids = await asyncio.gather(
                engine.call({}, sample(surroundings=first)), engine.call({}, sample(surroundings=second))
            )

        assert len(set(pids)) == 1
        assert (first.reasons, second.reasons) == ([], ["worker"])

    async def test_one_that_is_cancelled_leaves_the_worker_to_the_next(self) -> None:
        async with running(subjects.pid_of_sample) as engine:
            calls = [asyncio.ensure_future(engine.call({"a": a}, sample())) for a in range(3)]
            await asyncio.sleep(0)
            calls[1].cancel()
            ended = await asyncio.gather(*calls, return_exceptions=True)

        assert isinstance(ended[1], asyncio.CancelledError)
        assert [one[0] for one in (ended[0], ended[2]) if isinstance(one, tuple)] == [0, 2]

    async def test_where_none_can_be_started_the_sample_hears_why(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        async with running(subjects.pid, workers=2) as engine:
            monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
            ended = await asyncio.gather(
                engine.call({}, sample()), engine.call({}, sample()), return_exceptions=True
            )

        assert isinstance(ended[0], int)
        assert isinstance(ended[1], InfrastructureError)
        assert "no worker process could be started: [Errno 2] No such file" in str(ended[1])


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop on which time can be skipped, while other processes live in real time."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


class TestTimeouts:
    def test_a_deadline_stands_still_while_the_sample_waits_in_its_process(self, tmp_path: Path) -> None:
        file = tmp_path / "awaited"

        async def skip_an_hour(notes: Notes) -> None:
            await asyncio.to_thread(until, lambda: notes.tallies and notes.tallies[0].waiting.get("file"))
            _skip(3600.0)
            await asyncio.sleep(0.005)  # whatever is due then is done before the wait ends
            file.touch()

        assert self.ended(subjects.waits_for_a_file, file, skip_an_hour) == [("a", "done")]

    def test_it_ends_a_sample_that_works(self, tmp_path: Path) -> None:
        file = tmp_path / "awaited"

        async def skip_an_hour(notes: Notes) -> None:
            await asyncio.to_thread(until, file.with_suffix(".begun").exists)
            _skip(3600.0)

        assert self.ended(subjects.works_until_a_file, file, skip_an_hour) == [("a", "failed")]

    def ended(
        self, function: Callable[[str], bool], file: Path, meanwhile: Callable[[Notes], Awaitable[None]]
    ) -> list[tuple[str, str]]:
        store, notes = open_store("memory://"), Notes()
        data = [{"id": "a", "path": str(file)}]
        timed = runnable(function, data, engine="processes", workers=1, timeout_s=60.0)

        async def both() -> None:
            run = asyncio.ensure_future(running_whole(timed, store, notes))
            await meanwhile(notes)
            await run

        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            runner.run(both())
        return statuses(store)


def until(is_so: Callable[[], Any]) -> None:
    while not is_so():
        time.sleep(0.005)


def _skip(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skipped_s += seconds


async def test_the_cpu_time_of_workers_is_that_of_the_run() -> None:
    store = open_store("memory://")
    outcome = await running_whole(
        runnable(subjects.computes, [{"id": "a", "cpu_s": 1.0}], engine="processes", workers=1), store
    )

    assert statuses(store) == [("a", "done")]
    assert outcome.run.report["cpu_s"] >= 1.0


class TestDying:
    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ("exit", "ended with exit code 3 before it answered"),
            ("SIGSEGV", "was killed by SIGSEGV"),
            (
                "SIGKILL",
                "was killed by SIGKILL; a system out of memory does that, and fewer workers need less of it",
            ),
        ],
    )
    async def test_a_worker_that_dies_is_told_and_replaced(self, how: str, words: str) -> None:
        async with running(subjects.kills_its_process) as engine:
            with pytest.raises(WorkerDied) as died:
                await engine.call({"how": how}, sample())
            with pytest.raises(WorkerDied) as died_again:
                await engine.call({"how": "exit"}, sample())

        assert str(died.value) == f"the worker process of sample 's1' of eval_x {words}"
        assert "ended with exit code 3" in str(died_again.value)

    async def test_what_a_sample_left_before_its_worker_died_is_there(self) -> None:
        trace, account = Trace(), Account()
        context = sample(trace=trace, account=account)
        async with running(subjects.leaves_a_note_and_a_call_and_kills_its_process) as engine:
            with pytest.raises(WorkerDied):
                await engine.call({}, context)

        assert [event["text"] for event in trace.events()] == ["the last words"]
        assert context.calls == account.counted == CallLog(requests=2)

    async def test_one_that_dies_while_it_is_idle_costs_no_sample(self) -> None:
        async with running(subjects.pid) as engine:
            first = await engine.call({}, sample())
            (worker,) = engine._idle
            psutil.Process(first).kill()
            await worker._dead

            assert await engine.call({}, sample()) != first

    async def test_a_cancelled_call_kills_its_process_and_what_that_has_started(self, tmp_path: Path) -> None:
        async with running(subjects.starts_a_program_and_hangs) as engine:
            call = asyncio.ensure_future(engine.call({"folder": str(tmp_path)}, sample()))
            processes = await asyncio.to_thread(started_in, tmp_path)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            gone, alive = await asyncio.to_thread(psutil.wait_procs, processes, 30)

        assert (len(gone), alive) == (2, [])

    async def test_a_program_that_a_dead_worker_left_behind_does_not_hide_its_death(
        self, tmp_path: Path
    ) -> None:
        async with running(subjects.starts_a_program_and_hangs) as engine:
            call = asyncio.ensure_future(engine.call({"folder": str(tmp_path)}, sample()))
            worker, program = await asyncio.to_thread(started_in, tmp_path)
            worker.kill()
            with pytest.raises(WorkerDied, match="SIGKILL"):
                await call
            gone, _ = await asyncio.to_thread(psutil.wait_procs, [program], 30)

        assert gone == [program]

    def test_an_unknown_signal_has_a_number(self) -> None:
        assert died_in_words(-99) == "was killed by signal 99"


class TestCrossing:
    def test_an_argument_that_cannot_cross_is_named_before_anything_runs(self) -> None:
        things = {"fine": 1, "client": subjects.Unwritable()}

        with pytest.raises(CrossingError) as refused:
            ProcessEngine(evaluation(subjects.takes_anything, arguments=things), 1)

        assert str(refused.value) == (
            "eval_x: the argument 'client' (engine_subjects.Unwritable) cannot be handed to a worker process:"
            " cannot pickle '_thread.lock' object. Hand over plain values and make it of them inside the "
            "function, make it at the top of the module, or run it in this process (engine='auto', without "
            "--engine processes)"
        )

    async def test_so_is_one_that_the_worker_cannot_read(self) -> None:
        engine = ProcessEngine(
            evaluation(subjects.takes_anything, arguments={"thing": subjects.Unreadable()}), 1
        )

        with pytest.raises(CrossingError, match=r"the argument 'thing' cannot be handed .*: not here\. "):
            await engine.start()
        engine.close()

    async def test_a_rows_value_that_cannot_cross_fails_its_sample_alone(self) -> None:
        async with running(subjects.takes_anything) as engine:
            with pytest.raises(CrossingError, match=r"^eval_x, sample 's1': the argument 'thing' \(engine_"):
                await engine.call({"thing": subjects.Unwritable()}, sample())

            assert await engine.call({"thing": 1}, sample()) == "int"

    async def test_what_cannot_come_back_is_an_error_that_says_so(self) -> None:
        async with running(subjects.returns_a_lock) as engine:
            with pytest.raises(ResultError, match=r"^eval_x returned _thread\.lock, which cannot be brought"):
                await engine.call({}, sample())

    async def test_a_variant_of_a_metric_that_only_the_worker_made_is_made_here_too(self) -> None:
        async with running(subjects.returns_a_variant_metric) as engine:
            score = await engine.call({}, sample())

        assert [one.name for one in score.metrics] == ["share_above(0.25)"]
        assert score.metrics[0]([0.1, 0.3]) == 0.5

    async def test_the_runs_account_is_told_of_the_calls(self) -> None:
        account = Account()
        async with running(subjects.leaves_calls_and_a_trace) as engine:
            await engine.call({}, sample(account=account, trace=Trace()))

        assert account.counted == CallLog(requests=2, cost_usd=0.5)

    async def test_a_model_crosses_and_asks_through_the_gate_of_the_worker(self) -> None:
        asked = model("openai-compatible/tiny@http://127.0.0.1:1/v1", api_key="key", headers={"x-team": "a"})
        async with running(subjects.tells_its_model, arguments={"model": asked}) as engine:
            told = await engine.call({}, sample())

        assert told == ("openai-compatible/tiny@http://127.0.0.1:1/v1", "a", os.getpid())


class TestFinding:
    def test_a_function_inside_another_is_refused(self) -> None:
        def inner() -> bool:
            return True

        with pytest.raises(DeclarationError, match="eval_x is defined inside another function"):
            ProcessEngine(evaluation(inner), 1)

    def test_a_function_without_a_file_is_refused(self) -> None:
        notebook = ModuleType("notebook_cell")

        def cell() -> bool:
            return True

        cell.__module__, cell.__qualname__ = "notebook_cell", "cell"
        sys.modules["notebook_cell"] = notebook
        try:
            with pytest.raises(DeclarationError, match="eval_x is not defined in a file"):
                ProcessEngine(evaluation(cell), 1)
        finally:
            del sys.modules["notebook_cell"]

    def test_a_function_that_stands_elsewhere_is_refused(self) -> None:
        def renamed() -> bool:
            return True

        renamed.__qualname__ = "returns"
        renamed.__module__ = "engine_subjects"

        with pytest.raises(
            DeclarationError, match="cannot be found as returns in the module engine_subjects"
        ):
            ProcessEngine(evaluation(renamed), 1)

    def test_a_module_that_is_not_on_the_path_is_loaded_from_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "eval_far.py").write_text("def eval_far():\n    return __name__\n")

        module = loaded_module("evals.eval_far", str(tmp_path / "eval_far.py"))

        assert module.eval_far() == "evals.eval_far"
        assert sys.modules.pop("evals.eval_far") is module

    def test_its_values_cross_where_the_folders_around_it_are_no_packages(self, tmp_path: Path) -> None:
        (tmp_path / "eval_far.py").write_text("class Row:\n    pass\n")

        module = loaded_module("evals_far.deep.eval_far", str(tmp_path / "eval_far.py"))

        assert type(loaded(dumped(module.Row()))) is module.Row
        for name in ("evals_far", "evals_far.deep", "evals_far.deep.eval_far"):
            del sys.modules[name]

    def test_a_module_that_breaks_is_not_left_behind(self, tmp_path: Path) -> None:
        (tmp_path / "eval_broken.py").write_text("1 / 0\n")

        with pytest.raises(ZeroDivisionError):
            loaded_module("eval_broken", str(tmp_path / "eval_broken.py"))
        assert "eval_broken" not in sys.modules

    def test_a_file_that_no_longer_has_the_function_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "eval_gone.py").write_text("")
        place = Place("eval_gone", str(tmp_path / "eval_gone.py"), "eval_gone")

        with pytest.raises(LookupError, match=r"eval_gone\.py has no eval_gone when it is imported"):
            Modules(Place("__evalve_main__", None)).function(place)
        del sys.modules["eval_gone"]

    def test_a_program_that_defines_a_class_is_imported_when_that_is_needed(self, tmp_path: Path) -> None:
        (tmp_path / "program.py").write_text("class Mine: pass\nassert __name__ != '__main__'\n")
        main = sys.modules["__main__"]
        try:
            name = Modules(Place("__evalve_main__", str(tmp_path / "program.py"))).name_for("__main__")

            assert sys.modules[name].Mine.__module__ == "__evalve_main__"
            assert sys.modules["__main__"] is sys.modules.pop("__evalve_main__")
        finally:
            sys.modules["__main__"] = main

    def test_an_evaluation_that_is_called_while_its_file_is_imported_is_refused(self) -> None:
        @foreach("n", [1])
        def eval_called(n: int) -> bool:
            return True

        with importing(), pytest.raises(DeclarationError, match='if __name__ == "__main__"'):
            eval_called()


class TestAsyncFunctions:
    def test_a_decorator_that_asks_for_processes_is_refused(self) -> None:
        async def eval_async(n: int) -> bool:
            return True

        with pytest.raises(DeclarationError, match="eval_async is async, and engine='processes' is for sync"):
            ForEach(engine="processes")("n", [1])(eval_async)

    def test_so_is_a_direct_call(self) -> None:
        @foreach("n", [1])
        async def eval_async(n: int) -> bool:
            return True

        with pytest.raises(OptionError, match="eval_async is async, and engine='processes' is for sync"):
            run_in_virtual_time(eval_async(engine="processes"))
