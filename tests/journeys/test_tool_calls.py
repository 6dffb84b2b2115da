"""Tool calls as a person evaluates them: from `evalve.yaml`, and as `basic` and `llm` under pytest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from project import Project

from evalve.simulator import Answer, Ask, Behaviour, Simulator, ToolCall

CONFIGURATION = """
    models:
      sim: {{model: tiny, base_url: "{url}/v1", api_key: "${{SIM_KEY}}"}}
    datasets:
      requests: {{path: requests.jsonl}}
    experiments:
      calls:
        datasets: requests
        models: sim
        prompt: "{{request}}"
        tools: tools.json
        expected: calls
        evaluators:
          - tool_selection
          - tool_call_match: {{mode: any_order, arguments: subset}}
          - tool_schema_valid
      by_column: {{extends: calls, tools: "{{offered}}", evaluators: [tool_scores]}}
      written:
        datasets: requests
        models: sim
        prompt: "write {{request}}"
        expected: calls
        evaluators: [tool_call_match]
      judged: {{extends: calls, evaluators: [llm_tool_arguments], judge_model: sim}}
"""
TOOLS = [
    {
        "name": name,
        "description": name,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
    for name in ("weather", "time")
]
ROWS: list[dict[str, Any]] = [
    {
        "id": "right",
        "request": "weather in Bern",
        "calls": [{"name": "weather", "arguments": {"city": "Bern"}}],
    },
    {
        "id": "value",
        "request": "weather in Bonn",
        "calls": [{"name": "weather", "arguments": {"city": "Köln"}}],
    },
    {
        "id": "tool",
        "request": "time in Bern",
        "calls": '[{"name": "weather", "arguments": {"city": "Bern"}}]',
    },
    {"id": "none", "request": "hello", "calls": []},
]


def answers(ask: Ask) -> Answer | str:
    if "<call-" in ask.prompt:
        right = "Bern" in ask.prompt
        return json.dumps({"reason": "It is." if right else "No.", "verdict": "yes" if right else "no"})
    if ask.prompt.startswith("write "):
        tool, _, city = ask.prompt.removeprefix("write ").partition(" in ")
        return json.dumps({"name": tool, "arguments": {"city": city}}) if city else "Hello!"
    tool, _, city = ask.prompt.splitlines()[-1].partition(" in ")  # tools stand before it
    return Answer(tool_calls=(ToolCall(tool, {"city": city}),)) if city else "Hello!"


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour(answers=answers)).start_in_thread() as simulator:
        yield simulator


def prepared(project: Project, provider: Simulator) -> dict[str, str]:
    project.write("evalve.yaml", CONFIGURATION.format(url=provider.url))
    project.write("tools.json", json.dumps(TOOLS))
    project.write("requests.jsonl", "".join(json.dumps({**row, "offered": TOOLS}) + "\n" for row in ROWS))
    folder = project.folder
    return {
        "SIM_KEY": "sk-sim-0123456789",
        "EVALVE_STATE_DIR": str(folder / "state"),
        "EVALVE_CACHE_DIR": str(folder / "cache"),
    }


def test_an_experiment_of_the_file_scores_tool_calls(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve("run", "calls", **environ)
    assert ended.code == 0, ended.all
    shown = json.loads(project.evalve("show", "calls", "--json", **environ).out)

    (evaluation,) = shown["evaluations"]
    matched = {one["sample_id"]: one["scores"][1]["value"] for one in evaluation["samples"]}
    assert matched == {"right": True, "value": False, "tool": False, "none": True}
    assert evaluation["misses"] == {
        "tool_call_match": {"wrong tool": 1, "wrong value": 1},
        "tool_selection": {"wrong tool": 1},
    }
    response = evaluation["samples"][0]["response"]
    assert response["tool_calls"][0]["arguments"] == {"city": "Bern"}
    assert evaluation["samples"][3]["response"] == "Hello!"
    lines = project.evalve("show", "calls", **environ).out.splitlines()
    assert "  wrong tool                1                1" in lines
    assert "  wrong value               –                1" in lines


def test_a_model_without_tools_may_write_its_calls_as_json(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)
    assert project.evalve("run", "written", **environ).code == 0
    matched = {one["sample_id"]: one["scores"][0]["value"] for one in project.records("written")}
    assert matched == {"right": True, "value": False, "tool": False, "none": True}


def test_tools_of_a_column_and_a_judge_of_each_call(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    assert project.evalve("run", "by_column", **environ).code == 0
    assert project.evalve("run", "judged", **environ).code == 0

    names = [score["name"] for score in project.records("by_column")[0]["scores"]]
    assert names == ["tool_selection", "tool_order", "tool_arguments", "tool_schema_valid", "tool_call_match"]
    judged = {one["sample_id"]: one["scores"][0] for one in project.records("judged")}
    assert {name: score["value"] for name, score in judged.items()} == {
        "right": 1.0,
        "value": 0.0,
        "tool": 1.0,
        "none": 1.0,
    }
    assert judged["value"]["metadata"]["verdicts"][0]["reason"] == "No."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tools: tools.json", "tools: tols.json", "tools: '{folder}/tols.json' cannot be read: No such file"),
        ("    tools: tools.json\n", "", "tool_schema_valid needs the schemas: add `tools:`"),
        ("mode: any_order", "mode: anyorder", "tool_call_match: mode='anyorder' is not a way"),
        ("arguments: subset", "arguments: sub", "arguments cannot be compared by 'sub'"),
        (
            "arguments: subset",
            "arguments: {per_tool: {wether: ignore}}",
            "no such tool; did you mean 'weather'",
        ),
        ('tools: "{offered}"', 'tools: "{offred}"', "tools names the column 'offred'"),
        (
            "[llm_tool_arguments], judge_model: sim",
            "[llm_tool_arguments]",
            "llm_tool_arguments needs a model",
        ),
    ],
)
def test_mistakes_in_the_file_are_told_before_anything_runs(
    project: Project, provider: Simulator, old: str, new: str, said: str
) -> None:
    environ = prepared(project, provider)
    text = project.read("evalve.yaml")
    assert old in text
    project.write("evalve.yaml", text.replace(old, new))

    ended = project.evalve("validate", **environ)

    assert ended.code != 0
    assert said.replace("{folder}", str(project.folder)) in ended.all
    assert provider.stats.requests == 0


EVALUATIONS = """
    import evalve, pytest
    from evalve.evaluators import tool_call_match

    rows = [([{"name": "a"}], ["a"])]


    @pytest.mark.basic
    @evalve.foreach("called,expected", rows)
    def eval_selection_basic(called, expected):
        return tool_call_match(called, expected)


    @evalve.foreach("called,expected", rows)
    @pytest.mark.llm
    def eval_selection_llm_eval(called, expected):
        return tool_call_match(called, expected)
"""


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (["-k", "basic"], ["eval_selection_basic"]),
        (["-m", "basic"], ["eval_selection_basic"]),
        (["-m", "llm"], ["eval_selection_llm_eval"]),
        (["-m", "not llm"], ["eval_selection_basic"]),
    ],
)
def test_basic_and_llm_are_chosen_by_name_and_by_marker(
    project: Project, chosen: list[str], names: list[str]
) -> None:
    project.write("eval_tools.py", EVALUATIONS)
    ended = project.pytest("--collect-only", "-q", "--strict-markers", *chosen)
    assert [line.partition("::")[2] for line in ended.out.splitlines() if "::" in line] == names
