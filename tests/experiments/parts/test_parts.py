"""Templates, variables, entries that extend others, evaluators by name."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from evalve.agents.spec import AgentRun
from evalve.contracts import SAMPLE, SampleContext
from evalve.declare.templates import TemplateProblem, columns_of, filled
from evalve.errors import AnswerError, DatasetError, OptionError
from evalve.experiments.answering import Task, expected_of
from evalve.experiments.file.document import Document, Place, read_document
from evalve.experiments.file.resolving import Entry, entry_of, options_part
from evalve.experiments.file.variables import expanded, read_env_file
from evalve.experiments.parts.scoring import scorers_of
from evalve.records import ToolCall

# -- templates


def test_columns_in_braces_stand_for_the_rows_values() -> None:
    row = {"question": "Why?", "n": 3, "list": [1, 2], "none": None, "a b": "x"}

    assert filled("{question} {n} {list}{none} {{literal}} {a b}", row) == "Why? 3 [1,2] {literal} x"
    assert columns_of("{question} {n} {question}") == ["question", "n"]


@pytest.mark.parametrize("text", ["{", "{}", "{a!r}", "{a:>3}", "a}"])
def test_what_is_no_column_is_refused_with_how_to_write_a_brace(text: str) -> None:
    with pytest.raises(TemplateProblem, match=r"a brace of its own is written \{\{ or \}\}"):
        columns_of(text)


@pytest.mark.parametrize(
    ("template", "expected"),
    [("{n}", "3"), ("{x}", "2.5"), ("{text}", "yes"), ("{list}", ["a"]), ("{flag}", True), ("n={n}", "n=3")],
)
def test_what_is_right_is_text_where_answers_are(template: str, expected: Any) -> None:
    row = {"n": 3, "x": 2.5, "text": "yes", "list": ["a"], "flag": True}

    assert expected_of(template, row) == expected


# -- variables


def test_variables_are_filled_in_and_not_shown() -> None:
    said = expanded(
        {"key": "${A}", "urls": ["http://${B}/v1"], "n": 3}, {"A": "s3cret", "B": "host"}, where="x"
    )

    assert said == {"key": "s3cret", "urls": ["http://host/v1"], "n": 3}
    assert "s3cret" not in repr(said)


def test_a_variable_that_is_not_set_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(OptionError) as caught:
        expanded("${OPENROUTER_KEY}", {"OPENROUTER_KEYS": "x", "OPENROUTER_KEY": ""}, where="f.yaml:3")

    assert str(caught.value).startswith(
        "f.yaml:3: the variable OPENROUTER_KEY is not set; did you mean 'OPENROUTER_KEYS'?; `export"
    )


def test_an_env_file_is_read_as_shells_read_it(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# comment\n\nA=1\nexport B='two words'  # why\nC=\"#no comment\"\nD = x # yes\nE=\n")

    assert read_env_file(path) == {"A": "1", "B": "two words", "C": "#no comment", "D": "x", "E": ""}


def test_a_line_that_is_no_variable_is_told_by_its_number_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("A=1\nsk-secret\n")

    with pytest.raises(OptionError) as caught:
        read_env_file(path)
    assert str(caught.value) == f"--env-file: {path}:2: needs NAME=value"


# -- extends


def read(folder: Path, text: str) -> Document:
    path = folder / "evalve.yaml"
    path.write_text(dedent(text).lstrip("\n"))
    return read_document(path)


def test_an_entry_takes_over_what_it_does_not_say_whatever_name_it_was_said_by(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        """
        experiments:
          base: {datasets: a, limit: 20, concurrency: 5, metrics: [contains]}
          more: {judge_model: j, limit: 99}
          both:
            extends: [base, more]
            samples: 3
            evaluators: [exact_match]
        """,
    )

    entry = entry_of(document, "experiments", "both")

    assert dict(entry.values) == {
        "datasets": "a",
        "samples": 3,
        "max_concurrency": 5,
        "evaluators": ["exact_match"],
        "judge_model": "j",
    }
    assert entry.where("datasets").line == 2
    assert entry.where("samples").line == 6
    assert options_part(entry) == {"samples": 3, "max_concurrency": 5}


def test_entries_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    document = read(tmp_path, "experiments:\n  a: {extends: b}\n  b: {extends: a}\n")

    with pytest.raises(OptionError, match=r"evalve\.yaml:3: experiments\.b extends itself: a → b → a"):
        entry_of(document, "experiments", "a")


# -- evaluators


def scorers(folder: Path, **values: Any) -> list[Any]:
    return list(scorers_of(Entry("experiments", "e", Place(folder / "evalve.yaml", 4), values)))


async def test_what_no_answer_can_be_is_told_before_anybody_is_asked(tmp_path: Path) -> None:
    async def ask(prompt: str, row: Any, lent: Any) -> str:
        raise AssertionError("nobody may be asked")

    task = Task("{q}", "{a}", scorers(tmp_path, expected="a", evaluators=["exact_match"]), ask)

    with pytest.raises(DatasetError, match=r"\{a\} is False, and exact_match compares texts"):
        await task.evaluate(q="Is it?", a=False)  # as YAML reads `a: no`
    with pytest.raises(DatasetError, match=r"\{a\} has no value in this row, and exact_match compares"):
        await task.evaluate(q="Is it?", a=None)


async def test_what_an_agent_called_is_collected_with_its_answer_and_never_guessed(tmp_path: Path) -> None:
    called = [{"name": "weather", "arguments": {"city": "Bern"}}]

    async def ask(prompt: str, row: Any, lent: Any) -> AgentRun:
        return AgentRun("command", "sunny", tool_calls=(ToolCall("weather", {"city": "Bern"}),))

    scoring = scorers(tmp_path, expected="calls", evaluators=["tool_call_match"])
    collect = Task("{q}", None, (), ask, lent=("workspace",))
    score = Task("{q}", "{calls}", scoring, ask, lent=("workspace",))
    sample = SampleContext("e", "v", "7", 0, 1)
    SAMPLE.set(sample)

    collected = await collect.evaluate(q="How is it in Bern?", workspace=None)
    sample.answer = collected.response
    scored = await score.evaluate(q="How is it in Bern?", calls=called)
    sample.answer = "sunny"

    assert collected.response == {"text": "sunny", "tool_calls": called}
    assert [one.value for one in scored.scores] == [True]
    with pytest.raises(AnswerError, match="does not say what the agent called"):
        await score.evaluate(q="How is it in Bern?", calls=called)


async def test_two_evaluators_of_one_kind_have_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def long(text):\n    return len(text) > 3\n")
    found = scorers(
        tmp_path,
        evaluators=[
            {"contains": {"expected": "yes", "name": "agrees"}},
            {"contains": {"expected": "no", "name": "refuses"}},
            {"own.py:long": {"name": "wordy"}},
        ],
    )

    scores = [await scorer.score("yes", None, {"row": {}}) for scorer in found]

    assert [(score.name, score.value) for score in scores] == [
        ("agrees", True),
        ("refuses", False),
        ("wordy", False),
    ]


async def test_evaluators_are_called_with_what_each_asks_for(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "def short(answer, limit=5):\n    return len(answer) <= limit\n\n\n"
        "async def in_row(answer, expected, row, question):\n"
        "    return answer == expected == row['gold'] and question == 'q?'\n"
    )
    found = scorers(
        tmp_path,
        expected="gold",
        evaluators=[
            "exact_match",
            {"numeric_match": {"tolerance": 1}},
            "valid_json",
            "checks.py:in_row",
            {"checks.py:short": {"limit": "{most}"}},
        ],
    )

    context = {"question": "q?", "prompt": "q?", "row": {"gold": "41", "most": 1}}
    scores = [await scorer.score("41", "41", context) for scorer in found]

    assert [(score.name, score.value) for score in scores] == [
        ("exact_match", True),
        ("numeric_match", True),
        ("valid_json", True),
        ("in_row", True),
        ("short", False),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"evaluators": ["exact_match"]},
            "exact_match compares the answer with what is right: add `expected:`",
        ),
        ({"evaluators": ["llm_judge"]}, "llm_judge needs a model; add `judge_model: NAME`"),
        ({"evaluators": ["none.py:f"]}, "there is no file "),
        ({"evaluators": [{"contains": {"case": 1}}], "expected": "a"}, "contains has no argument 'case'"),
        ({"evaluators": ["llm_compare"]}, "unknown evaluator 'llm_compare'"),
    ],
)
def test_an_evaluator_that_cannot_score_is_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        scorers(tmp_path, **values)

    assert str(caught.value).startswith(f"{tmp_path / 'evalve.yaml'}:4: experiments.e: {message}")
