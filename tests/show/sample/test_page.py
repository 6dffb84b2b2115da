"""One sample in full: found by its id, shown, and its files saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound, StorageError
from evalve.show.sample.page import Wanted, find_sample, sample_json, sample_text, save_files
from evalve.storage import open_store
from recorded import done, failed, record

NOTE = {"kind": "note", "at": "2026-11-03T14:02:00.250+00:00", "text": "looked it up"}


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def shown(store: Store, sample_id: str, *, full: bool = False, **said: Any) -> list[str]:
    return list(sample_text(find_sample(store, Wanted("first", sample_id, **said)), full=full))


def test_a_sample_is_shown_with_scores_row_times_calls_loans_and_trace(store: Store) -> None:
    also = {
        "prompt": "2 + 2?",
        "response": "four\nI think",
        "calls": {"requests": 1, "input_tokens": 12, "output_tokens": 3, "cost_usd": 0.5},
        "lent": {"workspace": {"path": "/kept/here"}},
        "trace": [NOTE],
    }
    record(store, "first", done("s1", exact_match=True, also=also), done("s2", exact_match=True))

    lines = shown(store, "s1")

    assert lines[:2] == ["first · eval_math · s1", "  status    done"]
    assert lines[3:] == [
        "  time      0.50 s wall, 0.50 s working, 1 try",
        "  calls     1 call; 12 + 3 tokens; 0.5000 USD",
        '  lent      workspace: {"path": "/kept/here"}',
        "  score     exact_match: True",
        "  row",
        '    {"question": "question 0"}',
        "  prompt",
        "    2 + 2?",
        "  response",
        "    four",
        "    I think",
        "  trace     1 event",
        "    +0.25 s  note  looked it up",
    ]


def test_a_failed_sample_is_shown_with_its_class_its_tries_and_its_traceback(store: Store) -> None:
    history = [
        {"started_at": "2026-11-03T14:02:00+00:00", "wall_s": 1.0, "error": "ValueError: no", "run": "r"},
        {"started_at": "2026-11-03T14:02:02+00:00", "wall_s": 2.0, "error": "ValueError: no", "run": "r"},
    ]
    record(store, "first", failed("s1", tries=2, history=history))

    lines = shown(store, "s1")

    assert lines[1] == "  status    failed (code)"
    assert lines[3:6] == [
        "  time      0.50 s wall, 0.50 s working, 2 tries",
        "  try 1     1.00 s, ValueError: no",
        "  try 2     2.00 s, ValueError: no",
    ]
    assert lines[6:8] == ["  failure", "    Traceback (most recent call last):"]
    assert lines[-1] == "  trace     no events"


def test_every_evaluation_and_repeat_of_the_sample_is_shown_under_its_heading(store: Store) -> None:
    record(store, "first", done("s1", m=True), done("s1", repeat=1, m=False), name="eval_a")
    record(store, "first", done("s1", m=True), name="eval_b")

    def headings(**said: Any) -> list[str]:
        return [line for line in shown(store, "s1", **said) if line.startswith("first")]

    assert headings() == [
        "first · eval_a · s1",
        "first · eval_a · s1 · repeat 1",
        "first · eval_b · s1",
    ]
    assert headings(evaluation="eval_b") == ["first · eval_b · s1"]
    assert headings(repeat=1) == ["first · eval_a · s1 · repeat 1"]


def test_a_sample_that_is_not_there_is_refused_with_one_that_is_meant(store: Store) -> None:
    record(store, "first", done("question-17", m=True))

    with pytest.raises(NotFound, match=r"no record of a sample 'question-71'.*question-17"):
        shown(store, "question-71")
    with pytest.raises(NotFound, match="`evalve show first` lists its samples"):
        shown(store, "zzz")
    with pytest.raises(NotFound, match="sample 'question-17' has no repeat 3; it has 0"):
        shown(store, "question-17", repeat=3)


def test_a_sample_is_shown_while_its_run_goes_on(store: Store) -> None:
    record(store, "first", done("s1", m=True, also={"trace": [NOTE]}), status="running")

    assert shown(store, "s1")[-1] == "    +0.25 s  note  looked it up"


def test_machines_get_the_sample_with_its_events_as_they_are(store: Store) -> None:
    record(store, "first", failed("s1", lent={"db": {"name": "x"}}, trace=[NOTE]))

    (plain,) = json.loads(sample_json(find_sample(store, Wanted("first", "s1"))))

    assert (plain["sample_id"], plain["status"], plain["failure_class"]) == ("s1", "failed", "code")
    assert plain["lent"] == {"db": {"name": "x"}}
    assert plain["trace"] == [NOTE]


# -- saving


def kept(store: Store, content: bytes, name: str) -> dict[str, Any]:
    artefact = store.keep_artefact(content, name=name)
    return {**NOTE, "kind": "file", "name": name, "hash": artefact.hash, "size_bytes": artefact.size_bytes}


def saved(store: Store, folder: Path) -> list[str]:
    return list(save_files(store, find_sample(store, Wanted("first", "s1")), folder))


def test_files_are_saved_under_their_names(store: Store, tmp_path: Path) -> None:
    events = [kept(store, b"one", "plan.md"), NOTE, kept(store, b"two", "plan.md")]
    record(store, "first", done("s1", m=True, also={"trace": events}))

    assert saved(store, tmp_path / "out") == [
        f"saved {tmp_path}/out/plan.md",
        f"saved {tmp_path}/out/plan-2.md",
    ]
    assert (tmp_path / "out" / "plan.md").read_bytes() == b"one"
    assert (tmp_path / "out" / "plan-2.md").read_bytes() == b"two"


@pytest.mark.parametrize("name", ["../../up.txt", "/etc/up.txt", "..\\up.txt"])
def test_a_name_leads_nowhere_but_to_the_folder(name: str, store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s1", m=True, also={"trace": [kept(store, b"x", name)]}))

    assert saved(store, tmp_path) == [f"saved {tmp_path}/up.txt"]


def test_nothing_is_written_over(store: Store, tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("mine")
    record(store, "first", done("s1", m=True, also={"trace": [kept(store, b"one", "plan.md")]}))

    with pytest.raises(StorageError, match=r"plan.md exists already"):
        saved(store, tmp_path)
    assert (tmp_path / "plan.md").read_text() == "mine"


def test_a_sample_without_files_says_so(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s1", m=True))

    assert saved(store, tmp_path) == ["the sample kept no files"]


def test_tries_of_several_runs_are_told_as_such(store: Store) -> None:
    history = [
        {"started_at": "2026-11-03T14:02:00+00:00", "wall_s": 1.0, "error": "ValueError: no", "run": run}
        for run in ("r1", "r2", "r2")
    ]
    record(store, "first", failed("s1", tries=3, history=history))
    assert "  time      0.50 s wall, 0.50 s working, 3 tries in 2 runs" in shown(store, "s1")
