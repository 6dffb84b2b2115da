"""Files written for doteval and dotevals: the names that their documentation uses, and what they lead to."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

import doteval
import doteval.datasets
import doteval.metrics
from doteval.concurrency import AdaptiveStrategy, Concurrency, fixed
from doteval.core import ForEach, foreach, run_evaluation
from doteval.datasets import Dataset
from doteval.evaluators import ast_evaluation, evaluator, exact_match
from doteval.models import Evaluation, EvaluationStatus, EvaluationSummary, Record, Result, Sample, Score
from doteval.sessions import SessionManager
from doteval.storage import JSONStorage, SQLiteStorage, Storage, get_storage
from evalve.contracts import SAMPLE, parked
from evalve.errors import DeclarationError, Interrupted, OptionError
from evalve.metrics import accuracy

ROWS = [("2+2", "4"), ("3+3", "6"), ("5+5", "10")]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@foreach("question,answer", ROWS)
def sums(question: str, answer: str) -> Result:
    if question == "5+5":
        raise ValueError("no fingers left")
    return Result(exact_match("4", answer), prompt=question)


# -- running


def test_a_session_manager_names_experiment_and_storage() -> None:
    session = SessionManager("json://results", "sums")
    result = sums(session_manager=session)
    assert [record.dataset_row["question"] for record in result.results] == ["2+2", "3+3", "5+5"]
    assert [record.error for record in result.results] == [None, None, "ValueError: no fingers left"]
    assert result.summary["exact_match"]["accuracy"] == 0.5
    assert Path("results/evalve.db").exists()
    assert session.storage.list_experiments() == ["sums"]
    assert [record.item_id for record in session.get_results("sums")] == [0, 1, 2]


def test_an_experiment_and_an_evaluation_are_named_by_keyword() -> None:
    sums(experiment_name="named", evaluation_name="sums", storage="sqlite://agent_results.db")
    assert SQLiteStorage("agent_results.db").list_evaluations("named") == ["sums"]


def test_a_plain_function_is_run_over_a_dataset() -> None:
    def first_is_right(question: str, answer: str, guess: str) -> Score:
        return exact_match(guess, answer)

    result = run_evaluation(
        first_is_right, "question,answer", ROWS, "guessing", guess="4", samples=2, experiment_name="plain"
    )
    assert [record.scores[0].value for record in result.results] == [True, False]
    assert result.evaluation.startswith("guessing")


async def test_a_result_that_is_there_may_be_awaited_and_its_names_given_by_place() -> None:
    run_at_once = await sums("sums", "placed", 2)
    run_over_rows = await run_evaluation(
        lambda x: exact_match(x, "a"), "x", ["a", "b"], "letters", "placed", 1
    )
    assert (run_at_once.evaluation, run_at_once.experiment, len(run_at_once)) == ("sums", "placed", 2)
    assert (run_over_rows.evaluation, run_over_rows.experiment, len(run_over_rows)) == (
        "letters",
        "placed",
        1,
    )


def test_a_record_of_a_run_has_what_the_function_returned() -> None:
    first, *_, broken = sums(experiment="returned").results
    assert (first.result.scores, first.result.prompt) == (first.scores, first.prompt)
    assert (broken.result.scores, broken.result.error) == ([], "ValueError: no fingers left")


def test_a_storage_object_is_where_an_evaluation_records() -> None:
    @ForEach(storage=JSONStorage("kept"))("x", [("a",)])
    def eval_kept(x: str) -> Score:
        return exact_match(x, "a")

    eval_kept(experiment_name="here")
    assert get_storage("json://kept").list_evaluations("here") == ["eval_kept"]


def test_a_storage_of_ones_own_is_refused_with_the_line_to_write() -> None:
    bucket = Mock(spec=Storage)
    with pytest.raises(DeclarationError, match=r"leave storage= out.*add_results\("):
        ForEach(storage=bucket)


def test_a_batch_function_takes_lists_and_each_row_is_a_sample() -> None:
    sizes: list[int] = []

    @doteval.batch("question,answer", ROWS, batch_size=2)
    def eval_batched(question: list[str], answer: list[str], guess: str) -> list[Result]:
        sizes.append(len(question))
        return [
            Result(exact_match(guess, one), prompt=asked) for asked, one in zip(question, answer, strict=True)
        ]

    result = asyncio.run(eval_batched(guess="4"))
    assert sizes == [2, 1]
    assert [record.prompt for record in result.results] == ["2+2", "3+3", "5+5"]
    assert [record.scores[0].value for record in result.results] == [True, False, False]


def test_without_a_size_a_batch_is_everything() -> None:
    sizes: list[int] = []

    @doteval.batch("question,answer", ROWS)
    async def eval_at_once(question: list[str], answer: list[str]) -> Score:
        sizes.append(len(question))
        return exact_match(question, question)

    result = asyncio.run(eval_at_once())
    assert sizes == [3]
    assert [record.scores[0].value for record in result.results] == [True, True, True]


def test_an_error_of_a_batch_fails_its_rows_and_no_others() -> None:
    @doteval.batch("question,answer", ROWS, batch_size=2)
    def eval_broken(question: list[str], answer: list[str]) -> list[Score]:
        if "5+5" in question:
            raise ValueError("no fingers left")
        return [exact_match(one, one) for one in answer]

    result = asyncio.run(eval_broken(experiment="broken"))
    assert [record.error for record in result.results] == [None, None, "ValueError: no fingers left"]


def test_a_batch_needs_a_result_for_each_row() -> None:
    @doteval.batch("question,answer", ROWS)
    def eval_short(question: list[str], answer: list[str]) -> list[Score]:
        return [exact_match(1, 1)]

    result = asyncio.run(eval_short())
    assert {record.error for record in result.results} == {
        "ResultError: eval_short returned 1 results for a batch of 3 rows;"
        " return one for each row, in their order"
    }


def test_rows_that_were_done_are_not_in_a_batch_again() -> None:
    seen: list[list[str]] = []

    @doteval.batch("question,answer", ROWS, batch_size=2)
    def eval_again(question: list[str], answer: list[str]) -> list[Score]:
        seen.append(list(question))
        return [exact_match(one, one) for one in answer]

    asyncio.run(eval_again(experiment="again", samples=2))
    asyncio.run(eval_again(experiment="again"))
    assert seen == [["2+2", "3+3"], ["5+5"]]


def test_a_batch_that_waits_for_what_is_not_its_own_work_goes_on_afterwards() -> None:
    @doteval.batch("question,answer", ROWS, batch_size=2)
    async def eval_waiting(question: list[str], answer: list[str]) -> list[Score]:
        await parked(asyncio.sleep(0), "a limit")
        return [exact_match(one, one) for one in answer]

    result = asyncio.run(asyncio.wait_for(eval_waiting(), timeout=60))
    assert [record.error for record in result.results] == [None, None, None]


def test_a_batch_that_a_stop_ends_while_it_waits_leaves_its_rows_undone() -> None:
    @doteval.batch("question,answer", ROWS)
    async def eval_stopped(question: list[str], answer: list[str]) -> list[Score]:
        sample = SAMPLE.get()
        assert sample is not None
        sample.stop_run("no call can succeed")
        await parked(asyncio.Event().wait(), "a limit")
        raise AssertionError("nobody sets it")

    with pytest.raises(Interrupted):
        asyncio.run(eval_stopped(experiment="stopped"))
    storage = get_storage("sqlite://.evalve/evalve.db")
    assert storage.list_evaluations("stopped") == ["eval_stopped"]
    assert storage.get_results("stopped", "eval_stopped") == []


def test_a_batch_goes_over_a_registered_dataset() -> None:
    class Numbers(Dataset):
        name = "numbers_of_a_test"
        splits: ClassVar = ["test"]
        columns: ClassVar = ["number"]

        def __init__(self, split: str | None = None, **kwargs: object) -> None: ...

        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from [(1,), (2,), (3,)]

    doteval.datasets.registry.register(Numbers)

    @doteval.batch.numbers_of_a_test("test", batch_size=2)  # type: ignore[untyped-decorator]
    def eval_numbers(number: list[int]) -> list[Score]:
        return [exact_match(len(number), 2) for _ in number]

    result = asyncio.run(eval_numbers())
    assert [record.scores[0].value for record in result.results] == [True, True, False]


def test_a_batch_size_of_none_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="batch_size"):
        doteval.batch("question,answer", ROWS, batch_size=0)


def test_what_core_of_dotevals_declares_is_awaited() -> None:
    from dotevals.core import foreach as awaited
    from dotevals.core import run_evaluation as run_later

    @awaited("question,answer", ROWS)
    def eval_later(question: str, answer: str) -> Score:
        return exact_match("4", answer)

    session = SessionManager(evaluation_name="later", experiment_name="exp", storage="json://kept")
    assert asyncio.run(eval_later(session)).summary["exact_match"]["accuracy"] == pytest.approx(1 / 3)
    declared: Any = eval_later
    assert isinstance(declared, importlib.import_module("dotevals.evaluation").Evaluation)
    assert (declared.executor_name, declared.column_names) == ("foreach", ["question", "answer"])
    plain = SessionManager(evaluation_name="plain", experiment_name="exp", storage="json://kept")
    run = run_later(
        lambda question, answer: exact_match("4", answer), "question,answer", ROWS, plain, samples=1
    )
    assert asyncio.run(run).summary["exact_match"]["accuracy"] == 1.0


def test_importing_a_registry_of_dotevals_leaves_that_of_its_package() -> None:
    for name in ("datasets", "evaluators"):
        importlib.import_module(f"dotevals.{name}.registry")
    datasets = importlib.import_module("dotevals.datasets").registry
    evaluators = importlib.import_module("dotevals.evaluators").registry

    assert "no_such_dataset" not in datasets
    assert "exact_match" in evaluators.list_evaluators()


def test_a_wrapped_client_tells_of_its_turns() -> None:
    told: list[str] = []
    concurrency = Concurrency(
        fixed(1),
        before_acquire=lambda strategy: told.append("before"),
        after_acquire=lambda strategy: told.append("got"),
        before_release=lambda strategy, error: told.append("after"),
        after_release=lambda strategy, error: told.append(repr(error)),
    )

    async def turn() -> None:
        await concurrency.acquire()
        await concurrency.release()

    asyncio.run(turn())
    assert told == ["before", "got", "after", "None"]


def test_a_result_may_say_what_went_wrong() -> None:
    @foreach("x", ["a"])
    def eval_told(x: str) -> Result:
        return Result(error="the judge was silent", prompt=x)

    (record,) = eval_told().results
    assert record.error == "AnswerError: the judge was silent"
    assert record.failure_class == "answer"


def test_a_registered_dataset_is_found_by_its_name() -> None:
    class Sums(Dataset):
        name = "sums_of_a_test"
        splits = ["test"]  # noqa: RUF012  # as doteval's documentation writes it
        columns = ["question", "answer"]  # noqa: RUF012

        def __init__(self, split: str | None = None, **kwargs: object) -> None:
            self.split = split

        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from ROWS[:1]

    doteval.datasets.registry.register(Sums)

    @foreach.sums_of_a_test("test")  # type: ignore[untyped-decorator]
    def eval_registered(question: str, answer: str) -> Score:
        return exact_match("4", answer)

    assert [record.dataset_row for record in eval_registered().results] == [
        {"question": "2+2", "answer": "4"}
    ]
    assert "sums_of_a_test" in doteval.datasets.list_available()


# -- dotevals


def test_dotevals_has_the_same_modules() -> None:
    for name in ("evaluators", "storage.json", "sessions", "datasets.base", "metrics"):
        later = importlib.import_module(f"dotevals.{name}")
        assert later is importlib.import_module(f"doteval.{name}")
        assert later.__spec__ is not None
        assert later.__spec__.name == f"doteval.{name}"


def test_a_module_that_neither_has_is_missed_under_its_name() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"dotevals\.unheard_of"):
        importlib.import_module("dotevals.unheard_of")


def test_run_of_dotevals_counts_a_failed_sample_as_wrong() -> None:
    import dotevals

    results = dotevals.run(sums, experiment="sums", samples=3)
    assert results.summary() == {
        "total": 3,
        "errors": 1,
        "metrics": {"exact_match": {"accuracy": pytest.approx(1 / 3)}},
    }
    assert results[2].error == "ValueError: no fingers left"


def test_an_evaluation_of_dotevals_is_awaited_although_it_is_sync() -> None:
    import dotevals

    @dotevals.foreach("x", ["a", "b"])
    def eval_awaited(x: str) -> Score:
        return exact_match(x, "a")

    session = SessionManager("letters", experiment_name="awaited", storage="json://x")
    result = asyncio.run(eval_awaited(session, samples=None))
    assert len(result.results) == 2
    assert session.storage.list_evaluations("awaited") == ["letters"]


# -- records by hand


@pytest.mark.parametrize("storage", [JSONStorage, SQLiteStorage])
def test_results_are_added_and_read_by_hand(storage: type[Storage]) -> None:
    kept = storage("place")  # type: ignore[call-arg]
    kept.create_experiment("e")
    kept.create_evaluation("e", Evaluation("v", EvaluationStatus.RUNNING, 1_700_000_000.0))
    right = Record(Result(Score("match", True, [accuracy()]), prompt="p"), 0, {"x": 1})
    kept.add_results("e", "v", [right, Record(item_id=1, scores=[], error="ValueError: no")])
    found = kept.get_results("e", "v")
    assert [(r.item_id, r.prompt, r.dataset_row, r.error) for r in found] == [
        (0, "p", {"x": 1}, None),
        (1, None, {}, "ValueError: no"),
    ]
    assert kept.completed_items("e", "v") == [0]
    kept.remove_error_result("e", "v", 1)
    assert [record.item_id for record in kept.get_results("e", "v")] == [0]
    kept.update_evaluation_status("e", "v", EvaluationStatus.COMPLETED)
    loaded = kept.load_evaluation("e", "v")
    assert loaded is not None
    assert (loaded.status, loaded.started_at) == (EvaluationStatus.COMPLETED, 1_700_000_000.0)
    kept.rename_experiment("e", "f")
    kept.delete_experiment("f")
    assert kept.list_experiments() == []


def test_what_was_wrong_and_what_broke_is_found_in_a_database() -> None:
    kept = SQLiteStorage("place.db")
    for name in ("w", "v"):
        kept.create_evaluation("e", Evaluation(name, EvaluationStatus.COMPLETED, 1_700_000_000.0))
        scores = [
            Score("match", False, [accuracy()], {"why": name}),
            Score("size", 0, []),
            Score("ok", 1, []),
        ]
        wrong = Record(Result(*scores), 0, {"x": name}, timestamp=1_700_000_001.0)
        kept.add_results("e", name, [wrong, Record(Result(prompt=""), 1, {"x": 2}, error="ValueError: no")])

    failed = kept.get_failed_results("e")
    broken = kept.get_error_results("e", "w")

    assert [(one["evaluation_name"], one["evaluator_name"], one["value"]) for one in failed] == [
        ("v", "match", False),
        ("v", "size", 0),
        ("w", "match", False),
        ("w", "size", 0),
    ]
    assert kept.get_failed_results("e", evaluation_name="v", evaluator_name="match") == [
        {
            "evaluation_name": "v",
            "item_id": 0,
            "dataset_row": {"x": "v"},
            "error": None,
            "timestamp": 1_700_000_001.0,
            "evaluator_name": "match",
            "value": False,
            "metadata": {"why": "v"},
        }
    ]
    assert [(one["evaluation_name"], one["item_id"], one["error"]) for one in broken] == [
        ("w", 1, "ValueError: no")
    ]
    assert kept.get_failed_results("gone") == []


def test_experiments_that_are_not_there_are_missed_by_name() -> None:
    with pytest.raises(ValueError, match="Experiment 'gone' not found"):
        JSONStorage("place").delete_experiment("gone")


def test_a_summary_of_records_counts_an_error_as_wrong() -> None:
    records = [
        Record(Sample(prompt="a", scores=[Score("match", True, [accuracy()])]), 1),
        Record(Sample(), 2, error="ValueError"),
    ]
    assert EvaluationSummary(records).summary == {"match": {"accuracy": 0.5}}


# -- the rest


def test_a_metric_has_a_name_as_functions_have_it() -> None:
    assert exact_match("1", "1").metrics[0].__name__ == "accuracy"
    assert doteval.metrics.registry["accuracy"] is accuracy


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_function_may_take_its_columns_as_star_args(is_async: bool) -> None:
    seen: list[tuple[Any, ...]] = []

    def eval_any(*args: Any, extra: str) -> bool:
        seen.append((*args, extra))
        return True

    async def eval_any_async(*args: Any, extra: str) -> bool:
        return eval_any(*args, extra=extra)

    declared: Any = doteval.foreach("b, a", [(1, 2), (3, 4)])(eval_any_async if is_async else eval_any)
    result = doteval.run(declared, extra="x", experiment="starred")

    assert (declared.column_names, result.done) == (["b", "a"], 2)
    assert sorted(seen) == [(1, 2, "x"), (3, 4, "x")]


def test_a_batch_of_all_rows_needs_no_files_for_each(capfd: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []

    @doteval.batch("a", range(3))
    def eval_all(a: list[int]) -> list[bool]:
        sizes.append(len(a))
        return [True] * len(a)

    doteval.run(eval_all, experiment="all")

    assert (sizes, "open" in capfd.readouterr().err) == ([3], False)


def test_a_batch_may_take_its_columns_as_star_args() -> None:
    @doteval.batch("a,b", [(1, 2), (3, 4)])
    def eval_lists(*args: list[int]) -> list[bool]:
        return [args == ([1, 3], [2, 4])] * 2

    assert [record.scores[0].value for record in doteval.run(eval_lists, experiment="lists").records] == [
        True,
        True,
    ]


def test_a_function_call_is_compared_parameter_by_parameter() -> None:
    schema = [{"name": "book", "parameters": {"required": ["city"], "properties": {"city": {}, "day": {}}}}]
    expected = [{"book": {"city": ["New York", "NYC"], "day": ["", "Monday"]}}]
    assert ast_evaluation({"book": {"city": "new-york"}}, expected, schema).value is True
    assert ast_evaluation({"book": {"city": "NYC", "day": "Sunday"}}, expected, schema).value is False
    assert ast_evaluation({"book": {"day": "Monday"}}, expected, schema).value is False
    assert ast_evaluation({"cancel": {"city": "NYC"}}, expected, schema).value is False


async def test_a_wrapped_client_makes_no_more_calls_at_once_than_allowed() -> None:
    class Client:
        at_once = most = 0

        async def generate(self, prompt: str) -> str:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(0)
            self.at_once -= 1
            return prompt.upper()

    client = Client()
    wrapped = Concurrency(fixed(2)).wrap(client)
    assert await asyncio.gather(*(wrapped.generate(letter) for letter in "abcde")) == list("ABCDE")
    assert client.most == 2


def test_a_metric_of_ones_own_is_in_the_registry() -> None:
    @doteval.metrics.metric
    def error_rate() -> Any:
        return lambda values: 1 - sum(values) / len(values)

    assert doteval.metrics.registry["error_rate"] is error_rate
    assert error_rate()([True, False, False, True]) == 0.5


def test_adaptive_takes_all_of_dotevals_arguments_and_tells_what_it_did() -> None:
    adaptive = AdaptiveStrategy(
        initial_concurrency=2,
        max_concurrency=8,
        throughput_window=10,
        stability_window=4,
        error_backoff_factor=0.5,
    )
    assert adaptive.get_stats()["throughput"] == 0.0

    @ForEach(concurrency=adaptive)("question,answer", ROWS)
    async def eval_sums(question: str, answer: str) -> Score:
        if question == "3+3":
            raise ValueError("no")
        return exact_match(str(eval(question)), answer)

    asyncio.run(eval_sums())

    stats = adaptive.get_stats()
    assert (stats["total_completed"], stats["total_errors"], stats["current_concurrency"]) == (3, 1, 2)


def test_the_parameter_that_dotevals_asks_evaluators_for_names_the_score() -> None:
    @evaluator(metrics=[accuracy()])
    def fuzzy(result: str, expected: str, threshold: float = 0.8, name: str | None = None) -> bool:
        return result.lower() == expected.lower() and name is None

    @evaluator([accuracy()])
    async def later(result: str, name: str | None = None) -> bool:
        return bool(result)

    @evaluator(accuracy())
    def greets(response: str, name: str) -> bool:
        return name in response

    assert (fuzzy("A", "a").name, fuzzy("A", "a", name="loose").name) == ("fuzzy", "loose")
    assert fuzzy("A", "a", name="loose").metadata == {"result": "A", "expected": "a"}
    assert asyncio.run(later("x", name="soon")).name == "soon"
    assert (greets("Hi Ada", name="Ada").name, greets("Hi Ada", name="Ada").value) == ("greets", True)


def test_both_packages_have_a_version() -> None:
    dotevals = importlib.import_module("dotevals")
    assert doteval.__version__ == dotevals.__version__ == importlib.import_module("doteval._version").version
