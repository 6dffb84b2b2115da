"""What `show` and `list` print, and the same for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.experiment import list_text, show_json, show_text
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import done, failed, record, skipped


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def shown(store: Store, name: str, choice: Choice = Choice(), evaluation: str | None = None) -> list[str]:  # noqa: B008  # frozen
    return list(show_text(store, name, evaluation=evaluation, choice=choice, width=80))


def as_json(store: Store, name: str, choice: Choice = Choice()) -> dict[str, Any]:  # noqa: B008  # frozen
    plain: dict[str, Any] = json.loads("".join(show_json(store, name, evaluation=None, choice=choice)))
    return plain


def test_scores_stand_with_their_intervals_and_failures_beside_them(store: Store) -> None:
    right = [done(f"s{number}", exact_match=True, also={"prompt": "2 + 2?"}) for number in range(7)]
    record(
        store,
        "first",
        *right,
        done("s7", exact_match=False),
        failed("s8"),
        failed("s9", "OSError"),
        wall_s=2.5,
    )

    lines = shown(store, "first", Choice(limit=1))

    assert lines[1:] == [
        "",
        "eval_math",
        "  status    complete",
        "  samples   8/10 done (80%), 2 failed (code)",
        "  time      2.50 s wall, 5.00 s working, speed-up ×2.0",
        "  failures  OSError 1, ValueError 1",
        "",
        "  evaluator    metric    value [95% interval]  n",
        "  ───────────  ────────  ────────────────────  ─",
        "  exact_match  accuracy  0.875 [0.53, 0.99]    8",
        "  2 of 10 samples failed: not counted above; 0.70 if all wrong … 0.90 if all right",
        "",
        "sample  status  exact_match    time  tries  prompt or row",
        "──────  ──────  ───────────  ──────  ─────  ─────────────",
        "s0      done    True         0.50 s      1  2 + 2?",
        "… and 9 more: --full shows all, --limit N the first N",
        "--errors shows why samples failed",
    ]


def test_twenty_samples_are_shown_unless_more_are_asked_for(store: Store) -> None:
    record(store, "first", *(done(f"s{number}", exact_match=True) for number in range(25)))

    assert "… and 5 more: --full shows all, --limit N the first N" in shown(store, "first")
    assert (
        sum(line.startswith("s") and "· done" in line for line in shown(store, "first", Choice(full=True)))
        == 25
    )


def test_errors_are_the_samples_that_broke_with_the_end_of_their_tracebacks(store: Store) -> None:
    record(store, "first", done("s0", exact_match=False), failed("s1", "KeyError", "'x'"))

    lines = shown(store, "first", Choice("errors"))

    assert lines[-5:] == [
        "s1 · failed: code · 0.50 s · 1 try",
        "  KeyError: 'x'",
        '  │   File "eval_x.py", line 3, in f',
        "  │     g()",
        "",
    ]
    assert not any(line.startswith("s0") for line in lines)


def a_mixed_experiment(store: Store) -> None:
    record(
        store,
        "first",
        done("s0", exact_match=True),
        failed("s1", "APIConnectionError", "refused", "provider"),
        skipped("s2", "no gpu"),
        failed("s3", "SampleTimeout", "too long", "timeout"),
        failed("s4", "APIStatusError", "529", "provider"),
        skipped("s5", "no gpu"),
        skipped("s6", ""),
        wall_s=3.5,
    )


def test_failures_are_shown_with_their_classes_and_skips_with_their_reasons(store: Store) -> None:
    a_mixed_experiment(store)

    assert shown(store, "first", Choice(limit=4))[3:] == [
        "  status    complete",
        "  samples   1/7 done (14.3%), 3 failed (2 provider, 1 timeout), 3 skipped",
        "  time      3.50 s wall, 3.50 s working, speed-up ×1.0",
        "  failures  APIConnectionError 1, APIStatusError 1, SampleTimeout 1",
        "  skipped   no gpu 2, no reason given 1",
        "",
        "  evaluator    metric    value [95% interval]  n",
        "  ───────────  ────────  ────────────────────  ─",
        "  exact_match  accuracy  1.000 [0.21, 1.00]    1",
        "  3 of 4 samples failed: not counted above; 0.25 if all wrong … 1.00 if all right",
        "",
        "sample  status            exact_match    time  tries  prompt or row",
        "──────  ────────────────  ───────────  ──────  ─────  ──────────────────────────",
        's0      done              True         0.50 s      1  {"question": "question 0"}',
        's1      failed: provider  –            0.50 s      1  {"question": "question 1"}',
        's2      skipped           –            0.50 s      1  {"question": "question 2"}',
        's3      failed: timeout   –            0.50 s      1  {"question": "question 3"}',
        "… and 3 more: --full shows all, --limit N the first N",
        "--errors shows why samples failed",
        "--skipped shows why samples were skipped",
    ]


def test_errors_tell_tries_of_several_runs_as_such(store: Store) -> None:
    history = [
        {"started_at": "2026-11-03T14:02:00+00:00", "wall_s": 1.0, "error": "ValueError: no", "run": run}
        for run in ("r1", "r2", "r2")
    ]
    record(store, "first", failed("s1", tries=3, history=history))

    assert "s1 · failed: code · 0.50 s · 3 tries in 2 runs" in shown(store, "first", Choice("errors"))


def test_errors_of_one_class_can_be_asked_for(store: Store) -> None:
    a_mixed_experiment(store)

    lines = shown(store, "first", Choice("errors", failure_class="provider", limit=1))

    assert [line for line in lines if " · failed" in line] == ["s1 · failed: provider · 0.50 s · 1 try"]
    assert lines[-1] == "… and 1 more: --full shows all, --limit N the first N"
    assert shown(store, "first", Choice("errors", failure_class="agent"))[-1] == (
        "no sample failed of class agent"
    )


def test_skipped_are_the_samples_that_were_skipped_with_the_reason(store: Store) -> None:
    a_mixed_experiment(store)

    lines = shown(store, "first", Choice("skipped"))

    assert lines[-9:] == [
        "s2 · skipped · 0.50 s · 1 try",
        "  no gpu",
        "",
        "s5 · skipped · 0.50 s · 1 try",
        "  no gpu",
        "",
        "s6 · skipped · 0.50 s · 1 try",
        "  no reason given",
        "",
    ]


def test_json_counts_failures_by_class_and_skips_apart(store: Store) -> None:
    a_mixed_experiment(store)

    (evaluation,) = as_json(store, "first", Choice("errors", failure_class="timeout"))["evaluations"]

    assert (evaluation["failed"], evaluation["skipped"], evaluation["done"]) == (3, 3, 1)
    assert evaluation["failures"] == {"provider": 2, "timeout": 1}
    assert evaluation["skip_reasons"] == {"no gpu": 2, "no reason given": 1}
    assert [sample["sample_id"] for sample in evaluation["samples"]] == ["s3"]


def test_the_list_counts_failures_by_class_and_skips_apart(store: Store) -> None:
    a_mixed_experiment(store)
    record(store, "second", done("s0", exact_match=True))

    lines = list_text(store.experiments(), width=100)

    assert [line.split()[:5] for line in lines[2:]] == [
        ["second", "complete", "1/1", "0", "0"],
        ["first", "complete", "1/7", "3", "3"],
    ]
    assert lines[0].endswith("failures")
    assert (lines[2][-1], lines[3].endswith("2 provider, 1 timeout")) == ("–", True)


def test_failed_are_the_samples_that_were_scored_and_are_wrong(store: Store) -> None:
    wrong = done("s0", exact_match=False, also={"prompt": "2 + 2?", "response": "5"})
    record(store, "first", wrong, done("s1", exact_match=True), done("s2", cost=0), failed("s3"))

    lines = shown(store, "first", Choice("failed"))

    assert lines[-4:] == [
        "sample  exact_match  cost    time  prompt or row               response",
        "──────  ───────────  ────  ──────  ──────────────────────────  ────────",
        "s0      False        –     0.50 s  2 + 2?                      5",
        's2      –            0     0.50 s  {"question": "question 2"}',
    ]


def toxic(sample_id: str, value: bool) -> dict[str, Any]:
    scores = [{"name": "toxic", "value": value, "metrics": ["accuracy:lower"]}]
    return done(sample_id, also={"scores": scores})


def test_where_less_is_better_a_true_score_is_the_wrong_one(store: Store) -> None:
    seconds = [{"name": "seconds", "value": 0, "metrics": ["mean:lower"]}]
    record(store, "first", toxic("s0", True), toxic("s1", False), done("s2", also={"scores": seconds}))

    lines = shown(store, "first", Choice("failed"))

    assert [line.split()[:2] for line in lines[-3:]] == [
        ["sample", "toxic"],
        ["──────", "─────"],
        ["s0", "True"],
    ]


def test_where_less_is_better_failures_that_were_wrong_make_it_more(store: Store) -> None:
    record(store, "first", toxic("s0", True), toxic("s1", False), toxic("s2", False), failed("s3"))

    lines = shown(store, "first")

    assert "  1 of 4 samples failed: not counted above; 0.50 if all wrong … 0.25 if all right" in lines


def test_full_shows_every_text_whole_and_every_try(store: Store) -> None:
    tries = [{"started_at": "2026-11-03T14:02:00+00:00", "wall_s": 0.1, "error": "OSError: reset"}]
    text = "a long prompt " * 20
    record(store, "first", done("s0", exact_match=True, also={"prompt": text, "tries": 2, "history": tries}))

    lines = shown(store, "first", Choice(full=True))

    assert "s0 · done · 0.50 s · 2 tries" in lines
    assert "    " + text.rstrip() in lines
    assert "  try 1: 2026-11-03T14:02:00+00:00, 0.10 s, OSError: reset" in lines


def test_a_response_cannot_drive_the_terminal(store: Store) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07"
    record(store, "first", done("s\x1b[1m", exact_match=False, also={"prompt": evil, "response": evil}))
    record(store, "first", failed("s1", "ValueError", evil), name="eval_b")

    for choice in (Choice(), Choice("failed"), Choice("errors"), Choice(full=True)):
        assert "\x1b" not in "\n".join(shown(store, "first", choice))


def test_names_with_brackets_are_printed_whole_and_equal_names_get_their_file(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True), name="eval_a[openai/gpt-4o]")
    record(store, "first", done("s0", exact_match=True), name="eval_b", file="one/eval_x.py")
    record(store, "first", done("s0", exact_match=True), name="eval_b", file="two/eval_x.py")

    lines = shown(store, "first")

    assert [line for line in lines if line.startswith(("eval", "one", "two"))] == [
        "eval_a[openai/gpt-4o]",
        "one/eval_x.py::eval_b",
        "two/eval_x.py::eval_b",
    ]
    assert [line for line in shown(store, "first", evaluation="two/eval_x.py::eval_b") if "eval" in line] == [
        "two/eval_x.py::eval_b",
        "  evaluator    metric    value [95% interval]  n",
    ]


@pytest.mark.parametrize(
    ("said", "total", "status"),
    [("complete", 1, "complete"), ("complete", None, "partial"), ("interrupted", 5, "interrupted")],
)
def test_the_status_tells_whether_something_is_left(
    store: Store, said: str, total: int | None, status: str
) -> None:
    record(store, "first", done("s0", exact_match=True), status=said, total=total)

    assert f"  status    {status}" in shown(store, "first")


def test_a_running_evaluation_names_who_runs_it_and_a_dead_one_is_interrupted(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True), status="running")
    assert "  status    interrupted" in shown(store, "first")

    lock = store.lock("first", holder="pytest in a test")
    try:
        (line,) = [line for line in shown(store, "first") if line.startswith("  status")]
    finally:
        lock.release()

    assert line.startswith("  status    running by pid ")
    assert "pytest in a test" in line


def test_the_decisions_of_an_adaptive_strategy_are_told(store: Store) -> None:
    decisions = [
        {"at_s": 2.0, "from": 5, "to": 10, "reason": "faster"},
        {"at_s": 4.0, "from": 10, "to": 7, "reason": "failures"},
    ]
    record(store, "first", done("s0", exact_match=True), report={"decisions": decisions})

    assert "  adapted   5 → 10 → 7 at once, 2 decisions; the last: failures" in shown(store, "first")
    assert "            after 4.0 s: 10 → 7, failures" in shown(store, "first", Choice(full=True))


def test_latest_is_the_experiment_last_worked_on(store: Store) -> None:
    record(store, "old", done("s0", exact_match=True))
    record(store, "new", done("s0", exact_match=True))

    assert shown(store, "latest")[0].startswith("new · complete · ")


def test_unknown_names_are_errors_with_a_suggestion(store: Store) -> None:
    with pytest.raises(NotFound, match="memory:// has no experiments yet"):
        shown(store, "latest")
    record(store, "baseline", done("s0", exact_match=True))

    with pytest.raises(NotFound, match="no experiment 'basline' in memory://; did you mean 'baseline'"):
        shown(store, "basline")
    with pytest.raises(NotFound, match="has no evaluation 'eval_meth'; did you mean 'eval_math'"):
        shown(store, "baseline", evaluation="eval_meth")


def test_json_has_metrics_with_intervals_runs_and_samples_with_their_tries(store: Store) -> None:
    tries = [{"started_at": "2026-11-03T14:02:00+00:00", "wall_s": 0.1, "error": "OSError: reset"}]
    record(store, "first", done("s0", exact_match=True, also={"tries": 2, "history": tries}), failed("s1"))

    plain = as_json(store, "first")

    (evaluation,) = plain["evaluations"]
    assert (plain["experiment"], plain["status"], evaluation["evaluation"]) == (
        "first",
        "complete",
        "eval_math",
    )
    assert evaluation["metrics"] == [
        {
            "evaluator": "exact_match",
            "metric": "accuracy",
            "value": 1.0,
            "low": pytest.approx(0.20654, abs=1e-5),
            "high": 1.0,
            "observations": 1,
            "samples": 1,
            "unscored": 0,
            "note": "",
            "if_failed_were_wrong": 0.5,
            "if_failed_were_right": 1.0,
        }
    ]
    (run,) = evaluation["runs"]
    assert run["options"] == {"max_concurrency": 4}
    assert run["versions"] == {"evalve": "0.1.0"}
    assert (run["git_commit"], run["cpu_s"], run["peak_memory_bytes"]) == ("abc123", 0.25, 1000)
    assert [sample["sample_id"] for sample in evaluation["samples"]] == ["s0", "s1"]
    assert evaluation["samples"][0]["history"] == [{**tries[0], "run": None}]
    assert evaluation["samples"][1]["failure"]["kind"] == "ValueError"


def test_json_holds_the_samples_that_were_asked_for(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True), failed("s1"), failed("s2"))

    (evaluation,) = as_json(store, "first", Choice("errors", limit=1))["evaluations"]

    assert [sample["sample_id"] for sample in evaluation["samples"]] == ["s1"]


def test_the_list_has_the_newest_first_and_says_what_is_left(store: Store) -> None:
    record(store, "old", done("s0", exact_match=True), failed("s1"))
    record(store, "new", done("s0", exact_match=True), total=3)

    lines = list_text(store.experiments(), width=80)

    assert [line.split()[:5] for line in lines[2:]] == [
        ["new", "partial", "1/3", "0", "1"],
        ["old", "complete", "1/2", "1", "1"],
    ]


def test_the_list_says_that_only_the_first_rows_were_asked_for(store: Store) -> None:
    record(store, "tried", done("s0", exact_match=True), done("s1", exact_match=True), samples_asked=2)

    lines = list_text(store.experiments(), width=80)

    assert lines[2].split()[:6] == ["tried", "complete", "(first", "2", "rows)", "2/2"]


def test_the_names_in_a_list_are_never_cut(store: Store) -> None:
    name = "2026-11-15_13-13-08_1f82-with-the-long-prompt"
    record(store, name, done("s0", exact_match=True))

    wide, narrow = list_text(store.experiments(), width=80), list_text(store.experiments(), width=40)

    assert wide[0].split() == ["experiment", "status", "done", "failed"]
    assert max(map(len, wide)) <= 80
    assert narrow[2].split() == [name, "complete", "1/1", "0"]


def test_an_empty_list_says_how_to_begin(store: Store) -> None:
    assert list_text([], width=80) == ["no experiments yet; `evalve init` writes a first evaluation"]


def test_what_failures_could_make_of_scores_about_parts_of_a_sample_is_not_told_beside_others(
    store: Store,
) -> None:
    sample = done("a", success=True)
    sample["scores"] += [{"name": "turn", "value": True, "metrics": ["accuracy"]}] * 2
    record(store, "crm", sample, failed("b"))

    assert next(line for line in shown(store, "crm") if "failed:" in line) == (
        "  1 of 2 samples failed: not counted above; 0.50 if all wrong … 1.00 if all right"
    )
