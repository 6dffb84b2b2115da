"""Direct calls, and how the options of all doors come together."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve import wiring
from evalve.concurrency import Sequential
from evalve.contracts import SAMPLE, EvaluationInfo, EvaluationSpec, RunInfo, Store
from evalve.declare.foreach import MARK, ForEach, foreach
from evalve.errors import ExperimentChanged, Interrupted, Locked, OptionError
from evalve.options import Options
from evalve.records import Score
from evalve.runner.evaluation import Outcome
from evalve.storage import open_store
from evalve.wiring import settings, shared_store, storage_for

ROWS = [{"id": "a", "q": "1+1"}, {"id": "b", "q": "2+2"}, {"id": "c", "q": "3+3"}]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project directory, and an environment that says nothing but quiet."""
    for name in [name for name in os.environ if name.startswith("EVALVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EVALVE_PROGRESS", "off")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wiring, "_STORES", {})
    yield tmp_path
    for store in wiring._STORES.values():
        store.close()


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


# not called `eval_…`, or pytest would run them as evaluations


@foreach("q", ROWS)
def sums_sync(q: str) -> Score:
    return Score("match", q != "2+2", metrics="accuracy")


@foreach("q", ROWS)
async def sums_async(q: str) -> Score:
    await asyncio.sleep(0)
    return Score("match", q != "2+2", metrics="accuracy")


@foreach("q", ROWS)
def sums_model(q: str, model: Any, temperature: float = 0.5) -> bool:
    return bool(model)


class TestDirectCalls:
    def test_a_sync_evaluation_returns_its_result(self) -> None:
        result = sums_sync()

        assert result.summary["match"]["accuracy"] == pytest.approx(2 / 3)
        assert [(record.sample_id, record.status) for record in result] == [
            ("a", "done"),
            ("b", "done"),
            ("c", "done"),
        ]

    async def test_an_async_evaluation_is_awaited(self) -> None:
        result = await sums_async(max_concurrency=2, samples=2, experiment="x")

        assert (result.experiment, result.done, result.report["max_concurrency"]) == ("x", 2, 2)

    def test_an_async_evaluation_runs_under_asyncio_run(self) -> None:
        assert asyncio.run(sums_async()).done == 3

    def test_run_takes_sync_and_async_evaluations(self) -> None:
        assert (evalve.run(sums_sync).done, evalve.run(sums_async).done) == (3, 3)

    async def test_run_works_where_a_loop_is_running(self) -> None:
        assert (evalve.run(sums_async).done, evalve.run(sums_sync).done) == (3, 3)

    async def test_a_sync_evaluation_works_where_a_loop_is_running(self) -> None:
        assert sums_sync().done == 3

    def test_run_works_in_a_thread(self) -> None:
        results: list[Any] = []

        thread = threading.Thread(target=lambda: results.append(evalve.run(sums_async)))
        thread.start()
        thread.join()

        assert results[0].done == 3

    async def test_what_goes_wrong_in_the_other_thread_is_raised_here(self) -> None:
        with pytest.raises(TypeError, match=r"^sums_async has no parameter and no option 'nothing'"):
            evalve.run(sums_async, nothing=1)

    def test_a_function_that_is_no_evaluation_is_refused(self) -> None:
        def plain() -> None: ...

        with pytest.raises(
            TypeError, match=r"^plain is no evaluation: decorate it with @foreach\(columns, dataset\)$"
        ):
            evalve.run(plain)

    def test_positional_arguments_are_refused(self) -> None:
        with pytest.raises(
            TypeError, match=r"^sums_model takes keyword arguments only: pass fixtures by name$"
        ):
            sums_model("gpt")

    def test_a_bad_option_names_the_evaluation(self) -> None:
        with pytest.raises(
            OptionError, match=r"^sums_sync: samples: needs a whole number, 0 or more; got 'x'$"
        ):
            sums_sync(samples="x")

    def test_a_method_is_called_on_its_object(self) -> None:
        class Suite:
            answer = True

            @foreach("q", ROWS)
            def eval_method(self, q: str) -> bool:
                return self.answer

        assert Suite().eval_method().done == 3

    def test_run_takes_a_method_of_an_object(self) -> None:
        class Sums:
            start = 40

            @foreach("number", [1, 2])
            def eval_sum(self, number: int) -> bool:
                return self.start + number > 40

        assert evalve.run(Sums().eval_sum).done == 2

    def test_failed_samples_do_not_raise(self) -> None:
        @foreach("q", ROWS)
        def eval_broken(q: str) -> bool:
            raise ValueError("no")

        result = eval_broken()

        assert (result.done, result.failed, result.passed) == (0, 3, False)
        assert result.problems == ["3 of 3 samples failed (code)"]

    def test_an_interrupted_run_says_how_to_go_on(self) -> None:
        @ForEach(concurrency=Sequential())("q", ROWS)
        async def eval_interrupted(q: str) -> bool:
            if q == "2+2":
                handler: Any = signal.getsignal(signal.SIGINT)
                handler(signal.SIGINT, None)
                await asyncio.sleep(0)
            return True

        with pytest.raises(Interrupted) as caught:
            asyncio.run(eval_interrupted(experiment="x"))

        assert str(caught.value) == (
            "2 of 3 samples done and saved; run it again with experiment='x' to go on"
        )
        assert evalve.run(eval_interrupted, experiment="x").done == 3

    def test_a_run_that_no_person_has_stopped_says_why(self) -> None:
        @ForEach(concurrency=Sequential())("q", ROWS)
        def eval_spent(q: str) -> bool:
            sample = SAMPLE.get()
            assert sample is not None
            sample.stop_run("the budget of 2 USD is used up", drops_sample=True)
            return True

        with pytest.raises(Interrupted) as caught:
            eval_spent(experiment="x")

        assert str(caught.value).startswith("the budget of 2 USD is used up. 0 of 3 samples done and saved;")


class TestExperiments:
    def test_without_a_name_each_call_is_an_experiment_of_its_own(self) -> None:
        first, second = sums_sync(), sums_sync()

        assert first.experiment != second.experiment
        assert second.report["ran"] == 3

    def test_the_same_name_resumes(self) -> None:
        sums_sync(experiment="x", samples=2)

        assert sums_sync(experiment="x").report["ran"] == 1

    def test_a_name_in_the_decorator_counts_where_nothing_else_is_said(self) -> None:
        @ForEach(experiment="declared")("q", ROWS)
        def eval_named(q: str) -> bool:
            return True

        assert (eval_named().experiment, eval_named(experiment="said").experiment) == ("declared", "said")

    def test_another_run_of_the_experiment_is_refused(self, store: Store) -> None:
        held = store.lock("x", holder="someone else")

        with pytest.raises(Locked, match=r"^experiment 'x' is being run by .*someone else"):
            sums_sync(experiment="x", storage=store)

        held.release()
        assert sums_sync(experiment="x", storage=store).done == 3

    def test_the_lock_is_released_when_a_run_breaks(self, store: Store) -> None:
        @foreach("q", iter([{"id": "a", "q": "1"}, {"id": "a", "q": "2"}]))
        def eval_doubled(q: str) -> bool:
            return True

        with pytest.raises(evalve.errors.DatasetError):
            eval_doubled(experiment="x", storage=store)

        assert sums_sync(experiment="x", storage=store).done == 3

    def test_a_changed_function_is_refused(self, store: Store, tmp_path: Path) -> None:
        text = 'from evalve import foreach\n@foreach("q", ["1"])\ndef eval_it(q):\n    return {}\n'
        path = tmp_path / "eval_it.py"
        functions = []
        for answer in ("True", "False"):
            path.write_text(text.format(answer))
            names: dict[str, Any] = {}
            exec(compile(path.read_text(), str(path), "exec"), names)
            functions.append(names["eval_it"])
            if answer == "True":
                functions[0](experiment="x", storage=store)

        with pytest.raises(ExperimentChanged, match=r"-    return True\n +\+    return False"):
            functions[1](experiment="x", storage=store)


class TestVariants:
    def test_plain_arguments_tell_variants_apart(self, store: Store) -> None:
        for model in ("gpt", "opus"):
            sums_model(model=model, temperature=0.1, experiment="x", storage=store)

        assert [info.spec.name for info in store.evaluations("x")] == [
            "sums_model[model=gpt, temperature=0.1]",
            "sums_model[model=opus, temperature=0.1]",
        ]

    def test_settings_tell_variants_apart(self, store: Store) -> None:
        ran = [
            sums_model(model={"strict": strict}, experiment="x", storage=store).report["ran"]
            for strict in (True, False, True)
        ]

        assert ran == [3, 3, 0]

    def test_objects_do_not_tell_variants_apart(self, store: Store) -> None:
        sums_model(model=object(), experiment="x", storage=store)

        assert sums_model(model=object(), experiment="x", storage=store).report["ran"] == 0

    def test_long_texts_are_told_apart_by_their_content(self, store: Store) -> None:
        ran = [
            sums_model(model="long " * 20 + end, experiment="x", storage=store).report["ran"]
            for end in ("one", "two", "one")
        ]

        assert ran == [3, 3, 0]


class TestPrecedence:
    def _samples(self, **said: Any) -> int:
        @ForEach(samples=1)("q", [str(number) for number in range(9)])
        def eval_many(q: str) -> bool:
            return True

        done: int = eval_many(**said).done
        return done

    def test_the_decorator_comes_last(self) -> None:
        assert self._samples() == 1

    def test_yaml_goes_before_the_decorator(self, project: Path) -> None:
        (project / "evalve.yaml").write_text("options: {samples: 2}")

        assert self._samples() == 2

    def test_an_experiments_own_yaml_goes_before_that_for_all(self, project: Path) -> None:
        (project / "evalve.yaml").write_text("{options: {samples: 2}, experiments: {x: {samples: 3}}}")

        assert self._samples(experiment="x") == 3

    def test_the_environment_goes_before_yaml(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (project / "evalve.yaml").write_text("{options: {samples: 2}, experiments: {x: {samples: 3}}}")
        monkeypatch.setenv("EVALVE_SAMPLES", "4")

        assert self._samples(experiment="x") == 4

    def test_what_is_said_in_the_call_goes_before_all(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (project / "evalve.yaml").write_text("options: {samples: 2}")
        monkeypatch.setenv("EVALVE_SAMPLES", "4")

        assert self._samples(samples=5) == 5

    def test_the_experiments_name_comes_from_the_first_door_that_says_one(self, project: Path) -> None:
        (project / "evalve.yaml").write_text("options: {experiment: from-yaml}")
        environ = {"EVALVE_EXPERIMENT": "from-env"}

        said = settings(Options(experiment="said"), folder=project, environ=environ)
        env = settings(Options(), folder=project, environ=environ)
        yaml = settings(Options(), folder=project, environ={})

        assert [(s.experiment, s.named) for s in (said, env, yaml)] == [
            ("said", True),
            ("from-env", True),
            ("from-yaml", True),
        ]

    def test_a_name_that_nobody_chose_is_a_time_and_unique(self, project: Path) -> None:
        first = settings(Options(), folder=project, environ={})
        second = settings(Options(), folder=project, environ={})

        assert not first.named
        assert first.experiment != second.experiment


class TestStorage:
    def test_records_go_to_the_project_by_default(self, project: Path) -> None:
        sums_sync()

        assert (project / ".evalve" / "evalve.db").exists()
        assert (project / ".evalve" / ".gitignore").read_text() == "*\n"

    def test_a_call_may_name_a_file(self, project: Path) -> None:
        result = sums_sync(storage="other.db")

        assert (project / "other.db").exists()
        assert not (project / ".evalve").exists()
        assert result.done == 3

    def test_a_call_may_give_a_store(self, store: Store) -> None:
        sums_sync(storage=store, experiment="x")

        assert [info.name for info in store.experiments()] == ["x"]

    def test_what_is_said_goes_before_the_decorators_storage(self, project: Path, store: Store) -> None:
        evaluation = getattr(ForEach(storage=store)("q", ROWS)(lambda q: True), MARK)

        assert storage_for(evaluation, Options()) is store
        assert storage_for(evaluation, Options(storage="said.db")).url == f"sqlite:///{project}/said.db"

    def test_a_decorator_may_name_a_path(self, project: Path) -> None:
        evaluation = getattr(ForEach(storage=Path("mine.db"))("q", ROWS)(lambda q: True), MARK)

        assert storage_for(evaluation, Options()).url == f"sqlite:///{project}/mine.db"

    def test_one_place_is_opened_once(self, project: Path) -> None:
        assert shared_store("a.db") is shared_store(project / "a.db")

    def test_each_store_in_memory_is_its_own(self) -> None:
        first, second = shared_store("memory://"), shared_store("memory://")

        assert first is not second
        first.close()
        second.close()

    def test_a_result_can_be_read_after_other_runs_on_the_same_store(self) -> None:
        first = sums_sync(experiment="x")
        sums_sync(experiment="y")

        assert [record.sample_id for record in first] == ["a", "b", "c"]


def test_what_is_saved_is_told_with_failures_by_class_and_skips() -> None:
    spec = EvaluationSpec("x", "eval_x.py::eval_a", "eval_a")
    failures = {"provider": 2, "timeout": 1}
    info = EvaluationInfo(1, spec, 100, 37, 3, None, None, 0.0, 0.0, skipped=4, failures=failures)
    run = RunInfo("r", 1, "", None, "interrupted", {}, {}, None, {}, {})

    told = wiring.done_in_words(Outcome(info, [], run, ran=44, interrupted=True))

    assert told == "37 of 100 samples done, 3 failed (2 provider, 1 timeout), 4 skipped"


def test_the_commit_of_a_folder_without_git_is_unknown(tmp_path: Path) -> None:
    assert wiring.git_commit(tmp_path) is None


@pytest.mark.parametrize(
    ("typed", "variable", "yaml", "own", "named"),
    [
        (None, None, None, None, None),
        ("typed.db", "variable.db", "yaml.db", "own.db", "typed.db"),
        (None, "variable.db", "yaml.db", "own.db", None),
        (None, None, "yaml.db", "own.db", None),
        (None, None, None, "own.db", "own.db"),
        (None, None, None, Path("own.db"), "own.db"),
        (None, "memory://", None, None, "memory://"),
    ],
)
def test_show_is_told_of_a_storage_that_it_does_not_look_at_by_itself(
    project: Path, typed: str | None, variable: str | None, yaml: str | None, own: Any, named: str | None
) -> None:
    if yaml is not None:
        (project / "evalve.yaml").write_text(f"options: {{storage: {yaml}}}")
    environ = {"EVALVE_STORAGE": variable} if variable is not None else {}
    now = settings(Options(storage=typed), folder=project, environ=environ)
    evaluation = getattr(ForEach(storage=own)("q", ROWS)(lambda q: True), MARK)

    assert wiring.storage_to_name(now, evaluation) == named


def test_show_is_told_the_url_of_a_store_that_a_decorator_was_given(store: Store, project: Path) -> None:
    evaluation = getattr(ForEach(storage=store)("q", ROWS)(lambda q: True), MARK)

    assert wiring.storage_to_name(settings(Options(), folder=project, environ={}), evaluation) == "memory://"


def test_a_path_may_begin_with_the_home_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "home"))

    assert shared_store("~/x.db").url == f"sqlite:///{project}/home/x.db"
