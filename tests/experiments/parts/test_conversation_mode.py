"""`evaluation_mode: conversation` in the file: what is told of mistakes, and what is built."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.experiments.building import build
from evalve.experiments.declared import Declared, declared_named
from evalve.experiments.file.configuration import read_configuration
from evalve.experiments.validation import validated
from evalve.options import Options

FILE = """\
sandboxes:
  postgres: {schema: schema.sql}
datasets:
  talks: {path: talks.jsonl}
models:
  mini: {model: openai/gpt-5-mini, temperature: 0.0}
  large: anthropic/claude-sonnet-5
  atlas: {student: mini, teacher: large}
  mine: {agent: python, function: "my_agent:answer"}
experiments:
  crm:
    evaluation_mode: conversation
    datasets: talks
    models: [mini, atlas, mine]
    sandbox: postgres
    tools: crm_tools.py
    system: You are friendly.
    fail_under: {success: 0.5}
"""
FROM_MODE_TO_SANDBOX = """\
evaluation_mode: conversation
    datasets: talks
    models: [mini, atlas, mine]
    sandbox: postgres"""
ONLY_THERE = "12: .*`max_steps:` is for `evaluation_mode: conversation`"
TOOLS = """\
from __future__ import annotations
from evalve.conversations import tool

@tool
async def create(connection, name: str) -> dict:
    "Create a client."
    return {}

def helper():
    pass

SOME = [create]
"""
TALK = {
    "conversation_id": "t1",
    "turns": [{"user_utterance": "Add Acme", "expected_tool": "create"}],
    "final_expected_state": {"clients": []},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    (tmp_path / "evalve.yaml").write_text(FILE)
    (tmp_path / "schema.sql").write_text("CREATE TABLE clients (name text);")
    (tmp_path / "crm_tools.py").write_text(TOOLS)
    (tmp_path / "my_agent.py").write_text("async def answer(turn):\n    return 'yes'\ndef plain(turn): ...\n")
    (tmp_path / "talks.jsonl").write_text(json.dumps(TALK) + "\n")
    return tmp_path


def declared_in(folder: Path) -> Declared:
    document = read_configuration(folder).document
    assert document is not None
    return declared_named(document, "crm")


def test_a_whole_file_is_valid_and_becomes_an_evaluation_for_each_agent(folder: Path) -> None:
    report = validated(folder)
    built = build(declared_in(folder), Options(), {"OPENAI_API_KEY": "k"}, experiment="crm")

    assert [str(one) for one in report.errors] == []
    (shape,) = report.experiments
    assert (shape["evaluation_mode"], shape["models"]) == ("conversation", ["mini", "atlas", "mine"])
    assert [one.runnable.spec.name for one in built] == ["talks[mini]", "talks[atlas]", "talks[mine]"]
    prints = [dict(one.runnable.spec.fingerprint) for one in built]
    assert all(print["script crm_tools.py"] == TOOLS for print in prints)
    assert json.loads(prints[1]["captured model"])["teacher"] == {"model": "anthropic/claude-sonnet-5"}
    assert [list(one.runnable.lenders) for one in built] == [["database"]] * 3


async def test_a_sample_is_the_whole_row_named_by_its_conversation(folder: Path) -> None:
    (first, *_) = build(declared_in(folder), Options(), {}, experiment="crm")
    (sample,) = await first.runnable.rows().next(5)
    assert (sample.id, sample.values) == ("t1", {"conversation": {**TALK, "id": "t1"}})


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        (
            "tools: crm_tools.py",
            "tools: crm_tool.py",
            "16: .*no file .*crm_tool.py'; did you mean 'crm_tools.py'",
        ),
        (
            "    tools: crm_tools.py\n",
            "",
            "4: row 1 .*the tool 'create' is expected, and no tools are offered",
        ),
        ("tools: crm_tools.py", "tools: tools.json", "16: .*'tools.json' is not a Python file"),
        (
            "tools: crm_tools.py",
            "tools: [{name: a}]",
            "16: .*the tools of a conversation are run: name a Python",
        ),
        (
            "tools: crm_tools.py",
            "tools: 'crm_tools:SOM'",
            r"16: .*crm_tools has no function.*did you mean 'SOME'",
        ),
        (
            "tools: crm_tools.py",
            "tools: 'no_such:SOME'",
            "16: .*no_such:SOME cannot be imported: ModuleNotFound",
        ),
        ("tools: crm_tools.py", "tools: my_agent.py", "16: .*has no tools: write @evalve.conversations.tool"),
        (
            "system: You are friendly.",
            "prompt: '{a}'",
            "17: .*`prompt:` is not for `evaluation_mode: conversation`",
        ),
        ("system: You are friendly.", "evaluators: exact_match", "17: .*scored by what the rows expect"),
        ("system: You are friendly.", "arguments: exac", "17: .*by 'exac'; did you mean 'exact'"),
        (
            "system: You are friendly.",
            "arguments: {ignor: [a]}",
            "17: .*no rule 'ignor'; did you mean 'ignore'",
        ),
        ("system: You are friendly.", "max_steps: 0", "17: .*max_steps: needs a whole number, 1 or more"),
        ("{success: 0.5}", "{succes: 0.5}", "18: .*no score is called 'succes'; did you mean 'success'"),
        ("sandbox: postgres", "keep: never", "16: .*'create' takes a connection, and there is no database"),
        (
            "sandbox: postgres\n    tools: crm_tools.py",
            "keep: never",
            "row 1 of talks.jsonl: conversation 't1' has `final_expected_state`, and there is no",
        ),
        ("teacher: large", "teacher: larg", "8: models.atlas: teacher: .*'larg'; did you mean 'large'"),
        ("teacher: large", "teaching: review", "8: models.atlas lacks `teacher:`"),
        (
            "teacher: large",
            "teacher: mine",
            "8: models.atlas: the teacher 'mine' is an agent; name an API model",
        ),
        ("teacher: large", "teacher: atlas", "8: models.atlas: its teacher is 'atlas' itself"),
        ("teacher: large", "teacher: large, teaching: advise", "8: .*teaching: needs one of: review, guide"),
        ("teacher: large", "teacher: large, temperature: 1", "8: models.atlas: unknown key 'temperature'"),
        (
            "evaluation_mode: conversation",
            "evaluation_mode: conversations",
            "12: .*agent, model, conversation",
        ),
        (
            "evaluation_mode: conversation\n",
            "max_steps: 5\n    prompt: a\n",
            "'atlas' is a student with a teacher",
        ),
        (
            FROM_MODE_TO_SANDBOX,
            "max_steps: 5\n    datasets: talks\n    models: [mini]\n    prompt: a",
            ONLY_THERE,
        ),
        (
            "system: You are friendly.",
            "judge_model: atlas",
            "17: .*the judge 'atlas' is a student with a teacher",
        ),
    ],
)
def test_mistakes_are_told_with_their_lines(folder: Path, written: str, instead: str, message: str) -> None:
    assert written in FILE
    (folder / "evalve.yaml").write_text(FILE.replace(written, instead))
    told = "\n".join(map(str, validated(folder).errors))
    assert re.search(message, told), told


@pytest.mark.parametrize(
    ("talk", "message"),
    [
        ({**TALK, "turns": []}, r"evalve.yaml:4: row 1 of talks.jsonl: conversation 't1' has no `turns`"),
        (
            {**TALK, "turns": [{"user_utterance": "a", "expected_tool": "creat"}]},
            "turn 1: the tool 'creat' is expected, and is not offered; did you mean 'create'",
        ),
        (
            {
                **TALK,
                "turns": [{"user_utterance": "a", "expected_tool": "create", "expected_args": {"nam": 1}}],
            },
            "turn 1: the argument 'nam' is expected, and the tool 'create' has none of that name; did",
        ),
        (
            {
                **TALK,
                "turns": [{"user_utterance": "a", "expected_response": {"text": "b", "evaluation": "judge"}}],
            },
            "expects a response that needs a judge: say judge=, or `judge_model:` in an experiment",
        ),
    ],
)
def test_what_the_first_row_tells_is_told_before_anything_runs(
    folder: Path, talk: dict[str, Any], message: str
) -> None:
    (folder / "talks.jsonl").write_text(json.dumps(talk) + "\n")
    with pytest.raises(OptionError, match=message):
        declared_in(folder)


def test_validating_looks_at_every_row(folder: Path) -> None:
    wrong = [{**TALK, "conversation_id": f"w{n}", "turns": [{"user_utterance": ""}]} for n in range(20)]
    (folder / "talks.jsonl").write_text("\n".join(map(json.dumps, [TALK, *wrong])))
    told = [str(one) for one in validated(folder).errors]
    assert len(told) == 10
    assert told[0] == (
        f"{folder}/evalve.yaml:13: row 2 of talks.jsonl: conversation 'w0', turn 1 has no `user_utterance`, "
        "the text that the user says"
    )


def test_validating_tells_two_conversations_of_one_name(folder: Path) -> None:
    (folder / "talks.jsonl").write_text("\n".join(map(json.dumps, [TALK, TALK])))
    (told,) = validated(folder).errors
    assert str(told).endswith(
        "row 2 of talks.jsonl: row 1 has the id 't1', too; ids must be unique within a dataset"
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("my_agent:answr", r"9: models.mine: function: my_agent has no 'answr'; did you mean 'answer'\?"),
        ("my_agent:plain", "9: models.mine: function: agent= is .*an async function of a turn"),
        ("no_agent:answer", "9: models.mine: function: no_agent:answer cannot be imported"),
    ],
)
def test_an_agent_of_ones_own_is_an_async_function(folder: Path, function: str, message: str) -> None:
    (folder / "evalve.yaml").write_text(FILE.replace("my_agent:answer", function))
    with pytest.raises(OptionError, match=message):
        build(declared_in(folder), Options(), {}, experiment="crm")
