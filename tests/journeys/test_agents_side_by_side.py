"""Several agents beside each other, seen from outside: orders, lanes with a database, outputs, terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import PATIENCE_S, Project

from evalve.simulator import Behaviour, Simulator
from postgres_server import Admin, private_server

CONFIGURATION = """
    sandboxes:
      postgres: {{schema: schema.sql, url: '${{PG_URL}}'}}
    models:
      clerk: {{agent: python, function: "agents:clerk"}}
      learner: {{agent: python, function: "agents:learner", lane: "{{workflow}}"}}
      sim: {{model: tiny, base_url: "{url}/v1", api_key: "${{SIM_KEY}}", temperature: 1.0}}
    datasets:
      talks: {{path: talks.jsonl, id: conversation_id}}
    experiments:
      crm:
        evaluation_mode: conversation
        datasets: talks
        models: [clerk, learner, sim]
        sandbox: postgres
        tools: tools.py
"""
TOOLS = """
    from evalve.conversations import tool

    @tool
    async def add(connection, name: str) -> dict:
        "Add a client, and say which there are."
        await connection.execute("INSERT INTO clients (name) VALUES (%s)", (name,))
        cursor = await connection.execute("SELECT name FROM clients ORDER BY id")
        return {"names": [name for (name,) in await cursor.fetchall()]}
"""
AGENTS = """
    import os

    async def clerk(turn):
        return ", ".join((await turn.call("add", {"name": turn.utterance}))["names"])

    LEARNT = []

    async def learner(turn):
        LEARNT.append(turn.utterance)
        if turn.utterance == os.environ.get("STOPS_AT"):
            os.kill(os.getpid(), 2)
        return await clerk(turn)
"""
TALKS = [("a1", "notes"), ("b1", "quotes"), ("a2", "notes"), ("b2", "quotes"), ("a3", "notes")]


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with private_server() as (_, asked):
        yield asked


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour()).start_in_thread() as simulator:
        yield simulator


@pytest.fixture
def environ(admin: Admin, tmp_path: Path) -> dict[str, str]:
    own = {name: str(tmp_path / name) for name in ("EVALVE_STATE_DIR", "EVALVE_CACHE_DIR")}
    return {"SIM_KEY": "sk-sim-0123456789", "PG_URL": admin.url, **own}


@pytest.fixture
def crm(project: Project, provider: Simulator) -> Project:
    project.write("evalve.yaml", CONFIGURATION.format(url=provider.url))
    project.write("schema.sql", "CREATE TABLE clients (id serial PRIMARY KEY, name text);")
    project.write("tools.py", TOOLS)
    project.write("agents.py", AGENTS)
    rows = [
        {
            "conversation_id": name,
            "workflow": workflow,
            "turns": [{"user_utterance": name, "expected_tool": "add", "expected_args": {"name": name}}],
        }
        for name, workflow in TALKS
    ]
    project.write("talks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return project


def replies(project: Project, experiment: str, agent: str) -> dict[str, str]:
    return {
        one["sample_id"]: one["response"]["turns"][0]["reply"]
        for one in project.records(experiment)
        if one["evaluation"].endswith(f"[{agent}]") and one["status"] == "done"
    }


def test_all_agents_play_all_conversations_each_with_its_own_output(
    crm: Project, provider: Simulator, environ: dict[str, str]
) -> None:
    """What three commands with `--conversations --agent --output --temperature` did, by one."""
    crm.write("others.jsonl", crm.read("talks.jsonl").replace("a1", "x1"))

    ended = crm.evalve(
        *("run", "crm", "--phases", "clerk,sim;learner", "--output-dir", "out"),
        *("--temperature", "0.0", "--max-output-tokens", "77", "--datasets", "others.jsonl"),
        **environ,
    )

    assert ended.code == 0
    assert "crm: phase 2 of 2: learner" in ended.err
    for agent in ("clerk", "learner", "sim"):
        lines = [json.loads(line) for line in crm.read(f"out/{agent}.jsonl").splitlines()]
        assert [line["sample_id"] for line in lines] == ["x1", "b1", "a2", "b2", "a3"]
        assert f"others[{agent}]  5/5 done" in crm.read(f"out/{agent}.log")
    status = json.loads(crm.read("out/status.json"))["agents"]
    assert {name: (one["exit_code"], one["success"]) for name, one in status.items()} == {
        "clerk": (0, 1.0),
        "learner": (0, 1.0),
        "sim": (0, 0.0),
    }
    assert max(status["clerk"]["ended_at"], status["sim"]["ended_at"]) <= status["learner"]["started_at"]
    sent = [json.loads(one["body"]) for one in provider.recent_requests()]
    assert {(one["temperature"], one["max_tokens"]) for one in sent} == {(0.0, 77)}
    assert "0 databases, 0 connections left" in ended.err


def test_a_lane_keeps_its_database_and_is_played_again_from_its_first_after_ctrl_c(
    crm: Project, environ: dict[str, str]
) -> None:
    said = ("run", "crm", "--models", "learner", "--reset", "lane", "--concurrency", "1")

    stopped = crm.evalve(*said, **environ, STOPS_AT="a2")
    assert stopped.code == 2
    before = replies(crm, "crm", "learner")
    assert before == {"a1": "a1", "a2": "a1, a2"}
    assert "0 databases, 0 connections left" in stopped.err
    again = crm.evalve(*said, **environ)

    assert again.code == 0
    assert "2 recorded samples run again" in again.err
    assert replies(crm, "crm", "learner") == {
        "a1": "a1",
        "b1": "b1",
        "a2": "a1, a2",
        "b2": "b1, b2",
        "a3": "a1, a2, a3",
    }


def test_each_agent_may_have_a_terminal_of_its_own(crm: Project, environ: dict[str, str]) -> None:
    program = str(Path(sys.executable).parent / "evalve")
    processes = [
        subprocess.Popen(
            [program, "run", "crm", "--models", agent], cwd=crm.folder, env={**os.environ, **environ}
        )
        for agent in ("clerk", "learner")
    ]

    assert [one.wait(PATIENCE_S) for one in processes] == [0, 0]
    assert len(replies(crm, "crm", "clerk")) == len(replies(crm, "crm", "learner")) == 5
