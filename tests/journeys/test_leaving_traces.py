"""What samples leave behind, from `evalve.trace` to `evalve show`."""

from __future__ import annotations

import json

from project import Project

from evalve.simulator import Behaviour, Simulator

AGENT = """
    import os
    from pathlib import Path

    import evalve
    from evalve import foreach

    ROWS = [{"id": "right", "question": "2 + 2"}, {"id": "broken", "question": "2 /"}]

    @foreach("id,question", ROWS)
    async def eval_agent(id, question):
        evalve.trace("turn", role="user", content=question)
        Path(f"{id}.txt").write_text(question)
        evalve.trace.file(f"{id}.txt", name="task.txt")
        evalve.trace(f"the key is {os.environ.get('SOME_API_KEY')}")
        try:
            result = eval(question)
        except SyntaxError as error:
            evalve.trace("tool_call", name="eval", arguments=question, error=error.msg)
            raise
        evalve.trace("tool_call", name="eval", arguments=question, result=result)
        return result == 4
"""


def test_a_sample_is_shown_with_all_that_it_left(project: Project) -> None:
    project.write("eval_agent.py", AGENT)
    project.pytest("--experiment", "agent", "eval_agent.py", SOME_API_KEY="a-key-of-many-letters")

    right = project.evalve("show", "agent", "right")
    broken = project.evalve("show", "agent", "broken")

    assert right.code == broken.code == 0
    assert "s  turn  user: 2 + 2" in right.out
    assert "s  file  task.txt · 5 B · " in right.out
    assert "s  note  the key is ***" in right.out
    assert "        arguments: 2 + 2\n        result: 4" in right.out
    assert "  status    failed (code)" in broken.out
    assert "        error: invalid syntax" in broken.out
    assert "a-key-of-many-letters" not in right.out + broken.out
    assert b"a-key-of-many-letters" not in (project.folder / ".evalve" / "evalve.db").read_bytes()


def test_kept_files_are_saved_on_request(project: Project) -> None:
    project.write("eval_agent.py", AGENT)
    project.pytest("--experiment", "agent", "eval_agent.py")
    (project.folder / "right.txt").unlink()

    ended = project.evalve("show", "agent", "right", "--save", "out")

    assert ended.out == "saved out/task.txt\n"
    assert project.read("out/task.txt") == "2 + 2"


def test_traces_are_exported_on_request_and_left_out_where_tracing_is_off(project: Project) -> None:
    project.write("eval_agent.py", AGENT)
    project.pytest("--experiment", "on", "eval_agent.py")
    project.pytest("--experiment", "off", "--trace", "off", "eval_agent.py")

    def kinds(experiment: str) -> list[list[str]]:
        lines = project.evalve("export", experiment, "--trace").out.splitlines()
        return [[event["kind"] for event in json.loads(line)["trace"]] for line in lines]

    assert kinds("on") == [["turn", "file", "note", "tool_call"]] * 2
    assert kinds("off") == [[], []]


ASKING = """
    import evalve

    @evalve.foreach("id,question", [("first", "What is 2 + 2? Not sk-test-4711!")])
    async def eval_asking(id, question, model):
        answer = await model.generate(question, system="Be brief.", max_tokens=20)
        again = [{"role": "user", "content": question}, {"role": "assistant", "content": answer.text}]
        async for _ in model.stream([*again, {"role": "user", "content": "Sure?"}], system="Be brief."):
            pass
        return True
"""


def test_calls_leave_their_request_and_answer_without_a_line_of_code(project: Project) -> None:
    project.write("eval_asking.py", ASKING)
    with Simulator(Behaviour()).start_in_thread() as provider:
        ended = project.pytest(
            *("eval_asking.py", "--model", "anthropic/claude-sonnet-5", "--experiment", "x"),
            ANTHROPIC_BASE_URL=provider.url,
            ANTHROPIC_API_KEY="sk-test-4711",
            EVALVE_STATE_DIR=str(project.folder / "state"),
            EVALVE_CACHE_DIR=str(project.folder / "cache"),
        )

    shown = project.evalve("show", "x", "first").out.splitlines()

    assert ended.outcomes == {"passed": 1}, ended.all
    calls = [line for line in shown if "s  call  " in line]
    assert [" · 200 · " in call for call in calls] == [True, True]
    assert ["streamed" in call for call in calls] == [False, True]
    assert "        system: Be brief." in shown
    assert "        user: What is 2 + 2? Not ***!" in shown
    assert "        … 2 messages as in the call before" in shown
    assert "        user: Sure?" in shown
    assert sum(line.startswith("        answer: Answer ") for line in shown) == 2
    assert "4711" not in json.dumps(json.loads(project.evalve("export", "x", "--trace").out)["trace"])
