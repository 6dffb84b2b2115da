"""`evalve.evaluate`: test cases and metrics in DeepEval's shape, on evalve's engine, cache and store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve import (
    ArgumentCorrectnessMetric,
    AsyncConfig,
    CacheConfig,
    TestCase,
    ToolCorrectnessMetric,
    gating,
)
from evalve.errors import DeclarationError, OptionError
from evalve.evaluators import ToolCall
from evalve.records import Score
from evalve.simulator import Answer, Ask, Behaviour, Simulator
from evalve.simulator import ToolCall as Scripted

SEARCH, DELETE = ToolCall("search", {"query": "cats"}), ToolCall("delete", {"id": 5})
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOLS = [{"name": "search", "description": "Search.", "input_schema": SCHEMA}]
MODEL = "anthropic/claude-haiku-4-5"
YES: Any = "yes"


@pytest.fixture(autouse=True)
def in_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gating, "_HOUSES", {})
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"EVALVE_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-4711")
    yield
    for house in gating._HOUSES.values():
        house.close()


def scored(metric: Any, called: Any, expected: Any, **more: Any) -> Score:
    case = TestCase("Find cats", called, expected, **more)
    score: Score = asyncio.run(metric.score(case, case.tools_called))
    return score


@pytest.mark.parametrize(
    ("metric", "called", "expected", "value"),
    [
        (ToolCorrectnessMetric(), [SEARCH], [SEARCH], 1.0),
        (ToolCorrectnessMetric(), [SEARCH, DELETE], [SEARCH], 1.0),
        (ToolCorrectnessMetric(), [SEARCH], [SEARCH, DELETE], 0.5),
        (ToolCorrectnessMetric(), [SEARCH, SEARCH], [SEARCH, SEARCH, SEARCH], 2 / 3),
        (ToolCorrectnessMetric(), [], [], 1.0),
        (ToolCorrectnessMetric(), [SEARCH], [], 0.0),
        (ToolCorrectnessMetric(), [], [SEARCH], 0.0),
        (ToolCorrectnessMetric(), [ToolCall("search", {"query": "dogs"})], [SEARCH], 1.0),
        (ToolCorrectnessMetric(arguments="exact"), [ToolCall("search", {"query": "dogs"})], [SEARCH], 0.0),
        (ToolCorrectnessMetric(should_exact_match=True), [DELETE, SEARCH], [SEARCH, DELETE], 0.0),
        (ToolCorrectnessMetric(should_consider_ordering=True), [DELETE, SEARCH], [SEARCH, DELETE], 0.5),
        (ArgumentCorrectnessMetric(), [ToolCall("search", {"query": "dogs"})], [SEARCH], 0.0),
        (ArgumentCorrectnessMetric(), [SEARCH], [SEARCH], 1.0),
    ],
)
def test_metrics_by_rules(metric: Any, called: Any, expected: Any, value: float) -> None:
    score = scored(metric, called, expected)
    assert score.value == pytest.approx(value)
    assert score.metadata["success"] is (value >= 0.5)


def test_arguments_without_expected_calls_are_held_against_the_schema() -> None:
    metric = ArgumentCorrectnessMetric()
    assert scored(metric, [SEARCH], None, tools=TOOLS).value == 1.0
    assert scored(metric, [ToolCall("search", {"query": 5})], None, tools=TOOLS).value == 0.0
    with pytest.raises(OptionError, match="has neither expected_tools nor tools"):
        scored(metric, [SEARCH], None)


def test_strict_mode_takes_nothing_but_one() -> None:
    score = scored(ToolCorrectnessMetric(strict_mode=True), [SEARCH], [SEARCH, DELETE])
    assert score.metadata["success"] is False
    with pytest.raises(OptionError, match="a number from 0 to 1"):
        ToolCorrectnessMetric(threshold=2)


CASES = [
    TestCase("Find cats", [SEARCH], [SEARCH], name="right"),
    TestCase("Find dogs", [SEARCH], [ToolCall("search", {"query": "dogs"})], name="value"),
    TestCase("Say hello", [], [], name="none"),
    TestCase("Find birds", [DELETE], ["search"], name="tool"),
]


def test_cases_are_run_recorded_resumed_and_shown_as_any_samples() -> None:
    asked: dict[str, Any] = {
        "test_cases": CASES,
        "metrics": [ToolCorrectnessMetric(), ArgumentCorrectnessMetric()],
        "async_config": AsyncConfig(run_async=True, max_concurrent=10, throttle_value=0),
        "cache_config": CacheConfig(use_cache=True, write_cache=True),
        "experiment": "cases",
    }
    result = evalve.evaluate(**asked)

    assert result.summary == {"tool_correctness": {"mean": 0.75}, "argument_correctness": {"mean": 0.5}}
    assert [record.sample_id for record in result] == ["right", "value", "none", "tool"]
    assert result.misses == {
        "argument_correctness": {"wrong value": 1},
        "tool_correctness": {"missing": 1},
    }
    first = result.records[0]
    assert first.prompt == "Find cats"
    assert first.row["case"]["tools_called"] == [{"name": "search", "arguments": {"query": "cats"}}]
    again = evalve.evaluate(**asked)
    assert [record.started_at for record in again] == [record.started_at for record in result]


def test_another_metric_is_another_evaluation() -> None:
    evalve.evaluate(CASES, [ToolCorrectnessMetric()], experiment="cases")
    with pytest.raises(evalve.ExperimentChanged):
        evalve.evaluate(CASES, [ToolCorrectnessMetric(threshold=0.9)], experiment="cases")


def test_configs_are_words_for_options() -> None:
    result = evalve.evaluate(
        CASES,
        [ToolCorrectnessMetric()],
        async_config=AsyncConfig(run_async=False, throttle_value=0.001),
        cache_config=CacheConfig(use_cache=False),
        experiment="configs",
    )
    (info,) = result.storage.evaluations("configs")
    (run,) = result.storage.runs(info.id)
    assert run.options["max_concurrency"] == 1
    assert run.options["throttle_s"] == 0.001
    assert run.options["cache"] == "refresh"
    assert CacheConfig(use_cache=False, write_cache=False).mode() == "off"
    assert AsyncConfig().options() == {"max_concurrency": 20}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (lambda: AsyncConfig(max_concurrent=0).options(), "max_concurrent is a whole number, 1 or more"),
        (lambda: AsyncConfig(throttle_value=-1).options(), "throttle_value is a number of seconds"),
        (lambda: AsyncConfig(run_async=YES).options(), "run_async is True or False"),
        (lambda: CacheConfig(write_cache=False).mode(), "evalve keeps every answer that it pays for"),
    ],
)
def test_configs_that_cannot_be_are_refused(config: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        config()


def test_a_model_is_asked_for_cases_that_do_not_say_what_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(ask: Ask) -> Answer:
        word = ask.prompt.rpartition("Find ")[2]
        return Answer(tool_calls=(Scripted("search", {"query": word}),))

    cases = [
        TestCase(f"Find {word}", None, [ToolCall("search", {"query": word})], TOOLS) for word in ("a", "b")
    ]
    with Simulator(Behaviour(answers=answers)).start_in_thread() as simulator:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        first = evalve.evaluate(cases, [ArgumentCorrectnessMetric()], model=MODEL)
        second = evalve.evaluate(cases, [ArgumentCorrectnessMetric()], model=MODEL)

    assert first.summary == second.summary == {"argument_correctness": {"mean": 1.0}}
    assert simulator.stats.requests == 2  # the second time, answers come from the cache
    assert second.records[0].response["tool_calls"][0]["name"] == "search"


def test_a_judge_may_lower_the_score_and_gives_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(Behaviour(answers=['{"reason": "No.", "verdict": "no"}'])).start_in_thread() as simulator:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
        result = evalve.evaluate(
            CASES[:1], [ToolCorrectnessMetric(model=MODEL), ArgumentCorrectnessMetric(model=MODEL)]
        )

    (record,) = result.records
    tools, arguments = record.scores
    assert (tools.value, tools.metadata["by_rules"], tools.metadata["by_judge"]) == (0.0, 1.0, 0.0)
    assert arguments.metadata["verdicts"] == [{"tool": "search", "value": 0.0, "reason": "No."}]
    assert record.calls is not None
    assert record.calls["judge.requests"] == 2


def test_mistakes_are_told_with_the_line_of_the_call() -> None:
    for metrics, said in (
        ([], "metrics= is empty"),
        ([ToolCorrectnessMetric], r"write ToolCorrectnessMetric\(\)"),
        (["tool_correctness"], "metrics= takes"),
        ([ToolCorrectnessMetric(), ToolCorrectnessMetric(1)], "2 metrics are called 'tool_correctness'"),
    ):
        with pytest.raises(DeclarationError, match=rf"test_evaluate\.py:\d+: .*{said}"):
            evalve.evaluate(CASES, metrics)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="says nothing of what was called"):
        evalve.evaluate([TestCase("Find cats", expected_tools=[SEARCH])], [ToolCorrectnessMetric()])
    with pytest.raises(DeclarationError, match="test_cases= is empty"):
        evalve.evaluate([], [ToolCorrectnessMetric()])
    with pytest.raises(DeclarationError, match=r"write AsyncConfig\(…\)"):
        evalve.evaluate(CASES, [ToolCorrectnessMetric()], async_config={"run_async": False})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no 'tool_called'; did you mean 'tools_called'"):
        evalve.evaluate([{"input": "Find cats", "tool_called": []}], [ToolCorrectnessMetric()])


def test_two_metrics_of_a_kind_have_a_name_each() -> None:
    strict = ToolCorrectnessMetric(name="strict", should_exact_match=True)
    case = TestCase("Find cats", [SEARCH, SEARCH], [SEARCH])
    result = evalve.evaluate([case], [ToolCorrectnessMetric(), strict])
    assert result.summary == {"tool_correctness": {"mean": 1.0}, "strict": {"mean": 0.0}}


async def test_a_running_loop_is_respected() -> None:
    result = evalve.evaluate(
        [{"input": "x", "tools_called": [], "expected_tools": []}], [ToolCorrectnessMetric()]
    )
    assert result.done == 1


def test_a_case_without_expected_tools_fails_and_says_why() -> None:
    result = evalve.evaluate([TestCase("Find cats", [SEARCH])], [ToolCorrectnessMetric()])
    assert result.failed == 1
    assert "has no expected_tools" in str(result.failures[0].failure)
