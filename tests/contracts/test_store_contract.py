"""What every store promises, whatever is behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import EvaluationSpec, Known, Measured, Placed, RecordDraft, RunInfo, Store
from evalve.errors import Locked, NotFound, StorageError
from evalve.records import Failure, Sample, Score, Try
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


def test_an_evaluation_keeps_its_id(store: Store) -> None:
    first = store.open_evaluation(SPEC)

    assert store.open_evaluation(SPEC) == first
    assert store.open_evaluation(replace(SPEC, key="other")) != first
    assert store.open_evaluation(replace(SPEC, experiment="other")) != first


def test_an_opened_evaluation_agrees_with_its_spec(store: Store) -> None:
    store.open_evaluation(SPEC)
    changed = replace(SPEC, fingerprint={"function": "def eval_a(): return 1"})

    store.open_evaluation(changed)

    assert [info.spec for info in store.evaluations("exp")] == [changed]


def test_an_unknown_experiment_is_named_with_the_nearest(store: Store) -> None:
    store.open_evaluation(replace(SPEC, experiment="baseline"))

    with pytest.raises(NotFound, match=r"no experiment 'basline'; did you mean 'baseline'\?"):
        store.evaluations("basline")


# records


def test_a_record_comes_back_as_it_was_given(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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


def test_a_failure_comes_back_with_its_traceback(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", scores_json="[]", failure_json=BROKEN))

    (info,) = store.evaluations("exp")
    (record,) = store.records(info, status="failed")

    assert record.failure == Failure("ValueError", "no number", "Traceback ...")
    assert list(store.records(info, status="done")) == []


def test_records_come_in_dataset_order_whatever_order_they_ended_in(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    places = [("s3", 2, 0), ("s1", 0, 1), ("s2", 1, 0), ("s1", 0, 0)]
    commit(store, *[a_draft(evaluation_id, sample, index=i, repeat=r) for sample, i, r in places])

    (info,) = store.evaluations("exp")

    assert [(r.sample_id, r.repeat) for r in store.records(info)] == [
        ("s1", 0),
        ("s1", 1),
        ("s2", 0),
        ("s3", 0),
    ]


def test_samples_that_are_left_out_are_kept_and_count_again_with_a_new_place(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    broken = {"status": "failed", "failure_json": '{"kind":"ValueError","message":"no"}'}
    commit(
        store,
        a_draft(evaluation_id, "s1"),
        a_draft(evaluation_id, "s2", index=1, **broken),
        a_draft(evaluation_id, "s3", index=2),
        a_draft(evaluation_id, "s3", index=2, repeat=1),
    )

    store.leave_out(evaluation_id, ["s2", "s3"])

    (info,) = store.evaluations("exp")
    assert (info.done, info.failed, info.left_out) == (1, 0, 2)
    assert store.counts(evaluation_id) == (1, 0)
    assert [record.sample_id for record in store.records(info)] == ["s1"]
    assert [sample_id for sample_id, _, _ in store.observations(evaluation_id)] == ["s1"]
    assert list(store.sample_ids(evaluation_id)) == [["s1"]]
    assert store.known(evaluation_id, [("s2", 0)])["s2", 0].status == "failed"

    store.reindex(evaluation_id, [Placed("s3", 7)])

    assert store.counts(evaluation_id) == (3, 0)
    (info,) = store.evaluations("exp")
    assert info.left_out == 1
    assert [(record.sample_id, record.index) for record in store.records(info)] == [
        ("s1", 0),
        ("s3", 7),
        ("s3", 7),
    ]


def test_records_of_another_evaluation_stay_out(store: Store) -> None:
    here = store.open_evaluation(SPEC)
    there = store.open_evaluation(replace(SPEC, key="other"))
    commit(store, a_draft(here, "s1"), a_draft(there, "s1"), a_draft(there, "s2"))

    assert store.counts(here) == (1, 0)
    assert store.counts(there) == (2, 0)
    assert store.known(here, [("s2", 0)]) == {}


def test_more_records_than_are_fetched_at_once_all_come(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, *[a_draft(evaluation_id, f"s{i}", index=i) for i in range(1203)])

    (info,) = store.evaluations("exp")

    assert [record.index for record in store.records(info)] == list(range(1203))
    assert len(store.known(evaluation_id, [(f"s{i}", 0) for i in range(2000)])) == 1203


def test_a_record_that_is_written_while_others_are_read_does_no_harm(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2", index=1))
    (info,) = store.evaluations("exp")
    reading = store.records(info)
    next(reading)

    commit(store, a_draft(evaluation_id, "s3", index=2))

    assert [record.sample_id for record in reading] == ["s2"]
    assert store.counts(evaluation_id) == (3, 0)


def test_observations_keep_the_repeats_of_a_sample_together(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    places = [("b", 0, 0), ("a", 1, 0), ("b", 0, 1), ("a", 1, 1)]
    commit(store, *[a_draft(evaluation_id, sample, index=i, repeat=r) for sample, i, r in places])
    commit(store, a_draft(evaluation_id, "c", status="failed", scores_json="[]", failure_json=BROKEN))

    seen = list(store.observations(evaluation_id))

    assert [(sample, repeat) for sample, repeat, _ in seen] == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    assert [score.value for _, _, scores in seen for score in scores] == [True] * 4


def test_measures_tell_status_row_time_and_calls_of_all_records_in_dataset_order(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "b", index=1, status="failed", scores_json="[]", failure_json=BROKEN),
        a_draft(evaluation_id, "a", index=0, calls_json='{"requests": 2}'),
    )

    assert list(store.measures(evaluation_id)) == [
        Measured("a", 0, "done", None, 0.25, {"requests": 2}),
        Measured("b", 0, "failed", None, 0.25, None),
    ]


def test_text_that_utf8_cannot_hold_is_stored_escaped(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s\ud800", response_json='"\udc80"'), a_draft(evaluation_id, "s2"))

    (info,) = store.evaluations("exp")

    assert [record.sample_id for record in store.records(info)] == ["s2", "s\\ud800"]
    assert store.known(evaluation_id, [("s\ud800", 0)]) == {("s\ud800", 0): Known("done", 0, 0.25)}


def test_one_bad_draft_does_not_fail_the_others(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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
    assert store.counts(evaluation_id) == (2, 0)


def test_a_sink_that_raises_does_not_stop_the_writing(store: Store) -> None:
    class Broken:
        def committed(self, drafts: Sequence[RecordDraft], error: BaseException | None) -> None:
            raise RuntimeError("listener's mistake")

    evaluation_id = store.open_evaluation(SPEC)
    store.add(a_draft(evaluation_id, "s1"), Broken())

    assert commit(store, a_draft(evaluation_id, "s2")).ids == ["s2"]
    assert store.counts(evaluation_id) == (2, 0)


def test_a_draft_for_a_deleted_evaluation_is_refused(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    store.delete("exp")
    heard = Heard()

    store.add(a_draft(evaluation_id, "s1"), heard)
    heard.wait_for(1)

    ((_, error),) = heard.errors
    assert "deleted" in str(error)


# resuming


def test_known_tells_what_is_there_and_only_that(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(
        store,
        a_draft(evaluation_id, "s1", index=4),
        a_draft(evaluation_id, "s2", index=5, repeat=1, status="failed", failure_json=BROKEN, working_s=2.0),
    )

    keys = [("s1", 0), ("s1", 1), ("s2", 0), ("s2", 1), ("s3", 0)]

    assert store.known(evaluation_id, keys) == {
        ("s1", 0): Known("done", 4, 0.25),
        ("s2", 1): Known("failed", 5, 2.0),
    }
    assert store.known(evaluation_id, []) == {}


def test_durations_are_those_of_the_latest_experiment_that_has_the_sample(store: Store) -> None:
    first = store.open_evaluation(SPEC)
    second = store.open_evaluation(replace(SPEC, experiment="second"))
    unrelated = store.open_evaluation(replace(SPEC, key="other"))
    commit(
        store,
        a_draft(first, "s1", working_s=1.0),
        a_draft(first, "s2", working_s=2.0),
        a_draft(first, "s3", working_s=3.0, status="failed", failure_json=BROKEN),
        a_draft(second, "s1", working_s=10.0),
        a_draft(unrelated, "s4", working_s=4.0),
    )

    assert store.durations(SPEC.key, ["s1", "s2", "s3", "s4"]) == {"s1": 10.0, "s2": 2.0}
    assert store.durations(SPEC.key, []) == {}


def test_a_retried_record_replaces_the_failed_one_and_keeps_its_tries(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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


def test_a_failed_record_without_history_still_counts_as_a_try(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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


def test_the_same_key_twice_in_one_go_is_one_record(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)

    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s1", response_json='"5"'))

    (record,) = store.records(store.evaluations("exp")[0])
    assert record.response == "5"
    assert store.counts(evaluation_id) == (1, 0)


def test_reindexed_samples_take_their_new_places_with_all_repeats(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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


def test_forgetting_an_evaluation_leaves_the_others(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    other_id = store.open_evaluation(replace(SPEC, key="other"))
    store.begin_run(a_run(evaluation_id), total=3)
    commit(store, a_draft(evaluation_id, "s1"), a_draft(other_id, "s1"))

    store.forget("exp", SPEC.key)

    assert store.counts(evaluation_id) == (0, 0)
    assert store.known(evaluation_id, [("s1", 0)]) == {}
    assert store.runs(evaluation_id) == []
    assert store.counts(other_id) == (1, 0)
    assert [info.total for info in store.evaluations("exp")] == [None, None]


def test_a_forgotten_sample_can_be_recorded_again(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1", status="failed", failure_json=BROKEN))
    assert len(store.known(evaluation_id, [("s1", 0)])) == 1

    store.forget("exp", SPEC.key)
    commit(store, a_draft(evaluation_id, "s1"))

    (record,) = store.records(store.evaluations("exp")[0])
    assert (record.status, record.history) == ("done", [])
    assert store.known(evaluation_id, [("s1", 0)]) == {("s1", 0): Known("done", 0, 0.25)}


def test_forgetting_what_was_never_there_is_no_mistake(store: Store) -> None:
    store.forget("exp", SPEC.key)

    assert store.experiments() == []


# runs


def test_a_run_comes_back_with_what_it_ended_with(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    begun = a_run(evaluation_id)
    ended = replace(begun, ended_at="2026-01-02T03:05:00+00:00", status="complete", report={"wall_s": 60.0})
    store.begin_run(begun)
    assert store.runs(evaluation_id) == [begun]

    store.end_run(ended, total=3, metrics=[{"name": "accuracy", "value": 1.0}])

    assert store.runs(evaluation_id) == [ended]
    (info,) = store.evaluations("exp")
    assert (info.total, info.wall_s) == (3, 60.0)
    assert info.metrics == [{"name": "accuracy", "value": 1.0}]
    assert info.first_started_at == "2026-01-02T03:04:00+00:00"
    assert info.last_ended_at == "2026-01-02T03:05:00+00:00"


def test_a_run_that_never_ended_is_broken_once_the_next_begins(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    store.begin_run(a_run(evaluation_id))

    store.begin_run(a_run(evaluation_id, id="run-2", started_at="2026-01-03T00:00:00+00:00"))

    assert [(run.id, run.status) for run in store.runs(evaluation_id)] == [
        ("run-1", "broken"),
        ("run-2", "running"),
    ]


def test_the_time_of_a_killed_run_is_told_by_its_records(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    store.begin_run(a_run(evaluation_id), total=9)
    commit(store, a_draft(evaluation_id, "s1", started_at="2026-01-02T03:04:09.500000+00:00", wall_s=0.5))

    (info,) = store.evaluations("exp")

    assert info.wall_s == pytest.approx(10.0, abs=0.01)
    assert (info.total, info.done, info.working_s) == (9, 1, 0.25)


def test_a_total_that_has_been_outgrown_is_unknown(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    store.begin_run(a_run(evaluation_id), total=1)

    commit(store, a_draft(evaluation_id, "s1"), a_draft(evaluation_id, "s2"))

    assert store.evaluations("exp")[0].total is None


# experiments


def test_experiments_come_with_their_tallies_the_last_used_first(store: Store) -> None:
    old = store.open_evaluation(SPEC)
    store.open_evaluation(replace(SPEC, experiment="newer"))
    commit(store, a_draft(old, "s1"), a_draft(old, "s2", status="failed", failure_json=BROKEN))
    assert [info.name for info in store.experiments()] == ["newer", "exp"]

    store.begin_run(a_run(old, started_at="9999-01-01T00:00:00+00:00"), total=5)

    resumed, newer = store.experiments()
    assert (resumed.name, resumed.evaluations, resumed.done, resumed.failed) == ("exp", 1, 1, 1)
    assert (resumed.total, newer.total, newer.running) == (5, None, None)


def test_a_renamed_experiment_keeps_its_records(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    commit(store, a_draft(evaluation_id, "s1"))

    store.rename("exp", "better name")

    (info,) = store.evaluations("better name")
    assert (info.id, info.done, info.spec.experiment) == (evaluation_id, 1, "better name")
    with pytest.raises(NotFound):
        store.evaluations("exp")


def test_an_experiment_cannot_take_the_name_of_another(store: Store) -> None:
    store.open_evaluation(SPEC)
    store.open_evaluation(replace(SPEC, experiment="taken"))

    with pytest.raises(StorageError, match="already an experiment 'taken'"):
        store.rename("exp", "taken")


def test_a_deleted_experiment_is_gone(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
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


def test_a_running_experiment_names_its_holder(store: Store) -> None:
    store.open_evaluation(SPEC)
    lock = store.lock("exp", holder="pytest evals")

    (info,) = store.experiments()
    assert info.running is not None
    assert "pytest evals" in info.running

    lock.release()
    assert store.experiments()[0].running is None


def test_a_closed_store_says_so(store: Store) -> None:
    evaluation_id = store.open_evaluation(SPEC)
    store.close()
    store.close()

    with pytest.raises(StorageError, match="closed"):
        store.evaluations("exp")
    with pytest.raises(StorageError, match="closed"):
        store.counts(evaluation_id)
