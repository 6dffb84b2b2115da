"""`llm_judge` and `llm_compare`, asked of a scripted model over HTTP, through the gate."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve.errors import MissingKey, ModelError, OptionError
from evalve.evaluators import Rubric, llm_compare, llm_judge
from evalve.records import Record
from evalve.simulator import Ask
from evalve.storage import open_store

MODEL = "anthropic/claude-haiku-4-5"
Says = Callable[[Ask], str]


def verdict(said: Any, reason: str = "because") -> str:
    return json.dumps({"reason": reason, "verdict": said})


def part(ask: Ask, name: str) -> str:
    """What stands between the tags of that name."""
    found = re.search(rf"<{name}-(\w+)>\n(.*?)\n</{name}-\1>", ask.prompt, re.DOTALL)
    return found[2] if found else ""


def right_if_equal(ask: Ask) -> str:
    return verdict("yes" if part(ask, "response") == part(ask, "reference") else "no")


async def test_a_judge_says_yes_or_no_with_its_reason(provider: Any) -> None:
    with provider(right_if_equal) as simulator:
        right = await llm_judge("4", "4", model=MODEL, question="2 + 2?")
        wrong = await llm_judge("5", "4", model=MODEL, question="2 + 2?")

    assert (right.name, right.value, wrong.value) == ("llm_judge", True, False)
    assert right.metadata == {"reason": "because", "judge": MODEL}
    assert [metric.name for metric in right.metrics] == ["accuracy"]
    assert simulator.stats.requests == 2


async def test_the_form_of_the_verdict_is_asked_for_with_the_reason_first(provider: Any) -> None:
    asked: list[Ask] = []

    def answers(ask: Ask) -> str:
        asked.append(ask)
        return verdict("yes")

    with provider(answers):
        await llm_judge("4", model=MODEL, temperature=0)

    body = asked[0].body
    assert list(body["output_config"]["format"]["schema"]["properties"]) == ["reason", "verdict"]
    assert body["temperature"] == 0
    assert part(asked[0], "response") == "4"
    assert "<reference-" not in asked[0].prompt
    assert "<question-" not in asked[0].prompt


async def test_a_rubric_with_a_scale_gives_a_grade(provider: Any) -> None:
    with provider(lambda ask: verdict(4)):
        score = await llm_judge("Hi", model=MODEL, rubric={"text": "How kind?", "scale": [1, 5]}, name="kind")

    assert (score.name, score.value, [metric.name for metric in score.metrics]) == ("kind", 4, ["mean"])


async def test_each_criterion_is_judged(provider: Any) -> None:
    said = {"tone": {"reason": "rude", "verdict": "no"}, "facts": {"reason": "true", "verdict": "yes"}}
    rubric = Rubric("Good?", criteria={"tone": "Is it polite?", "facts": "Is it true?"})

    with provider(lambda ask: json.dumps(said)):
        score = await llm_judge("Hi", model=MODEL, rubric=rubric)

    assert score.value is False
    assert score.metadata["criteria"] == {"tone": False, "facts": True}
    assert score.metadata["reason"] == "tone: rude; facts: true"


async def test_a_judge_that_does_not_keep_to_the_form_is_asked_again(provider: Any) -> None:
    asked: list[Ask] = []

    def answers(ask: Ask) -> str:
        asked.append(ask)
        return "It is fine." if len(asked) == 1 else verdict("yes")

    with provider(answers):
        score = await llm_judge("4", "4", model=MODEL)

    assert score.value is True
    assert len(asked) == 2
    assert "That cannot be read as a verdict: there is no JSON object in the answer" in asked[1].prompt


async def test_a_judge_that_never_keeps_to_the_form_leaves_the_score_unscored(provider: Any) -> None:
    with provider(lambda ask: "It is fine.") as simulator:
        score = await llm_judge("4", "4", model=MODEL)

    assert score.value is None
    assert score.metadata["unscored"] == (
        f"{MODEL} gave no verdict when asked 3 times: there is no JSON object in the answer"
    )
    assert simulator.stats.requests == 3


class Answer:
    def __init__(self, text: str, stop_reason: str = "end_turn") -> None:
        self.text, self.stop_reason = text, stop_reason
        self.message = {"role": "assistant", "content": text}


class Scripted:
    """A model that gives answers, or raises errors, one after another."""

    name = "scripted"

    def __init__(self, *says: Answer | Exception) -> None:
        self.says = list(says)
        self.schemas: list[Any] = []

    async def generate(self, messages: Any, *, response_schema: Any = None, **asked: Any) -> Answer:
        self.schemas.append(response_schema)
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (Answer("I will not.", "refusal"), "scripted refused to judge: I will not."),
        (Answer('{"reason": "wel', "max_tokens"), "cut off before its verdict: raise max_tokens=4096"),
        (ModelError("overloaded", kind="overloaded", status=529), "overloaded"),
        (ModelError("too long", kind="permanent", status=400), "too long"),
    ],
)
async def test_whatever_keeps_a_judge_from_a_verdict_leaves_the_score_unscored(said: Any, told: str) -> None:
    score = await llm_judge("4", "4", model=Scripted(said))

    assert score.value is None
    assert told in score.metadata["unscored"]


@pytest.mark.parametrize(
    "error",
    [
        MissingKey("no key"),
        ModelError("wrong key", status=401),
        ModelError("no such model", status=404),
        ModelError("the budget is spent"),
        ModelError("no credit", kind="spent", status=400),
    ],
)
async def test_what_no_question_can_get_past_is_raised(error: ModelError) -> None:
    with pytest.raises(ModelError, match=str(error)):
        await llm_judge("4", "4", model=Scripted(error, error, error), repeats=3)


async def test_a_server_that_knows_no_schemas_is_asked_without() -> None:
    refusal = ModelError("unknown field response_format", kind="permanent", status=400)
    model = Scripted(refusal, Answer(verdict("yes")))

    score = await llm_judge("4", "4", model=model)

    assert score.value is True
    assert [schema is not None for schema in model.schemas] == [True, False]


# -- repeats


async def test_with_repeats_the_majority_counts_and_the_spread_is_told(provider: Any) -> None:
    says = iter([verdict("yes", "right"), verdict("no", "wrong"), verdict("yes", "right")])
    with provider(lambda ask: next(says)) as simulator:
        score = await llm_judge("4", "4", model=MODEL, repeats=3)

    assert score.value is True
    assert score.metadata["reason"] == "right"
    assert sorted(score.metadata["verdicts"]) == [False, True, True]
    assert score.metadata["spread"] == 0.5774
    assert simulator.stats.requests == 3


async def test_with_repeats_grades_are_averaged() -> None:
    model = Scripted(Answer(verdict(2)), Answer(verdict(4)))

    score = await llm_judge("x", model=model, rubric=Rubric("How?", (1, 5)), repeats=2)

    assert score.value == 3.0


async def test_a_missing_verdict_among_repeats_is_done_without_if_the_others_agree() -> None:
    broken = ModelError("overloaded", kind="overloaded", status=529)
    yes, no = Answer(verdict("yes")), Answer(verdict("no"))

    agreed = await llm_judge("x", model=Scripted(yes, broken, yes), repeats=3)
    divided = await llm_judge("x", model=Scripted(yes, broken, no), repeats=3)
    alone = await llm_judge("x", model=Scripted(broken, broken, no), repeats=3)

    assert (agreed.value, divided.value, alone.value) == (True, None, None)
    assert divided.metadata["unscored"] == ("1 of 3 verdicts are missing: overloaded; the others are divided")


# -- two responses


def prefers_the_first_place(ask: Ask) -> str:
    return verdict("first")


def prefers_the_longer(ask: Ask) -> str:
    first, second = part(ask, "first-response"), part(ask, "second-response")
    if len(first) == len(second):
        return verdict("tie")
    return verdict("first" if len(first) > len(second) else "second")


def prefers_the_first_place_unless_much_shorter(ask: Ask) -> str:
    first, second = part(ask, "first-response"), part(ask, "second-response")
    return verdict("second" if len(second) > len(first) + 5 else "first")


async def test_a_judge_with_a_position_bias_is_corrected(provider: Any) -> None:
    with provider(prefers_the_first_place):
        biased = await llm_compare("short", "much longer", model=MODEL)
        other_way = await llm_compare("much longer", "short", model=MODEL)

    assert (biased.value, other_way.value) == (0.5, 0.5)
    assert biased.metadata["consistent"] is False
    assert (biased.metadata["as_given"], biased.metadata["swapped"]) == (1.0, 0.0)


async def test_a_bias_does_not_hide_a_preference(provider: Any) -> None:
    with provider(prefers_the_first_place_unless_much_shorter):
        clear = await llm_compare("short", "much, much longer", model=MODEL)
        unclear = await llm_compare("short", "longer", model=MODEL)

    assert (clear.value, clear.metadata["consistent"]) == (0.0, True)
    assert (unclear.value, unclear.metadata["consistent"]) == (0.5, False)


async def test_a_fair_judge_says_which_is_better_or_that_neither_is(provider: Any) -> None:
    with provider(prefers_the_longer):
        first = await llm_compare("the longer one", "short", model=MODEL, repeats=2)
        second = await llm_compare("short", "the longer one", model=MODEL)
        neither = await llm_compare("equal", "alike", model=MODEL)

    assert (first.value, second.value, neither.value) == (1.0, 0.0, 0.5)
    assert [one.metadata["consistent"] for one in (first, second, neither)] == [True, True, True]


async def test_one_order_alone_is_no_verdict() -> None:
    broken = ModelError("overloaded", kind="overloaded", status=529)

    score = await llm_compare("a", "b", model=Scripted(Answer(verdict("first")), broken))

    assert score.value is None
    assert score.metadata["unscored"] == "1 of 2 verdicts are missing: overloaded"


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "a judge needs a model"),
        ({"model": 17}, "a name or what evalve.model returns"),
        ({"model": Scripted(), "repeats": 2}, "ask 3 times"),
        ({"model": Scripted(), "repeats": 0}, "from 1 to 100"),
        ({"model": Scripted(), "label": "perhaps"}, "needs yes or no"),
        ({"model": Scripted(), "label": 7, "rubric": {"text": "?", "scale": [1, 5]}}, "a grade from 1 to 5"),
    ],
)
async def test_a_mistake_is_told(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        await llm_judge("4", "4", **arguments)


# -- in a run

ROWS = [
    {"id": "a", "answer": "4", "expected": "4", "person": True},
    {"id": "b", "answer": "5", "expected": "4", "person": False},
    {"id": "c", "answer": "6", "expected": "6", "person": True},
    {"id": "d", "answer": "odd", "expected": "even", "person": False},
]


@evalve.foreach("answer,expected,person", ROWS)
async def judged_sums(answer: str, expected: str, person: bool) -> Any:
    model = evalve.model(MODEL)
    await model.generate(f"Say {answer}", max_tokens=20)
    return [
        evalve.evaluators.exact_match(answer, expected),
        await llm_judge(answer, expected, model=MODEL, label=person),
    ]


def records_of(folder: Path, name: str) -> list[Record]:
    store = open_store(folder / "records.db")
    (info,) = store.evaluations(name)
    return list(store.records(info))


def answers_or_judges(ask: Ask) -> str:
    if "Rubric" not in ask.prompt:
        return "so be it"
    return "No idea." if part(ask, "response") == "odd" else right_if_equal(ask)


def test_a_judges_calls_are_counted_and_priced_apart(provider: Any, tmp_path: Path) -> None:
    with provider(answers_or_judges) as simulator:
        result = evalve.run(judged_sums, experiment="one", storage=tmp_path / "records.db", allow_failures=1)

        right = records_of(tmp_path, "one")[0]
        assert right.calls is not None
        assert (right.calls["requests"], right.calls["judge.requests"]) == (1, 1)
        assert right.calls["judge.cost_usd"] > right.calls["cost_usd"] > 0
        assert result.report["calls"]["requests"] == 4
        assert result.report["calls"]["judge.requests"] == 6  # three questions, one of them asked three times
        assert simulator.stats.requests == 10

        again = evalve.run(judged_sums, experiment="two", storage=tmp_path / "records.db", allow_failures=1)
        assert simulator.stats.requests == 10
        assert again.report["calls"]["judge.cached"] == 6


def test_a_sample_without_a_verdict_keeps_its_other_scores_and_is_not_wrong(
    provider: Any, tmp_path: Path
) -> None:
    with provider(answers_or_judges):
        result = evalve.run(judged_sums, experiment="one", storage=tmp_path / "records.db")

    odd = records_of(tmp_path, "one")[3]
    assert odd.status == "done"
    assert [(score.name, score.value) for score in odd.scores] == [
        ("exact_match", False),
        ("llm_judge", None),
    ]
    assert "gave no verdict" in odd.scores[1].metadata["unscored"]
    values = {(one.evaluator, one.metric): one for one in result.metrics}
    judged = values["llm_judge", "accuracy"]
    assert judged.value == pytest.approx(2 / 3)
    assert (judged.samples, judged.unscored) == (3, 1)
    assert values["exact_match", "accuracy"].samples == 4
    assert result.problems == [
        "insufficient: llm_judge has no value in 1 sample of 4 (--allow-failures accepts that)"
    ]


def test_the_judges_agreement_with_a_persons_labels_is_a_metric(provider: Any, tmp_path: Path) -> None:
    with provider(answers_or_judges):
        result = evalve.run(judged_sums, experiment="one", storage=tmp_path / "records.db", allow_failures=1)

    (kappa,) = [one for one in result.metrics if one.metric == "kappa"]
    assert (kappa.value, kappa.samples, kappa.high) == (1.0, 3, 1.0)
    assert kappa.low is not None
    assert kappa.low < 0.2  # three samples say little
