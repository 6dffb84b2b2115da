"""The arithmetic of buckets, with instants written out."""

from __future__ import annotations

import math

import pytest

from evalve.simulator.buckets import Bucket, Cost, Production, take


def bucket(rate_per_s: float = 1.0, depth: float = 10.0, foreign_share: float = 0.0) -> Bucket:
    return Bucket(rate_per_s=rate_per_s, depth=depth, now_s=0.0, foreign_share=foreign_share)


def level(one: Bucket, now_s: float) -> float:
    one.refresh(now_s)
    return one.level


def test_a_new_bucket_is_full_and_never_overflows() -> None:
    assert level(bucket(), 1000.0) == 10.0


@pytest.mark.parametrize(
    ("now_s", "expected"), [(0.0, 4.0), (0.5, 4.5), (3.0, 7.0), (6.0, 10.0), (60.0, 10.0)]
)
def test_it_refills_continuously(now_s: float, expected: float) -> None:
    one = bucket()
    one.charge(6)
    assert level(one, now_s) == pytest.approx(expected)


def test_time_that_goes_backwards_changes_nothing() -> None:
    one = bucket()
    one.refresh(5.0)
    one.charge(6)
    assert level(one, 4.0) == 4.0


def test_the_wait_is_exact_and_waiting_it_suffices() -> None:
    one = bucket(rate_per_s=0.7)
    one.charge(9.9)
    wait_s = one.wait_s(3)
    one.refresh(wait_s - 0.01)
    assert not one.covers(3)
    one.refresh(wait_s)
    assert one.covers(3)


def test_a_request_larger_than_the_depth_starts_when_full_and_leaves_debt() -> None:
    one = bucket()
    assert take({"tokens": one}, {"tokens": Cost(25, 25)}, now_s=0.0) is None
    assert one.level == -15.0
    assert one.wait_s(1) == pytest.approx(16.0)
    shortage = take({"tokens": one}, {"tokens": Cost(25, 25)}, now_s=24.0)
    assert shortage is not None and shortage.wait_s == pytest.approx(1.0)
    assert take({"tokens": one}, {"tokens": Cost(25, 25)}, now_s=25.0) is None


def test_a_refusal_charges_no_dimension_and_names_the_one_that_waits_longest() -> None:
    buckets = {"requests": bucket(), "input_tokens": bucket(depth=100.0), "output_tokens": bucket()}
    buckets["input_tokens"].charge(90)
    buckets["output_tokens"].charge(12)
    costs = {"requests": Cost(1, 1), "input_tokens": Cost(50, 50), "output_tokens": Cost(1, 0)}
    shortage = take(buckets, costs, now_s=0.0)
    assert shortage is not None
    assert (shortage.dimension, shortage.wait_s) == ("input_tokens", 40.0)
    assert [one.level for one in buckets.values()] == [10.0, 10.0, -2.0]


def test_where_refusals_count_they_empty_the_requests_and_make_no_debt() -> None:
    buckets = {"requests": bucket(depth=2.0), "tokens": bucket()}
    buckets["tokens"].charge(10)
    costs = {"requests": Cost(1, 1), "tokens": Cost(5, 5)}
    levels = []
    for _ in range(3):
        take(buckets, costs, now_s=0.0, refusals_count=True)
        levels.append(buckets["requests"].level)
    assert levels == [1.0, 0.0, 0.0]


def test_a_client_that_hammers_is_never_admitted_where_refusals_count() -> None:
    buckets = {"requests": bucket(rate_per_s=1.0, depth=1.0)}
    cost = {"requests": Cost(1, 1)}
    assert take(buckets, cost, now_s=0.0, refusals_count=True) is None
    refused = [take(buckets, cost, now_s=0.1 * n, refusals_count=True) is not None for n in range(1, 100)]
    assert all(refused)


def test_other_users_slow_the_refill_but_not_the_stated_reset() -> None:
    one = bucket(foreign_share=0.3)
    one.charge(10)
    assert one.wait_s(7) == pytest.approx(10.0)
    assert one.full_in_s() == pytest.approx(10.0)
    assert level(one, 10.0) == pytest.approx(7.0)


def test_output_is_charged_as_it_is_produced() -> None:
    one = bucket(rate_per_s=1.0, depth=100.0)
    production = Production([one], tokens=50, duration_s=10.0, now_s=0.0)
    assert level(one, 5.0) == pytest.approx(100.0 - 4.0 * 5.0)
    assert production.end(now_s=10.0, produced=50) == 50
    assert level(one, 10.0) == pytest.approx(60.0)
    assert level(one, 20.0) == pytest.approx(70.0)


def test_an_answer_that_is_broken_off_is_charged_what_was_produced() -> None:
    one = bucket(rate_per_s=1.0, depth=100.0)
    production = Production([one], tokens=50, duration_s=10.0, now_s=0.0)
    assert production.end(now_s=4.0) == 20
    assert level(one, 4.0) == pytest.approx(84.0)


def test_several_answers_in_production_add_up() -> None:
    one = bucket(rate_per_s=10.0, depth=100.0)
    first = Production([one], tokens=100, duration_s=10.0, now_s=0.0)
    second = Production([one], tokens=100, duration_s=5.0, now_s=0.0)
    assert level(one, 5.0) == pytest.approx(0.0)
    second.end(now_s=5.0, produced=100)
    first.end(now_s=10.0, produced=100)
    assert level(one, 11.0) == pytest.approx(10.0)


def test_the_wait_counts_output_that_is_still_to_come() -> None:
    one = bucket(rate_per_s=10.0, depth=100.0)
    one.charge(100)
    Production([one], tokens=100, duration_s=5.0, now_s=0.0)
    assert one.wait_s(10) == pytest.approx(11.0)


def test_without_refill_the_wait_has_no_end() -> None:
    one = bucket(rate_per_s=0.0)
    one.charge(10)
    assert one.wait_s(1) == math.inf


def test_a_smaller_limit_cuts_what_is_left_and_a_larger_one_adds_nothing_at_once() -> None:
    one = bucket()
    one.resize(rate_per_s=0.5, depth=4.0, now_s=1.0, foreign_share=0.0)
    assert one.level == 4.0
    one.resize(rate_per_s=2.0, depth=20.0, now_s=1.0, foreign_share=0.0)
    assert (one.level, level(one, 2.0)) == (4.0, 6.0)
