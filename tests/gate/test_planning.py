"""What a run will take, against figures worked out by hand."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.bucket import Bucket
from evalve.gate.messages import Cost, Limit, Limits
from evalve.gate.planning import (
    Plan,
    ScopePlan,
    Work,
    calls_at_once,
    in_force,
    long_run_rate,
    plan,
    simulate,
    throttle,
)

TIER_1 = Limits({"requests": Limit(50), "input_tokens": Limit(30_000), "output_tokens": Limit(8_000)})
TIER_4 = Limits({"requests": Limit(4_000), "input_tokens": Limit(2_000_000), "output_tokens": Limit(400_000)})
WORK = Work(
    label="eval_tools",
    samples=53,
    repeat=1,
    calls_per_sample=2.0,
    input_tokens=600.0,
    output_tokens=200.0,
    latency_s=6.0,
    cost_usd=0.005,
    takes={"requests": 1, "input_tokens": 600, "output_tokens": 200},
    source="flags",
)


def under(limits: Limits, *works: Work) -> ScopePlan:
    return plan(works or (WORK,), {"here": limits}).scopes[0]


def taking(input_tokens: float, output_tokens: float) -> Cost:
    return {"requests": 1, "input_tokens": input_tokens, "output_tokens": output_tokens}


# -- in all


def test_a_plan_sums_samples_calls_tokens_and_cost() -> None:
    planned = plan([WORK], {})

    assert (planned.samples, planned.attempts, planned.calls) == (53, 53, 106)
    assert (planned.input_tokens, planned.output_tokens) == (63_600, 21_200)
    assert planned.cost_usd == pytest.approx(0.53)
    assert (planned.latency_s, planned.one_by_one_s) == (6.0, 636.0)


def test_repeats_are_calls_and_part_of_a_call_counts_as_one() -> None:
    planned = plan([replace(WORK, samples=5, repeat=3, calls_per_sample=1.5)], {})

    assert (planned.samples, planned.attempts, planned.calls) == (5, 15, 23)


def test_what_is_not_known_of_one_evaluation_is_not_known_in_all() -> None:
    other = replace(WORK, label="eval_other", output_tokens=None, cost_usd=None, latency_s=None)

    planned = plan([WORK, other], {})

    assert planned.input_tokens == 127_200
    assert (planned.output_tokens, planned.cost_usd) == (None, None)
    assert (planned.latency_s, planned.one_by_one_s) == (None, None)


def test_several_evaluations_are_one_stream_of_calls_of_their_mean_cost() -> None:
    long = replace(WORK, samples=159, takes=taking(600, 600))

    # 106 calls of 200 and 318 of 600 output tokens: 500 on average, at 8,000 a minute
    assert under(TIER_1, WORK, long).calls_per_minute == pytest.approx(16)


# -- which limit binds, and how long it takes


def test_tier_1_is_held_by_output_tokens() -> None:
    scope = under(TIER_1)

    # 200 tokens every 1.5 s; the buckets' start makes less than a second's difference
    assert scope.duration_s == pytest.approx(105 * 1.5 + 6.0, abs=1.0)
    assert scope.binding == "output_tokens"
    assert scope.used["output_tokens"] == pytest.approx(106 * 200 / (8_000 / 60 * scope.duration_s))
    assert scope.used["requests"] == pytest.approx(106 / (50 / 60 * scope.duration_s))
    assert scope.calls_per_minute == pytest.approx(40)
    assert scope.per_minute == {"requests": 50, "input_tokens": 30_000, "output_tokens": 8_000}


@pytest.mark.parametrize(
    ("takes", "binding", "calls_per_minute"),
    [
        (taking(100, 20), "requests", 50),
        (taking(1_000, 20), "input_tokens", 30),
        (taking(100, 400), "output_tokens", 20),
        ({"requests": 1}, "requests", 50),
    ],
)
def test_the_scarcest_limit_binds(takes: Cost, binding: str, calls_per_minute: float) -> None:
    scope = under(TIER_1, replace(WORK, takes=takes))

    assert scope.binding == binding
    assert scope.calls_per_minute == pytest.approx(calls_per_minute)


def test_where_all_samples_run_at_once_the_limit_does_not_bind() -> None:
    scope = under(TIER_4)

    assert scope.binding == ""
    # 16 calls at once from the buckets' first half, 37 at 33.3 a second, and the second call after the first
    assert scope.duration_s == pytest.approx(13.2, abs=0.2)
    assert scope.used["output_tokens"] == pytest.approx(106 * 200 / (400_000 / 60 * scope.duration_s))


def test_a_configured_concurrency_binds_where_rates_would_allow_more() -> None:
    scope = under(replace(TIER_4, concurrency=10))

    assert scope.binding == "concurrency"
    assert (scope.calls_at_once, scope.max_concurrency) == (10, 10)
    assert scope.calls_per_minute == pytest.approx(100)  # 10 calls every 6 s
    assert scope.throttle_s == 1.2
    assert scope.duration_s == pytest.approx(11 * 6.0, abs=0.5)


def test_without_any_limit_nothing_can_be_recommended() -> None:
    scope = under(Limits())

    assert (scope.calls_per_minute, scope.calls_at_once, scope.max_concurrency) == (None, None, None)
    assert scope.throttle_s == 0.0


def test_no_samples_take_no_time() -> None:
    scope = under(TIER_1, replace(WORK, samples=0))

    assert (scope.duration_s, scope.used) == (0.0, {})


# -- how many at once


def test_the_recommended_window_is_littles_law_and_a_quarter_more() -> None:
    scope = under(TIER_1)

    assert scope.calls_at_once == pytest.approx(40 / 60 * 6.0)
    assert scope.max_concurrency == 5
    assert scope.throttle_s == 3.0  # two calls a sample at 40 a minute


def test_no_more_samples_at_once_than_there_are() -> None:
    scope = under(TIER_4)

    assert scope.calls_at_once == pytest.approx(200)
    assert scope.max_concurrency == 53


def test_the_recommended_window_uses_the_limit_up() -> None:
    many = replace(WORK, samples=500)
    scope = under(TIER_1, many)

    unhindered = simulate(TIER_1, many.takes, 1_000, latency_s=6.0, window=None)
    assert scope.duration_s == pytest.approx(unhindered.duration_s)
    assert scope.used["output_tokens"] > 0.99


def test_without_a_latency_the_window_is_not_known() -> None:
    scope = under(TIER_1, replace(WORK, latency_s=None))

    assert (scope.calls_at_once, scope.max_concurrency) == (None, None)
    assert scope.duration_s == pytest.approx(105 * 1.5, abs=1.0)


@pytest.mark.parametrize(
    ("rate_per_s", "latency_s", "concurrency", "expected"),
    [
        (2.0, 6.0, None, 12.0),
        (2.0, 6.0, 5, 5.0),
        (2.0, None, 5, 5.0),
        (2.0, None, None, None),
        (math.inf, 6.0, None, None),
    ],
)
def test_calls_at_once(
    rate_per_s: float, latency_s: float | None, concurrency: int | None, expected: float | None
) -> None:
    assert calls_at_once(rate_per_s, latency_s, concurrency) == expected


@pytest.mark.parametrize(
    ("rate_per_s", "calls_per_sample", "expected"),
    [
        (2 / 3, 2.0, 3.0),
        (0.7, 2.0, 2.8),  # 2.857: cut off, for a longer one would hold the run back itself
        (7.5, 2.0, 0.26),
        (1_000, 2.0, 0.0),
        (math.inf, 2.0, 0.0),
        (1.0, 0.0, 0.0),
    ],
)
def test_the_throttle_is_the_time_between_two_samples(
    rate_per_s: float, calls_per_sample: float, expected: float
) -> None:
    assert throttle(rate_per_s, calls_per_sample) == expected


# -- the simulation


def test_a_narrow_window_holds_the_run_back() -> None:
    # three calls start when the three before them end
    limits = Limits({"requests": Limit(6_000)})
    run = simulate(limits, {"requests": 1}, 12, latency_s=6.0, window=3)

    assert run.duration_s == pytest.approx(4 * 6.0, abs=0.1)
    assert run.binding == ""


def test_a_deep_bucket_is_used_at_once() -> None:
    limits = Limits({"requests": Limit(60, burst=100)})

    # half of the bucket is trusted at first: 50 less the reserve, the others one a second
    run = simulate(limits, {"requests": 1}, 50, latency_s=1.0, window=None)
    assert run.duration_s == pytest.approx(1.25)
    run = simulate(limits, {"requests": 1}, 110, latency_s=1.0, window=None)
    assert run.duration_s == pytest.approx(61.25)


@pytest.mark.parametrize("window", [None, 7, 400])
def test_many_calls_are_carried_on_from_the_steady_state(window: int | None) -> None:
    limits = Limits({"requests": Limit(10_000)})

    run = simulate(limits, {"requests": 1}, 120_000, latency_s=2.0, window=window)

    rate_per_s = min(10_000 / 60, (window or math.inf) / 2.0)
    assert run.duration_s == pytest.approx(120_000 / rate_per_s, rel=0.01)
    assert run.binding == ("" if window == 7 else "requests")


@pytest.mark.parametrize("window", [None, 400])
def test_a_burst_that_lasts_longer_than_the_simulation_comes_to_its_end(window: int | None) -> None:
    limits = Limits({"requests": Limit(10_000, burst=20_000)})

    run = simulate(limits, {"requests": 1}, 120_000, latency_s=2.0, window=window)

    # half of the burst is trusted; what the rest has to wait for comes in at the limit's own rate
    assert run.duration_s == pytest.approx((120_000 - 10_000) / (10_000 / 60), rel=0.01)
    assert run.binding == "requests"


def test_a_hundred_thousand_calls_are_planned_within_a_second() -> None:
    began_s = time.process_time()
    planned: Plan = plan([replace(WORK, samples=50_000)], {f"tier {n}": TIER_4 for n in range(7)})

    assert time.process_time() - began_s < 1.0
    # 200 output tokens each at 400,000 a minute
    assert planned.scopes[0].duration_s == pytest.approx(100_000 / (400_000 / 200 / 60), rel=0.01)


def test_the_long_run_rate_leaves_bursts_out() -> None:
    deep = Limits({"requests": Limit(600, burst=10_000)})

    assert long_run_rate(deep, {"requests": 1}) == pytest.approx(10.0)
    assert long_run_rate(Limits(), {"requests": 1}) == math.inf
    assert long_run_rate(TIER_1, {}) == math.inf


# -- which limits hold


def test_of_what_is_configured_and_what_was_stated_the_lower_holds() -> None:
    configured = Limits({"requests": Limit(60, source="evalve.yaml")}, None, "evalve.yaml")
    learnt = ScopeState(stated={"requests": (0.5, 100.0), "output_tokens": (200.0, 100.0)})

    held = in_force(configured, learnt, 110.0)

    assert {name: limit.per_minute for name, limit in held.by_dimension.items()} == {
        "requests": 30,
        "output_tokens": 12_000,
    }
    assert held.source == "response headers"


def test_a_depth_that_answers_showed_is_kept() -> None:
    bucket = Bucket(10.0, 600.0, depth_known=True, others_per_s=2.0, source="response headers")
    learnt = ScopeState(buckets={"requests": bucket}, stated={"requests": (10.0, 0.0)})

    held = in_force(Limits(), learnt, 5.0)

    assert held.by_dimension == {"requests": Limit(600.0, 600.0, "response headers")}
    assert bucket.full_at_s == 0.0  # looking changes nothing


def test_what_is_neither_configured_nor_stated_any_more_does_not_hold() -> None:
    learnt = ScopeState(buckets={"requests": Bucket(10.0, 10.0)})

    assert in_force(Limits(), learnt, 0.0) == Limits({}, None, "")


def test_a_configured_concurrency_holds_and_says_who_said_so() -> None:
    held = in_force(Limits({}, 8, "evalve.yaml"), ScopeState(), 0.0)

    assert held == Limits({}, 8, "evalve.yaml")
