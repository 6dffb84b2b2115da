"""Running an experiment's name again: what is done stays done, whatever ended the run before."""

from __future__ import annotations

import json
import shlex
import sqlite3

import pytest
from project import Project

COUNTED = """
    import os
    from evalve import foreach

    @foreach("number", {rows})
    async def eval_counted(number):
        with open("calls.txt", "a") as file:
            file.write(f"{{number}} ")
        if str(number) in os.environ.get("BREAKS", "").split():
            raise ValueError(f"{{number}} breaks")
        return number % 2 == 0
"""


def counted(rows: object) -> str:
    return COUNTED.format(rows=rows)


def calls(project: Project) -> list[str]:
    """The numbers that the function was called with since this was last asked."""
    numbers = sorted(project.read("calls.txt").split(), key=int)
    (project.folder / "calls.txt").unlink(missing_ok=True)
    return numbers


def test_done_samples_are_skipped_and_failures_are_retried(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1, 2, 3]))
    first = project.pytest("--experiment", "x", BREAKS="1 2")
    assert calls(project) == ["0", "1", "2", "3"]

    second = project.pytest("--experiment", "x", BREAKS="2")
    assert calls(project) == ["1", "2"]
    third = project.pytest("--experiment", "x")
    assert calls(project) == ["2"]

    assert (first.code, second.code, third.code) == (1, 1, 0)
    assert "eval_counted: 2 of 4 samples failed" in first.out
    assert "eval_counted: 1 of 4 samples failed" in second.out
    assert "eval_counted  4/4 done, 3 of them before" in third.summary[0]
    assert project.values("x") == {"eval_counted": [True, False, True, False]}


def test_a_completed_experiment_runs_nothing_says_so_and_gives_the_same_verdict(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1, 2, 3]))
    arguments = ["--experiment", "x", "--fail-under", "accuracy=0.6"]
    first = project.pytest(*arguments)
    calls(project)

    again = project.pytest(*arguments)
    passing = project.pytest("--experiment", "x", "--fail-under", "accuracy=0.5")

    assert calls(project) == []
    reason = "eval_counted: score.accuracy is 0.5, below the required 0.6"
    assert (first.code, again.code, passing.code) == (1, 1, 0)
    assert reason in first.out
    assert reason in again.out
    nothing = "experiment 'x' is complete: nothing was left to run; --fresh starts it over"
    assert nothing in again.summary
    assert nothing in passing.summary
    assert "  score  accuracy 0.500 [0.15, 0.85]  n=4" in passing.summary


def test_samples_means_so_many_in_total_and_may_grow(project: Project) -> None:
    project.write("eval_a.py", counted("range(10)"))

    seen = []
    for samples in ("2", "2", "5", "1"):
        project.pytest("--experiment", "x", "--samples", samples)
        seen.append(calls(project))

    assert seen == [["0", "1"], [], ["2", "3", "4"], []]
    assert len(project.records("x")) == 5


def test_fresh_starts_over(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1]))
    project.pytest("--experiment", "x")
    calls(project)

    ended = project.pytest("--experiment", "x", "--fresh")

    assert ended.code == 0
    assert calls(project) == ["0", "1"]
    assert len(project.records("x")) == 2


def test_a_changed_function_stops_with_what_changed_and_both_choices(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1, 2]))
    project.pytest("--experiment", "x", "--samples", "2")
    calls(project)
    project.write("eval_a.py", counted([0, 1, 2]).replace("% 2 == 0", "% 3 == 0"))

    stopped = project.pytest("--experiment", "x")

    assert stopped.code == 1
    assert calls(project) == []
    assert "eval_counted has changed since the 2 samples of experiment 'x' were recorded" in stopped.out
    assert "-    return number % 2 == 0" in stopped.out
    assert "+    return number % 3 == 0" in stopped.out
    assert "--fresh" in stopped.out
    assert "--accept-changes" in stopped.out

    accepted = project.pytest("--experiment", "x", "--accept-changes")
    assert (accepted.code, calls(project)) == (0, ["2"])
    afterwards = project.pytest("--experiment", "x")
    assert (afterwards.code, calls(project)) == (0, [])


def test_a_changed_class_or_value_that_the_function_uses_stops_too_and_is_named(project: Project) -> None:
    text = """
        import time
        from evalve import foreach

        STARTED = time.time()
        TEMPLATE = f"hello {1 + 1}"

        class Grader:
            prompt = "briefly"

        @foreach("number", [0, 1])
        def eval_graded(number):
            return len(Grader.prompt + TEMPLATE) > number and STARTED > 0
    """
    project.write("eval_a.py", text)
    first = project.pytest("--experiment", "x")
    again = project.pytest("--experiment", "x")
    project.write("eval_a.py", text.replace("briefly", "at length").replace("hello", "bye"))

    stopped = project.pytest("--experiment", "x")

    assert (first.code, again.code, stopped.code) == (0, 0, 1)
    assert "class Grader:" in stopped.out
    assert "+    prompt = 'at length'" in stopped.out
    assert "constant TEMPLATE:" in stopped.out
    assert "constant STARTED" not in stopped.out


def test_an_evaluation_made_with_another_value_around_it_has_changed(project: Project) -> None:
    project.write(
        "made.py",
        """
        import sys
        from evalve import foreach, run
        from evalve.errors import ExperimentChanged

        def build(letters):
            calls = []

            @foreach("number", [0, 1])
            def eval_made(number):
                calls.append(number)
                return len(letters)

            return eval_made

        evaluation = build(sys.argv[1])
        try:
            run(evaluation, experiment="x")
            print("ran", run(evaluation, experiment="x").report["ran"])
        except ExperimentChanged as changed:
            print(changed)
        """,
    )

    first = project.python("made.py", "abcdef")
    second = project.python("made.py", "a")

    assert first.out == "ran 0\n"
    assert "captured letters:\n    -'abcdef'\n    +'a'" in second.out


def test_added_and_reordered_rows_another_window_and_timeout_are_no_change(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1]))
    project.pytest("--experiment", "x")
    calls(project)
    project.write("eval_a.py", "    # a comment\n" + counted([4, 1, 2, 0]))

    ended = project.pytest("--experiment", "x", "--max-concurrency", "2", "--timeout", "50")

    assert ended.code == 0
    assert calls(project) == ["2", "4"]
    assert [one["row"]["number"] for one in project.records("x")] == [4, 1, 2, 0]


NUMBERS = """
    from evalve import foreach

    @foreach("text", {rows})
    def eval_numbers(text):
        return int(text) > 0
"""


def test_a_failed_row_that_was_corrected_no_longer_counts_and_the_run_passes(project: Project) -> None:
    project.write("eval_a.py", NUMBERS.format(rows=["1", "two", "3"]))
    first = project.pytest("--experiment", "x")
    project.write("eval_a.py", NUMBERS.format(rows=["1", "2", "3"]))

    corrected = project.pytest("--experiment", "x")
    again = project.pytest("--experiment", "x")
    shown = project.evalve("show", "x")

    assert (first.code, corrected.code, again.code) == (1, 0, 0)
    assert "eval_numbers  3/3 done, 2 of them before" in corrected.summary[0]
    assert "  1 recorded sample is no longer in the dataset" in corrected.summary
    assert "  1 recorded sample is no longer in the dataset" in again.summary
    assert "  samples   3/3 done (100%)\n" in shown.out
    assert "  left out  1 recorded sample is no longer in the dataset\n" in shown.out
    assert project.values("x") == {"eval_numbers": [True, True, True]}


def test_a_row_that_has_changed_under_its_id_runs_again_and_the_summary_says_so(project: Project) -> None:
    text = """
        from evalve import foreach

        @foreach("id,text", {rows})
        def eval_numbers(id, text):
            return int(text) > 0
    """
    rows = [{"id": f"row {n}", "text": str(n)} for n in range(4)]
    project.write("eval_a.py", text.format(rows=rows))
    project.pytest("--experiment", "x")
    project.write("eval_a.py", text.format(rows=[{"id": "row 0", "text": "7"}, *rows[1:]]))

    corrected = project.pytest("--experiment", "x")
    again = project.pytest("--experiment", "x")

    assert (corrected.code, again.code) == (0, 0)
    assert "eval_numbers  4/4 done, 3 of them before" in corrected.summary[0]
    assert "  1 row has changed since it was recorded and runs again" in corrected.summary
    assert "nothing was left to run" in again.out
    assert project.values("x") == {"eval_numbers": [True, True, True, True]}


CHECKED = """
    import json
    from pathlib import Path
    from evalve import foreach

    @foreach("question,answer", lambda: json.loads(Path("rows.json").read_text()))
    def eval_checked(question, answer):
        return question == answer
"""


STOPPED = """
    def stopped(question):
        if question == 2:
            raise KeyboardInterrupt
"""


def test_what_a_changed_row_gave_before_counts_no_more_not_even_its_further_repeats(project: Project) -> None:
    def rows(answer: int) -> None:
        (project.folder / "rows.json").write_text(json.dumps([{"id": 1, "question": 1, "answer": answer}]))

    project.write("eval_checked.py", CHECKED)
    rows(1)
    assert project.pytest("--experiment", "x", "--repeat", "3").code == 0

    rows(2)
    once = project.pytest("--experiment", "x", "--fail-under", "accuracy=0.5")
    assert once.outcomes == {"failed": 1}
    assert project.values("x") == {"eval_checked": [False]}

    assert project.pytest("--experiment", "x", "--repeat", "3").code == 0
    assert project.values("x") == {"eval_checked": [False, False, False]}


def test_changed_rows_that_an_interrupted_run_did_not_reach_are_not_done(project: Project) -> None:
    def rows(off: int) -> None:
        made = [{"id": n, "question": n, "answer": n + off} for n in range(4)]
        (project.folder / "rows.json").write_text(json.dumps(made))

    project.write("eval_checked.py", CHECKED)
    rows(0)
    assert project.pytest("--experiment", "x").code == 0

    rows(1)
    interrupting = CHECKED.replace("return question", "return stopped(question) or question")
    project.write("eval_checked.py", interrupting + STOPPED)
    ended = project.pytest("--experiment", "x", "--accept-changes")

    assert ended.code == 2
    assert project.values("x") == {"eval_checked": [False, False]}
    assert "complete" not in project.evalve("list").out


def test_removed_rows_count_again_when_they_come_back(project: Project) -> None:
    project.write("eval_a.py", counted([0, 1, 2, 3]))
    project.pytest("--experiment", "x", BREAKS="3")
    project.write("eval_a.py", counted([2, 0]))
    calls(project)

    fewer = project.pytest("--experiment", "x")
    compared = project.evalve("compare", "x", "x")
    project.write("eval_a.py", counted([3, 2, 1, 0]))
    back = project.pytest("--experiment", "x")

    assert (fewer.code, back.code) == (0, 0)
    assert "eval_counted  2/2 done, 2 of them before" in fewer.summary[0]
    assert "  score  accuracy 1.000 [0.34, 1.00]  n=2" in fewer.summary
    assert "  2 recorded samples are no longer in the dataset" in fewer.summary
    assert compared.code == 0
    assert calls(project) == ["3"]
    assert "eval_counted  4/4 done, 3 of them before" in back.summary[0]
    assert "no longer in the dataset" not in back.out
    assert [one["row"]["number"] for one in project.records("x")] == [3, 2, 1, 0]


def test_two_equal_runs_export_the_same_bytes_at_any_concurrency(project: Project) -> None:
    project.write("eval_a.py", counted("range(12)"))
    for name, window in (("one", "1"), ("many", "12")):
        project.pytest("--experiment", name, "--max-concurrency", window)
        assert project.evalve("export", name, "-o", f"{name}.jsonl", "--canonical").code == 0

    assert project.read("one.jsonl") == project.read("many.jsonl")
    assert len(project.read("one.jsonl").splitlines()) == 12


SLOW_AND_ACKNOWLEDGED = """
    import asyncio
    from evalve import foreach

    @foreach("number", range(60))
    async def eval_slow(number):
        with open("calls.txt", "a") as file:
            file.write(f"{number} ")
        await asyncio.sleep(0.02)
        return number
"""


@pytest.mark.parametrize("after", [0, 1, 25, 55])
def test_after_kill_9_nothing_committed_is_lost_or_doubled_and_show_works(
    project: Project, after: int
) -> None:
    project.write("eval_slow.py", SLOW_AND_ACKNOWLEDGED)
    with project.started("-m", "pytest", "--experiment", "x", "--max-concurrency", "3") as run:
        run.wait_until((project.folder / ".evalve" / "evalve.db").exists, "database")
        run.wait_until(lambda: _committed(project) >= after, f"{after} records")
        run.kill()
    survived = {one["sample_id"] for one in project.records("x")} if _committed(project) else set()
    calls(project)

    shown = project.evalve("show", "x")
    ended = project.pytest("--experiment", "x")

    assert len(survived) >= after
    assert shown.code == (0 if survived else shown.code)
    assert "Traceback" not in shown.err
    assert ended.code == 0
    assert project.values("x") == {"eval_slow": list(range(60))}
    assert len(calls(project)) == 60 - len(survived)
    assert project.evalve("show", "x").code == 0


def _committed(project: Project) -> int:
    """How many records another process would see now."""
    database = sqlite3.connect(f"file:{project.folder}/.evalve/evalve.db?mode=ro", uri=True)
    try:
        (count,) = database.execute("SELECT count(*) FROM records").fetchone()
    except sqlite3.OperationalError:
        return 0  # its tables are not there yet
    finally:
        database.close()
    return int(count)


def test_a_dead_owners_lock_is_taken_over_and_a_living_ones_is_not(project: Project) -> None:
    project.write(
        "eval_hangs.py",
        """
        import asyncio
        from pathlib import Path
        from evalve import foreach

        @foreach("number", [1])
        async def eval_hangs(number):
            Path("started").touch()
            while not Path("go").exists():
                await asyncio.sleep(0.01)
            return True
        """,
    )
    with project.started("-m", "pytest", "--experiment", "x") as run:
        run.wait_until((project.folder / "started").exists, "sample")
        refused = project.pytest("--experiment", "x")
        renamed = project.evalve("delete", "x", "--yes")
        elsewhere = project.pytest("--experiment", "y", "--samples", "0")
        run.kill()
    (project.folder / "go").touch()

    taken_over = project.pytest("--experiment", "x")

    assert refused.code == 4
    assert f"experiment 'x' is being run by pid {run.pid} on" in refused.err
    assert "(pytest --experiment x) since" in refused.err
    assert renamed.code == 1
    assert "is being run by pid" in renamed.err
    assert elsewhere.code == 0
    assert taken_over.code == 0
    assert project.values("x") == {"eval_hangs": [True]}


def test_a_damaged_database_gives_an_error_that_says_what_to_do(project: Project) -> None:
    project.write("eval_a.py", counted("range(50)"))
    project.pytest("--experiment", "x")
    database = project.folder / ".evalve" / "evalve.db"
    whole = database.read_bytes()

    database.write_bytes(b"this is no database" * 100)
    no_database = project.pytest("--experiment", "x")
    shown = project.evalve("show", "x")
    database.write_bytes(whole[: len(whole) // 2])
    truncated = project.pytest("--experiment", "x")
    listed = project.evalve("show", "x")

    assert no_database.code == 4
    assert f"{database}: it is damaged or no database at all: move it aside" in no_database.err
    assert "Traceback" not in no_database.all
    assert shown.code == 1
    assert shown.err.startswith(f"evalve: {database}: it is damaged or no database at all")
    assert truncated.code in (1, 4)
    assert f"{database}: it is damaged: move it aside or restore a copy" in truncated.all
    assert "Traceback" not in truncated.all
    assert listed.code == 1
    assert "it is damaged" in listed.err


def test_rows_and_responses_that_cannot_be_serialised_are_stored_as_text(project: Project) -> None:
    project.write(
        "eval_odd.py",
        """
        import threading
        from evalve import Result, foreach

        class Odd:
            def __repr__(self):
                return "<odd>"

        class Hostile:
            def __repr__(self):
                raise RuntimeError("no words")

        rows = [
            {"id": "odd", "value": Odd()},
            {"id": "hostile", "value": Hostile()},
            {"id": "bytes", "value": b"\\xff"},
            {"id": "surrogate", "value": "\\ud800"},
            {"id": "set", "value": {3}},
            {"id": "nan", "value": float("nan")},
        ]

        @foreach("id,value", rows)
        async def eval_odd(id, value):
            return Result(True, prompt=value, response={"was": value, "lock": threading.Lock})
        """,
    )

    ended = project.pytest("--experiment", "x")
    again = project.pytest("--experiment", "x")

    assert (ended.code, again.code) == (0, 0)
    assert "nothing was left to run" in again.out
    stored = {one["sample_id"]: one for one in project.records("x")}
    assert list(stored) == ["odd", "hostile", "bytes", "surrogate", "set", "nan"]
    assert stored["odd"]["row"]["value"] == "<odd>"
    assert stored["odd"]["response"]["was"] == "<odd>"
    assert project.evalve("show", "x", "--full").code == 0
    assert project.evalve("export", "x", "-o", "x.csv").code == 0


def test_runs_of_several_processes_write_one_database_at_once(project: Project) -> None:
    project.write("eval_a.py", counted("range(30)"))

    with project.started("-m", "pytest", "--experiment", "a") as first:
        second = project.pytest("--experiment", "b")
        assert first.end().code == 0

    assert second.code == 0
    assert sorted(project.experiments()) == ["a", "b"]
    assert len(project.records("a")) == len(project.records("b")) == 30


def test_records_go_where_storage_says(project: Project) -> None:
    project.write("eval_a.py", counted([0]))

    path = project.pytest("--storage", "elsewhere.db", "--experiment", "x")
    url = project.pytest("--storage", f"sqlite:///{project.folder}/elsewhere.db", "--experiment", "x")
    unknown = project.pytest("--storage", "mongodb://x")

    assert (path.code, url.code, unknown.code) == (0, 0, 4)
    assert "nothing was left to run" in url.out
    assert "no store is known by 'mongodb'" in unknown.err
    assert len(project.records("x", at="elsewhere.db")) == 1
    assert not (project.folder / ".evalve").exists()
    assert project.evalve("show", "x", "--storage", "elsewhere.db").code == 0


@pytest.mark.parametrize(
    ("storage", "arguments", "environ"),
    [
        ("", ["--storage", "my records.db"], {}),
        ("", [], {"EVALVE_STORAGE": "my records.db"}),
        ('"my records.db"', [], {}),
    ],
)
def test_the_command_that_is_printed_shows_the_run(
    project: Project, storage: str, arguments: list[str], environ: dict[str, str]
) -> None:
    project.write(
        "eval_a.py",
        f"""
        from evalve import ForEach

        @ForEach(storage={storage or None})("n", [1])
        def eval_a(n):
            return True
        """,
    )

    ended = project.pytest("--experiment=-x", *arguments, **environ)
    command = next(line for line in ended.out.splitlines() if line.startswith("see: "))
    shown = project.evalve(*shlex.split(command)[2:], **environ)

    assert ended.code == 0
    assert (shown.code, shown.out.splitlines()[0].split(" · ")[:2]) == (0, ["-x", "complete"])


def test_fresh_forgets_nothing_where_a_mistake_in_a_file_lets_nothing_run(project: Project) -> None:
    project.write(
        "eval_kept.py",
        """
        from evalve import foreach

        @foreach("number", [1, 2, 3])
        async def eval_kept(number):
            return True
        """,
    )
    project.pytest("--experiment", "first")
    project.write("eval_mistaken.py", "this is no Python\n")

    ended = project.pytest("--experiment", "first", "--fresh")

    assert ended.outcomes == {"error": 1}
    assert [row["status"] for row in project.records("first")] == ["done", "done", "done"]


DEADLY = """
    import asyncio, os, signal
    from evalve import foreach

    @foreach("number", range(20))
    def eval_sync(number):
        if number == 7 and os.environ.get("DEADLY"):
            os._exit(9)
        return True

    @foreach("number", range(20))
    async def eval_async(number):
        await asyncio.sleep(0.01)
        if number == 7 and os.environ.get("DEADLY"):
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(0.01)
        return True
"""


@pytest.mark.parametrize(("name", "code"), [("eval_sync", 9), ("eval_async", -9)])
def test_a_sample_that_kills_its_process_twice_is_a_failure_and_the_others_run(
    project: Project, name: str, code: int
) -> None:
    project.write("eval_a.py", DEADLY)

    def run(*options: str, **environ: str) -> tuple[int, str]:
        ended = project.pytest("-k", name, "--experiment", "x", *options, **environ)
        return ended.code, ended.all

    assert run(DEADLY="1")[0] == code
    assert run(DEADLY="1")[0] == code

    third, fourth = run(DEADLY="1"), run(DEADLY="1")
    assert (third[0], fourth[0]) == (1, 1)
    assert f"{name}  19/20 done, 1 failed (infrastructure)" in third[1]
    assert "2 processes have died while this sample ran" in third[1]
    assert f"{name}  19/20 done, 1 failed (infrastructure), 19 of them before" in fourth[1]

    mended = run("--accept-changes")
    assert mended[0] == 0
    assert f"{name}  20/20 done, 19 of them before" in mended[1]
    assert list((project.folder / ".evalve/evalve.db-in-flight").iterdir()) == []
