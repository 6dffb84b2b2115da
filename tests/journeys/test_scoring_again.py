"""Samples that were answered and lack a score are scored when the experiment goes on, and not asked again."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from project import Project

from evalve.simulator import Behaviour, Latency, Simulator
from evalve.simulator.asks import Ask
from evalve.simulator.scripts import Answer as Said
from evalve.simulator.scripts import ToolCall as Called

CONFIGURATION = """
    models:
      solver: {{agent: command, command: [python3, "{{project}}/agent.py"], answer: last_line, confine: off}}
      referee: {{model: tiny, base_url: "{url}/v1", api_key: "${{SIM_KEY}}"}}
    datasets:
      sums: {{path: sums.jsonl}}
    prices:
      tiny: {{input: 1000, output: 1000}}
    experiments:
      judged:
        datasets: sums
        models: solver
        prompt: "{{question}}"
        expected: answer
        evaluators: [exact_match]
        judge_model: referee
"""
AGENT = """
    from pathlib import Path
    with Path(__file__).with_name("runs.log").open("a") as log:
        log.write("ran\\n")
    print("42")
"""
TOOLS = """
    models:
      tiny: {{model: tiny, base_url: "{url}/v1"}}
    datasets:
      rows: {{path: rows.jsonl}}
    experiments:
      weather:
        datasets: rows
        models: tiny
        prompt: "{{question}}"
        tools: [{{name: weather, description: The weather., parameters: {{type: object}}}}]
        expected: calls
        evaluators: [tool_call_match]
"""
VERDICT = '{"reason": "as it should be", "verdict": "yes"}'


class Referee:
    """Says what it is told to say."""

    says = "I would rather not put it into a form."

    def __call__(self, ask: Ask) -> str:
        return self.says


@pytest.fixture
def referee() -> Referee:
    return Referee()


@pytest.fixture
def provider(referee: Referee) -> Iterator[Simulator]:
    with Simulator(Behaviour(answers=referee)).start_in_thread() as simulator:
        yield simulator


def prepared(project: Project, provider: Simulator) -> dict[str, str]:
    project.write("evalve.yaml", CONFIGURATION.format(url=provider.url))
    project.write("agent.py", AGENT)
    rows = [{"id": f"r{n}", "question": f"What is {n}?", "answer": "42"} for n in range(3)]
    project.write("sums.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    folder = project.folder
    return {
        "SIM_KEY": "sk-sim-0123456789",
        "EVALVE_STATE_DIR": str(folder / "state"),
        "EVALVE_CACHE_DIR": str(folder / "cache"),
    }


def runs(project: Project) -> int:
    return len(project.read("runs.log").splitlines())


def scores(project: Project, name: str = "judged") -> list[dict[str, object]]:
    return [{score["name"]: score["value"] for score in record["scores"]} for record in project.records(name)]


def test_a_judge_that_gave_no_verdict_is_asked_again_and_the_agent_is_not(
    project: Project, provider: Simulator, referee: Referee
) -> None:
    environ = prepared(project, provider)

    without = project.evalve("run", "judged", **environ)
    before = scores(project)
    spent = [record["calls"]["judge.cost_usd"] for record in project.records("judged")]
    referee.says = VERDICT
    again = project.evalve("run", "judged", **environ)
    once_more = project.evalve("run", "judged", **environ)

    assert without.code == 1
    assert "(running it again scores them again, and --allow-failures accepts that)" in without.out
    assert before == [{"exact_match": True, "llm_judge": None}] * 3
    assert again.code == once_more.code == 0
    assert "answered before and lack a score are scored now, without being asked again" in again.err
    assert scores(project) == [{"exact_match": True, "llm_judge": True}] * 3
    assert runs(project) == 3
    for record, cost_usd in zip(project.records("judged"), spent, strict=True):
        assert record["response"] == "42"
        assert record["calls"]["judge.requests"] == 4  # three without a verdict, and one more
        assert record["calls"]["judge.cost_usd"] > cost_usd > 0
        assert len(record["lent"]["agents"]) == 1
    (sample,) = json.loads(project.evalve("show", "judged", "r0", "--json", **environ).out)
    assert [event["kind"] for event in sample["trace"]] == ["agent", "file", *["call"] * 4]


def test_an_evaluator_that_breaks_is_mended_without_paying_for_the_answers_again(
    project: Project, provider: Simulator, referee: Referee
) -> None:
    environ = prepared(project, provider)
    checks = "def right(answer):\n    return answer == '42'{broken}\n"
    project.write("checks.py", checks.format(broken=" + None"))
    own = ("--evaluators", "checks.py:right")
    referee.says = VERDICT

    broken = project.evalve("run", "judged", *own, **environ)
    failed = project.records("judged")
    project.write("checks.py", checks.format(broken=""))
    mended = project.evalve("run", "judged", *own, **environ)

    assert broken.code == 1
    assert [(record["status"], record["response"]) for record in failed] == [("failed", "42")] * 3
    assert mended.code == 0
    assert scores(project) == [{"right": True, "llm_judge": True}] * 3
    assert runs(project) == 3


@pytest.mark.parametrize("ends", ["kill -9", "Ctrl-C twice"])
def test_an_answer_is_kept_before_it_is_scored_whatever_ends_the_run(
    project: Project, provider: Simulator, referee: Referee, ends: str
) -> None:
    environ = prepared(project, provider)
    referee.says = VERDICT
    provider.adopt(Behaviour(answers=referee, latency=Latency(median_s=600)))

    with project.started("-m", "evalve", "run", "judged", **environ) as run:
        run.wait_until(lambda: provider.stats.peak_concurrency == 3, "three questions to the judge")
        if ends == "kill -9":
            run.kill()
        else:
            run.interrupt()
            run.has_written("Ctrl-C again", "err")
            run.interrupt()
            assert run.end().code == 2
    kept = project.records("judged")
    provider.adopt(Behaviour(answers=referee))
    again = project.evalve("run", "judged", **environ)

    assert [(one["status"], one["response"], one["scores"]) for one in kept] == [("answered", "42", [])] * 3
    assert again.code == 0
    assert scores(project) == [{"exact_match": True, "llm_judge": True}] * 3
    assert runs(project) == 3
    assert [record["tries"] for record in project.records("judged")] == [1, 1, 1]


def test_what_an_agent_called_is_kept_before_it_is_judged(
    project: Project, provider: Simulator, referee: Referee
) -> None:
    environ = prepared(project, provider)
    says = """    print('{"type": "tool_call", "name": "weather", "arguments": {"city": "Bern"}}')\n"""
    project.write(
        "agent.py", AGENT.replace('    print("42")\n', says + """    print('{"answer": "42"}')\n""")
    )
    text = project.read("evalve.yaml").replace("answer: last_line", "answer: jsonl")
    project.write("evalve.yaml", text.replace("[exact_match]", "[llm_tool_selection]"))
    referee.says = VERDICT
    provider.adopt(Behaviour(answers=referee, latency=Latency(median_s=600)))

    with project.started("-m", "evalve", "run", "judged", "--limit", "1", **environ) as run:
        run.wait_until(lambda: provider.stats.peak_concurrency == 1, "a question to the judge")
        run.kill()
    kept = project.records("judged")
    provider.adopt(Behaviour(answers=referee))
    again = project.evalve("run", "judged", "--limit", "1", **environ)

    called = {"text": "42", "tool_calls": [{"name": "weather", "arguments": {"city": "Bern"}}]}
    assert [(one["status"], one["response"]) for one in kept] == [("answered", called)]
    assert again.code == 0, again.out + again.err
    assert runs(project) == 1
    (record,) = project.records("judged")
    assert (record["response"], record["tries"]) == (called, 1)


def test_an_agent_that_fails_runs_again(project: Project, provider: Simulator, referee: Referee) -> None:
    environ = prepared(project, provider)
    referee.says = VERDICT
    project.write("agent.py", AGENT + "    raise SystemExit(3)\n")

    project.evalve("run", "judged", **environ)
    project.write("agent.py", AGENT)
    ended = project.evalve("run", "judged", "--accept-changes", **environ)

    assert ended.code == 0
    assert runs(project) == 6


def test_answers_are_collected_first_and_scored_later(
    project: Project, provider: Simulator, referee: Referee
) -> None:
    environ = prepared(project, provider)
    text = project.read("evalve.yaml")
    project.write("evalve.yaml", text.replace("    judge_model: referee\n", ""))

    collected = project.evalve("run", "judged", "--evaluators", "none", **environ)
    answers = project.records("judged")
    refused = project.evalve("run", "judged", **environ)
    scored = project.evalve("run", "judged", "--accept-changes", **environ)

    assert collected.code == 0
    assert [(one["response"], one["status"], one["scores"]) for one in answers] == [("42", "done", [])] * 3
    assert "--accept-changes" in refused.out
    assert scored.code == 0
    assert scores(project) == [{"exact_match": True}] * 3
    assert runs(project) == 3


def test_tool_calls_are_collected_first_and_scored_later(project: Project) -> None:
    script = [
        ("Bern", Said(tool_calls=(Called("weather", {"city": "Bern"}),))),
        ("Thank", Said("You are welcome.")),
    ]

    def answers(ask: Ask) -> Said:
        return next(said for word, said in script if word in ask.prompt)

    rows = [
        {
            "id": "bern",
            "question": "Weather in Bern?",
            "calls": [{"name": "weather", "arguments": {"city": "Bern"}}],
        },
        {"id": "thanks", "question": "Thank you!", "calls": []},
    ]
    project.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with Simulator(Behaviour(answers=answers)).start_in_thread() as provider:
        project.write("evalve.yaml", TOOLS.format(url=provider.url))
        environ = {
            "EVALVE_STATE_DIR": str(project.folder / "state"),
            "EVALVE_CACHE_DIR": str(project.folder / "cache"),
        }
        project.evalve("run", "weather", "--evaluators", "none", "--no-cache", **environ)
        before = [record["response"] for record in project.records("weather")]
        scored = project.evalve("run", "weather", "--accept-changes", "--no-cache", **environ)

    assert scored.code == 0, scored.out + scored.err
    assert scores(project, "weather") == [{"tool_call_match": True}] * 2
    assert [record["response"] for record in project.records("weather")] == before
    assert provider.stats.completed == 2
