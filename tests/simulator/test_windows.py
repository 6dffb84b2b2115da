"""Fixed and sliding windows, with instants written out."""

from __future__ import annotations

import pytest

from evalve.simulator.buckets import Cost, Counting, Production, take
from evalve.simulator.windows import FixedWindow, SlidingWindow

ONE = {"requests": Cost(1, 1)}


def fixed(per_s: float = 10.0, window_s: float = 1.0, foreign_share: float = 0.0) -> FixedWindow:
    return FixedWindow(rate_per_s=per_s, depth=per_s * window_s, now_s=0.0, foreign_share=foreign_share)


def sliding(per_s: float = 10.0, window_s: float = 1.0, foreign_share: float = 0.0) -> SlidingWindow:
    return SlidingWindow(rate_per_s=per_s, depth=per_s * window_s, now_s=0.0, foreign_share=foreign_share)


def served(counting: Counting, instants: list[float]) -> list[bool]:
    return [take({"requests": counting}, ONE, now_s=now_s) is None for now_s in instants]


def test_a_fixed_window_gives_all_at_once_and_again_when_the_next_one_starts() -> None:
    assert served(fixed(per_s=2.0), [0.9, 0.9, 0.9, 1.0, 1.0, 1.0]) == [True, True, False, True, True, False]


def test_a_sliding_window_counts_each_request_for_its_whole_length() -> None:
    instants = [0.9, 0.9, 1.0, 1.8, 1.9, 1.9, 1.9]
    assert served(sliding(per_s=2.0), instants) == [True, True, False, False, True, True, False]


def test_the_wait_of_a_fixed_window_is_for_the_next_one() -> None:
    window = fixed()
    assert take({"requests": window}, {"requests": Cost(10, 10)}, now_s=0.25) is None
    shortage = take({"requests": window}, ONE, now_s=0.25)
    assert shortage is not None and shortage.wait_s == pytest.approx(0.75)
    assert window.full_in_s() == pytest.approx(0.75)


def test_the_wait_of_a_sliding_window_is_until_enough_has_left_it() -> None:
    window = sliding()
    for now_s in (0.0, 0.2, 0.4):
        assert take({"requests": window}, {"requests": Cost(3, 3)}, now_s=now_s) is None
    window.refresh(0.5)
    assert [window.wait_s(need) for need in (1, 4, 5, 10)] == pytest.approx([0.0, 0.5, 0.7, 0.9])
    assert window.full_in_s() == pytest.approx(0.9)


@pytest.mark.parametrize("window", [fixed(), sliding()], ids=["fixed", "sliding"])
def test_waiting_as_long_as_told_suffices(window: Counting) -> None:
    assert take({"requests": window}, {"requests": Cost(10, 10)}, now_s=0.3) is None
    shortage = take({"requests": window}, ONE, now_s=0.6)
    assert shortage is not None
    assert served(window, [0.6 + shortage.wait_s - 0.01, 0.6 + shortage.wait_s]) == [False, True]


@pytest.mark.parametrize("window", [fixed(), sliding()], ids=["fixed", "sliding"])
def test_a_request_larger_than_the_window_starts_when_nothing_is_used_and_is_paid_for(
    window: Counting,
) -> None:
    assert take({"requests": window}, {"requests": Cost(20, 20)}, now_s=0.0) is None
    window.refresh(0.5)
    assert [window.wait_s(1), window.full_in_s()] == pytest.approx([1.5, 1.5])
    assert served(window, [1.99, 2.0]) == [False, True]


@pytest.mark.parametrize("window", [fixed(per_s=0.5), sliding(per_s=0.5)], ids=["fixed", "sliding"])
def test_a_window_for_less_than_one_request_serves_at_its_rate(window: Counting) -> None:
    assert sum(served(window, [n / 4 for n in range(80)])) == 10


@pytest.mark.parametrize("window", [fixed(), sliding()], ids=["fixed", "sliding"])
def test_what_is_given_back_may_be_used_again(window: Counting) -> None:
    window.charge(10)
    window.charge(-4)
    assert (window.level, window.covers(4), window.covers(5)) == (4, True, False)
    window.refresh(1.0)
    assert window.level == 10


@pytest.mark.parametrize(
    "window", [fixed(foreign_share=0.3), sliding(foreign_share=0.3)], ids=["fixed", "sliding"]
)
def test_others_use_up_their_share(window: Counting) -> None:
    assert sum(served(window, [0.5] * 10)) == 7


@pytest.mark.parametrize("window", [fixed(), sliding()], ids=["fixed", "sliding"])
def test_a_smaller_limit_holds_at_once(window: Counting) -> None:
    window.charge(4)
    window.resize(rate_per_s=5.0, depth=5.0, now_s=0.5, foreign_share=0.0)
    assert sum(served(window, [0.5] * 9)) <= 5
    assert sum(served(window, [1.6] * 9)) == 5


@pytest.mark.parametrize("window", [fixed(), sliding()], ids=["fixed", "sliding"])
def test_output_counts_when_its_answer_is_complete(window: Counting) -> None:
    production = Production([window], tokens=8, duration_s=0.5, now_s=0.0)
    window.refresh(0.4)
    assert window.level == 10
    assert production.end(now_s=0.5, produced=8) == 8
    assert window.level == 2


@pytest.mark.parametrize("window", [fixed(per_s=2.0), sliding(per_s=2.0)], ids=["fixed", "sliding"])
def test_where_refusals_count_they_make_no_debt(window: Counting) -> None:
    window.charge_refusal()
    window.charge_refusal()
    window.charge_refusal()
    assert window.level == 0
