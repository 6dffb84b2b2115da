"""Code that knows nothing of evalve's clients: gated, counted for its samples, under one budget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from project import Project

from evalve.simulator import Behaviour, Limits, Simulator
from evalve.storage import open_store

REAL_KEY = "sk-real-4711"

AS_PRINTED = """
    import openai
    import doteval
    from doteval.evaluators import exact_match

    dataset = [(f"What is {n}+{n}?", "Hello.") for n in range(12)]
    client = openai.AsyncOpenAI()

    @doteval.foreach("question,answer", dataset)
    async def eval_openai_async(question, answer):
        response = await client.chat.completions.create(
            model="gpt-3.5-turbo",
            messages=[{"role": "user", "content": question}]
        )
        result = response.choices[0].message.content
        return exact_match(result, answer)
"""
"""As a person prints it who has never heard of a gateway."""

SYNC = """
    import anthropic
    import evalve

    client = anthropic.Anthropic()

    @evalve.foreach("number", range(6))
    def eval_sync(number):
        message = client.messages.create(
            model="claude-x", max_tokens=20, messages=[{"role": "user", "content": f"say {number}"}]
        )
        return message.content[0].text == "Hello."
"""


@pytest.fixture
def provider() -> Iterator[Simulator]:
    behaviour = Behaviour(
        answers=["Hello."],
        keys=frozenset({REAL_KEY}),
        limits=Limits(requests_per_minute=1200, depth_s=0.25),
    )
    with Simulator(behaviour).start_in_thread() as simulator:
        yield simulator


def at(simulator: Simulator, folder: Path, **more: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": simulator.url,
        "ANTHROPIC_API_KEY": REAL_KEY,
        "OPENAI_BASE_URL": f"{simulator.url}/v1",
        "OPENAI_API_KEY": REAL_KEY,
        "EVALVE_STATE_DIR": str(folder / "state"),
        "EVALVE_CACHE_DIR": str(folder / "cache"),
        **more,
    }


LIMITED = {"EVALVE_LIMITS_OPENAI_RPM": "1200", "EVALVE_LIMITS_OPENAI_BURST_S": "0.2"}


def calls_of(project: Project) -> list[int]:
    with closing(open_store(project.folder / ".evalve/evalve.db", create=False)) as store:
        (experiment,) = store.experiments()
        (evaluation,) = store.evaluations(experiment.name)
        return [(record.calls or {}).get("requests", 0) for record in store.records(evaluation)]


def waits(project: Project) -> bool:
    """Whether a sample waits for limits, as the run tells; one that is sync blocks the loop that tells."""
    if "waiting: 1 for" in project.read("err"):
        return True
    with closing(open_store(project.folder / ".evalve/evalve.db", create=False)) as store:
        return any(progress.waiting.get("limits") for progress in store.live("waits"))


def test_sdk_code_as_printed_is_gated_and_counted_for_each_sample(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_async.py", AS_PRINTED)

    ended = project.pytest("eval_async.py", "--gateway", **at(provider, project.folder, **LIMITED))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [1] * 12
    assert (provider.stats.completed, provider.stats.refused) == (12, 0)
    assert project.values() == {"eval_openai_async": [True] * 12}


def test_without_it_nothing_is_counted(project: Project, provider: Simulator) -> None:
    """Or the tests here would prove nothing."""
    provider.adopt(Behaviour(answers=["Hello."]))
    project.write("eval_async.py", AS_PRINTED)

    ended = project.pytest("eval_async.py", **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [0] * 12


def test_a_client_made_in_a_conftest_and_sync_code_are_gated_too(
    project: Project, provider: Simulator
) -> None:
    project.write("conftest.py", "import anthropic\nCLIENT = anthropic.Anthropic()\n")
    project.write("eval_sync.py", SYNC.replace("anthropic.Anthropic()", "__import__('conftest').CLIENT"))

    ended = project.evalve("run", "--gateway", "eval_sync.py", **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [1] * 6


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("--gateway", "--engine", "processes", "--workers", "2"), {}),
        (("--gateway", "-n", "2"), {}),
        ((), {"EVALVE_GATEWAY": "true"}),
    ],
    ids=["worker processes", "xdist", "by a variable"],
)
def test_it_reaches_every_process_that_runs_samples(
    project: Project, provider: Simulator, arguments: tuple[str, ...], variables: dict[str, str]
) -> None:
    project.write("eval_sync.py", SYNC)

    ended = project.pytest("eval_sync.py", *arguments, **at(provider, project.folder, **variables))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [1] * 6
    assert provider.stats.completed == 6


def test_evalve_yaml_can_ask_for_it(project: Project, provider: Simulator) -> None:
    project.write("evalve.yaml", "options: {gateway: true}\n")
    project.write("eval_async.py", AS_PRINTED)

    ended = project.pytest("eval_async.py", **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [1] * 12


def test_what_passes_the_gate_by_itself_is_not_counted_twice(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_both.py",
        """
        import evalve, openai

        CLIENT = openai.AsyncOpenAI(http_client=evalve.async_http_client())

        @evalve.foreach("number", range(3))
        async def eval_both(number):
            model = evalve.model("openai/gpt-x")
            answer = await model.generate(f"one {number}")
            ask = [{"role": "user", "content": f"two {number}"}]
            await CLIENT.chat.completions.create(model="gpt-x", messages=ask)
            return answer.text == "Hello."
        """,
    )

    ended = project.pytest("eval_both.py", "--gateway", **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert calls_of(project) == [2, 2, 2]
    assert provider.stats.completed == 6
    limits = json.loads(project.evalve("limits", "--json", **at(provider, project.folder)).out)
    assert len({scope["host"] for scope in limits["scopes"]}) <= 1  # none is the gateway's own


def test_calls_that_go_past_it_are_told_and_counted(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_past.py",
        f"""
        import json
        import urllib.request

        import evalve
        import openai

        BODY = {{"model": "gpt-x", "messages": [{{"role": "user", "content": "hello"}}]}}
        HEADERS = {{"authorization": "Bearer {REAL_KEY}", "content-type": "application/json"}}

        @evalve.foreach("number", range(2))
        def eval_past(number):
            client = openai.OpenAI(base_url="{provider.url}/v1")
            said = client.chat.completions.create(**BODY).choices[0].message.content
            url = "{provider.url}/v1/chat/completions"
            request = urllib.request.Request(url, json.dumps(BODY).encode(), HEADERS)
            return said == json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
        """,
    )

    ended = project.pytest("eval_past.py", "--gateway", **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert "4 calls passed ungated" in ended.out
    assert ended.all.count("do not go over the gateway") == 1
    assert calls_of(project) == [0, 0]


@pytest.mark.parametrize("engine", ["auto", "processes"])
def test_a_program_that_a_sample_starts_calls_with_a_token_alone(
    project: Project, provider: Simulator, engine: str
) -> None:
    project.write(
        "agent.py",
        """
        import json, os, sys, urllib.request

        assert "real" not in json.dumps(dict(os.environ))
        body = {"model": "gpt-x", "messages": [{"role": "user", "content": sys.argv[1]}]}
        request = urllib.request.Request(
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
        )
        for _ in range(3):
            with urllib.request.urlopen(request) as answer:
                print(json.load(answer)["choices"][0]["message"]["content"])
        """,
    )
    project.write(
        "eval_agent.py",
        """
        import subprocess, sys, evalve

        @evalve.foreach("number", range(4))
        def eval_agent(number, gateway):
            ended = subprocess.run(
                [sys.executable, "agent.py", str(number)], env=gateway.environment(), capture_output=True
            )
            return ended.stdout == b"Hello.\\n" * 3
        """,
    )

    ended = project.pytest("eval_agent.py", "--engine", engine, **at(provider, project.folder))

    assert ended.outcomes == {"passed": 1}, ended.all
    assert project.values() == {"eval_agent": [True] * 4}
    assert calls_of(project) == [3] * 4


def test_a_budget_stops_the_run(project: Project, provider: Simulator) -> None:
    project.write("eval_async.py", AS_PRINTED)
    project.write("evalve.yaml", "prices: {gpt-3.5-turbo: {input: 1000, output: 100000}}\n")

    ended = project.pytest(
        "eval_async.py", "--gateway", "--budget-usd", "0.5", **at(provider, project.folder)
    )

    assert ended.code == 2, ended.all
    assert "budget" in ended.all
    assert 0 < provider.stats.completed < 12


@pytest.mark.parametrize("code", [AS_PRINTED, SYNC], ids=["async", "sync"])
def test_ctrl_c_ends_calls_that_wait_for_limits_at_once_and_the_run_goes_on_later(
    project: Project, provider: Simulator, code: str
) -> None:
    project.write("eval_waits.py", code)
    hourly = {f"EVALVE_LIMITS_{name}_RPM": "0.02" for name in ("OPENAI", "ANTHROPIC")}
    asked = ("-m", "pytest", "eval_waits.py", "--gateway", "--experiment", "waits")
    with project.started(*asked, **at(provider, project.folder, **hourly)) as running:
        running.wait_until(lambda: provider.stats.completed > 0 and waits(project), "call that waits")
        running.interrupt()
        ended = running.end()
    assert ended.code == 2, ended.all

    rest = project.pytest(
        "eval_waits.py", "--gateway", "--experiment", "waits", **at(provider, project.folder / "anew")
    )

    assert rest.outcomes == {"passed": 1}, rest.all
    assert provider.stats.completed == len(calls_of(project))


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OPENAI_BASE_URL": "localhost:1"}, "the address of 'openai' must begin with http"),
        ({"EVALVE_CACHE_SIZE": "large"}, "EVALVE_CACHE_SIZE: needs a size"),
    ],
)
def test_what_is_wrong_with_the_settings_is_told_before_anything_is_imported(
    project: Project, provider: Simulator, variables: dict[str, str], told: str
) -> None:
    project.write("eval_sync.py", SYNC)

    ended = project.pytest("eval_sync.py", "--gateway", **{**at(provider, project.folder), **variables})

    assert ended.code == 4
    assert told in ended.err
    assert "Traceback" not in ended.all


def test_the_command_serves_until_it_is_interrupted(project: Project, provider: Simulator) -> None:
    with project.started(
        "-m", "evalve", "gateway", "--json", "--cache", "on", **at(provider, project.folder)
    ) as running:
        running.has_written("\n", "out")
        opened: dict[str, Any] = json.loads(project.read("out"))
        assert opened["upstreams"]["openai"].startswith("http://127.0.0.1:")
        program = """
            import openai
            ask = [{"role": "user", "content": "hi"}]
            for _ in range(2):
                answer = openai.OpenAI().chat.completions.create(model="gpt-x", messages=ask)
                print(answer.choices[0].message.content)
        """
        project.write("program.py", program)
        ended = project.python("program.py", **opened["environment"])
        assert ended.out == "Hello.\nHello.\n", ended.all
        running.interrupt()
        closed = running.end()
    assert closed.code == 0
    told = json.loads(closed.out.splitlines()[1])["calls"]
    assert (told["requests"], told["cached"]) == (1, 1)


def test_the_command_says_what_to_export(project: Project, provider: Simulator) -> None:
    with project.started("-m", "evalve", "gateway", **at(provider, project.folder)) as running:
        running.has_written("Others are below", "out")
        running.interrupt()
        closed = running.end()
    assert closed.code == 0
    assert "  export ANTHROPIC_BASE_URL=http://127.0.0.1:" in closed.out
    assert closed.out.rstrip().endswith("0 calls, 0 tokens in, 0 out")
    assert REAL_KEY not in closed.all
