"""Agents behind walls: they work in their workspace, and read and write nothing of the project."""

from __future__ import annotations

import os
import sys

import pytest

from agent_services import Bench
from evalve.agents import confinement
from evalve.agents.supervisor import landlock
from evalve.errors import AgentError

LANDLOCK = pytest.param(
    "landlock", marks=pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
)
BUBBLEWRAP = pytest.param(
    "bubblewrap",
    marks=pytest.mark.skipif(not confinement._bubblewrap_works(), reason="bubblewrap does not work here"),
)
READER = """\
import json, sys
try:
    print(open(sys.argv[1]).read())
except OSError as error:
    print(type(error).__name__)
"""
each_level = pytest.mark.parametrize("level", [LANDLOCK, BUBBLEWRAP])


async def test_what_a_system_lacks_is_known_before_an_agent_starts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = bench.agent("command", command=["true"], confine="bubblewrap")
    confinement._bubblewrap_works.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no bwrap here; install it, or say confine: auto" in (agent.missing() or "")
    confinement._bubblewrap_works.cache_clear()


@each_level
async def test_a_confined_agent_reads_and_writes_its_workspace(bench: Bench, level: str) -> None:
    (bench.workspace / "context.md").write_text("12\n")
    script = "cat context.md > copy.md; mkdir -p $HOME/.x $TMPDIR/y; echo ok > /dev/null; cat copy.md"
    run = await bench.shell(script, confine=level)("x", bench.workspace)
    assert (run.answer, run.confinement) == ("12", level)


@each_level
async def test_a_confined_agent_cannot_read_the_dataset(bench: Bench, level: str) -> None:
    dataset = bench.project / "docs.jsonl"
    dataset.write_text('{"answer": "gold"}\n')
    script = f"cat {dataset} && ls {bench.project}; echo done"
    run = await bench.shell(script, confine=level, answer="whole")("x", bench.workspace)
    assert run.answer == "done"
    assert "docs.jsonl" in run.stderr


@each_level
async def test_a_confined_agent_cannot_write_outside_of_its_workspace(bench: Bench, level: str) -> None:
    script = f"echo x > {bench.project}/made; echo x > {bench.workspace.parent}/made; echo done"
    await bench.shell(script, confine=level)("x", bench.workspace)
    assert not (bench.project / "made").exists()
    assert not (bench.workspace.parent / "made").exists()


@each_level
async def test_a_confined_agent_cannot_read_the_environment_of_evalve(bench: Bench, level: str) -> None:
    script = f"tr '\\0' '\\n' < /proc/{os.getpid()}/environ; echo done"
    run = await bench.shell(script, confine=level, answer="whole")("x", bench.workspace)
    assert run.answer == "done"


@each_level
async def test_a_confined_script_of_the_project_runs_and_its_neighbours_stay_hidden(
    bench: Bench, level: str
) -> None:
    (bench.project / "agent.py").write_text(READER)
    dataset = bench.project / "docs.jsonl"
    dataset.write_text("gold")
    command = [sys.executable, "{project}/agent.py", "{prompt}"]
    agent = bench.agent("command", command=command, confine=level)
    answer = (await agent(str(dataset), bench.workspace)).answer
    assert answer in ("PermissionError", "FileNotFoundError")


@each_level
async def test_what_is_named_as_readable_can_be_read(bench: Bench, level: str) -> None:
    shared = bench.project / "shared"
    shared.mkdir()
    (shared / "notes.md").write_text("seen\n")
    agent = bench.shell(f"cat {shared}/notes.md", confine=level, readable=["shared"])
    assert (await agent("x", bench.workspace)).answer == "seen"


async def test_without_confinement_the_level_says_so(bench: Bench) -> None:
    assert (await bench.shell("echo x")("x", bench.workspace)).confinement == "none"


async def test_a_confined_child_of_an_agent_is_confined_too(bench: Bench) -> None:
    if not landlock.version():
        pytest.skip("this kernel has no Landlock")
    script = f"setsid sh -c 'echo x > {bench.project}/made'; exit 3"
    with pytest.raises(AgentError, match="exit code 3"):
        await bench.shell(script, confine="landlock")("x", bench.workspace)
    assert not (bench.project / "made").exists()
