"""Evaluations of command-line agents, as a person runs, stops, kills and resumes them."""

from __future__ import annotations

import sys

import psutil
import pytest
from project import Project, have_ended

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="agents that left their group are found by /proc"
)

READS = """
    import evalve
    from evalve import Workspace, foreach

    agent = evalve.agent("command", command=["sh", "{project}/agent.sh", "{prompt}"], gateway=False)

    @foreach("id,question,answer", "docs.jsonl")
    async def eval_reads(id, question, answer, workspace=Workspace({"context.md": "twelve\\n"})):
        run = await agent(question, workspace)
        return run.answer == answer
"""
ROWS = "".join(f'{{"id": "{n}", "question": "q{n}", "answer": "q{n} twelve"}}\n' for n in range(6))
WAITS = """
    # waits for `go`, with a child in another session and a deaf ear for SIGTERM
    trap '' TERM
    setsid sh -c 'echo $$ >> "$0"; touch left; exec sleep 600' "$(dirname "$0")/pids" &
    echo $$ >> "$(dirname "$0")/pids"
    while ! [ -e left ]; do sleep 0.02; done  # until then the child is in the group of its parent
    while ! [ -e "$(dirname "$0")/go" ]; do sleep 0.02; done
    echo "$1 $(cat context.md)"
"""


@pytest.fixture
def agents(project: Project) -> Project:
    project.write("eval_reads.py", READS)
    project.write("docs.jsonl", ROWS)
    project.write("agent.sh", WAITS)
    return project


def pids(project: Project, count: int) -> list[psutil.Process]:
    """Of agents and their children, when so many have started."""
    found = project.read("pids").split()
    assert len(found) >= count
    return [psutil.Process(int(pid)) for pid in found if psutil.pid_exists(int(pid))]


def test_agents_answer_and_their_figures_are_in_the_record(agents: Project) -> None:
    (agents.folder / "go").touch()
    ended = agents.pytest("eval_reads.py", "--experiment", "x", "--max-concurrency", "3")
    assert (ended.code, agents.values("x")) == (0, {"eval_reads": [True] * 6})
    shown = agents.evalve("show", "x", "3").out
    assert "agent     command · exit code 0 · ran " in shown
    assert " left behind and ended · confinement: none" in shown
    assert "stdout.txt" in shown
    assert "  agents    6 runs; ran " in agents.evalve("show", "x").out
    assert not list((agents.folder / ".evalve").glob("workspaces/*/*"))


def test_no_answer_of_the_dataset_is_within_reach_of_its_environment_and_arguments(agents: Project) -> None:
    agents.write("agent.sh", 'env; echo "$@"; cat context.md\n')
    agents.write("eval_reads.py", READS.replace("gateway=False", "gateway=False, answer='whole'"))
    agents.write("docs.jsonl", '{"id": "1", "question": "q", "answer": "gold-answer"}\n')
    agents.pytest("eval_reads.py", "--experiment", "x", JUDGE_API_KEY="sk-judge-0123456789", OTHER="unseen")
    agents.evalve("show", "x", "1", "--save", "files")
    output = agents.read("files/stdout.txt")
    assert "HOME=" in output
    for hidden in ("gold-answer", "sk-judge-0123456789", "unseen"):
        assert hidden not in output


def test_the_first_ctrl_c_says_how_many_agents_run_and_waits_for_them(agents: Project) -> None:
    with agents.started(
        "-m", "pytest", "eval_reads.py", "--experiment", "x", "--max-concurrency", "2"
    ) as run:
        run.wait_until(lambda: len(agents.read("pids").split()) == 4, "two agents with a child each")
        run.interrupt()
        run.has_written("Ctrl-C again cancels it; 2 agents are running, the longest for ", to="err")
        (agents.folder / "go").touch()
        ended = run.end()
    assert ended.code == 2
    assert agents.values("x") == {"eval_reads": [True, True]}


def test_the_second_ctrl_c_ends_agents_that_ignore_sigterm_and_the_run_can_be_resumed(
    agents: Project,
) -> None:
    arguments = ["eval_reads.py", "--experiment", "x", "--max-concurrency", "2"]
    with agents.started("-m", "pytest", *arguments) as run:
        run.wait_until(lambda: len(agents.read("pids").split()) == 4, "two agents with a child each")
        processes = pids(agents, 4)
        run.interrupt()
        run.has_written("2 agents are running", to="err")
        run.interrupt()
        ended = run.end()
    assert ended.code == 2
    assert have_ended(processes)
    assert "left behind" not in ended.all
    (agents.folder / "go").touch()
    assert agents.pytest(*arguments).code == 0
    assert agents.values("x") == {"eval_reads": [True] * 6}


def test_killed_with_sigkill_evalve_leaves_no_agent_and_is_resumed(agents: Project) -> None:
    arguments = ["eval_reads.py", "--experiment", "x", "--max-concurrency", "3"]
    with agents.started("-m", "pytest", *arguments) as run:
        run.wait_until(lambda: len(agents.read("pids").split()) == 6, "three agents with a child each")
        processes = pids(agents, 6)
        run.kill()
    assert have_ended(processes)
    (agents.folder / "go").touch()
    assert agents.pytest(*arguments).code == 0
    assert agents.values("x") == {"eval_reads": [True] * 6}
    assert not list((agents.folder / ".evalve").glob("workspaces/*/*"))


def test_a_sample_that_runs_out_of_time_ends_its_agent(agents: Project) -> None:
    ended = agents.pytest("eval_reads.py", "--experiment", "x", "--samples", "1", "--timeout", "2")
    assert "1 failed (timeout)" in ended.out
    assert have_ended(pids(agents, 2))


def test_failures_have_their_classes_and_a_killed_agent_is_tried_again(agents: Project) -> None:
    agents.write(
        "agent.sh",
        """
        here="$(dirname "$0")"
        case "$1" in
          q0) echo "API Error: 429 rate limit" >&2; exit 1;;
          q1) exit 3;;
          q2) [ -e "$here/killed" ] || { touch "$here/killed"; kill -9 $$; };;
        esac
        echo "$1 $(cat context.md)"
        """,
    )
    agents.pytest("eval_reads.py", "--experiment", "x", "--max-concurrency", "1")
    records = agents.records("x")
    assert [record["failure_class"] for record in records] == ["provider", "agent", None, None, None, None]
    assert records[2]["tries"] == 2


def test_the_same_records_whatever_the_concurrency(agents: Project) -> None:
    (agents.folder / "go").touch()
    for concurrency in ("1", "6"):
        agents.pytest("eval_reads.py", "--experiment", f"at-{concurrency}", "--max-concurrency", concurrency)
    one, six = (
        agents.evalve("export", f"at-{concurrency}", "--canonical").out.replace(f"at-{concurrency}", "at")
        for concurrency in ("1", "6")
    )
    assert one == six
    assert one.count("\n") == 6
