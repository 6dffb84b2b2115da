"""Declaring evaluations, and the mistakes that are caught there."""

from __future__ import annotations

import importlib.metadata
import inspect
import linecache
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalve.concurrency import SlidingWindow
from evalve.declare.foreach import MARK, Evaluation, ForEach, as_called, foreach, require, split_arguments
from evalve.errors import DeclarationError, OptionError
from evalve.options import Options, Threshold

DATA = [("1+1", "2"), ("2+2", "4")]


def declared(function: Callable[..., Any]) -> Evaluation:
    evaluation = getattr(function, MARK)
    assert isinstance(evaluation, Evaluation)
    return evaluation


def line_of(function: Callable[..., Any]) -> int:
    return declared(function).line


class Source:
    """A file of evaluations that can be run, edited and run again in the same namespace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.namespace: dict[str, Any] = {"__name__": "eval_file"}

    def run(self, text: str) -> dict[str, Any]:
        lines = textwrap.dedent(text)
        self.path.write_text(lines)
        linecache.checkcache(str(self.path))
        exec(compile(lines, str(self.path), "exec"), self.namespace)
        return self.namespace


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "eval_file.py")


class TestDeclaring:
    def test_an_evaluation_knows_its_function_columns_name_and_place(self) -> None:
        @foreach("question, answer", DATA)
        async def eval_math(question: str, answer: str) -> bool:
            return True

        evaluation = declared(eval_math)
        assert (evaluation.columns, evaluation.name, evaluation.is_async) == (
            ("question", "answer"),
            "eval_math",
            True,
        )
        assert evaluation.path == Path(__file__)
        assert evaluation.where == f"{__file__}:{evaluation.line}"

    def test_columns_may_be_a_list(self) -> None:
        @foreach(["question", "answer"], DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).columns == ("question", "answer")

    def test_the_signature_hides_the_columns(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str, model: str, temperature: float = 0.5) -> bool:
            return True

        assert list(inspect.signature(eval_math).parameters) == ["model", "temperature"]

    def test_an_async_evaluation_is_an_async_function(self) -> None:
        @foreach("question,answer", DATA)
        async def eval_math(question: str, answer: str) -> bool:
            return True

        assert inspect.iscoroutinefunction(eval_math)
        assert (eval_math.__name__, eval_math.__doc__) == ("eval_math", None)

    def test_a_sync_evaluation_is_no_async_function(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert not inspect.iscoroutinefunction(eval_math)

    def test_a_configured_foreach_gives_its_settings_to_the_evaluation(self) -> None:
        window = SlidingWindow(20)
        configured = ForEach(
            name="math", concurrency=window, retries=5, storage="memory://", timeout=30, fail_under={"a": 0.5}
        )

        @configured("question,answer", DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        evaluation = declared(eval_math)
        assert (evaluation.name, evaluation.strategy, evaluation.retries, evaluation.storage) == (
            "math",
            window,
            5,
            "memory://",
        )
        assert evaluation.options == Options(timeout_s=30.0, fail_under=(Threshold("a", 0.5),))

    async def test_a_configured_dataset_serves_where_none_is_given(self) -> None:
        @ForEach(dataset=DATA)("question,answer")
        def eval_math(question: str, answer: str) -> bool:
            return True

        rows = declared(eval_math).dataset.open(None)
        assert [sample.values for sample in await rows.next(10)] == [
            {"question": "1+1", "answer": "2"},
            {"question": "2+2", "answer": "4"},
        ]
        await rows.close()

    async def test_a_given_dataset_goes_before_the_configured_one(self) -> None:
        @ForEach(dataset=DATA)("question,answer", [("3+3", "6")])
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).dataset.open(None).size() == 1

    def test_extra_keyword_arguments_take_any_column(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(**row: str) -> bool:
            return True

        assert declared(eval_math).columns == ("question", "answer")

    def test_a_key_is_file_function_and_variant(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        evaluation = declared(eval_math)
        assert evaluation.key(Path(__file__).parent, "[gpt]") == "test_foreach.py::eval_math[gpt]"
        assert evaluation.key(Path("/elsewhere")) == f"{__file__}::eval_math"

    def test_a_method_is_known_as_one(self) -> None:
        class TestMath:
            @foreach("question,answer", DATA)
            def eval_math(self, question: str, answer: str) -> bool:
                return True

        evaluation = declared(TestMath.eval_math)
        assert (evaluation.is_method, evaluation.name) == (True, "TestMath.eval_math")

    def test_what_is_bound_is_called_with_fixtures_and_columns(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str, model: str) -> Any:
            return question, answer, model

        evaluation = declared(eval_math)
        runnable = evaluation.bound(
            experiment="exp", key="k", variant="[m]", arguments={"model": "gpt"}, options=Options(samples=1)
        )
        assert runnable.call(question="1+1", answer="2") == ("1+1", "2", "gpt")
        assert (runnable.spec.experiment, runnable.spec.key, runnable.spec.name) == (
            "exp",
            "k",
            "eval_math[m]",
        )
        assert runnable.rows().size() == 1


class TestRequire:
    def test_gates_may_stand_above(self) -> None:
        @require(accuracy=0.9)
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).require == (Threshold("accuracy", 0.9),)

    def test_gates_may_stand_below(self) -> None:
        @foreach("question,answer", DATA)
        @require(accuracy=0.9)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).require == (Threshold("accuracy", 0.9),)

    def test_gates_add_up_and_two_underscores_stand_for_the_dot(self) -> None:
        @require(exact_match__accuracy=0.8)
        @foreach("question,answer", DATA)
        @require(mean=3)
        @require(accuracy=0.9)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).require == (
            Threshold("accuracy", 0.9),
            Threshold("mean", 3.0),
            Threshold("exact_match.accuracy", 0.8),
        )

    def test_gates_may_be_written_as_text_from_above_and_on_the_interval(self) -> None:
        @require("toxic<=0.1", accuracy__low=0.85)
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).require == (
            Threshold("toxic", 0.1, from_above=True),
            Threshold("accuracy.low", 0.85),
        )

    def test_a_text_that_is_no_gate_is_refused_with_file_and_line(self) -> None:
        with pytest.raises(DeclarationError) as caught:
            require("toxic<0.1")

        assert str(caught.value).startswith(
            f"{__file__}:{here() - 3}: require('toxic<0.1'): a gate needs NAME=VALUE or NAME<=VALUE"
        )

    @pytest.mark.parametrize("minimum", ["high", None, True, float("nan")])
    def test_a_gate_that_is_no_number_is_refused_with_file_and_line(self, minimum: Any) -> None:
        with pytest.raises(DeclarationError) as caught:
            require(accuracy=minimum)

        assert str(caught.value) == (
            f"{__file__}:{here() - 3}: require(accuracy={minimum!r}): "
            "a gate needs a number, as in accuracy=0.9"
        )


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


class TestMistakes:
    def test_a_column_without_a_parameter(self, source: Source) -> None:
        with pytest.raises(DeclarationError) as caught:
            source.run(
                """
                from evalve import foreach

                @foreach("question,answr", [("1+1", "2")])
                def eval_math(question, answer):
                    return True
                """
            )

        assert str(caught.value) == (
            f"{source.path}:4: eval_math has no parameter for the column 'answr'; did you mean 'answer'?"
        )

    def test_rows_that_lack_a_column(self, source: Source) -> None:
        with pytest.raises(DeclarationError) as caught:
            source.run(
                """
                from evalve import foreach

                @foreach("question,answer", [{"question": "1+1"}])
                def eval_math(question, answer):
                    return True
                """
            )

        assert str(caught.value).startswith(f"{source.path}:4: ")
        assert "'answer'" in str(caught.value)

    def test_a_dataset_that_cannot_be_iterated(self, source: Source) -> None:
        with pytest.raises(DeclarationError) as caught:
            source.run(
                """
                from evalve import foreach

                @foreach("question", 42)
                def eval_math(question):
                    return True
                """
            )

        assert str(caught.value).startswith(f"{source.path}:4: ")

    def test_no_dataset(self) -> None:
        def eval_math(question: str) -> bool:
            return True

        with pytest.raises(DeclarationError) as caught:
            foreach("question")(eval_math)

        assert str(caught.value) == (
            f"{__file__}:{eval_math.__code__.co_firstlineno}: eval_math has no dataset: "
            "write @foreach(columns, dataset) or ForEach(dataset=…)"
        )

    def test_two_foreach_decorators(self) -> None:
        @foreach("question", ["1+1"])
        def eval_math(question: str) -> bool:
            return True

        with pytest.raises(DeclarationError) as caught:
            foreach("question", ["1+1"])(eval_math)

        assert str(caught.value) == (
            f"{__file__}:{line_of(eval_math)}: eval_math has two @foreach decorators; one is enough"
        )

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ("question,", "'' is no column name"),
            ("my question", "'my question' is no column name"),
            ("a,b,a", "a column is named twice in 'a, b, a'"),
            (3, 'columns are written "question,answer" or as a list of names'),
            ([1, 2], 'columns are written "question,answer" or as a list of names'),
        ],
    )
    def test_columns_that_are_no_names(self, columns: Any, message: str) -> None:
        with pytest.raises(DeclarationError) as caught:
            line = here() + 1
            foreach(columns, DATA)

        assert str(caught.value) == f"{__file__}:{line}: {message}"

    def test_a_concurrency_that_is_no_strategy(self) -> None:
        number: Any = 20
        with pytest.raises(DeclarationError) as caught:
            line = here() + 1
            ForEach(concurrency=number)

        assert str(caught.value) == (
            f"{__file__}:{line}: concurrency= takes a strategy such as SlidingWindow(max_concurrency=10); "
            "got 20"
        )

    def test_an_unknown_option(self) -> None:
        with pytest.raises(OptionError) as caught:
            line = here() + 1
            ForEach(timout_s=3)

        assert str(caught.value) == (
            f"{__file__}:{line}: ForEach: unknown option 'timout_s'; did you mean 'timeout_s'?"
        )

    def test_two_evaluations_of_one_name_in_one_file(self, source: Source) -> None:
        with pytest.raises(DeclarationError) as caught:
            source.run(
                """
                from evalve import foreach

                @foreach("q", ["1"])
                def eval_math(q):
                    return True

                @foreach("q", ["2"])
                def eval_math(q):
                    return False
                """
            )

        assert str(caught.value) == (
            f"{source.path}:8: eval_math is also defined at line 5 of the same file; "
            "the second would hide the first, so give them two names"
        )

    def test_two_functions_under_one_configured_name(self, source: Source) -> None:
        with pytest.raises(DeclarationError) as caught:
            source.run(
                """
                from evalve import ForEach

                @ForEach(name="math")("q", ["1"])
                def eval_easy(q):
                    return True

                @ForEach(name="math")("q", ["2"])
                def eval_hard(q):
                    return False
                """
            )

        assert str(caught.value) == (
            f"{source.path}:8: eval_hard has the name 'math', as eval_easy at line 4 of the same file does; "
            "give them two names"
        )


class TestNoMistakes:
    def test_running_a_file_again_in_the_same_namespace(self, source: Source) -> None:
        text = """
            from evalve import foreach

            @foreach("q", ["1"])
            def eval_math(q):
                return True
            """

        source.run(text)
        again = source.run(text)

        assert declared(again["eval_math"]).name == "eval_math"

    def test_running_a_notebook_cell_again_after_an_edit(self) -> None:
        namespace: dict[str, Any] = {"__name__": "__main__", "foreach": foreach}
        cell = '@foreach("q", ["1"])\ndef eval_math(q):\n    return {answer}\n'

        for number, answer in enumerate(("True", "False")):
            exec(compile(cell.format(answer=answer), f"<ipython-input-{number}>", "exec"), namespace)

        evaluation = declared(namespace["eval_math"])
        assert (evaluation.path, evaluation.where) == (None, "the prompt:1")
        assert evaluation.key(Path.cwd()) == "prompt::eval_math"
        assert evaluation.function("x") is False

    def test_a_function_that_was_renamed_before_a_reload(self, source: Source) -> None:
        text = """
            from evalve import ForEach

            @ForEach(name="math")("q", ["1"])
            def {name}(q):
                return True
            """

        source.run(text.format(name="eval_old"))
        again = source.run(text.format(name="eval_new"))

        assert declared(again["eval_new"]).name == "math"

    def test_functions_that_get_their_names_after_they_are_decorated(self, source: Source) -> None:
        names = source.run(
            """
            from evalve import ForEach, foreach

            def make(declare=foreach):
                @declare("q", ["1"])
                def eval_made(q):
                    return True
                return eval_made

            eval_a, eval_b = make(), make()
            eval_c = make()
            eval_c.__name__ = "eval_renamed"
            eval_d = make(ForEach(name="chosen"))
            """
        )

        called = [as_called(names[f"eval_{letter}"]).name for letter in "abcd"]
        assert called == ["eval_a", "eval_b", "eval_renamed", "chosen"]

    def test_functions_that_get_their_names_before_they_are_decorated_in_a_loop(self, source: Source) -> None:
        names = source.run(
            """
            from evalve import foreach

            made = []
            for number in (1, 2):
                def evaluate(q):
                    return True
                evaluate.__name__ = f"eval_{number}"
                declared = foreach("q", ["1"])(evaluate)
                made.append(declared)
            eval_last = declared
            """
        )

        assert as_called(names["made"][0]).name == "eval_1"
        assert as_called(names["made"][1]).name == "eval_last"  # as pytest names it

        del names["eval_last"]
        assert as_called(names["made"][1]).name == "eval_2"

    def test_methods_of_two_classes(self, source: Source) -> None:
        names = source.run(
            """
            from evalve import foreach

            class TestA:
                @foreach("q", ["1"])
                def eval_math(self, q):
                    return True

            class TestB:
                @foreach("q", ["1"])
                def eval_math(self, q):
                    return True
            """
        )

        assert [declared(names[name].eval_math).name for name in ("TestA", "TestB")] == [
            "TestA.eval_math",
            "TestB.eval_math",
        ]

    def test_a_plain_helper_of_the_same_name_in_another_file(self, source: Source, tmp_path: Path) -> None:
        names = source.run(
            """
            from evalve import foreach

            @foreach("q", ["1"])
            def eval_math(q):
                return True
            """
        )
        other = Source(tmp_path / "eval_other.py")
        other.namespace["eval_math"] = names["eval_math"]

        again = other.run(
            """
            from evalve import foreach

            @foreach("q", ["1"])
            def eval_math(q):
                return True
            """
        )

        assert declared(again["eval_math"]).path == tmp_path / "eval_other.py"


class Registered:
    """Entry points as packages would register them."""

    def __init__(self, **makers: Callable[..., Any]) -> None:
        self._makers = makers
        self.names = set(makers)

    def __call__(self, *, group: str) -> Registered:
        assert group == "evalve.datasets"
        return self

    def __getitem__(self, name: str) -> Any:
        return SimpleNamespace(load=lambda: self._makers[name])


class Rows(list[Any]):
    columns = ("question", "answer")


class TestRegisteredDatasets:
    @pytest.fixture(autouse=True)
    def registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def gsm8k(split: str = "test") -> Rows:
            return Rows([(f"{split} 1+1", "2")])

        def plain() -> list[Any]:
            return [("1+1", "2")]

        def with_columns() -> list[Any]:
            return [("1+1", "2")]

        with_columns.columns = "question,answer"  # type: ignore[attr-defined]
        fake = Registered(gsm8k=gsm8k, plain=plain, with_columns=with_columns)
        monkeypatch.setattr(importlib.metadata, "entry_points", fake)

    async def test_a_registered_dataset_is_a_decorator_of_its_name(self) -> None:
        @foreach.gsm8k(split="train")
        def eval_math(question: str, answer: str) -> bool:
            return True

        rows = declared(eval_math).dataset.open(None)
        assert [sample.values for sample in await rows.next(10)] == [{"question": "train 1+1", "answer": "2"}]
        await rows.close()

    def test_its_columns_may_be_those_of_the_function_that_makes_it(self) -> None:
        @foreach.with_columns()
        def eval_math(question: str, answer: str) -> bool:
            return True

        assert declared(eval_math).columns == ("question", "answer")

    def test_its_columns_may_be_given(self) -> None:
        @foreach.plain(columns="q,a")
        def eval_math(q: str, a: str) -> bool:
            return True

        assert declared(eval_math).columns == ("q", "a")

    def test_a_dataset_that_names_no_columns_needs_them(self) -> None:
        with pytest.raises(DeclarationError) as caught:
            line = here() + 1
            foreach.plain()

        assert str(caught.value) == (
            f"{__file__}:{line}: the dataset 'plain' names no columns; pass columns=…"
        )

    def test_an_unknown_dataset_is_an_error_that_suggests_a_known_one(self) -> None:
        with pytest.raises(AttributeError) as caught:
            foreach.gsm8  # noqa: B018

        assert str(caught.value) == (
            "no installed package registers the dataset 'gsm8' under evalve.datasets; "
            "did you mean 'gsm8k'? (registered: gsm8k, plain, with_columns); install one that does, or write"
            ' @foreach("question,answer", rows)'
        )


class TestArguments:
    @pytest.fixture
    def evaluation(self) -> Evaluation:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str, model: str, temperature: float = 0.5) -> bool:
            return True

        return declared(eval_math)

    def test_fixtures_and_options_are_told_apart(self, evaluation: Evaluation) -> None:
        assert split_arguments(evaluation, {"model": "gpt", "max_concurrency": 4, "limit": 2}) == (
            {"model": "gpt"},
            {"max_concurrency": 4, "limit": 2},
        )

    def test_a_parameter_that_is_named_like_an_option_is_a_parameter(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str, samples: int = 3) -> bool:
            return True

        assert split_arguments(declared(eval_math), {"samples": 5}) == ({"samples": 5}, {})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                {"model": "gpt", "question": "1+1"},
                "eval_math: 'question' is a column of the dataset and cannot be passed",
            ),
            (
                {"modle": "gpt"},
                "eval_math has no parameter and no option 'modle'; did you mean 'model'?",
            ),
            (
                {"model": "gpt", "max_concurency": 3},
                "eval_math has no parameter and no option 'max_concurency'; did you mean 'max_concurrency'?",
            ),
            ({"temperature": 0.1}, "eval_math needs model: pass it as model=…"),
        ],
    )
    def test_a_wrong_argument_is_an_error_that_says_what_to_do(
        self, evaluation: Evaluation, arguments: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(TypeError) as caught:
            split_arguments(evaluation, arguments)

        assert str(caught.value) == message

    def test_extra_keyword_arguments_go_to_a_function_that_takes_them(self) -> None:
        @foreach("question,answer", DATA)
        def eval_math(question: str, answer: str, **settings: Any) -> bool:
            return True

        assert split_arguments(declared(eval_math), {"anything": 1, "samples": 2}) == (
            {"anything": 1},
            {"samples": 2},
        )
