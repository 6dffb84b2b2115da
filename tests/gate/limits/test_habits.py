"""Never faster than a provider allows, whatever it says, and never needlessly slower: in virtual time."""

from __future__ import annotations

import asyncio
import copy

import pytest
from bench.habits import CALL, Counting, Habits, Headers, Resets, RetryAfter, ideal_s, paced
from bench.pacing import slowed_by_chance

from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.period import Period
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Limits, Stated
from evalve.testing import run_in_virtual_time

MOST_REFUSED = {1: 12, 4: 60}
"""Or one in a hundred; by how many processes start at once without any knowledge."""


def held(habits: Habits, *, processes: int, most_wall: float) -> None:
    calls = int(habits.per_s / habits.size * (35 + habits.depth_s))
    window = 50 if processes == 1 else 40

    ended_s = run_in_virtual_time(paced(habits, Limits(), calls=calls, processes=processes, window=window))

    assert habits.refused <= max(0.01 * calls, MOST_REFUSED[processes])
    assert ended_s <= most_wall * ideal_s(habits, calls, processes * window)


COUNTINGS: tuple[Counting, ...] = ("bucket", "fixed", "sliding")


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("headers", ["minute", "bucket", "window"])
@pytest.mark.parametrize("depth_s", [0.25, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_a_stated_limit_is_held_however_it_is_counted_and_whatever_headers_claim(
    counting: Counting, depth_s: float, headers: Headers, processes: int
) -> None:
    held(Habits(depth_s=depth_s, counting=counting, headers=headers), processes=processes, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("retry_after", ["exact", "absent", "date"])
@pytest.mark.parametrize("depth_s", [0.25, 1.0, 10.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_headers_that_promise_a_minute_of_less_are_refuted(
    counting: Counting, depth_s: float, retry_after: RetryAfter, processes: int
) -> None:
    habits = Habits(depth_s=depth_s, counting=counting, retry_after=retry_after)

    held(habits, processes=processes, most_wall=1.10)


BEGUN = [(10.0, 3.0), (10.0, 7.0), (60.0, 18.0), (60.0, 28.0)]
"""Windows, and how long ago they began: a provider's minute is not ours."""


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("retry_after", ["whole", "exact", "date"])
@pytest.mark.parametrize("headers", ["minute", "bucket"])
@pytest.mark.parametrize(("depth_s", "phase_s"), BEGUN)
def test_a_window_that_began_before_the_run_ends_when_refusals_say_so(
    depth_s: float, phase_s: float, headers: Headers, retry_after: RetryAfter, processes: int
) -> None:
    """37 seconds until its end were taken for a window of 30, and everybody came before it was over."""
    habits = Habits(20.0, depth_s, "fixed", headers, retry_after, phase_s=phase_s)

    held(habits, processes=processes, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("resets", ["exact", "whole", "date"])
@pytest.mark.parametrize("retry_after", ["whole", "absent"])
@pytest.mark.parametrize(("depth_s", "phase_s"), [*BEGUN, (10.0, 7.5), (60.0, 45.0)])
def test_a_window_that_began_before_the_run_is_used_until_the_end_that_headers_tell(
    depth_s: float, phase_s: float, retry_after: RetryAfter, resets: Resets, processes: int
) -> None:
    """The last 15 seconds of a minute were taken for a quarter of what it allows: four times the time."""
    habits = Habits(20.0, depth_s, "fixed", "window", retry_after, phase_s=phase_s, resets=resets)

    held(habits, processes=processes, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("phase_s", [0.0, 0.2, 0.75])
@pytest.mark.parametrize("per_s", [5.0, 40.0])
def test_short_windows_whose_end_is_told_exactly_are_kept_to(
    per_s: float, phase_s: float, processes: int
) -> None:
    held(
        Habits(per_s, 1.0, "fixed", "window", phase_s=phase_s),
        processes=processes,
        most_wall=1.10,
    )


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("retry_after", ["whole", "exact", "date"])
@pytest.mark.parametrize(
    ("depth_s", "phase_s"), [*BEGUN, (10.0, 5.0), (10.0, 6.0), (60.0, 30.0), (60.0, 59.7)]
)
def test_a_window_that_began_before_the_run_is_found_out_where_only_refusals_tell(
    depth_s: float, phase_s: float, retry_after: RetryAfter, processes: int
) -> None:
    """Half of it looked like a window of half the length, and everybody came before it was over."""
    habits = Habits(20.0, depth_s, "fixed", "absent", retry_after, phase_s=phase_s)

    held(habits, processes=processes, most_wall=1.20)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("latency_s", [1.0, 2.0])
@pytest.mark.parametrize("headers", ["minute", "bucket", "window"])
@pytest.mark.parametrize("per_s", [0.5, 1.0])
def test_what_goes_out_before_the_first_answer_is_not_taken_for_the_calls_of_others(
    per_s: float, headers: Headers, latency_s: float, processes: int
) -> None:
    """30 or 60 a minute, a minute deep, and answers of seconds: it took up to three times as long."""
    habits = Habits(per_s, 60.0, "bucket", headers, latency_s=latency_s)

    held(habits, processes=processes, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("headers", ["minute", "bucket"])
@pytest.mark.parametrize(
    ("per_s", "depth_s", "phase_s"),
    [(5.0, 10.0, 4.0), (20.0, 10.0, 8.0), (5.0, 60.0, 12.0), (20.0, 60.0, 12.0), (40.0, 60.0, 18.0)],
)
def test_a_window_that_began_before_the_run_is_asked_whether_it_is_over_where_nothing_tells(
    per_s: float, depth_s: float, phase_s: float, headers: Headers, processes: int
) -> None:
    """Everybody waited until what was sent first was a whole length old: up to 2.8 times the time."""
    habits = Habits(per_s, depth_s, "fixed", headers, "absent", phase_s=phase_s)

    held(habits, processes=processes, most_wall=1.10)


def test_the_end_of_one_window_and_the_next_are_not_taken_for_a_longer_one() -> None:
    """616 of 400 in ten seconds: 15 seconds were believed, and 222 refused."""
    held(Habits(40.0, 10.0, "fixed", "minute", "absent", phase_s=9.5), processes=4, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("resets", ["whole", "date"])
@pytest.mark.parametrize("per_s", [24.0, 40.0, 60.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_a_quarter_of_a_second_that_is_told_as_a_whole_one_is_found_out(
    counting: Counting, per_s: float, resets: Resets, processes: int
) -> None:
    """It was believed to be one: four times the time."""
    habits = Habits(per_s, 0.25, counting, "window", resets=resets)

    held(habits, processes=processes, most_wall=1.25)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("resets", ["whole", "date"])
@pytest.mark.parametrize("per_s", [5.0, 9.0, 15.0, 40.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_a_second_that_is_told_as_a_whole_one_is_not_taken_for_less(
    counting: Counting, per_s: float, resets: Resets, processes: int
) -> None:
    """Little is used of a bucket into which as much flows as is taken."""
    habits = Habits(per_s, 1.0, counting, "window", resets=resets)

    held(habits, processes=processes, most_wall=1.10)


def test_a_window_is_known_by_its_headers_also_where_answers_take_longer_than_it() -> None:
    """Its rate was taken for the least that its headers may mean: 4.8 times the time."""
    held(Habits(5.0, 1.0, "fixed", "window", latency_s=3.0), processes=1, most_wall=1.15)


def test_a_shorter_time_that_was_seen_by_mistake_is_given_up_again() -> None:
    """115 of 792 were refused: the shortest was refuted, and the one before it was believed for ever."""
    habits = Habits(22.0, 1.0, "bucket", "window", "exact", resets="date", seed=28)

    held(habits, processes=4, most_wall=1.10)


def test_calls_that_ask_whether_a_window_is_over_slow_nobody_down_when_it_is() -> None:
    """Their refusals counted as if calls were too fast: twice the time."""
    held(Habits(110 / 60, 60.0, "sliding", "bucket", "absent"), processes=1, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("resets", ["exact", "whole"])
@pytest.mark.parametrize("per_s", [1.0, 2.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_one_call_a_second_is_not_taken_for_one_a_minute(
    counting: Counting, per_s: float, resets: Resets, processes: int
) -> None:
    """Nothing remains after each, as where a minute's bucket is shallow: sixty times the time."""
    habits = Habits(per_s, 1.0, counting, "window", resets=resets)

    held(habits, processes=processes, most_wall=1.10)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("retry_after", ["exact", "whole"])
@pytest.mark.parametrize("headers", ["minute", "bucket"])
@pytest.mark.parametrize("counting", ["fixed", "sliding"])
def test_refusals_cease_where_fewer_whole_calls_fit_into_a_second_than_are_stated(
    counting: Counting, headers: Headers, retry_after: RetryAfter, processes: int
) -> None:
    """A hundred a minute, counted as one a second: it was refused 172 times for 60 calls."""
    habits = Habits(100 / 60, 1.0, counting, headers, retry_after)

    ended_s = run_in_virtual_time(
        paced(habits, Limits(), calls=120, processes=processes, window=50 // processes)
    )

    assert habits.refused <= 20
    assert ended_s <= 1.20 * ideal_s(habits, 120, 50)


@pytest.mark.parametrize("headers", ["minute", "bucket"])
@pytest.mark.parametrize("depth_s", [1.0, 10.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_the_same_for_tokens(counting: Counting, depth_s: float, headers: Headers) -> None:
    habits = Habits(20_000.0, depth_s, counting, headers=headers, dimension="input_tokens", size=500.0)

    held(habits, processes=1, most_wall=1.10)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.10])
@pytest.mark.parametrize("headers", ["absent", "minute"])
@pytest.mark.parametrize(("calls", "processes"), [(200, 1), (200, 4), (1000, 1), (1000, 4), (3000, 1)])
def test_refusals_at_random_cost_little_more_than_their_retries(
    share: float, headers: Headers, calls: int, processes: int
) -> None:
    assert slowed_by_chance(headers, share, calls=calls, processes=processes) <= 1.5


def test_what_was_learnt_from_refusals_at_random_holds_nobody_back_once_the_provider_is_well() -> None:
    async def main() -> float:
        state = MemoryState(now_s=asyncio.get_running_loop().time)
        habits = Habits(headers="absent", random_share=0.1, is_limited=False)
        await paced(habits, Limits(), calls=1000, states=[state])
        habits.random_share = 0.0
        return await paced(habits, Limits(), calls=30, states=[state])

    assert run_in_virtual_time(main()) < 1.5


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ([(20, 19, 0.05), (20, 15, 0.25)], 1.0),
        ([(400, 399, 0.025), (400, 380, 0.5)], 10.0),
        ([(2400, 2399, 0.025), (2400, 2300, 2.5)], 60.0),
        ([(2400, 39, 0.025), (2400, 20, 0.5)], 60.0),
        ([(20, 19, None), (20, 15, None)], 60.0),
        ([(20, 19, 0.9), (20, 12, 0.85), (20, 10, 0.8)], 1.0),
        ([(1200, 1199, 2.0), (1200, 1180, 2.0), (1200, 1100, 6.0)], 60.0),
        ([(200, 150, 4.0), (200, 100, 7.0)], 10.0),
        ([(1, 0, 0.98)], 1.0),
        ([(2, 1, 1.0), (2, 0, 1.0)], 1.0),
    ],
    ids=[
        "a second",
        "ten",
        "a minute",
        "a shallow bucket",
        "no reset",
        "a window of a second",
        "a minute in whole seconds",
        "ten in whole seconds",
        "one a second",
        "two in one second or two",
    ],
)
def test_the_time_of_a_limit_is_what_was_used_over_what_it_takes_to_come_back(
    said: list[tuple[float, float, float | None]], seconds: float
) -> None:
    period = Period()

    for limit, remaining, full_in_s in said:
        is_dated = full_in_s is not None and full_in_s.is_integer()
        period.learn(Stated(limit, remaining, 0.0, full_in_s, is_dated), 0.0, 0.0)

    assert period.seconds() == pytest.approx(seconds, rel=0.2)


def test_a_date_that_is_cut_to_whole_seconds_makes_no_limit_longer() -> None:
    period = Period()

    for remaining, full_in_s in ((19, 1.92), (12, 1.35), (3, 1.02), (0, 1.61), (0, 1.24)):
        period.learn(Stated(20, remaining, 0.0, full_in_s, is_dated=True), 0.0, 0.0)

    assert period.seconds() == 1.0


def test_a_time_that_is_told_when_the_answer_leaves_makes_no_window_of_a_bucket() -> None:
    """One of 600 a minute is there again in 100 ms: 50 ms later that is 50, and 50 more after it."""
    period = Period()

    for sent_at_s, full_in_s in ((0.0, 0.05), (1.0, 0.1)):
        period.learn(Stated(600, 599, 0.0, full_in_s), sent_at_s, sent_at_s + 0.06)

    assert (period.seconds(), period.is_told_window()) == (60.0, False)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("retry_after", ["whole", "absent"])
@pytest.mark.parametrize("depth_s", [0.25, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_where_nothing_is_stated_few_are_refused_however_the_provider_counts(
    counting: Counting, depth_s: float, retry_after: RetryAfter, processes: int
) -> None:
    habits = Habits(depth_s=depth_s, counting=counting, headers="absent", retry_after=retry_after)

    held(habits, processes=processes, most_wall=1.20)


@pytest.mark.parametrize("phase_s", [0.3, 0.55])
@pytest.mark.parametrize("per_s", [10.0, 20.0, 60.0])
def test_a_second_by_the_providers_clock_is_found_out_by_filling_one(per_s: float, phase_s: float) -> None:
    """It was searched for as a rate: 1.9 times the time, and 17 of 720 refused."""
    habits = Habits(per_s, 1.0, "fixed", "absent", "absent", phase_s=phase_s)

    held(habits, processes=1, most_wall=1.20)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("phase_s", [3.0, 5.5, 8.0])
@pytest.mark.parametrize("per_s", [20.0, 40.0])
def test_ten_seconds_by_the_providers_clock_are_found_out_without_any_word(
    per_s: float, phase_s: float, processes: int
) -> None:
    habits = Habits(per_s, 10.0, "fixed", "absent", "absent", phase_s=phase_s)

    held(habits, processes=processes, most_wall=1.20)


@pytest.mark.parametrize(
    ("habits", "processes"),
    [
        (Habits(10.0, 1.0, "fixed", "absent", "absent", phase_s=0.81, latency_s=0.5), 1),
        (Habits(32.0, 1.0, "fixed", "absent", "absent", phase_s=0.51, latency_s=0.5), 1),
        (Habits(11.0, 1.0, "fixed", "absent", "exact", phase_s=0.04, latency_s=0.05), 1),
        (Habits(37.0, 1.0, "fixed", "absent", "whole", phase_s=0.36, latency_s=0.5), 4),
        (Habits(40.0, 0.25, "sliding", "absent", "exact"), 1),
        (Habits(15.0, 1.0, "fixed", "absent", "date", phase_s=0.79, latency_s=0.5), 4),
        (Habits(13.5, 2.0, "fixed", "absent", "exact", phase_s=0.3), 4),
        (Habits(41.0, 2.0, "fixed", "absent", "exact", phase_s=0.56, latency_s=0.05), 4),
        (Habits(35.0, 2.0, "fixed", "absent", "exact", phase_s=1.1, latency_s=0.05), 1),
        (Habits(4.2, 5.0, "fixed", "absent", "date", phase_s=1.28, latency_s=0.2), 4),
        (Habits(3.5, 10.0, "fixed", "absent", "exact", phase_s=9.3), 1),
        (Habits(3.1, 10.0, "fixed", "absent", "whole", phase_s=6.18), 4),
        (Habits(22.0, 1.0, "sliding", "absent", "date", latency_s=0.5), 1),
        (Habits(11.0, 5.0, "sliding", "absent", "absent", latency_s=0.5), 1),
        (Habits(8.5, 2.0, "bucket", "absent", "whole", latency_s=0.05), 1),
        (Habits(17.0, 1.0, "bucket", "absent", "exact"), 4),
    ],
    ids=lambda value: (
        f"{value.per_s:g}/s {value.counting} {value.depth_s:g}s phase {value.phase_s:g}"
        if isinstance(value, Habits)
        else None
    ),
)
def test_all_that_was_served_and_refused_tells_how_a_provider_counts_that_states_nothing(
    habits: Habits, processes: int
) -> None:
    """Twice to 29 times the time: a window of twice the length was believed, and nothing refused it."""
    held(copy.deepcopy(habits), processes=processes, most_wall=1.20)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("depth_s", [1.0, 10.0])
@pytest.mark.parametrize("counting", COUNTINGS)
def test_which_of_the_calls_arrives_first_does_not_matter(
    counting: Counting, depth_s: float, seed: int
) -> None:
    habits = Habits(depth_s=depth_s, counting=counting, headers="absent", seed=seed)

    held(habits, processes=1, most_wall=1.20)


def test_refusals_that_cease_at_a_slower_pace_were_about_pace() -> None:
    """One of four was refused while calls kept pace with what flows in, as if by chance."""
    habits = Habits(depth_s=0.25, headers="absent", seed=3)

    run_in_virtual_time(paced(habits, Limits(), calls=1410, window=50))

    assert habits.refused <= 24  # it was 108: all went out at once again


def test_what_went_out_before_refusals_seemed_to_be_chance_is_in_the_window_that_is_found_later() -> None:
    """It was one call in ten seconds by then: a run of a minute took an hour and a half."""
    habits = Habits(25.0, 60.0, "sliding", "absent", "absent", latency_s=0.5, seed=778)

    held(habits, processes=4, most_wall=1.20)


@pytest.mark.parametrize("per_s", [1.0, 5.0])
@pytest.mark.parametrize("counting", ["fixed", "sliding"])
def test_a_few_calls_in_a_minute_are_found_out_without_any_word(counting: Counting, per_s: float) -> None:
    habits = Habits(per_s, 60.0, counting, headers="absent", retry_after="absent")

    held(habits, processes=1, most_wall=1.20)


@pytest.mark.parametrize("counting", ["fixed", "sliding"])
def test_what_was_served_while_calls_became_faster_is_not_taken_for_the_rate(counting: Counting) -> None:
    habits = Habits(40.0, 0.25, counting, headers="absent", retry_after="exact")

    held(habits, processes=1, most_wall=1.20)


@pytest.mark.parametrize("counting", ["fixed", "sliding"])
@pytest.mark.parametrize("per_s", [1.0, 5.0])
def test_a_few_calls_in_ten_seconds_are_found_out_too(per_s: float, counting: Counting) -> None:
    held(Habits(per_s, 10.0, counting, headers="absent"), processes=1, most_wall=1.20)


@pytest.mark.parametrize("counting", ["fixed", "sliding"])
def test_a_window_holds_also_what_processes_sent_that_ended_before_it_was_full(counting: Counting) -> None:
    held(Habits(2.0, 10.0, counting, headers="absent"), processes=4, most_wall=1.20)


@pytest.mark.parametrize(
    "habits",
    [
        Habits(1.0, 10.0, headers="absent"),
        Habits(2.0, 10.0, headers="absent", retry_after="exact"),
        Habits(5.0, 1.0, headers="absent"),
        Habits(16.7, 10.0, "sliding", headers="absent", retry_after="exact"),
        Habits(5.0, 10.0, "sliding", headers="absent", retry_after="date"),
        Habits(5.0, 1.0, "sliding", headers="bucket", retry_after="exact"),
        Habits(1.0, 60.0, headers="absent", retry_after="date"),
        Habits(40.0, 1.0, "sliding", headers="absent", retry_after="date"),
        Habits(3.0, 10.0, headers="absent"),
        Habits(5.0, 60.0, headers="absent"),
        Habits(2.0, 60.0, "fixed", headers="absent", retry_after="absent"),
        Habits(2.0, 10.0, "sliding", headers="absent", retry_after="absent"),
    ],
    ids=lambda habits: f"{habits.per_s:g}/s in {habits.depth_s:g} s, {habits.counting}, {habits.retry_after}",
)
def test_slow_limits_are_found_out_with_as_few_refusals(habits: Habits) -> None:
    held(habits, processes=1, most_wall=1.20 if habits.headers == "absent" else 1.10)


@pytest.mark.parametrize(
    "habits",
    [
        Habits(5.0, 1.0, "fixed", headers="absent", latency_s=3.0),
        Habits(40.0, 1.0, "sliding", headers="absent", latency_s=1.0),
        Habits(40.0, 10.0, "sliding", headers="absent", latency_s=1.0),
    ],
    ids=lambda habits: f"{habits.per_s:g}/s in {habits.depth_s:g} s, {habits.latency_s:g} s each",
)
def test_windows_are_found_out_too_where_answers_take_seconds(habits: Habits) -> None:
    """Most of a window is over when it is full, and the first calls went long before the others."""
    held(habits, processes=1, most_wall=1.20)


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("headers", ["minute", "bucket"])
@pytest.mark.parametrize("slowest_s", [1.0, 10.0])
def test_a_stated_bucket_is_used_up_where_answers_take_long(
    slowest_s: float, headers: Headers, processes: int
) -> None:
    habits = Habits(5.0, 10.0, headers=headers, latency_s=0.5, slowest_s=slowest_s)

    held(habits, processes=processes, most_wall=1.10)


@pytest.mark.parametrize("headers", ["minute", "bucket", "window"])
def test_four_processes_find_out_a_minute_that_slides_where_answers_take_seconds(headers: Headers) -> None:
    """144 of 3,800 were refused: a `retry-after` of 15 seconds was not taken for the end of a window."""
    habits = Habits(40.0, 60.0, "sliding", headers, latency_s=3.0)

    held(habits, processes=4, most_wall=1.10)

    assert habits.refused <= 10


@pytest.mark.parametrize(
    ("habits", "processes"),
    [
        (Habits(5.0, 10.0, "fixed", "minute", latency_s=3.0), 4),
        (Habits(5.0, 10.0, "sliding", "minute", latency_s=3.0), 4),
        (Habits(1.0, 10.0, "sliding", "bucket", latency_s=3.0), 4),
        (Habits(1.0, 10.0, "sliding", "minute", latency_s=1.0), 4),
        (Habits(1.0, 10.0, "fixed", "window", latency_s=3.0), 1),
        (Habits(40.0, 10.0, "sliding", "bucket", latency_s=1.0), 1),
    ],
    ids=lambda each: f"{each.per_s:g}/s, {each.counting}, {each.headers}" if isinstance(each, Habits) else "",
)
def test_ten_seconds_are_found_out_where_answers_take_seconds(habits: Habits, processes: int) -> None:
    """What went out before the first answer counts in a window, and was counted in none (1.10 to 1.25)."""
    held(habits, processes=processes, most_wall=1.10)


def test_calls_that_wait_for_others_go_at_once_where_there_are_none() -> None:
    """They were booked at a twentieth of the rate, for five seconds later."""
    held(Habits(40.0, 60.0, "bucket", "minute", latency_s=1.0), processes=1, most_wall=1.06)


def test_headers_that_count_a_minute_while_a_bucket_fills_are_tried_as_soon_as_nothing_remains() -> None:
    """At a twentieth of the rate, eight answers that said so took twenty seconds (1.42 times the time)."""
    habits = Habits(40.0, 60.0, "bucket", "minute", latency_s=0.5, slowest_s=10.0)

    held(habits, processes=4, most_wall=1.10)


def test_who_has_few_calls_at_once_is_not_expected_to_use_up_a_limit() -> None:
    assert ideal_s(Habits(40.0, latency_s=3.0), calls=100, slots=50) == pytest.approx(6.25, abs=0.01)
    assert ideal_s(Habits(40.0, latency_s=3.0), calls=100, slots=200) == pytest.approx(1.5 + 3.0, abs=0.01)


@pytest.mark.parametrize("counting", ["fixed", "sliding"])
def test_what_processes_sent_that_ended_before_a_window_was_found_is_found_out_too(
    counting: Counting,
) -> None:
    held(Habits(1.0, 10.0, counting, headers="absent"), processes=4, most_wall=1.20)


def tokens(calls_per_s: float, depth_s: float, counting: Counting, headers: Headers) -> Habits:
    return Habits(500.0 * calls_per_s, depth_s, counting, headers, dimension="input_tokens", size=500.0)


@pytest.mark.parametrize(
    "habits",
    [
        Habits(5.0, 1.0, "fixed", "bucket"),
        Habits(5.0, 1.0, "sliding", "bucket"),
        tokens(5.0, 1.0, "sliding", "window"),
        tokens(10.0, 1.0, "sliding", "bucket"),
        Habits(2.0, 10.0, "bucket", "bucket"),
        Habits(2.0, 10.0, "sliding", "window"),
        Habits(15.0, 0.5, "sliding", "bucket", "exact"),
        tokens(7.0, 2.0, "fixed", "minute"),
        tokens(16.7, 0.25, "fixed", "window"),
        Habits(10.0, 1.0, "fixed", "minute"),
    ],
    ids=lambda habits: f"{habits.per_s:g}/s in {habits.depth_s:g} s, {habits.counting}, {habits.headers}",
)
def test_four_processes_find_out_slow_stated_limits(habits: Habits) -> None:
    """Each has booked a call ahead when a window is found, and tells late what earlier answers said."""
    held(habits, processes=4, most_wall=1.10)


def test_a_window_of_tokens_is_counted_in_whole_calls() -> None:
    held(tokens(10.0, 0.5, "sliding", "bucket"), processes=1, most_wall=1.10)


def test_a_refusal_that_shows_a_window_does_not_refute_it() -> None:
    habits = Habits(1800.0, 1.0, "sliding", "window", "exact", dimension="tokens", size=120.0)
    habits.latency_s = 0.3

    held(habits, processes=1, most_wall=1.10)


@pytest.mark.parametrize("headers", ["bucket", "window"])
def test_a_date_in_whole_seconds_asks_for_no_longer_pause_than_a_full_window(headers: Headers) -> None:
    held(Habits(16.7, 1.0, "sliding", headers, "date"), processes=1, most_wall=1.10)


@pytest.mark.parametrize("depth_s", [0.25, 1.0])
def test_a_window_that_slides_is_found_out_where_honest_headers_make_it_seem_shared(depth_s: float) -> None:
    """What remains of it does not rise while calls go on evenly, as where others take what flows in."""
    habits = Habits(200.0, depth_s, "sliding", headers="bucket")

    ended_s = run_in_virtual_time(paced(habits, Limits(), calls=3000))

    assert ended_s <= 1.25 * ideal_s(habits, 3000, 50)
    assert habits.refused <= 30


@pytest.mark.parametrize("headers", ["minute", "absent"])
def test_a_window_is_forgotten_when_nothing_was_refused_for_long(headers: Headers) -> None:
    """A limit that has risen meanwhile is used again."""
    habits = Habits(depth_s=10.0, counting="fixed", headers=headers)

    async def twice() -> tuple[ScopeState, ScopeState]:
        state = MemoryState(now_s=asyncio.get_running_loop().time)
        await paced(habits, Limits(), calls=1800, states=[state])
        counted = copy.deepcopy(await state.peek(CALL.scope))
        await asyncio.sleep(700.0)
        habits.is_limited = False
        await paced(habits, Limits(), calls=100, states=[state])
        return counted, await state.peek(CALL.scope)

    counted, later = run_in_virtual_time(twice())

    assert counted.buckets["requests"].window is not None
    assert later.buckets["requests"].window is None
    assert later.learnt is None or not later.learnt.is_settled
