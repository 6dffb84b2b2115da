"""The arithmetic of booking: by tables, and against a provider's true buckets in simulated time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalve.gate.limits.answers import observe
from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.bucket import Bucket, Sent
from evalve.gate.limits.plain_state import from_plain, to_plain
from evalve.gate.limits.refusals import penalise
from evalve.gate.limits.state import Refusal, Settlement, apply
from evalve.gate.messages import Cost, Dimension, Limit, Limits, Stated

LATER_S = 1000.0
"""When every bucket is long full."""


def a_bucket(**changes: Any) -> Bucket:
    """Ten a second, a hundred deep; 2.5 of it are left alone."""
    return Bucket(**{"per_s": 10.0, "depth": 100.0, **changes})


def a_state(**per_minute_and_burst: tuple[float, float]) -> tuple[ScopeState, Limits]:
    limits = Limits({name: Limit(*both) for name, both in per_minute_and_burst.items()})  # type: ignore[misc]
    state = ScopeState()
    state.hold(limits, 0.0)
    return state, limits


# -- one bucket


@pytest.mark.parametrize(
    ("full_at_s", "now_s", "level"),
    [
        (0.0, 0.0, 100.0),
        (0.0, 50.0, 100.0),
        (4.0, 0.0, 60.0),
        (4.0, 3.0, 90.0),
        (10.0, 0.0, 0.0),
        (12.0, 0.0, -20.0),
    ],
)
def test_the_level_rises_at_the_rate_until_the_bucket_is_full(
    full_at_s: float, now_s: float, level: float
) -> None:
    assert a_bucket(full_at_s=full_at_s).level(now_s) == pytest.approx(level)


@pytest.mark.parametrize(
    ("cost", "earliest_s"),
    [
        (97.5, 20.0),  # all but the reserve
        (100.0, 20.0),  # never more than that is waited for
        (5000.0, 20.0),
        (50.0, 15.25),
        (0.0, 10.25),
    ],
)
def test_a_cost_fits_as_soon_as_the_bucket_holds_it_and_one_that_never_fits_when_it_is_full(
    cost: float, earliest_s: float
) -> None:
    assert a_bucket(full_at_s=20.0).earliest_s(cost) == pytest.approx(earliest_s)


def test_what_is_taken_counts_from_the_start_instant_and_not_from_the_asking() -> None:
    idle, busy = a_bucket(full_at_s=2.0), a_bucket(full_at_s=9.0)

    idle.take(50.0, start_s=7.0)
    busy.take(50.0, start_s=7.0)

    assert (idle.full_at_s, busy.full_at_s) == (12.0, 14.0)


def test_what_is_given_back_is_there_again_and_what_was_missing_is_taken() -> None:
    bucket = a_bucket(full_at_s=10.0)

    bucket.give_back(30.0, 0.0)
    assert bucket.level(0.0) == pytest.approx(30.0)

    bucket.give_back(-130.0, 0.0)
    assert bucket.level(0.0) == pytest.approx(-100.0)


def test_another_rate_and_depth_keep_what_has_been_taken() -> None:
    bucket = a_bucket(full_at_s=6.0)

    bucket.reshape(20.0, 500.0, now_s=0.0)

    assert bucket.level(0.0) == pytest.approx(440.0)
    assert bucket.full_at_s == pytest.approx(3.0)


def test_a_full_bucket_stays_full_when_it_becomes_deeper() -> None:
    bucket = a_bucket(full_at_s=6.0)

    bucket.reshape(20.0, 500.0, now_s=100.0)

    assert bucket.level(100.0) == pytest.approx(500.0)


def test_others_share_slows_the_refill_and_never_stops_it() -> None:
    assert a_bucket(others_per_s=4.0).rate() == pytest.approx(6.0)
    assert a_bucket(others_per_s=10.0).rate() == pytest.approx(0.5)


# -- headers


def test_a_lower_remaining_is_believed_at_once_and_may_be_one_more_that_was_cut_off() -> None:
    bucket = a_bucket()

    bucket.compare(Stated(remaining=12.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(13.0)


def test_where_others_use_the_key_a_remaining_is_believed_as_it_stands() -> None:
    bucket = a_bucket(others_per_s=3.0)

    bucket.compare(Stated(remaining=12.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(12.0)


@pytest.mark.parametrize("remaining", [40.0, 59.0])
def test_a_remaining_may_be_that_of_the_start_or_of_the_end_of_its_call(remaining: float) -> None:
    bucket = a_bucket()
    bucket.set_level(40.0, LATER_S)
    bucket.seen_at_s = LATER_S

    # two seconds ago, nothing was sent since, and the bucket has gained twenty
    bucket.compare(Stated(remaining=remaining), 0.0, now_s=LATER_S + 2, sent=Sent(LATER_S, 0.0))

    assert bucket.level(LATER_S + 2) == pytest.approx(60.0)
    assert bucket.others_per_s == 0.0


def test_what_was_sent_after_or_just_before_a_call_may_be_missing_from_its_remaining() -> None:
    bucket = a_bucket(taken=70.0)
    bucket.set_level(10.0, LATER_S)

    # it was the thirtieth of fifty that were sent at once; twenty more have been sent since
    bucket.compare(Stated(remaining=80.0), 0.0, now_s=LATER_S, sent=Sent(LATER_S - 1, 30.0, beside=29.0))

    assert bucket.level(LATER_S) == pytest.approx(11.0)


def test_a_call_that_is_refused_though_it_should_have_fitted_shows_others() -> None:
    bucket = a_bucket(seen_at_s=LATER_S - 1)
    bucket.set_level(5.0, LATER_S)

    bucket.compare(Stated(remaining=0.0), 0.0, now_s=LATER_S, sent=Sent(LATER_S, 0.0, refused=1.0))

    assert bucket.others_per_s == pytest.approx(1.5)
    assert bucket.level(LATER_S) == pytest.approx(0.0)


def test_others_are_forgotten_while_nothing_is_missing() -> None:
    bucket = a_bucket(others_per_s=3.0, seen_at_s=LATER_S)
    bucket.set_level(50.0, LATER_S + 60)
    bucket.take(10.0, LATER_S + 60)

    bucket.compare(Stated(remaining=45.0), 0.0, now_s=LATER_S + 60)

    assert bucket.others_per_s == pytest.approx(1.82, abs=0.01)


@pytest.mark.parametrize(
    ("cost", "after_full_s"),
    [
        (200.0, 0.25),  # never more than the reserve of others
        (100.0, 0.25),
        (99.0, 0.15),  # what it leaves is reserve already
        (97.0, 0.0),
    ],
)
def test_a_cost_that_leaves_no_reserve_comes_a_little_after_the_bucket_is_full(
    cost: float, after_full_s: float
) -> None:
    bucket = a_bucket(full_at_s=LATER_S, seen_at_s=0.0)

    assert max(bucket.earliest_s(cost), LATER_S) == pytest.approx(LATER_S + after_full_s)


def test_when_a_limit_rises_the_level_stays_and_when_it_falls_it_is_cut() -> None:
    risen, fallen = a_bucket(full_at_s=6.0), a_bucket(full_at_s=6.0)

    risen.regrade(30.0, 300.0, now_s=0.0)
    fallen.regrade(1.0, 10.0, now_s=0.0)

    assert (risen.level(0.0), risen.level(1.0)) == pytest.approx((40.0, 70.0))
    assert fallen.level(0.0) == pytest.approx(10.0)


def test_a_rounded_remaining_is_believed_at_the_top_of_its_rounding() -> None:
    bucket = Bucket(per_s=1000.0, depth=60_000.0)

    bucket.compare(Stated(remaining=12_000.0, rounding=500.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(12_500.0)


@pytest.mark.parametrize(
    ("ours", "after"),
    [
        (80.0, 51.0),  # too high, even if all that is being written is charged
        (40.0, 40.0),  # it may be just right
        (15.0, 20.0),  # too low, even if nothing of it is
    ],
)
def test_of_output_that_is_being_written_any_part_may_be_charged(ours: float, after: float) -> None:
    bucket = a_bucket()
    bucket.set_level(ours, LATER_S)

    bucket.compare(Stated(remaining=50.0), 30.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(after)


def test_a_higher_remaining_raises_the_level_by_a_second_of_its_rate_at_most() -> None:
    bucket = a_bucket(full_at_s=LATER_S + 8.0)

    bucket.compare(Stated(remaining=90.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(30.0)


def test_a_remaining_within_its_rounding_changes_nothing() -> None:
    bucket = Bucket(per_s=10.0, depth=60_000.0, full_at_s=LATER_S + 1000.0)

    bucket.compare(Stated(remaining=50_400.0, rounding=500.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(50_000.0)


def test_a_remaining_above_the_depth_shows_how_deep_the_bucket_is() -> None:
    bucket = a_bucket()

    bucket.compare(Stated(remaining=600.0), 0.0, now_s=LATER_S)

    assert (bucket.depth, bucket.depth_known) == (600.0, True)
    assert bucket.level(LATER_S) == pytest.approx(600.0)


def test_headers_without_a_remaining_change_no_level() -> None:
    bucket = a_bucket(full_at_s=LATER_S + 3.0)

    bucket.compare(Stated(per_minute=600.0), 0.0, now_s=LATER_S)

    assert bucket.level(LATER_S) == pytest.approx(70.0)


# -- a scope


def test_the_latest_of_all_dimensions_sets_the_start_and_every_dimension_is_booked_for_it() -> None:
    state, limits = a_state(requests=(600, 100), input_tokens=(60_000, 1000))
    cost: Cost = {"requests": 1, "input_tokens": 1000}
    first, second = apply(state, limits, [], [cost, cost], holder="me", now_s=LATER_S, horizon_s=float("inf"))

    assert [first.start_s, second.start_s] == pytest.approx([LATER_S, LATER_S + 1.0])
    assert second.binding == "input_tokens"
    # a second after the first, the second finds the other bucket full again: one is missing then
    assert state.buckets["requests"].level(second.start_s) == pytest.approx(99.0)


def test_a_state_is_the_same_after_it_was_stored() -> None:
    state, limits = a_state(requests=(600, 100), output_tokens=(6000, 100))
    apply(state, limits, [], [{"requests": 1, "output_tokens": 50}], holder="1:2", now_s=5.0, horizon_s=0.0)
    observe(state, {"requests": Stated(per_minute=300, remaining=20)}, 6.0)
    penalise(state, "ramp", 2.0, 6.0, 7.0)
    penalise(state, "requests", 2.0, 6.0, 7.0)

    assert from_plain(to_plain(state)) == state


def test_after_a_restart_of_the_machine_the_limits_are_kept_and_the_levels_are_not() -> None:
    state = ScopeState()
    observe(state, {"requests": Stated(per_minute=600, remaining=0)}, 9000.0)
    penalise(state, None, 500.0, 9000.0, 9000.0)

    fresh = state.after_reboot()
    fresh.hold(Limits(), 3.0)

    assert fresh.buckets["requests"].per_s == 10.0
    assert fresh.book({"requests": 1}, "me", 3.0, not_after_s=float("inf")).start_s == 3.0


def test_of_a_configured_and_a_stated_limit_the_lower_holds() -> None:
    configured = Limits({"requests": Limit(600)})
    lower, higher = ScopeState(), ScopeState()
    observe(lower, {"requests": Stated(per_minute=300)}, 0.0)
    observe(higher, {"requests": Stated(per_minute=6000)}, 0.0)

    lower.hold(configured, 0.0)
    higher.hold(configured, 0.0)

    assert (lower.buckets["requests"].per_s, higher.buckets["requests"].per_s) == (5.0, 10.0)


def test_a_lower_stated_limit_that_nobody_repeats_is_forgotten() -> None:
    configured = Limits({"requests": Limit(600)})
    state = ScopeState()
    observe(state, {"requests": Stated(per_minute=300)}, 0.0)

    state.hold(configured, 599.0)
    before = state.buckets["requests"].per_s
    state.hold(configured, 601.0)

    assert (before, state.buckets["requests"].per_s) == (5.0, 10.0)


# -- against a provider


class TrueBuckets:
    """What a provider keeps: a level by dimension, read and lowered when a request arrives."""

    def __init__(self, rates: dict[Dimension, tuple[float, float]], *, others: float = 0.0) -> None:
        self._rates = rates
        self._levels = {name: depth for name, (_, depth) in rates.items()}
        self._at_s = 0.0
        self._others = others

    def arrives(self, cost: Cost, now_s: float) -> tuple[Dimension, float] | None:
        """`None` where it is admitted, else what was short and for how long."""
        levels = self.levels(now_s)
        for name, amount in cost.items():
            rate, depth = self._rates[name]
            short = min(amount, depth) - levels[name]
            if short > 1e-6:
                return name, short / (rate * (1 - self._others))
        for name, amount in cost.items():
            self._levels[name] -= amount
        return None

    def charge(self, name: Dimension, amount: float, now_s: float) -> None:
        self.levels(now_s)
        self._levels[name] -= amount

    def levels(self, now_s: float) -> dict[Dimension, float]:
        """Others take their share of every rate as it comes; what is full overflows for everybody."""
        passed_s, self._at_s = now_s - self._at_s, now_s
        for name, (rate, depth) in self._rates.items():
            self._levels[name] = min(depth, self._levels[name] + passed_s * rate * (1 - self._others))
        return dict(self._levels)


@dataclass(order=True)
class _Event:
    at_s: float
    number: int
    what: str = field(compare=False)
    process: str = field(compare=False)
    job: _Job | None = field(compare=False, default=None)


@dataclass
class _Job:
    cost: Cost
    actual: Cost
    version: int = 0
    start_s: float = 0.0
    sent: Mapping[Dimension, Sent] = field(default_factory=dict)
    is_retried: bool = False


@dataclass
class Outcome:
    answered: int = 0
    refused: int = 0
    last_start_s: float = 0.0
    last_answer_s: float = 0.0


class World:
    """Several processes on one shared state, each with one waiter at its head, and the provider.

    A process books for its head, sends it at its instant, and turns to the next; answers come later.
    """

    def __init__(
        self,
        limits: Limits,
        provider: TrueBuckets,
        jobs: list[_Job],
        *,
        processes: int,
        latency_s: float = 0.2,
        states: bool = False,
        delay_s: float = 0.0,
    ) -> None:
        self.state = ScopeState()
        self.outcome = Outcome()
        self._limits = limits
        self._provider = provider
        self._jobs = list(reversed(jobs))
        self._latency_s = latency_s
        self._states = states
        self._delays = random.Random(7)
        self._delay_s = delay_s
        self._events: list[_Event] = []
        self._numbers = itertools.count()
        for number in range(processes):
            self.at(0.0, "ask", f"process {number}")

    def at(self, at_s: float, what: str, process: str, job: _Job | None = None) -> None:
        heapq.heappush(self._events, _Event(at_s, next(self._numbers), what, process, job))

    def run(self) -> Outcome:
        while self._events:
            event = heapq.heappop(self._events)
            getattr(self, f"_{event.what}")(event)
        return self.outcome

    def _apply(self, event: _Event, settlements: list[Settlement], costs: list[Cost]) -> Any:
        return apply(
            self.state,
            self._limits,
            settlements,
            costs,
            holder=event.process,
            now_s=event.at_s,
            horizon_s=0.0,
        )

    def _ask(self, event: _Event) -> None:
        if event.job is None and not self._jobs:
            return
        job = event.job or self._jobs.pop()
        (booking,) = self._apply(event, [], [job.cost])
        job.version, job.start_s, job.sent = booking.version, booking.start_s, booking.sent
        self.at(booking.start_s, "wake", event.process, job)

    def _wake(self, event: _Event) -> None:
        assert event.job is not None
        if self.state.version != event.job.version:
            self._apply(
                event, [Settlement(event.job.cost, {}, event.job.start_s, version=event.job.version)], []
            )
            self._ask(event)
            return
        self.outcome.last_start_s = event.at_s
        self.at(event.at_s + self._delays.uniform(0, self._delay_s), "arrive", event.process, event.job)
        if not event.job.is_retried:
            self.at(event.at_s, "ask", event.process)

    def _arrive(self, event: _Event) -> None:
        assert event.job is not None
        refused = self._provider.arrives(event.job.actual, event.at_s)
        if refused is None:
            self.at(event.at_s + self._latency_s, "answer", event.process, event.job)
            return
        self.outcome.refused += 1
        dimension, retry_after_s = refused
        refusal = Refusal(dimension, retry_after_s)
        settlement = Settlement(
            event.job.cost,
            {"requests": 1},
            event.job.start_s,
            self._stated(event),
            True,
            refusal,
            event.job.version,
            event.job.sent,
        )
        self._apply(event, [settlement], [])
        event.job.is_retried = True
        self.at(event.at_s + retry_after_s, "ask", event.process, event.job)

    def _answer(self, event: _Event) -> None:
        assert event.job is not None
        self.outcome.answered += 1
        self.outcome.last_answer_s = event.at_s
        settlement = Settlement(
            event.job.cost,
            event.job.actual,
            event.job.start_s,
            self._stated(event),
            True,
            None,
            event.job.version,
        )
        self._apply(event, [settlement], [])

    def _pause(self, event: _Event) -> None:
        penalise(self.state, None, 60.0, event.at_s, event.at_s)

    def _stated(self, event: _Event) -> dict[Dimension, Stated]:
        if not self._states:
            return {}
        levels = self._provider.levels(event.at_s)
        return {name: Stated(remaining=max(0.0, float(int(level)))) for name, level in levels.items()}


RATES: dict[Dimension, tuple[float, float]] = {
    "requests": (1000 / 60, 16.0),
    "input_tokens": (450_000 / 60, 75_000.0),
}
CONFIGURED = Limits({name: Limit(rate * 60, depth) for name, (rate, depth) in RATES.items()})


def large_among_small() -> list[_Job]:
    large: Cost = {"requests": 1, "input_tokens": 29_000}
    small: Cost = {"requests": 1, "input_tokens": 100}
    costs = [large] * 60 + [small] * 1500
    random.Random(1).shuffle(costs)
    return [_Job(cost, cost) for cost in costs]


@pytest.mark.parametrize("processes", [1, 4, 16])
@pytest.mark.parametrize("states", [False, True], ids=["without headers", "with headers"])
@pytest.mark.parametrize("delay_s", [0.0, 0.05])
def test_nothing_is_refused_when_large_and_small_calls_share_two_limits(
    processes: int, states: bool, delay_s: float
) -> None:
    provider = TrueBuckets(RATES)
    world = World(
        CONFIGURED, provider, large_among_small(), processes=processes, states=states, delay_s=delay_s
    )

    outcome = world.run()

    assert (outcome.refused, outcome.answered) == (0, 1560)
    # 1.89 million tokens at 7,500 a second, less a burst of at most 75,000
    assert outcome.last_start_s < (1_890_000 - 75_000) / 7_500 * 1.05


@pytest.mark.parametrize("processes", [1, 4, 16])
@pytest.mark.parametrize("states", [False, True], ids=["without headers", "with headers"])
def test_nothing_is_refused_after_a_pause_that_everybody_had_booked_into(
    processes: int, states: bool
) -> None:
    provider = TrueBuckets(RATES)
    world = World(CONFIGURED, provider, large_among_small(), processes=processes, states=states)
    world.at(40.0, "pause", "the provider")

    outcome = world.run()

    assert (outcome.refused, outcome.answered) == (0, 1560)
    assert outcome.last_start_s < (1_890_000 - 75_000) / 7_500 * 1.05 + 60.0


def evenly(count: int, cost: Cost) -> Iterator[_Job]:
    return (_Job(cost, cost) for _ in range(count))


@pytest.mark.parametrize("processes", [1, 4, 16])
@pytest.mark.parametrize("depth_s", [1.0, 60.0])
def test_another_user_of_the_key_is_noticed_and_left_room(processes: int, depth_s: float) -> None:
    rates: dict[Dimension, tuple[float, float]] = {"requests": (40.0, 40.0 * depth_s)}
    limits = Limits({"requests": Limit(2400, 40.0 * depth_s)})
    provider = TrueBuckets(rates, others=0.3)
    jobs = list(evenly(6000, {"requests": 1}))
    world = World(limits, provider, jobs, processes=processes, states=True, delay_s=0.005)

    outcome = world.run()

    left_for_us = 40.0 * depth_s + 0.7 * 40.0 * outcome.last_start_s
    assert outcome.answered == 6000
    assert outcome.refused < 60
    assert 6000 / left_for_us >= 0.9


@pytest.mark.parametrize("delay_s", [0.005, 0.1])
def test_nobody_is_refused_while_true_headers_come_with_every_answer(delay_s: float) -> None:
    rates: dict[Dimension, tuple[float, float]] = {"requests": (40.0, 40.0)}
    jobs = list(evenly(3000, {"requests": 1}))
    world = World(
        Limits({"requests": Limit(2400, 40)}),
        TrueBuckets(rates),
        jobs,
        processes=4,
        states=True,
        delay_s=delay_s,
    )

    outcome = world.run()

    assert (outcome.refused, outcome.answered) == (0, 3000)
    assert outcome.last_start_s < (3000 - 40) / 40 * 1.03


class WritingWorld(World):
    """Output is charged while it is written, a tenth at a time, and any room at all lets a call start."""

    def _arrive(self, event: _Event) -> None:
        assert event.job is not None
        self.outcome.refused += self._provider.levels(event.at_s)["output_tokens"] < 1
        for tenth in range(1, 11):
            at_s = event.at_s + self._latency_s * tenth / 10 - 1e-6
            self.at(at_s, "charge", event.process, event.job)
        self.at(event.at_s + self._latency_s, "answer", event.process, event.job)

    def _charge(self, event: _Event) -> None:
        assert event.job is not None
        self._provider.charge("output_tokens", event.job.actual["output_tokens"] / 10, event.at_s)


@pytest.mark.parametrize("depth_s", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("latency_s", [0.2, 5.0, 30.0])
def test_long_answers_are_neither_refused_nor_held_back_by_what_is_being_written(
    latency_s: float, depth_s: float
) -> None:
    depth = 1000.0 * depth_s
    jobs = list(evenly(1000, {"output_tokens": 200}))
    world = WritingWorld(
        Limits({"output_tokens": Limit(60_000, depth)}),
        TrueBuckets({"output_tokens": (1000.0, depth)}),
        jobs,
        processes=4,
        states=True,
        latency_s=latency_s,
        delay_s=0.005,
    )

    outcome = world.run()

    ideal_s = (200_000 - depth) / 1000 + latency_s
    assert outcome.refused == 0
    assert outcome.last_answer_s < 1.12 * ideal_s


def test_what_refused_calls_give_back_does_not_start_a_herd() -> None:
    state, limits = a_state(input_tokens=(60_000, 1000))
    cost: Cost = {"input_tokens": 100}
    sent = apply(state, limits, [], [cost] * 5, holder="me", now_s=LATER_S, horizon_s=0.0)
    refusal = Refusal("input_tokens", 10.0)
    settlements = [Settlement(cost, {}, one.start_s, {}, True, refusal, version=one.version) for one in sent]

    bookings = apply(
        state, limits, settlements, [cost] * 3, holder="me", now_s=LATER_S + 1, horizon_s=float("inf")
    )

    starts = [one.start_s for one in bookings]
    # a token is there after ten seconds, a hundred a tenth of a second later
    assert starts == pytest.approx([LATER_S + 11.1, LATER_S + 11.2, LATER_S + 11.3], abs=0.002)


def test_what_a_penalty_has_not_touched_is_given_back_in_full() -> None:
    state, limits = a_state(requests=(60, 10), input_tokens=(60_000, 1000))
    cost: Cost = {"requests": 1, "input_tokens": 500}
    (sent,) = apply(state, limits, [], [cost], holder="me", now_s=LATER_S, horizon_s=0.0)
    refused = Settlement(
        cost,
        {"requests": 1},
        sent.start_s,
        {},
        True,
        Refusal("requests", 10.0),
        version=sent.version,
    )

    apply(state, limits, [refused], [], holder="me", now_s=LATER_S, horizon_s=0.0)

    assert state.buckets["input_tokens"].level(LATER_S) == pytest.approx(1000.0)
    assert state.buckets["requests"].level(LATER_S) < 0


def test_a_stated_limit_that_rises_widens_the_window_that_is_counted() -> None:
    bucket = a_bucket()
    bucket.count_in_windows(1.0, 0.0)

    bucket.regrade(2 * bucket.per_s, bucket.depth, 0.0)

    assert bucket.window is not None
    assert bucket.window.most == bucket.per_s * bucket.window.length_s


def a_bucket_of_which_was_sent(amount: float) -> Bucket:
    """One a second, a minute deep by what headers say; so much went out at the instant 0."""
    bucket = Bucket(1.0, 60.0, depth_known=True)
    for _ in range(int(amount)):
        bucket.take(1.0, 0.0)
    return bucket


def test_a_refusal_that_asks_for_longer_than_a_call_takes_to_flow_in_tells_a_window() -> None:
    bucket = a_bucket_of_which_was_sent(61)

    bucket.refuse(Sent(2.0, 61.0), 1.0, 58.0, 2.0, remaining=0.0)

    assert bucket.window is not None
    assert (bucket.window.length_s, bucket.window.most) == (60.0, 60.0)


def test_a_refusal_that_asks_for_long_tells_no_window_where_much_remains_and_little_was_sent() -> None:
    bucket = a_bucket_of_which_was_sent(11)

    bucket.refuse(Sent(2.0, 11.0), 1.0, 58.0, 2.0, remaining=49.0)

    assert bucket.window is None


def test_a_window_that_holds_just_what_was_sent_needs_no_word_when_it_ends() -> None:
    bucket = a_bucket_of_which_was_sent(61)

    bucket.refuse(Sent(30.0, 61.0), 1.0, 1.0, 30.0, remaining=0.0)

    assert bucket.window is not None
    assert bucket.window.length_s == 60.0


def test_a_window_is_as_long_as_the_limit_is_for_once_that_is_known() -> None:
    state = ScopeState()
    observe(state, {"requests": Stated(10.0, 9.0, 0.0, 9.99)}, 0.0)
    window = state.buckets["requests"].count_in_windows(60.0, 0.0)

    observe(state, {"requests": Stated(10.0, 6.0, 0.0, 9.5)}, 0.5)
    state.hold(Limits(), 0.5)

    assert window.length_s == pytest.approx(10.0)
    assert window.most == pytest.approx(10.0)


def test_a_window_is_told_also_by_calls_that_no_limit_held() -> None:
    """They were taken to be sent when their answers came, so that the end seemed to move."""
    state = ScopeState()
    for number, (sent_at_s, now_s) in enumerate([(0.0, 0.4), (0.1, 0.7), (0.2, 0.5)]):
        said = Stated(200.0, 199.0 - number, 0.0, 5.0 - sent_at_s)
        observe(state, {"requests": said}, now_s, sent_at_s=sent_at_s, was_held=False)

    assert state.periods["requests"].is_told_window()
