"""What a run may have cost, noted in a file: what a later run reads of it when the process has died."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from evalve.contracts import EvaluationSpec, RecordDraft, RunInfo
from evalve.records import Sample
from evalve.storage import open_store
from evalve.storage.spending import SpendingNotes

SPEC = EvaluationSpec(
    "exp", "eval_a.py::eval_a", "eval_a", ("question",), {"method": "1", "function": "def eval_a(): …"}
)


def a_run(evaluation_id: int, run_id: str = "one") -> RunInfo:
    return RunInfo(run_id, evaluation_id, "2026-01-01T00:00:00+00:00", None, "running", {}, {}, None, {}, {})


def a_record(evaluation_id: int, run_id: str = "one") -> RecordDraft:
    sample = Sample("s1", 0, {}, "{}")
    started_at = "2026-01-01T00:00:01+00:00"
    return RecordDraft(
        evaluation_id, sample, 0, "done", "[]", None, None, None, started_at, 0.5, 0.5, 1, None, run_id
    )


class Unheard:
    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        """Nobody waits for it."""


def test_what_is_noted_last_counts(tmp_path: Path) -> None:
    note = SpendingNotes(tmp_path / "notes").noting("one")
    note(1234.5)
    note(0.25)

    assert SpendingNotes(tmp_path / "notes").noted_usd("one") == 0.25
    assert SpendingNotes(tmp_path / "notes").noted_usd("other") is None


def test_a_file_that_cannot_be_written_or_read_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    notes = SpendingNotes(tmp_path / "file")
    notes.noting("one")(0.25)
    (tmp_path / "spent-two").write_text("no number")

    assert notes.noted_usd("one") is None
    assert SpendingNotes(tmp_path).noted_usd("two") is None


async def test_a_run_that_was_killed_has_what_was_noted_in_its_report(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "evalve.db")) as store:
        evaluation_id = await store.open_evaluation(SPEC)
        await store.begin_run(a_run(evaluation_id))
        store.noting_spending(a_run(evaluation_id))(0.75)

        (run,) = store.runs(evaluation_id)
        assert run.report == {"may_have_cost_usd": 0.75}


async def test_what_was_noted_counts_after_the_next_run_has_said_when_the_killed_one_ended(
    tmp_path: Path,
) -> None:
    with closing(open_store(tmp_path / "evalve.db")) as killed:
        evaluation_id = await killed.open_evaluation(SPEC)
        await killed.begin_run(a_run(evaluation_id))
        killed.noting_spending(a_run(evaluation_id))(0.75)
        killed.add(a_record(evaluation_id), Unheard())

    with closing(open_store(tmp_path / "evalve.db")) as store:
        await store.begin_run(a_run(evaluation_id, "two"))

        first, second = store.runs(evaluation_id)
        assert first.ended_at is not None
        assert [first.report, second.report] == [{"may_have_cost_usd": 0.75}, {}]


@pytest.mark.parametrize("way", ["ended", "forgotten", "deleted"])
async def test_what_was_noted_goes_when_its_run_has_ended_or_is_gone(tmp_path: Path, way: str) -> None:
    with closing(open_store(tmp_path / "evalve.db")) as store:
        evaluation_id = await store.open_evaluation(SPEC)
        run = a_run(evaluation_id)
        await store.begin_run(run)
        store.noting_spending(run)(0.75)
        if way == "ended":
            ended = replace(run, ended_at="2026-01-01T00:01:00+00:00", report={"may_have_cost_usd": 0.5})
            await store.end_run(ended, total=None, metrics=None)
            assert [each.report for each in store.runs(evaluation_id)] == [{"may_have_cost_usd": 0.5}]
        elif way == "forgotten":
            store.forget("exp", SPEC.key)
        else:
            store.delete("exp")

    assert list((tmp_path / "evalve.db-in-flight").iterdir()) == []
