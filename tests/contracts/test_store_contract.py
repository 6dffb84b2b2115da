"""What every store promises, whatever is behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import (
    ALL_RECORDS,
    Answered,
    EvaluationSpec,
    Known,
    LiveProgress,
    Measured,
    Placed,
    RecordDraft,
    RecordQuery,
    RunInfo,
    ScoreQuery,
    Store,
)
from evalve.errors import Locked, NotFound, StorageError
from evalve.jsontext import to_json
from evalve.records import Artefact, Failure, Sample, Score, Try
from evalve.storage import open_store

SPEC = EvaluationSpec(
    "exp", "evals/eval_a.py::eval_a", "eval_a", ("question",), {"function": "def eval_a(): ..."}
)
RIGHT = '[{"metadata":{"why":"equal"},"metrics":["accuracy"],"name":"exact_match","value":true}]'
BROKEN = '{"kind":"ValueError","message":"no number","traceback":"Traceback ..."}'


class Heard:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.errors: list[tuple[list[str], BaseException]] = []
        self._changed = threading.Condition()

    def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
        with self._changed:
            ids = [draft.sample.id for draft in drafts]
            if error is None:
                self.ids += ids
            else:
                self.errors.append((ids, error))
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ids) + len(self.errors) >= count, timeout=30)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_store("memory://" if request.param == "memory" else tmp_path / "records.db")
    yield opened
    opened.close()


def a_draft(evaluation_id: int, sample_id: str, **changes: Any) -> RecordDraft:
    index = changes.pop("index", 0)
    row_json = changes.pop("row_json", '{"question":"2+2"}')
    draft = RecordDraft(
        evaluation_id=evaluation_id,
        sample=Sample(sample_id, index, {}, row_json),
        repeat=0,
        status="done",
        scores_json=RIGHT,
        failure_json=None,
        prompt_json=None,
        response_json='"4"',
        started_at="2026-01-02T03:04:05+00:00",
        wall_s=0.5,
        working_s=0.25,
        tries=1,
        history_json=None,
        run_id="run-1",
    )
    return replace(draft, **changes)


def a_run(evaluation_id: int, **changes: Any) -> RunInfo:
    run = RunInfo(
        id="run-1",
        evaluation_id=evaluation_id,
        started_at="2026-01-02T03:04:00+00:00",
        ended_at=None,
        status="running",
        options={"samples": 3},
        versions={"evalve": "0.1.0"},
        git_commit="abc",
        fingerprint={"rows": 3},
        report={},
    )
    return replace(run, **changes)


def commit(store: Store, *drafts: RecordDraft) -> Heard:
    heard = Heard()
    for draft in drafts:
        store.add(draft, heard)
    heard.wait_for(len(drafts))
    assert heard.errors == []
    return heard


# evaluations


async def test_an_evaluation_keeps_its_id(store: Store) -> None:
    first = await store.open_evaluation(SPEC)

    assert await store.open_evaluation(SPEC) == first
    assert await store.open_evaluation(replace(SPEC, key="other")) != first
    assert await store.open_evaluation(replace(SPEC, experiment="other")) != first


async def test_an_opened_evaluation_agrees_with_its_spec(store: Store) -> None:
    await store.open_evaluation(SPEC)
    changed = replace(SPEC, fingerprint={"function": "def eval_a(): return 1"})

    await store.open_evaluation(changed)

    assert [info.spec for info in store.evaluations("exp")] == [changed]


async def test_an_unknown_experiment_is_named_with_the_nearest(store: Store) -> None:
    await store.open_evaluation(replace(SPEC, experiment="baseline"))

    with pytest.raises(NotFound, match=r"no experiment 'basline'; did you mean 'baseline'\?"):
        store.evaluations("basline")


async def test_an_evaluation_is_found_by_its_key(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.open_evaluation(replace(SPEC, key="other"))
    commit(store, a_draft(evaluation_id, "s1"))

    assert await store.evaluation("exp", SPEC.key) == store.evaluations("exp")[0]
    assert await store.evaluation("exp", "absent") is None
    assert await store.evaluation("absent", SPEC.key) is None


# records


async def test_a_record_comes_back_as_it_was_given(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", index=7, repeat=2, prompt_json='[{"role":"user"}]'))

    (info,) = store.evaluations("exp")
    (record,) = store.records(info)

    assert (record.experiment, record.evaluation) == ("exp", "eval_a")
    assert (record.sample_id, record.index, record.repeat, record.status) == ("s1", 7, 2, "done")
    assert record.scores == [Score("exact_match", True, metadata={"why": "equal"})]
    assert record.scores[0].metrics == ("accuracy",)
    assert (record.prompt, record.response, record.row) == ([{"role": "user"}], "4", {"question": "2+2"})
    assert (record.started_at, record.wall_s, record.working_s) == ("2026-01-02T03:04:05+00:00", 0.5, 0.25)
    assert (record.tries, record.history, record.failure) == (1, [], None)


async def test_a_failure_comes_back_with_its_traceback(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", scores_json="[]", failure_json=BROKEN))

    (info,) = store.evaluations("exp")
    (record,) = store.records(info, status="failed")

    assert record.failure == Failure("ValueError", "no number", "Traceback ...")
    assert list(store.records(info, status="done")) == []


async def test_records_come_in_dataset_order_whatever_order_they_ended_in(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    places = [("s3", 2, 0), ("s1", 0, 1), ("s2", 1, 0), ("s1", 0, 0)]
    commit(store, *[a_draft(evaluation_id, sample, index=i, repeat=r) for sample, i, r in places])

    (info,) = store.evaluations("exp")

    assert [(r.sample_id, r.repeat) for r in store.records(info)] == [
        ("s1", 0),
        ("s1", 1),
        ("s2", 0),
        ("s3", 0),
    ]


async def test_samples_that_are_left_out_are_kept_and_count_again_with_a_new_place(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    broken = {"status": "failed", "failure_json": '{"kind":"ValueError","message":"no"}'}
    commit(
        store,
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "s2", index=1, **broken),
        a_draft(evaluation_id, "s3", index=2),
        a_draft(evaluation_id, "s3", index=2, repeat=1),
    )

    await store.leave_out(evaluation_id, ["s2", "s3"])

    (info,) = store.evaluations("exp")
    assert (info.done, info.failed, info.left_out) == (1, 0, 2)
    assert await store.counts(evaluation_id) == (1, 0, 0)
    assert [record.sample_id for record in store.records(info)] == ["s1"]
    assert [sample_id for sample_id, _, _ in store.observations(evaluation_id)] == ["s1"]
    assert [ids async for ids in store.sample_ids(evaluation_id)] == [["s1"]]
    assert (await store.known(evaluation_id, [("s2", 0)]))["s2", 0].status == "failed"

    store.reindex(evaluation_id, [Placed("s3", 7)])

    assert await store.counts(evaluation_id) == (3, 0, 0)
    (info,) = store.evaluations("exp")
    assert info.left_out == 1
    assert [(record.sample_id, record.index) for record in store.records(info)] == [
        ("s1", 0),
        ("s3", 7),
        ("s3", 7),
    ]


async def test_records_of_another_evaluation_stay_out(store: Store) -> None:
    here = await store.open_evaluation(SPEC)
    there = await store.open_evaluation(replace(SPEC, key="other"))
    commit(store, a_draft(here, "s1"), a_draft(there, "s1"), a_draft(there, "s2"))

    assert await store.counts(here) == (1, 0, 0)
    assert await store.counts(there) == (2, 0, 0)
    assert await store.known(here, [("s2", 0)]) == {}


async def test_more_records_than_are_fetched_at_once_all_come(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in range(1203)])

    (info,) = store.evaluations("exp")

    assert [record.index for record in store.records(info)] == list(range(1203))
    assert len(await store.known(evaluation_id, [(f"s{i}", 0) for i in range(2000)])) == 1203


async def test_a_record_that_is_written_while_others_are_read_does_no_harm(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", index=1))
    (info,) = store.evaluations("exp")
    reading = store.records(info)
    next(reading)

    commit(store, a_draft(evaluation_id, "s3", index=2))

    assert [record.sample_id for record in reading] == ["s2"]
    assert await store.counts(evaluation_id) == (3, 0, 0)


async def test_observations_keep_the_repeats_of_a_sample_together(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    places = [("b", 0, 0), ("a", 1, 0), ("b", 0, 1), ("a", 1, 1)]
    commit(store, *[a_draft(evaluation_id, sample, index=i, repeat=r) for sample, i, r in places])
    commit(store, a_draft(evaluation_id, "c", status="failed", scores_json="[]", failure_json=BROKEN))

    seen = list(store.observations(evaluation_id))

    assert [(sample, repeat) for sample, repeat, _ in seen] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    assert [one async for some in store.scored(evaluation_id) for one in some] == seen
    assert [score.value for _, _, scores in seen for score in scores] == [True] * 4


async def test_measures_tell_status_row_time_and_calls_of_all_records_in_dataset_order(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "b", index=1, status="failed", scores_json="[]", failure_json=BROKEN),
        a_draft(evaluation_id, "a", index=0, calls_json='{"requests": 2}'),
    )

    assert list(store.measures(evaluation_id)) == [
        Measured("a", 0, "done", None, 0.25, {"requests": 2}),
        Measured("b", 0, "failed", None, 0.25, None),
    ]


async def test_text_that_utf8_cannot_hold_is_stored_escaped(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s\ud800", response_json='"\udc80"'), a_draft(evaluation_id, "s2"))

    (info,) = store.evaluations("exp")

    assert [record.sample_id for record in store.records(info)] == ["s2", "s\\ud800"]
    assert await store.known(evaluation_id, [("s\ud800", 0)]) == {("s\ud800", 0): Known("done", 0, 0.25)}


async def test_one_bad_draft_does_not_fail_the_others(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    heard = Heard()
    for draft in (
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "bad", index=2**70),
        a_draft(evaluation_id, "s2"),
    ):
        store.add(draft, heard)
    heard.wait_for(3)

    assert heard.ids == ["s1", "s2"]
    ((ids, error),) = heard.errors
    assert ids == ["bad"]
    assert isinstance(error, StorageError)
    assert await store.counts(evaluation_id) == (2, 0, 0)


async def test_a_sink_that_raises_does_not_stop_the_writing(store: Store) -> None:
    class Broken:
        def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
            raise RuntimeError("listener's mistake")

    evaluation_id = await store.open_evaluation(SPEC)
    store.add(a_draft(evaluation_id, "s1"), Broken())

    assert commit(store, a_draft(evaluation_id, "s2")).ids == ["s2"]
    assert await store.counts(evaluation_id) == (2, 0, 0)


async def test_a_draft_for_a_deleted_evaluation_is_refused(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    store.delete("exp")
    heard = Heard()

    store.add(a_draft(evaluation_id, "s1"), heard)
    heard.wait_for(1)

    ((_, error),) = heard.errors
    assert "deleted" in str(error)


# resuming


async def test_known_tells_what_is_there_and_only_that(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "s1", index=4),
        a_draft(evaluation_id, "s2", index=5, repeat=1, status="failed", failure_json=BROKEN, working_s=2.0),
    )

    keys = [("s1", 0), ("s1", 1), ("s2", 0), ("s2", 1), ("s3", 0)]

    assert await store.known(evaluation_id, keys) == {
        ("s1", 0): Known("done", 4, 0.25),
        ("s2", 1): Known("failed", 5, 2.0, is_answered=True),
    }
    assert await store.known(evaluation_id, []) == {}


async def test_what_was_answered_and_lacks_a_score_comes_back_with_all_that_it_left(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    whole = '[{"metadata":{"value":null},"metrics":[],"name":"a","value":true}]'
    lacking = '[{"metadata":{"unscored":"no verdict"},"metrics":[],"name":"a","value":null}]'
    kept = store.keep_artefact(b"output", name="stdout")
    commit(
        store,
        a_draft(evaluation_id, "whole", scores_json=whole),
        a_draft(evaluation_id, "collected", scores_json="[]"),
        a_draft(evaluation_id, "broke", status="failed", scores_json="[]", response_json=None),
        a_draft(evaluation_id, "answered", status="failed", scores_json="[]", response_json='"42"'),
        a_draft(
            evaluation_id,
            "lacking",
            scores_json=lacking,
            response_json='"42"',
            calls_json='{"judge.requests":3}',
            lent_json='{"agents":[{"turns":2}]}',
            trace_json='[{"kind":"agent"}]',
            artefacts=(kept.hash,),
        ),
    )
    names = ["whole", "collected", "broke", "answered", "lacking"]

    known = await store.known(evaluation_id, [(name, 0) for name in names])
    found = await store.answered(evaluation_id, "lacking", 0)

    assert [known[(name, 0)].is_answered for name in names] == [False, True, False, True, True]
    assert found == Answered(
        "42",
        known[("lacking", 0)].working_s,
        '{"judge.requests":3}',
        {"agents": [{"turns": 2}]},
        [{"kind": "agent"}],
        (kept.hash,),
    )
    assert await store.answered(evaluation_id, "broke", 0) is None
    assert await store.answered(evaluation_id, "nobody", 0) is None


async def test_what_is_answered_and_not_scored_counts_as_nothing_until_its_record_comes(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    failed = a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN, run_id="run-0")
    answered = a_draft(evaluation_id, "s1", status="answered", scores_json="[]", tries=0)

    commit(store, failed, answered, a_draft(evaluation_id, "s2", status="answered", scores_json="[]"))
    between = await store.counts(evaluation_id)
    known = await store.known(evaluation_id, [("s1", 0), ("s2", 0)])
    commit(store, a_draft(evaluation_id, "s1"))

    assert between == (0, 0, 0)
    assert [(one.status, one.is_answered) for one in known.values()] == [("answered", True)] * 2
    assert await store.counts(evaluation_id) == (1, 0, 0)
    (info,) = store.evaluations(SPEC.experiment)
    record = store.record_of(info, "s1")
    assert (record.tries, [one.run for one in record.history]) == (2, ["run-0", "run-1"])


async def test_durations_are_those_of_the_latest_experiment_that_has_the_sample(store: Store) -> None:
    first = await store.open_evaluation(SPEC)
    second = await store.open_evaluation(replace(SPEC, experiment="second"))
    unrelated = await store.open_evaluation(replace(SPEC, key="other"))
    commit(
        store,
        a_draft(first, "s1", working_s=1.0),
        a_draft(first, "s2", working_s=2.0),
        a_draft(first, "s3", working_s=3.0, status="failed", failure_json=BROKEN),
        a_draft(second, "s1", working_s=10.0),
        a_draft(unrelated, "s4", working_s=4.0),
    )

    assert await store.durations(SPEC.key, ["s1", "s2", "s3", "s4"]) == {"s1": 10.0, "s2": 2.0}
    assert await store.durations(SPEC.key, []) == {}


async def test_a_retried_record_replaces_the_failed_one_and_keeps_its_tries(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    history = '[{"error":"ValueError: no number","run":"run-1","started_at":"t1","wall_s":0.1}]'
    commit(
        store,
        a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN, history_json=history),
    )

    commit(store, a_draft(evaluation_id, "s1", started_at="t2", wall_s=0.2, run_id="run-2"))

    (info,) = store.evaluations("exp")
    (record,) = store.records(info)
    assert (record.status, record.failure, record.tries) == ("done", None, 2)
    assert record.history == [Try("t1", 0.1, "ValueError: no number", "run-1"), Try("t2", 0.2, None, "run-2")]
    assert (info.done, info.failed) == (1, 0)


async def test_a_failed_record_without_history_still_counts_as_a_try(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN, started_at="t1"))

    later = (
        '[{"error":"E: 1","run":"b","started_at":"t2","wall_s":1},'
        '{"error":null,"run":"b","started_at":"t3","wall_s":2}]'
    )
    commit(store, a_draft(evaluation_id, "s1", tries=2, history_json=later))

    (record,) = store.records(store.evaluations("exp")[0])
    assert [(entry.started_at, entry.error) for entry in record.history] == [
        ("t1", "ValueError: no number"),
        ("t2", "E: 1"),
        ("t3", None),
    ]
    assert record.tries == 3


async def test_the_same_key_twice_in_one_go_is_one_record(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)

    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s1", response_json='"5"'))

    (record,) = store.records(store.evaluations("exp")[0])
    assert record.response == "5"
    assert await store.counts(evaluation_id) == (1, 0, 0)


async def test_reindexed_samples_take_their_new_places_with_all_repeats(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "s1", index=0),
        a_draft(evaluation_id, "s1", index=0, repeat=1),
        a_draft(evaluation_id, "s2", index=1),
    )

    store.reindex(evaluation_id, [Placed("s1", 1), Placed("s2", 0)])
    commit(store, a_draft(evaluation_id, "s3", index=2))

    (info,) = store.evaluations("exp")
    assert [(r.sample_id, r.repeat) for r in store.records(info)] == [
        ("s2", 0),
        ("s1", 0),
        ("s1", 1),
        ("s3", 0),
    ]


async def test_forgetting_an_evaluation_leaves_the_others(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    other_id = await store.open_evaluation(replace(SPEC, key="other"))
    await store.begin_run(a_run(evaluation_id), total=3)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(other_id, "s1"))

    store.forget("exp", SPEC.key)

    assert await store.counts(evaluation_id) == (0, 0, 0)
    assert await store.known(evaluation_id, [("s1", 0)]) == {}
    assert store.runs(evaluation_id) == []
    assert await store.counts(other_id) == (1, 0, 0)
    assert [info.total for info in store.evaluations("exp")] == [None, None]


async def test_a_forgotten_sample_can_be_recorded_again(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN))
    assert len(await store.known(evaluation_id, [("s1", 0)])) == 1

    store.forget("exp", SPEC.key)
    commit(store, a_draft(evaluation_id, "s1"))

    (record,) = store.records(store.evaluations("exp")[0])
    assert (record.status, record.history) == ("done", [])
    assert await store.known(evaluation_id, [("s1", 0)]) == {("s1", 0): Known("done", 0, 0.25)}


def test_forgetting_what_was_never_there_is_no_mistake(store: Store) -> None:
    store.forget("exp", SPEC.key)

    assert store.experiments() == []


# runs


async def test_a_run_comes_back_with_what_it_ended_with(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    begun = a_run(evaluation_id)
    ended = replace(begun, ended_at="2026-01-02T03:05:00+00:00", status="complete", report={"wall_s": 60.0})
    await store.begin_run(begun)
    assert store.runs(evaluation_id) == [begun]

    await store.end_run(ended, total=3, metrics=[{"name": "accuracy", "value": 1.0}])

    assert store.runs(evaluation_id) == [ended]
    (info,) = store.evaluations("exp")
    assert (info.total, info.wall_s) == (3, 60.0)
    assert info.metrics == [{"name": "accuracy", "value": 1.0}]
    assert info.first_started_at == "2026-01-02T03:04:00+00:00"
    assert info.last_ended_at == "2026-01-02T03:05:00+00:00"


async def test_a_run_that_never_ended_is_broken_once_the_next_begins(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id))

    await store.begin_run(a_run(evaluation_id, id="run-2", started_at="2026-01-03T00:00:00+00:00"))

    assert [(run.id, run.status) for run in store.runs(evaluation_id)] == [
        ("run-1", "broken"),
        ("run-2", "running"),
    ]


async def test_the_time_of_a_killed_run_is_told_by_its_records(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id), total=9)
    commit(store, a_draft(evaluation_id, "s1", started_at="2026-01-02T03:04:09.500000+00:00", wall_s=0.5))

    (info,) = store.evaluations("exp")

    assert info.wall_s == pytest.approx(10.0, abs=0.01)
    assert (info.total, info.done, info.working_s) == (9, 1, 0.25)


async def test_a_total_that_has_been_outgrown_is_unknown(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id), total=1)

    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2"))

    assert store.evaluations("exp")[0].total is None


@pytest.mark.parametrize(
    ("options", "total", "first_rows"),
    [
        ({"samples": 2}, 2, 2),
        ({"samples": 2, "repeat": 3}, 6, 2),
        ({"samples": 9}, 4, None),
        ({"samples": None}, 4, None),
    ],
)
async def test_a_total_of_the_first_rows_only_is_told(
    store: Store, options: dict[str, Any], total: int, first_rows: int | None
) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id, options=options), total=total)

    assert store.evaluations("exp")[0].first_rows == first_rows
    assert store.experiments()[0].first_rows == first_rows


async def test_as_many_as_there_are_are_not_the_first_of_them(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    run = a_run(evaluation_id, options={"samples": 2})
    await store.begin_run(run, total=2)
    await store.end_run(replace(run, fingerprint={"is_whole": True}), total=2, metrics=None)

    assert store.evaluations("exp")[0].first_rows is None


# experiments


async def test_experiments_come_with_their_tallies_the_last_used_first(store: Store) -> None:
    old = await store.open_evaluation(SPEC)
    await store.open_evaluation(replace(SPEC, experiment="newer"))
    commit(store, a_draft(old, "s1"), a_draft(old, "s2", status="failed", failure_json=BROKEN))
    assert [info.name for info in store.experiments()] == ["newer", "exp"]

    await store.begin_run(a_run(old, started_at="9999-01-01T00:00:00+00:00"), total=5)

    resumed, newer = store.experiments()
    assert (resumed.name, resumed.evaluations, resumed.done, resumed.failed) == ("exp", 1, 1, 1)
    assert (resumed.total, newer.total, newer.running) == (5, None, None)


async def test_a_renamed_experiment_keeps_its_records(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"))

    store.rename("exp", "better name")

    (info,) = store.evaluations("better name")
    assert (info.id, info.done, info.spec.experiment) == (evaluation_id, 1, "better name")
    with pytest.raises(NotFound):
        store.evaluations("exp")


async def test_an_experiment_cannot_take_the_name_of_another(store: Store) -> None:
    await store.open_evaluation(SPEC)
    await store.open_evaluation(replace(SPEC, experiment="taken"))

    with pytest.raises(StorageError, match="already an experiment 'taken'"):
        store.rename("exp", "taken")


async def test_a_deleted_experiment_is_gone(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"))

    store.delete("exp")

    assert store.experiments() == []
    with pytest.raises(NotFound):
        store.delete("exp")


@pytest.mark.parametrize("change", [lambda s: s.rename("nope", "x"), lambda s: s.delete("nope")])
def test_keeping_house_of_an_unknown_experiment_is_an_error(
    store: Store, change: Callable[[Store], None]
) -> None:
    with pytest.raises(NotFound, match="nope"):
        change(store)


# locks


def test_a_lock_keeps_a_second_run_out_until_it_is_released(store: Store) -> None:
    lock = store.lock("exp", holder="pytest evals -n 4")

    with pytest.raises(Locked, match=r"pid \d+ on .*pytest evals -n 4.*--experiment"):
        store.lock("exp", holder="pytest evals")
    store.lock("other", holder="pytest evals").release()

    lock.release()
    lock.release()
    store.lock("exp", holder="pytest evals").release()


def test_a_party_holds_a_lock_together(store: Store) -> None:
    first = store.lock("exp", holder="pytest -n 2", party="us")
    second = store.lock("exp", holder="its worker", party="us")

    first.release()
    with pytest.raises(Locked, match="its worker"):
        store.lock("exp", holder="pytest")
    with pytest.raises(Locked, match="its worker"):
        store.lock("exp", holder="pytest", party="others")

    second.release()
    store.lock("exp", holder="pytest").release()


async def test_a_running_experiment_names_its_holder(store: Store) -> None:
    await store.open_evaluation(SPEC)
    lock = store.lock("exp", holder="pytest evals")

    (info,) = store.experiments()
    assert info.running is not None
    assert "pytest evals" in info.running

    lock.release()
    assert store.experiments()[0].running is None


async def test_a_closed_store_says_so(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    store.close()
    store.close()

    with pytest.raises(StorageError, match="closed"):
        store.evaluations("exp")
    with pytest.raises(StorageError, match="closed"):
        await store.counts(evaluation_id)


# what attempts leave


async def test_a_failure_is_counted_by_its_class_and_a_skip_apart(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    failed: dict[str, Any] = {"status": "failed", "scores_json": "[]", "failure_json": BROKEN}
    commit(
        store,
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "s2", failure_class="provider", **failed),
        a_draft(evaluation_id, "s3", failure_class="provider", **failed),
        a_draft(evaluation_id, "s4", failure_class="code", **failed),
        a_draft(evaluation_id, "s5", status="skipped", scores_json="[]"),
    )

    (info,) = store.evaluations("exp")

    assert (info.done, info.failed, info.skipped) == (1, 3, 1)
    assert info.failures == {"provider": 2, "code": 1}
    assert await store.counts(evaluation_id) == (1, 3, 1)
    (experiment,) = store.experiments()
    assert (experiment.done, experiment.failed, experiment.skipped) == (1, 3, 1)
    assert experiment.failures == {"provider": 2, "code": 1}
    assert [record.sample_id for record in store.records(info, status="skipped")] == ["s5"]


async def test_skipped_samples_have_no_observations_and_are_known_as_skipped(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", status="skipped"))

    assert [sample_id for sample_id, _, _ in store.observations(evaluation_id)] == ["s1"]
    assert (await store.known(evaluation_id, [("s2", 0)]))["s2", 0].status == "skipped"


async def test_a_total_counts_skipped_samples_as_finished(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id), total=1)

    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", status="skipped"))

    assert store.evaluations("exp")[0].total is None


async def test_what_lenders_noted_comes_back(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", lent_json='{"workspace":{"path":"/kept"}}'))

    (record,) = store.records(store.evaluations("exp")[0])

    assert record.lent == {"workspace": {"path": "/kept"}}


LONG_TRACE = '[{"kind":"note","text":"' + "é" * 100_000 + '"}]'


def trace_of(store: Store, sample_id: str) -> list[dict[str, Any]]:
    (info,) = store.evaluations("exp")
    (record_id,) = [record.id for record in store.records(info) if record.sample_id == sample_id]
    return store.trace(record_id)


async def test_a_trace_comes_back_whatever_its_length(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "short", trace_json='[{"kind":"note","text":"hello"}]'),
        a_draft(evaluation_id, "long", trace_json=LONG_TRACE),
        a_draft(evaluation_id, "none"),
    )

    assert trace_of(store, "short") == [{"kind": "note", "text": "hello"}]
    assert trace_of(store, "long") == [{"kind": "note", "text": "é" * 100_000}]
    assert trace_of(store, "none") == []


async def test_a_trace_is_that_of_the_attempt_that_is_recorded(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    first = {"status": "failed", "failure_json": BROKEN, "trace_json": '[{"kind":"note","text":"first"}]'}
    commit(store, a_draft(evaluation_id, "s1", **first), a_draft(evaluation_id, "s2", **first))

    commit(
        store,
        a_draft(evaluation_id, "s1", trace_json='[{"kind":"note","text":"second"}]'),
        a_draft(evaluation_id, "s2"),
    )

    assert trace_of(store, "s1") == [{"kind": "note", "text": "second"}]
    assert trace_of(store, "s2") == []


async def test_a_trace_is_forgotten_with_its_record(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", trace_json='[{"kind":"note"}]'))
    (record,) = store.records(store.evaluations("exp")[0])

    store.forget("exp", SPEC.key)

    assert store.trace(record.id) == []


# artefacts

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def content(store: Store, content_hash: str) -> bytes:
    with store.open_artefact(content_hash) as opened:
        return opened.read()


def test_an_artefact_is_kept_under_the_hash_of_its_content(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "greeting.txt"
    source.write_bytes(b"hello")

    from_file = store.keep_artefact(source, name="greeting.txt")
    source.unlink()
    from_bytes = store.keep_artefact(b"hello", name="the same")

    assert from_file == Artefact(HELLO, 5, "greeting.txt")
    assert from_bytes == Artefact(HELLO, 5, "the same")
    assert content(store, HELLO) == b"hello"


async def test_an_artefact_goes_with_the_last_record_that_refers_to_it(store: Store) -> None:
    here = await store.open_evaluation(SPEC)
    there = await store.open_evaluation(replace(SPEC, experiment="other"))
    store.keep_artefact(b"hello", name="a")
    commit(store, a_draft(here, "s1", artefacts=(HELLO, HELLO)), a_draft(there, "s1", artefacts=(HELLO,)))

    store.forget("exp", SPEC.key)
    assert content(store, HELLO) == b"hello"

    store.delete("other")
    with pytest.raises(NotFound, match="no file is kept"):
        store.open_artefact(HELLO)


async def test_an_artefact_whose_record_is_on_its_way_is_not_removed(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", artefacts=(HELLO,)))
    store.keep_artefact(b"hello", name="left by an attempt that has not ended")

    store.forget("exp", SPEC.key)
    commit(store, a_draft(evaluation_id, "s2", artefacts=(HELLO,)))
    assert content(store, HELLO) == b"hello"

    store.forget("exp", SPEC.key)
    with pytest.raises(NotFound):
        store.open_artefact(HELLO)


async def test_an_artefact_that_a_retried_attempt_left_goes_at_the_next_deletion(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.open_evaluation(replace(SPEC, experiment="other"))
    store.keep_artefact(b"hello", name="a")
    commit(store, a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN, artefacts=(HELLO,)))
    commit(store, a_draft(evaluation_id, "s1"))

    store.delete("other")

    with pytest.raises(NotFound):
        store.open_artefact(HELLO)


@pytest.mark.parametrize("name", ["0" * 64, "../../records.db", ""])
def test_a_hash_under_which_nothing_is_kept_is_named(store: Store, name: str) -> None:
    with pytest.raises(NotFound, match=f"no file is kept under '{name}'"):
        store.open_artefact(name)


def test_a_file_that_cannot_be_read_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"absent\.txt cannot be kept .*No such file"):
        store.keep_artefact(tmp_path / "absent.txt", name="absent.txt")


# one record


async def test_a_record_is_found_by_its_id_and_by_its_sample(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s1", repeat=1, response_json='"5"'))
    (info,) = store.evaluations("exp")

    found = store.record_of(info, "s1", 1)

    assert (found.sample_id, found.repeat, found.response) == ("s1", 1, "5")
    assert (found.experiment, found.evaluation) == ("exp", "eval_a")
    assert store.record(found.id) == found
    assert store.record_of(info, "s1").repeat == 0


async def test_a_record_that_is_not_there_is_named(store: Store) -> None:
    await store.open_evaluation(SPEC)
    (info,) = store.evaluations("exp")

    with pytest.raises(NotFound, match="no record 77"):
        store.record(77)
    with pytest.raises(
        NotFound, match=r"eval_a in experiment 'exp' has no record of sample 's9' \(repeat 2\)"
    ):
        store.record_of(info, "s9", 2)


async def test_a_rewritten_record_keeps_its_id(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN))
    (info,) = store.evaluations("exp")
    before = store.record_of(info, "s1")

    commit(store, a_draft(evaluation_id, "s1"))

    assert store.record(before.id).status == "done"


# pages


def pages(store: Store, query: RecordQuery = ALL_RECORDS, *, limit: int = 3) -> list[list[str]]:
    """Page after page, the ids of their samples."""
    (info,) = store.evaluations("exp")
    after: str | None = None
    found: list[list[str]] = []
    while True:
        page = store.page(info, query, after=after, limit=limit)
        found.append([record.sample_id for record in page.records])
        after = page.next
        if after is None:
            return found


def ids(store: Store, query: RecordQuery) -> list[str]:
    return [sample_id for page in pages(store, query) for sample_id in page]


async def test_pages_come_in_dataset_order_and_end(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.open_evaluation(replace(SPEC, key="other"))
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in (4, 0, 6, 2, 5, 1, 3)])

    (info, _) = store.evaluations("exp")
    first = store.page(info, limit=3)
    second = store.page(info, after=first.next, limit=3)
    third = store.page(info, after=second.next, limit=3)

    assert [[r.sample_id for r in page.records] for page in (first, second, third)] == [
        ["s0", "s1", "s2"],
        ["s3", "s4", "s5"],
        ["s6"],
    ]
    assert third.next is None


async def test_a_page_that_is_just_full_says_that_it_is_the_last(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in range(3)])

    assert pages(store, limit=3) == [["s0", "s1", "s2"]]


async def test_repeats_and_samples_of_one_place_are_kept_apart_by_pages(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    keys = [("b", 1), ("a", 1), ("b", 0), ("a", 0)]
    commit(store, *[a_draft(evaluation_id, sample_id, repeat=repeat) for sample_id, repeat in keys])

    assert pages(store, limit=1) == [["a"], ["a"], ["b"], ["b"]]


async def test_what_is_committed_between_two_pages_moves_nothing(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in (1, 3, 5)])
    (info,) = store.evaluations("exp")
    first = store.page(info, limit=2)

    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in (0, 4)])
    second = store.page(info, after=first.next, limit=2)

    assert [r.sample_id for r in first.records] == ["s1", "s3"]
    assert [r.sample_id for r in second.records] == ["s4", "s5"]


async def test_samples_that_are_left_out_are_on_no_page(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", index=1))

    await store.leave_out(evaluation_id, ["s1"])

    assert pages(store) == [["s2"]]


def scored(value: Any) -> str:
    toxic = {"name": "toxic", "value": value == 0.5, "metrics": ["accuracy:lower"]}
    return to_json([{"name": "other", "value": 7}, {"name": "grade", "value": value}, toxic])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RecordQuery(status="failed"), ["broken", "slow"]),
        (RecordQuery(status="skipped"), ["skipped"]),
        (RecordQuery(status="done"), ["right", "wrong", "half", "named"]),
        (RecordQuery(failure_class="timeout"), ["slow"]),
        (RecordQuery(failure_class="code"), ["broken"]),
        (RecordQuery(score=ScoreQuery("grade")), ["right", "wrong", "half", "named"]),
        (RecordQuery(score=ScoreQuery("grade", wrong=True)), ["wrong"]),
        (RecordQuery(score=ScoreQuery("toxic", wrong=True)), ["half"]),
        (RecordQuery(score=ScoreQuery("grade", equals="good")), ["named"]),
        (RecordQuery(score=ScoreQuery("grade", at_least=0.5)), ["right", "half"]),
        (RecordQuery(score=ScoreQuery("grade", at_most=0.5)), ["wrong", "half"]),
        (RecordQuery(score=ScoreQuery("absent")), []),
        (RecordQuery(columns={"topic": "tides"}), ["half"]),
        (RecordQuery(columns={"topic": "tides", "year": 1}), []),
        (RecordQuery(text="TIDES"), ["half"]),
        (RecordQuery(text="two\nlines"), ["wrong"]),
        (RecordQuery(text='"quoted"'), ["right"]),
        (RecordQuery(text="école"), ["named"]),
        (RecordQuery(text="no number"), ["broken", "slow"]),
        (RecordQuery(text="no number", failure_class="timeout"), ["slow"]),
        (RecordQuery(text="nowhere"), []),
    ],
)
async def test_a_query_finds_what_it_asks_for(store: Store, query: RecordQuery, expected: list[str]) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    failed: dict[str, Any] = {"status": "failed", "scores_json": "[]", "failure_json": BROKEN}
    drafts = [
        a_draft(evaluation_id, "right", scores_json=scored(True), response_json=to_json('a "quoted" word')),
        a_draft(evaluation_id, "wrong", scores_json=scored(False), prompt_json=to_json("Two\nLines")),
        a_draft(evaluation_id, "half", scores_json=scored(0.5), row_json='{"topic":"tides"}'),
        a_draft(evaluation_id, "named", scores_json=scored("good"), row_json=to_json({"t": "L'École"})),
        a_draft(evaluation_id, "broken", **failed),
        a_draft(evaluation_id, "slow", failure_class="timeout", **failed),
        a_draft(evaluation_id, "skipped", status="skipped", scores_json="[]"),
    ]
    for index, draft in enumerate(drafts):
        draft.sample.index = index
    commit(store, *drafts)

    assert ids(store, query) == expected


async def test_a_page_without_texts_has_all_but_them(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", prompt_json='"why?"', lent_json='{"tool":1}'))
    (info,) = store.evaluations("exp")

    (record,) = store.page(info, RecordQuery(with_texts=False)).records

    assert record == replace(store.record(record.id), row=None, prompt=None, response=None)
    assert (record.scores[0].value, record.lent) == (True, {"tool": 1})


async def test_a_search_returns_after_a_while_with_where_to_go_on(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, *[a_draft(evaluation_id, f"s{i:05}", index=i) for i in range(5_500)])
    commit(store, a_draft(evaluation_id, "last", index=5_500, response_json='"needle"'))
    (info,) = store.evaluations("exp")
    query = RecordQuery(text="needle")

    first = store.page(info, query)
    second = store.page(info, query, after=first.next)

    assert (first.records, first.next is None) == ([], False)
    assert ([record.sample_id for record in second.records], second.next) == (["last"], None)


async def test_long_texts_end_a_search_earlier(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    long = to_json("x" * 3_000_000)
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i, response_json=long) for i in range(5)])

    assert pages(store, RecordQuery(text="needle")) == [[], []]


@pytest.mark.parametrize("cursor", ["nonsense", "WzFd", "!", "é"])
async def test_a_cursor_that_no_page_gave_is_refused(store: Store, cursor: str) -> None:
    await store.open_evaluation(SPEC)
    (info,) = store.evaluations("exp")

    with pytest.raises(StorageError, match="not where a page ended"):
        store.page(info, after=cursor)
    with pytest.raises(StorageError, match="not a ticket"):
        store.changes(info, since=cursor)


# what is new


async def test_changes_are_what_was_committed_or_rewritten_since_the_ticket(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    other_id = await store.open_evaluation(replace(SPEC, key="other"))
    commit(
        store,
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "s2", index=1, status="failed", failure_json=BROKEN),
    )
    info = store.evaluations("exp")[0]
    ticket = store.page(info, limit=1).ticket
    assert store.changes(info, since=ticket).records == []

    commit(
        store,
        a_draft(evaluation_id, "s4", index=3),
        a_draft(other_id, "elsewhere"),
        a_draft(evaluation_id, "s3", index=2),
        a_draft(evaluation_id, "s2", index=1),
    )
    news = store.changes(info, since=ticket)

    assert [(r.sample_id, r.status) for r in news.records] == [("s4", "done"), ("s3", "done"), ("s2", "done")]
    assert news.next is None
    assert store.changes(info, since=news.ticket).records == []


async def test_many_changes_come_in_parts_and_each_once(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    (info,) = store.evaluations("exp")
    since: str | None = store.page(info).ticket
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in range(5)])
    commit(store, a_draft(evaluation_id, "s1", index=1, response_json='"5"'))

    told: list[list[str]] = []
    while since is not None:
        page = store.changes(info, since=since, limit=2)
        told.append([record.sample_id for record in page.records])
        since = page.next

    assert told == [["s0", "s1"], ["s2", "s3"], ["s4", "s1"]]


async def test_changes_can_be_asked_for_with_a_query(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    (info,) = store.evaluations("exp")
    ticket = store.page(info).ticket
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", status="skipped"))

    news = store.changes(info, RecordQuery(status="skipped"), since=ticket)

    assert [record.sample_id for record in news.records] == ["s2"]


async def test_a_ticket_outlives_what_was_forgotten(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"))
    commit(store, a_draft(evaluation_id, "s1"))
    (info,) = store.evaluations("exp")
    ticket = store.page(info).ticket

    store.forget("exp", SPEC.key)
    commit(store, a_draft(evaluation_id, "s1", response_json='"new"'))
    news = store.changes(info, since=ticket)
    commit(store, a_draft(evaluation_id, "s1", response_json='"newer"'))

    assert [record.response for record in news.records] == ["new"]
    assert [record.response for record in store.changes(info, since=news.ticket).records] == ["newer"]


# running counts


async def test_counts_follow_what_is_rewritten_left_out_and_placed_again(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id))
    failed: dict[str, Any] = {"status": "failed", "failure_json": BROKEN, "failure_class": "agent"}
    commit(
        store,
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "s2", index=1, working_s=1.0, **failed),
        a_draft(evaluation_id, "s3", index=2, **failed),
    )
    commit(store, a_draft(evaluation_id, "s2", index=1, working_s=2.0))
    (info,) = store.evaluations("exp")
    assert (info.done, info.failed, info.failures, info.working_s) == (2, 1, {"agent": 1}, 2.5)

    await store.leave_out(evaluation_id, ["s1", "s3"])
    (info,) = store.evaluations("exp")
    assert (info.done, info.failed, info.failures, info.left_out) == (1, 0, {}, 2)

    await store.end_run(a_run(evaluation_id, status="complete"), total=1, metrics=None)
    commit(store, a_draft(evaluation_id, "s3", index=2), a_draft(evaluation_id, "s4", index=3))
    (info,) = store.evaluations("exp")
    assert (info.done, info.failed, info.left_out, info.working_s) == (3, 0, 1, 2.75)


# live progress


def a_progress(evaluation_id: int, **changes: Any) -> LiveProgress:
    progress = LiveProgress(
        run_id="run-1",
        evaluation_id=evaluation_id,
        evaluation="eval_a",
        started_at="2026-01-02T03:04:00+00:00",
        updated_at="2026-01-02T03:04:05+00:00",
        total=9,
        before=1,
        done=2,
        failed=3,
        skipped=0,
        in_flight=2,
        limit=4,
        waiting={"retry": 1},
        held_by="input tokens 98%",
        spent="0.120 USD",
        stopping=False,
        failures={"provider": 2, "timeout": 1},
    )
    return replace(progress, **changes)


async def test_live_progress_is_what_a_run_told_last_until_it_ends(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id))

    store.tell_progress(a_progress(evaluation_id, done=1))
    store.tell_progress(a_progress(evaluation_id))
    await store.counts(evaluation_id)
    assert store.live("exp") == [a_progress(evaluation_id)]

    await store.end_run(a_run(evaluation_id, status="complete"), total=9, metrics=None)
    assert store.live("exp") == []


async def test_the_progress_of_a_run_that_never_ended_goes_when_the_next_begins(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id))
    store.tell_progress(a_progress(evaluation_id))

    await store.counts(evaluation_id)
    await store.begin_run(a_run(evaluation_id, id="run-2"))

    assert store.live("exp") == []


async def test_live_progress_of_an_unknown_experiment_is_an_error(store: Store) -> None:
    with pytest.raises(NotFound, match="no experiment 'exp'"):
        store.live("exp")


async def test_a_broken_run_keeps_the_time_that_its_records_told(store: Store) -> None:
    evaluation_id = await store.open_evaluation(SPEC)
    await store.begin_run(a_run(evaluation_id))
    commit(store, a_draft(evaluation_id, "s1", started_at="2026-01-02T03:04:09.500000+00:00", wall_s=0.5))

    await store.begin_run(a_run(evaluation_id, id="run-2", started_at="2026-01-03T00:00:00+00:00"))

    broken, _ = store.runs(evaluation_id)
    assert broken.ended_at == "2026-01-02T03:04:10.000+00:00"
    assert store.evaluations("exp")[0].wall_s == pytest.approx(10.0, abs=0.01)
