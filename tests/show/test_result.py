"""What a direct call of an evaluation returns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evalve.contracts import Store
from evalve.show.result import EvaluationResult
from evalve.storage import open_store
from evalve.summary import summarise
from recorded import done, failed, record, skipped


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def result_of(store: Store, *, verdict: tuple[str, ...] = ()) -> EvaluationResult:
    (info,) = store.evaluations("first")
    return EvaluationResult(
        store, info, summarise(lambda: store.observations(info.id)), {"cpu_s": 0.25}, verdict
    )


def test_summary_has_the_value_of_every_metric(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True), done("s1", exact_match=False))

    result = result_of(store)

    assert result.summary == {"exact_match": {"accuracy": 0.5}}
    assert (result.experiment, result.evaluation) == ("first", "eval_math")
    assert result.report == {"cpu_s": 0.25}
    assert result.metrics[0].samples == 2


def test_records_come_in_dataset_order_however_they_were_finished(store: Store) -> None:
    late = done("last", exact_match=True, also={"index": 2})
    record(
        store, "first", late, failed("first", index=0), done("second", exact_match=True, also={"index": 1})
    )

    result = result_of(store)

    assert [one.sample_id for one in result] == ["first", "second", "last"]
    assert [one.sample_id for one in result.records] == ["first", "second", "last"]
    assert [one.sample_id for one in result.failures] == ["first"]
    assert (len(result), result.done, result.failed) == (3, 2, 1)
    assert result.records[1].scores[0].name == "exact_match"


def test_it_passed_unless_there_are_problems(store: Store) -> None:
    record(store, "first")

    assert result_of(store).passed
    assert bool(result_of(store)), "a result without records is still a result"
    assert not result_of(store, verdict=("accuracy is below 0.9",)).passed


def test_a_result_has_one_of_three_outcomes(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True))

    assert result_of(store).outcome == "pass"
    assert result_of(store, verdict=("insufficient: x is of 1 samples",)).outcome == "insufficient"
    assert result_of(store, verdict=("insufficient: x", "y is below 0.9")).outcome == "fail"


def test_repr_is_readable(store: Store) -> None:
    record(store, "first", done("s0", exact_match=True), failed("s1"), wall_s=0.5)

    assert repr(result_of(store, verdict=("1 sample failed",))).splitlines() == [
        "eval_math in experiment first",
        "  status    complete",
        "  samples   1/2 done (50%), 1 failed (code)",
        "  time      0.50 s wall, 1.00 s working, speed-up ×2.0",
        "  failures  ValueError 1",
        "",
        "  evaluator    metric    value [95% interval]  n",
        "  ───────────  ────────  ────────────────────  ─",
        "  exact_match  accuracy  1.000 [0.21, 1.00]    1",
        "  1 of 2 samples failed: not counted above; 0.50 if all wrong … 1.00 if all right",
        "  not passed: 1 sample failed",
        "",
        "sample  status        exact_match    time  tries  prompt or row",
        "──────  ────────────  ───────────  ──────  ─────  ──────────────────────────",
        's0      done          True         0.50 s      1  {"question": "question 0"}',
        's1      failed: code  –            0.50 s      1  {"question": "question 1"}',
    ]


def test_what_calls_came_to_is_told(store: Store) -> None:
    calls = {"requests": 2, "input_tokens": 30, "output_tokens": 8, "cost_usd": 0.5, "ungated": 3}
    record(store, "first", done("s0", exact_match=True), report={"calls": calls})

    result = result_of(store)

    assert (
        "  calls     2 calls; 30 + 8 tokens; 0.5000 USD; 3 calls passed ungated" in repr(result).splitlines()
    )
    assert "<p>calls: 2 calls; 30 + 8 tokens; 0.5000 USD; 3 calls passed ungated</p>" in result._repr_html_()


def test_failures_are_counted_by_class_and_skips_apart(store: Store) -> None:
    record(
        store,
        "first",
        done("s0", exact_match=True),
        failed("s1", failure_class="provider"),
        failed("s2", failure_class="provider"),
        failed("s3", failure_class="timeout"),
        skipped("s4", "no gpu"),
    )

    result = result_of(store)

    assert result.failed_by_class == {"provider": 2, "timeout": 1}
    assert (result.done, result.failed, result.skipped, len(result)) == (1, 3, 1, 5)
    assert [(one.sample_id, one.failure_class) for one in result.failures] == [
        ("s1", "provider"),
        ("s2", "provider"),
        ("s3", "timeout"),
    ]
    assert [(one.status, one.failure_class, one.ok) for one in result][4] == ("skipped", None, False)
    assert "<td>skipped</td><td>no gpu</td>" in result._repr_html_()
    assert "<td>failed: timeout</td>" in result._repr_html_()
    assert "1/5 done (20%), 3 failed (2 provider, 1 timeout), 1 skipped" in result._repr_html_()


def test_html_shows_markup_from_a_model_as_text(store: Store) -> None:
    record(
        store, "first", done("<b>s0</b>", exact_match=True, also={"prompt": "<script>alert(1)</script>\x1b"})
    )

    html = result_of(store, verdict=("accuracy < 0.9",))._repr_html_()

    assert "<script>" not in html
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;\\x1b</td>" in html
    assert "<td>&lt;b&gt;s0&lt;/b&gt;</td>" in html
    assert "accuracy &lt; 0.9" in html


def test_pandas_has_a_row_per_sample_and_a_column_per_score(store: Store) -> None:
    pytest.importorskip("pandas")
    record(store, "first", done("s0", exact_match=True, cost=0.5), failed("s1", "KeyError", "x"))

    frame = result_of(store).to_pandas()

    assert list(frame["sample_id"]) == ["s0", "s1"]
    assert frame["exact_match"][0] is True or frame["exact_match"][0] == 1
    assert frame["cost"][0] == 0.5
    assert frame["failure"][1] == "KeyError: x"


def test_polars_has_one_type_per_column_whatever_was_stored(store: Store) -> None:
    pytest.importorskip("polars")
    mixed = done("s1", exact_match=False, grade=2, also={"prompt": ["a", {"b": 1}]})
    record(
        store, "first", done("s0", exact_match=True, grade=0.5, also={"prompt": "text"}), mixed, failed("s2")
    )

    frame = result_of(store).to_polars()

    assert frame["exact_match"].to_list() == [True, False, None]
    assert frame["grade"].to_list() == [0.5, 2.0, None]
    assert frame["prompt"].to_list() == ["text", '["a", {"b": 1}]', None]


def test_the_trace_of_a_record_is_read_when_it_is_asked_for(store: Store) -> None:
    event = {"kind": "note", "at": "2026-11-03T14:02:00+00:00", "text": "looked it up"}
    record(store, "first", done("s0", m=True, also={"trace": [event]}), done("s1", m=True))

    result = result_of(store)

    assert [result.trace(one) for one in result] == [[event], []]


def test_frames_hold_text_that_utf8_cannot_and_numbers_that_64_bits_cannot(store: Store) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    record(store, "first", done("s0", grade=2**70, huge=10**400, also={"response": "broken \ud800"}))

    result = result_of(store)

    assert list(result.to_pandas()["response"]) == ["broken \\ud800"]
    frame = result.to_polars()
    assert frame["response"].to_list() == ["broken \\ud800"]
    assert frame["grade"].to_list() == [float(2**70)]
    assert frame["huge"].to_list() == [str(10**400)]
