"""Means over what earlier samples' calls took."""

from __future__ import annotations

from typing import Any

from evalve.gate.past_calls import PastCalls, past_calls
from evalve.records import Record

NOTHING = {
    "requests": 0,
    "cached": 0,
    "retries": 0,
    "refusals": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0,
    "cost_usd": 0.0,
    "unpriced": 0,
    "waited_s": 0.0,
}


def sample(working_s: float = 4.0, **calls: Any) -> Record:
    return Record(
        experiment="first",
        evaluation="eval_x",
        sample_id="s",
        index=0,
        repeat=0,
        status="done",
        scores=[],
        failure=None,
        prompt=None,
        response=None,
        row=None,
        started_at="",
        wall_s=working_s,
        working_s=working_s,
        tries=1,
        calls={**NOTHING, **calls} if calls else None,
    )


def test_means_are_per_call_and_calls_per_sample() -> None:
    past = past_calls(
        [
            sample(4.0, requests=2, input_tokens=1_000, output_tokens=100, cost_usd=0.5),
            sample(8.0, requests=1, input_tokens=800, output_tokens=20, cost_usd=0.25),
        ]
    )

    assert past == PastCalls(
        records=2,
        calls_per_sample=1.5,
        input_tokens=600.0,
        output_tokens=40.0,
        cache_read_tokens=0.0,
        cache_write_tokens=0.0,
        latency_s=4.0,
        cost_usd=0.25,
    )


def test_samples_that_called_nothing_say_nothing() -> None:
    assert past_calls([sample(), sample()]) is None
    assert past_calls([]) is None


def test_a_try_that_was_repeated_is_one_call() -> None:
    past = past_calls([sample(requests=3, retries=1, input_tokens=200)])

    assert past is not None
    assert (past.calls_per_sample, past.input_tokens) == (2.0, 100.0)


def test_what_the_cache_answered_is_a_call_but_says_nothing_about_tokens_and_time() -> None:
    past = past_calls([sample(0.01, cached=2), sample(6.0, requests=2, input_tokens=200)])

    assert past is not None
    assert (past.calls_per_sample, past.input_tokens, past.latency_s) == (2.0, 100.0, 3.0)


def test_where_the_cache_answered_everything_tokens_are_not_known() -> None:
    past = past_calls([sample(0.01, cached=2)])

    assert past == PastCalls(1, 2.0, None, None, None, None, None, None)


def test_a_cost_is_not_known_where_one_answer_had_no_price() -> None:
    past = past_calls([sample(requests=1, cost_usd=0.1), sample(requests=1, unpriced=1)])

    assert past is not None
    assert past.cost_usd is None
