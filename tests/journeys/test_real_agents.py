"""The real command-line agents, ten at once, through adapter, gateway and simulator: `make test-agents`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from project import Project, _clean

from evalve.records import Record
from evalve.storage import open_store

CLIS = os.environ.get("EVALVE_TEST_CLIS", "")
pytestmark = [
    pytest.mark.skipif(not CLIS, reason="needs Node's packages: make test-agents installs and runs them"),
    pytest.mark.filterwarnings("default"),
]

AGENTS = {
    "claude-code": ("claude", "anthropic/claude-sonnet-5"),
    "codex": ("codex", "openai/gpt-5.5"),
    "gemini-cli": ("gemini", "gemini/gemini-3-flash"),
}
each_agent = pytest.mark.parametrize("name", AGENTS)
KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-real-0123456789abcdef",
    "OPENAI_API_KEY": "sk-real-0123456789abcdef",
    "GEMINI_API_KEY": "AIza-real-0123456789abcdef",
}
READER = """
    turns:
      - tool_calls:                       # the simulator calls those that a request offers
          - {name: Read, arguments: {file_path: context.md}}
          - {name: exec_command, arguments: {cmd: cat context.md}}
          - {name: read_file, arguments: {file_path: context.md}}
      - {find: 'revenue in 2019 was (\\d+)', text: 'The answer is {found}.'}
"""
READS = """
    import evalve
    from evalve import Workspace, foreach

    agent = evalve.agent(@NAME, model=@MODEL, program=@PROGRAM, timeout_s=300@MORE)

    @foreach("id,number", [(str(n), 1000 + n) for n in range(@COUNT)])
    async def eval_reads(id, number, workspace=Workspace(keep="always")):
        (workspace / "context.md").write_text(f"Their revenue in 2019 was {number} dollars.\\\\n")
        run = await agent("What was the revenue in 2019? Read context.md.", workspace)
        return run.answer.strip() == f"The answer is {number}."
"""
PRICES = """
    prices:
      gemini-3.8-flash: {input: 0.5, output: 3.0}
"""


def evaluation(name: str, *, count: int, more: str = "") -> str:
    program, model = AGENTS[name]
    path = Path(CLIS, "node_modules", ".bin", program)
    values = {
        "NAME": repr(name),
        "MODEL": repr(model),
        "PROGRAM": repr(str(path)),
        "COUNT": str(count),
        "MORE": more,
    }
    text = READS
    for key, value in values.items():
        text = text.replace(f"@{key}", value)
    return text


@pytest.fixture
def simulator(project: Project) -> Iterator[str]:
    """The address of one that answers from `context.md`."""
    project.write("reader.yaml", READER)
    yield from simulated(project, "--answers", "reader.yaml")


def simulated(project: Project, *arguments: str) -> Iterator[str]:
    """Runs one as long as its address is used."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evalve", "simulate", *arguments],
        cwd=project.folder,
        env=_clean({}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()
        process.wait()


def environment(url: str) -> dict[str, str]:
    addresses = {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1", "GOOGLE_GEMINI_BASE_URL": url}
    return {**KEYS, **addresses}


def run(project: Project, url: str, name: str, *, count: int, more: str = "") -> list[Record]:
    project.write("evalve.yaml", PRICES)
    project.write("eval_reads.py", evaluation(name, count=count, more=more))
    project.pytest("eval_reads.py", "--experiment", "x", "--max-concurrency", str(count), **environment(url))
    with closing(open_store(project.folder / ".evalve" / "evalve.db", create=False)) as store:
        (one,) = store.evaluations("x")
        return list(store.records(one))


@each_agent
def test_ten_at_once_answer_right_with_usage_and_cost_in_their_records(
    project: Project, simulator: str, name: str
) -> None:
    records = run(project, simulator, name, count=10)
    assert [record.scores[0].value for record in records] == [True] * 10
    for record in records:
        assert record.calls is not None
        assert record.lent is not None
        (agent,) = record.lent["agents"]
        assert record.calls["requests"] == 2
        assert record.calls["cost_usd"] > 0
        assert record.calls["output_tokens"] > 0
        assert (agent["agent"], agent["exit_code"], agent["turns"]) == (name, 0, 2)
        assert agent["usage"]["output_tokens"] > 0
        assert agent["version"][0].isdigit()
        assert agent["cpu_s"] > 0
        assert agent["peak_memory_bytes"] > 50_000_000


@each_agent
def test_no_key_is_in_any_workspace_or_record(project: Project, simulator: str, name: str) -> None:
    records = run(project, simulator, name, count=2)
    assert len(list((project.folder / ".evalve" / "kept").rglob("context.md"))) == 2
    files = [path for path in (project.folder / ".evalve").rglob("*") if path.is_file()]
    with_keys = [path for path in files for key in KEYS.values() if key.encode() in path.read_bytes()]
    assert (len(records), with_keys) == (2, [])


@each_agent
def test_a_confined_agent_answers_too(project: Project, simulator: str, name: str) -> None:
    from evalve.agents.supervisor import landlock

    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    (record,) = run(project, simulator, name, count=1, more=", confine='landlock'")
    assert record.scores[0].value is True
    assert record.lent is not None
    assert record.lent["agents"][0]["confinement"] == "landlock"


@each_agent
def test_a_wrong_key_is_the_configurations_fault_and_no_answer(project: Project, name: str) -> None:
    for url in simulated(project, "--key", "sk-another-0123456789"):
        (record,) = run(project, url, name, count=1)
    assert (record.status, record.failure_class, record.scores) == ("failed", "code", [])
