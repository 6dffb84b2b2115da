"""Experiments of `evalve.yaml` with command-line agents, each in a workspace of its own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping

import pytest
from project import Project

CONFIGURATION = """
    models:
      reader: {agent: command, command: [python3, "{project}/agent.py", "{prompt}"], answer: last_line}
      claude-code-sonnet: {agent: claude-code, model: anthropic/claude-sonnet-5}
    datasets:
      docfinqa_test_only: {path: docs.jsonl}        # rows with id, question, context, answer
    experiments:
      docfinqa_claude_code_test:
        datasets: [docfinqa_test_only]
        models: [reader]
        evaluation_mode: agent
        concurrency: 5
        prompt: "{question}"
        files: {context.md: "{context}"}
        expected: answer
        metrics: [exact_match]
"""
NAME = "docfinqa_claude_code_test"
AGENT = """
    import sys
    print("thinking about", sys.argv[1])
    print(open("context.md").read().split()[-1])
"""


def prepared(
    project: Project, *, rows: int = 8, agent: str = AGENT, text: str = CONFIGURATION
) -> dict[str, str]:
    project.write("evalve.yaml", text)
    project.write("agent.py", agent)
    written = [
        {"id": f"d{n}", "question": f"What is {n}?", "context": f"the answer is {n}", "answer": n}
        for n in range(rows)
    ]
    project.write("docs.jsonl", "".join(json.dumps(row) + "\n" for row in written))
    folder = project.folder
    return {"EVALVE_STATE_DIR": str(folder / "state"), "EVALVE_CACHE_DIR": str(folder / "cache")}


def canonical(project: Project, name: str, environ: Mapping[str, str]) -> str:
    return project.evalve("export", name, "--canonical", **environ).out


def test_the_experiment_runs_as_it_stands_and_goes_on_where_it_was(project: Project) -> None:
    environ = prepared(project)

    first = project.evalve("run", NAME, "--concurrency", "10", "--limit", "3", **environ)
    (project.folder / "below").mkdir()
    shown = project.evalve("show", NAME, **environ)
    again = project.evalve("run", NAME, **environ)

    assert first.code == 0
    assert first.err.splitlines()[:4] == [
        "Running concurrent evaluation with 10 workers",
        "Completed 1/3 samples",
        "Completed 2/3 samples",
        "Completed 3/3 samples",
    ]
    assert "docfinqa_test_only[reader]  3/3 done" in first.out
    assert "exact_match  accuracy  1.000" in shown.out
    assert again.code == 0
    assert again.err.splitlines()[:2] == [
        "Running concurrent evaluation with 5 workers",
        "Completed 4/8 samples",
    ]
    assert [record["response"] for record in project.records(NAME)] == [str(n) for n in range(8)]
    assert not list((project.folder / ".evalve" / "workspaces").iterdir())


def test_a_limit_that_is_all_that_there_is_is_none(project: Project) -> None:
    environ = prepared(project, rows=3)

    some = project.evalve("run", NAME, "--limit", "2", **environ)
    some_listed = project.evalve("list", **environ)
    whole = project.evalve("run", NAME, "--limit", "3", **environ)
    listed = project.evalve("list", **environ)
    shown = project.evalve("show", NAME, **environ)

    assert "2/2 done of the first 2 rows" in some.out
    assert "(first 2 rows)" in some_listed.out
    assert "3/3 done, " in whole.out
    assert "first" not in listed.out
    assert "asked for" not in shown.out


def test_concurrency_changes_nothing_in_the_canonical_export(project: Project) -> None:
    environ = prepared(project, rows=16)

    for count in ("1", "16"):
        ended = project.evalve("run", NAME, "--concurrency", count, "--experiment", f"by-{count}", **environ)
        assert ended.code == 0

    assert canonical(project, "by-1", environ) == canonical(project, "by-16", environ) != ""


def test_a_key_is_a_flag_also_with_its_unit_and_how_often_is_tried_may_change(project: Project) -> None:
    environ = prepared(project, rows=3)

    first = project.evalve(
        "run", NAME, "--limit", "1", "--timeout-s", "60", "--throttle-s", "0.01", **environ
    )
    more = project.evalve("run", NAME, "--limit", "2", "--retries", "2", **environ)

    assert [one.code for one in (first, more)] == [0, 0], more.out + more.err
    assert "2/2 done of the first 2 rows, 1 of them before" in more.out


def test_agents_with_scripts_of_their_own_are_compared(project: Project) -> None:
    second = '  other: {agent: command, command: [python3, "{project}/other.py"]}\n    datasets:\n'
    environ = prepared(project, rows=3, text=CONFIGURATION.replace("datasets:\n", second, 1))
    project.write("other.py", "print(1)")

    ran = project.evalve("run", NAME, "--model", "reader", "--model", "other", **environ)
    compared = project.evalve("compare", NAME, "--across", "model", **environ)

    assert ran.code == 0
    assert "2 broken" in compared.out


def test_from_a_folder_below_the_project_is_found(project: Project) -> None:
    environ = prepared(project, rows=2)
    (project.folder / "below").mkdir()
    program = "import os, sys; os.chdir('below'); from evalve.cli import main; sys.exit(main(sys.argv[1:]))"

    ended = project.python("-c", program, "run", NAME, **environ)

    assert ended.code == 0
    assert len(project.records(NAME)) == 2


def test_a_function_beside_the_file_may_be_the_agent(project: Project) -> None:
    text = CONFIGURATION.replace(
        'command, command: [python3, "{project}/agent.py", "{prompt}"], answer: last_line',
        'python, function: "solver:solve"',
    )
    environ = prepared(project, rows=3, text=text)
    project.write(
        "solver.py",
        """
        async def solve(prompt, workspace):
            return (workspace / "context.md").read_text().split()[-1]
        """,
    )

    ended = project.evalve("run", NAME, **environ)

    assert ended.code == 0
    assert [record["response"] for record in project.records(NAME)] == ["0", "1", "2"]


def test_a_workspace_has_the_files_of_its_row_and_neither_the_answer_nor_a_key(project: Project) -> None:
    agent = """
        import json, os
        from pathlib import Path
        found = {str(path): path.read_text() for path in Path(".").rglob("*") if path.is_file()}
        print(json.dumps([found, sorted(os.environ), " ".join(os.environ.values())]))
    """
    text = CONFIGURATION.replace("{context.md: ", "{notes/fixed.txt: {path: fixed.txt}, context.md: ")
    environ = prepared(project, rows=1, agent=agent, text=text)
    project.write("fixed.txt", "for all")
    project.write("docs.jsonl", '{"id": "a", "question": "q", "context": "long", "answer": "gold-4711"}')

    project.evalve("run", NAME, "--allow-failures", "1", OPENAI_API_KEY="sk-real-0123456789", **environ)

    files, variables, values = json.loads(project.records(NAME)[0]["response"])
    assert files == {"context.md": "long", "notes/fixed.txt": "for all"}
    assert "gold-4711" not in values
    assert "sk-real-0123456789" not in values
    assert "EVALVE_STATE_DIR" not in variables


def test_a_file_may_come_from_a_path_in_a_column(project: Project) -> None:
    text = CONFIGURATION.replace('"{context}"', '{path: "texts/{context}"}')
    environ = prepared(project, rows=1, text=text)
    project.write("texts/one.md", "so the answer is 42")
    project.write(
        "docs.jsonl",
        '{"id": "a", "question": "q", "context": "one.md", "answer": 42}\n'
        '{"id": "b", "question": "q", "context": "none.md", "answer": 42}\n',
    )

    ended = project.evalve("run", NAME, **environ)

    first, second = project.records(NAME)
    assert first["scores"][0]["value"] is True
    assert second["status"] == "failed"
    assert "files: context.md: there is no " in second["failure"]["message"]
    assert ended.code == 1


def test_a_failed_agent_is_no_wrong_answer_and_its_workspace_is_kept(project: Project) -> None:
    agent = """
        import sys
        if "3" in sys.argv[1]:
            sys.exit("cannot")
        print(open("context.md").read().split()[-1])
    """
    environ = prepared(project, agent=agent)

    ended = project.evalve("run", NAME, **environ)

    failed = [record for record in project.records(NAME) if record["status"] == "failed"]
    assert ended.code == 1
    assert [(record["sample_id"], record["failure_class"]) for record in failed] == [("d3", "agent")]
    assert "exact_match  accuracy 1.000" in ended.out
    kept = [path.parent for path in (project.folder / ".evalve" / "kept").rglob("context.md")]
    assert len(kept) == 1


def test_an_agent_that_breaks_is_tried_again_where_that_is_asked_for(project: Project) -> None:
    agent = """
        import sys
        from pathlib import Path
        seen = Path(sys.argv[0]).with_name("seen")
        if not seen.exists():
            seen.write_text("")
            sys.exit("not yet")
        print(open("context.md").read().split()[-1])
    """
    environ = prepared(project, rows=1, agent=agent)

    ended = project.evalve("run", NAME, "--retries", "2", **environ)

    assert ended.code == 0
    assert [(record["tries"], record["response"]) for record in project.records(NAME)] == [(2, "0")]


def test_an_agent_that_is_not_installed_is_told_before_anything_runs(project: Project) -> None:
    environ = prepared(project, text=CONFIGURATION.replace("python3, ", "no-such-program, "))

    ended = project.evalve("run", NAME, **environ)

    assert ended.code == 4
    assert (
        "evalve.yaml:3: models.reader: agent 'command': the program 'no-such-program' is not installed"
        in ended.err
    )


def test_auto_begins_with_what_the_adapter_recommends(project: Project) -> None:
    environ = prepared(project)

    ended = project.evalve("run", NAME, "--concurrency", "auto", **environ)

    assert ended.code == 0
    assert ended.err.startswith("Running concurrent evaluation with auto workers\n")


COUNTING = """
    import sys, time
    from pathlib import Path
    with Path(sys.argv[0]).with_name("ran.txt").open("a") as file:
        file.write(sys.argv[1] + "\\n")
    if Path(sys.argv[0]).with_name("slow").exists() and sys.argv[1] in ("What is 3?", "What is 4?"):
        time.sleep(600)
    print(open("context.md").read().split()[-1])
"""


def test_after_a_kill_only_what_was_in_flight_runs_again(project: Project) -> None:
    environ = prepared(project, agent=COUNTING)
    slow = project.write("slow", "")

    with project.started("-m", "evalve", "run", NAME, "--concurrency", "2", **environ) as running:
        running.wait_until(lambda: project.read("ran.txt").count("\n") == 5, "five agents")
        running.has_written("Completed 3/8 samples", "err")
        running.kill()
    slow.unlink()
    again = project.evalve("run", NAME, **environ)

    assert again.code == 0
    assert "alone" not in again.err  # evalve did not die of its agents: they run beside each other again
    ran = project.read("ran.txt").splitlines()
    assert sorted(ran) == sorted([f"What is {n}?" for n in range(8)] + ["What is 3?", "What is 4?"])
    assert [record["response"] for record in project.records(NAME)] == [str(n) for n in range(8)]


def test_ctrl_c_says_what_runs_and_the_second_ends_it_resumable(project: Project) -> None:
    environ = prepared(project, agent=COUNTING)
    slow = project.write("slow", "")

    with project.started("-m", "evalve", "run", NAME, "--concurrency", "2", **environ) as running:
        running.wait_until(lambda: project.read("ran.txt").count("\n") == 5, "five agents")
        running.has_written("Completed 3/8 samples", "err")
        running.interrupt()
        running.has_written("stopping: ", "err")
        running.interrupt()
        ended = running.end()
    slow.unlink()
    again = project.evalve("run", NAME, **environ)

    assert ended.code == 2
    assert f"To go on: evalve run {NAME} --concurrency 2" in ended.out
    assert again.code == 0
    assert len(project.records(NAME)) == 8


def test_what_an_agent_said_before_its_time_was_over_is_kept(project: Project) -> None:
    agent = """
        import time
        print("working on it", flush=True)
        time.sleep(600)
    """
    environ = prepared(project, rows=1, agent=agent)

    ended = project.evalve("run", NAME, "--timeout", "10", **environ)

    assert "1 failed (timeout)" in ended.out
    (shown,) = json.loads(project.evalve("show", NAME, "d0", "--json", **environ).out)
    assert [event["name"] for event in shown["trace"] if event["kind"] == "file"] == ["stdout.txt"]


def test_contexts_are_copied_without_being_read(project: Project) -> None:
    """Five at once, each larger than what the runner may grow by."""
    if shutil.disk_usage(project.folder).free < 2_000_000_000:
        pytest.skip("needs 2 GB on disk")
    text = CONFIGURATION.replace('"{context}"', '{path: "large/{context}"}')
    agent = """
        import os
        print(os.path.getsize("context.md"))
    """
    environ = prepared(project, rows=1, agent=agent, text=text)
    (project.folder / "large").mkdir()
    size = 100_000_000
    rows = []
    for number in range(5):
        with (project.folder / "large" / f"{number}.bin").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        rows.append({"id": number, "question": "q", "context": f"{number}.bin", "answer": size})
    project.write("docs.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    small = project.evalve("run", NAME, "--limit", "0", "--experiment", "nothing", **environ)
    ended = project.evalve("run", NAME, **environ)

    assert small.code == 5
    assert ended.code == 0
    plain = json.loads(project.evalve("show", NAME, "--json", **environ).out)
    before = json.loads(project.evalve("show", "nothing", "--json", **environ).out)
    grown = _peak_bytes(plain) - _peak_bytes(before)
    assert grown < 50_000_000


def _peak_bytes(shown: dict[str, list[dict[str, list[dict[str, dict[str, int]]]]]]) -> int:
    return shown["evaluations"][0]["runs"][-1]["report"]["peak_memory_bytes"]


def test_a_plan_says_calls_duration_and_memory_beforehand(project: Project) -> None:
    environ = prepared(project)

    first = project.evalve("plan", NAME, "--limit", "6", **environ)
    project.evalve("run", NAME, **environ)
    then = project.evalve("plan", NAME, "--concurrency", "4", **environ)
    plain = json.loads(project.evalve("plan", NAME, "--json", **environ).out)

    assert first.code == 0
    assert "duration  not known, nothing is recorded yet: 6 samples, 5 at once" in first.out
    assert "memory    5 at once × 15 B of context = 75 B (largest context 15 B)" in first.out
    assert "calls     0: none of the recorded samples called a model" in then.out
    assert "8 samples, 4 at once, " in then.out
    assert plain["plans"][0]["concurrency"] == 5
    assert plain["plans"][0]["duration_s"] > 0


def test_a_plan_counts_what_will_be_there_at_a_time_and_not_more(project: Project) -> None:
    text = CONFIGURATION.replace(
        '{context.md: "{context}"}', '{context.md: "{context}", big.bin: {path: big.bin}}'
    )
    environ = prepared(project, text=text)
    project.write("big.bin", "x" * 200_000)

    few = project.evalve("plan", NAME, "--limit", "3", **environ)
    one = project.evalve("plan", NAME, "--limit", "1", **environ)
    wrong = project.evalve("plan", NAME.replace("code", "cod"), **environ)

    assert "nothing is recorded yet: 3 samples, 3 at once" in few.out
    assert "memory    3 at once × 15 B of context = 45 B (largest context 15 B)" in few.out
    assert "disk      3 at once × 0.2 MB of files = 0.6 MB, copied without being read" in few.out
    assert "tier" not in few.out.replace("tiers nor its price", "")
    assert "nothing is recorded yet: 1 sample, 1 at once" in one.out
    assert wrong.code != 0
    assert f"evalve.yaml has none of that name; did you mean {NAME!r}?" in wrong.err


def test_init_writes_such_a_project(project: Project) -> None:
    environ = prepared(project)
    folder = project.folder / "new"

    said = project.evalve("init", "--agents", str(folder), **environ)
    other = Project(folder)
    checked = other.evalve("validate", **environ)
    ended = other.evalve("run", "documents", **environ)

    assert said.code == 0
    assert checked.out.splitlines()[0] == "documents: 1 evaluation (documents × reader)"
    assert ended.code == 0
    assert [r["sample_id"] for r in other.records() if not r["scores"][0]["value"]] == ["maple"]


def test_what_agents_report_of_their_own_calls_is_taken_from_the_budget(project: Project) -> None:
    text = CONFIGURATION.replace("answer: last_line}", "answer: json, gateway: off}")
    agent = """
        import json
        print(json.dumps({"answer": "x", "cost_usd": 0.5, "usage": {"input_tokens": 10, "output_tokens": 2}}))
    """
    environ = prepared(project, agent=agent, text=text)

    said = ("run", NAME, "--concurrency", "1", "--budget-usd")
    run = project.evalve(*said, "0.9", **environ)
    again = project.evalve(*said, "0.9", **environ)
    raised = project.evalve(*said, "1.4", **environ)
    anew = project.evalve(*said, "0.4", "--fresh", **environ)

    assert run.code == again.code == raised.code == anew.code == 2
    assert "2/8 done" in run.out
    assert "stopped: the budget is used up: 1.0000 USD of 0.9 USD, by what agents report" in run.out
    assert "stopped: the budget is used up: 1.0000 USD of 0.9 USD, by what agents report" in again.out
    assert "stopped: the budget is used up: 1.5000 USD of 1.4 USD, by what agents report" in raised.out
    assert "1/8 done" in anew.out


def test_a_login_of_ones_own_is_told_what_is_lost_by_it(project: Project) -> None:
    environ = prepared(project, rows=1, text=CONFIGURATION.replace("sonnet-5}", "sonnet-5, gateway: off}"))
    project.write("bin/claude", "#!/bin/sh\nexit 3\n")
    (project.folder / "bin" / "claude").chmod(0o755)
    environ["PATH"] = f"{project.folder / 'bin'}:{os.environ['PATH']}"

    past_us = project.evalve("run", NAME, "--model", "claude-code-sonnet", **environ)
    through = project.evalve("run", NAME, "--experiment", "through", **environ)

    assert "claude-code-sonnet: with `gateway: off` the agent calls its provider by itself" in past_us.err
    assert "gateway: off" not in through.err


def test_a_script_that_changed_is_told_as_a_changed_function_is(project: Project) -> None:
    environ = prepared(project, rows=4)

    project.evalve("run", NAME, "--limit", "2", **environ)
    project.write("agent.py", AGENT + "    # better now\n")
    refused = project.evalve("run", NAME, **environ)
    accepted = project.evalve("run", NAME, "--accept-changes", **environ)

    assert refused.code == 1
    assert "has changed since the 2 samples" in refused.out
    assert "script agent.py:" in refused.out and "+# better now" in refused.out
    assert accepted.code == 0
    assert len(project.records(NAME)) == 4


def test_the_project_is_the_folder_of_the_file_that_is_run(project: Project) -> None:
    (project.folder / "shared").mkdir()
    environ = prepared(project, rows=2)
    models, rest = project.read("evalve.yaml").split("datasets:", 1)
    project.write("shared/agents.yaml", models)
    project.write("evalve.yaml", f"extends: shared/agents.yaml\ndatasets:{rest}")

    ended = project.evalve("run", NAME, **environ)

    assert ended.code == 0


def test_what_is_wrong_is_told_before_an_agent_starts(project: Project) -> None:
    environ = prepared(project, rows=2)
    text = project.read("evalve.yaml")

    gate = project.evalve("run", NAME, "--fail-under", "exact_mach=1", **environ)
    (project.folder / "agent.py").unlink()
    script = project.evalve("run", NAME, **environ)
    project.write("evalve.yaml", text + "limits:\n  anthropic: {rpmm: 3}\n")
    limits = project.evalve("run", NAME, **environ)

    assert gate.code == script.code == limits.code == 4
    assert "fail_under: no score is called 'exact_mach'; did you mean 'exact_match'?" in gate.err
    assert f"evalve.yaml:3: models.reader: command: there is no '{project.folder}/agent.py'" in script.err
    assert "evalve.yaml:18: limits.anthropic: unknown key 'rpmm'; did you mean 'rpm'?" in limits.err
    assert not (project.folder / ".evalve" / "evalve.db").exists()
