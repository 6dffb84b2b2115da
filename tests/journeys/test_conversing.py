"""Conversations of `evalve.yaml` with every kind of agent, on real databases, as a person runs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from project import Project

from evalve.simulator import Answer, Ask, Behaviour, Simulator, ToolCall
from postgres_server import Admin, private_server

CONFIGURATION = """
    sandboxes:
      postgres: {{schema: schema.sql, url: "${{PG_URL}}"}}
    datasets:
      talks: {{path: talks.jsonl}}
    models:
      mini: {{model: openai/gpt-5-mini, temperature: 0.0}}
      large: {{model: anthropic/claude-sonnet-5}}
      atlas: {{student: mini, teacher: large, teaching: review}}
      mine: {{agent: python, function: "my_agent:answer"}}
      coder: {{agent: command, command: ["{python}", "{{project}}/coder.py", "{{prompt}}"]}}
    experiments:
      crm:
        evaluation_mode: conversation
        datasets: talks
        models: [mini, atlas, mine, coder]
        sandbox: postgres
        tools: crm_tools.py
        system: You look after clients.
      judged:
        extends: crm
        datasets: judged
        models: mini
        judge_model: large
"""
TOOLS = """
    from evalve.conversations import tool

    @tool
    async def create_client(connection, name: str) -> dict:
        cursor = await connection.execute("INSERT INTO clients (name) VALUES (%s) RETURNING id", (name,))
        return {"client_id": (await cursor.fetchone())[0]}

    @tool
    async def win_client(connection, client_id: int) -> dict:
        await connection.execute("UPDATE clients SET stage = 'won' WHERE id = %s", (client_id,))
        return {"client_id": client_id}
"""
MINE = """
    async def answer(turn):
        verb, name = turn.utterance.split()
        if verb == "Add":
            await turn.call("create_client", {"name": name})
        else:
            made = turn.dialogue[2]["content"]
            await turn.call("win_client", {"client_id": int("".join(filter(str.isdigit, made)))})
        return "Done."
"""
CODER = """
    import os, sys
    import psycopg

    verb, name = sys.argv[1].split()[-2:]
    open("turns.txt", "a").write(verb)  # all turns of a conversation share a workspace
    if verb == "Win":
        assert open("turns.txt").read() == "AddWin" and "assistant: Done." in sys.argv[1]
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        if verb == "Add":
            connection.execute("INSERT INTO clients (name) VALUES (%s)", (name,))
        else:
            connection.execute("UPDATE clients SET stage = 'won' WHERE name = %s", (name,))
    print("Done.")
"""


def talk(name: str, **more: Any) -> dict[str, Any]:
    return {
        "conversation_id": f"win-{name}",
        "initial_entities": {"seed_data": {"Client": {"40": {"name": "Globex"}}}},
        "turns": [
            {
                "user_utterance": f"Add {name}",
                "expected_tool": "create_client",
                "expected_args": {"name": name},
            },
            {
                "user_utterance": f"Win {name}",
                "expected_tool": "win_client",
                "expected_args": {"client_id": "{{turn_1.client_id}}"},
                **more,
            },
        ],
        "final_expected_state": {
            "clients": [{"name": "Globex", "stage": "new"}, {"name": name, "stage": "won"}]
        },
    }


class Models:
    """A student that misspells Hooli unless it is told, its teacher, and a judge that may refuse."""

    verdict = "I would rather not."
    asked = 0

    def __call__(self, ask: Ask) -> Any:
        if "Rubric:" in ask.prompt:
            return self.verdict
        self.asked += 1
        if not ask.tools:
            is_wrong = "holi" in ask.prompt.rpartition("about to")[2]
            return "It is spelt Hooli." if is_wrong else "APPROVED"
        said = ask.body["messages"]
        if said[-1]["role"] == "tool":
            return "Done."
        users = [one["content"] for one in said if one["role"] == "user"]
        verb, name = next(text for text in reversed(users) if not text.startswith("(")).split()
        if verb == "Win":
            found = int("".join(filter(str.isdigit, ask.tool_rounds[0][0])))
            return Answer("", (ToolCall("win_client", {"client_id": found}),))
        is_told = "spelt Hooli" in users[-1]
        return Answer(
            "", (ToolCall("create_client", {"name": name if is_told else name.replace("Hooli", "holi")}),)
        )


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with private_server() as (_, asked):
        yield asked


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def environ(project: Project, admin: Admin, models: Models) -> Iterator[dict[str, str]]:
    project.write("evalve.yaml", CONFIGURATION.format(python=sys.executable))
    project.write(
        "evalve.yaml",
        project.read("evalve.yaml").replace(
            "talks: {path: talks.jsonl}", "talks: {path: talks.jsonl}\n  judged: {path: judged.jsonl}"
        ),
    )
    project.write(
        "schema.sql", "CREATE TABLE clients (id serial PRIMARY KEY, name text, stage text DEFAULT 'new');"
    )
    project.write("crm_tools.py", TOOLS)
    project.write("my_agent.py", MINE)
    project.write("coder.py", CODER)
    project.write("talks.jsonl", "\n".join(json.dumps(talk(name)) for name in ("Acme", "Hooli")))
    needs_judge = talk("Acme", expected_response={"text": "It is done", "evaluation": "judge"})
    project.write("judged.jsonl", json.dumps(needs_judge))
    with Simulator(Behaviour(answers=models)).start_in_thread() as simulator:
        yield {
            "EVALVE_STATE_DIR": str(project.folder / "state"),
            "EVALVE_CACHE_DIR": str(project.folder / "cache"),
            "PG_URL": admin.url,
            "OPENAI_BASE_URL": f"{simulator.url}/v1",
            "OPENAI_API_KEY": "sk-test",
            "ANTHROPIC_BASE_URL": simulator.url,
            "ANTHROPIC_API_KEY": "sk-test",
        }


def test_every_kind_of_agent_talks_at_once_and_nothing_is_left(
    project: Project, admin: Admin, environ: dict[str, str]
) -> None:
    ran = project.evalve("run", "crm", **environ)
    again = project.evalve("run", "crm", **environ)

    assert ran.code == 0, ran.all
    records = project.records("crm")
    success = {(one["evaluation"], one["sample_id"]): _score(one, "success") for one in records}
    assert success == {
        ("talks[mini]", "win-Acme"): True,
        ("talks[mini]", "win-Hooli"): False,
        ("talks[atlas]", "win-Acme"): True,
        ("talks[atlas]", "win-Hooli"): True,  # the teacher saw it before it was done
        ("talks[mine]", "win-Acme"): True,
        ("talks[mine]", "win-Hooli"): True,
        ("talks[coder]", "win-Acme"): True,
        ("talks[coder]", "win-Hooli"): True,
    }
    (wrong,) = [one for one in records if not _score(one, "success")]
    assert wrong["response"]["failed_at_turn"] == 1
    assert 'name is "holi", expected "Hooli"' in wrong["response"]["turns"][0]["why"][0]
    assert wrong["response"]["turns"][1]["right"] is True  # its own client was won
    assert wrong["response"]["state"] == "clients: stage 'won': name is 'holi' instead of 'Hooli'"
    assert admin.databases() == []
    assert "nothing was left to run" in again.all


def _score(record: dict[str, Any], name: str) -> Any:
    return next(score["value"] for score in record["scores"] if score["name"] == name)


def test_a_conversation_without_a_verdict_is_judged_later_and_not_played_again(
    project: Project, environ: dict[str, str], models: Models
) -> None:
    first = project.evalve("run", "judged", **environ)
    unscored = [_score(one, "success") for one in project.records("judged")]
    asked, models.verdict = models.asked, '{"reason": "it says so", "verdict": "yes"}'
    second = project.evalve("run", "judged", "--no-cache", **environ)

    assert (first.code, unscored) == (1, [None]), first.all
    assert second.code == 0, second.all
    (record,) = project.records("judged")
    assert [
        (one["name"], one["value"]) for one in record["scores"] if one["name"] in ("success", "response")
    ] == [
        ("success", True),
        ("response", True),
    ]
    assert models.asked == asked == 4
    assert "are scored now, without being asked again" in second.all
