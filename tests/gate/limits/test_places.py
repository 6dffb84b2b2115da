"""Who has the next place under a ceiling: by tables, and several holders at random in simulated time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalve.gate.limits.booking import Booking, Holder, ScopeState
from evalve.gate.limits.places import LONGEST_BEFORE_ONE_MORE_S, OFFERED_FOR_S, Line, ShownCeiling, Wait
from evalve.gate.limits.plain_state import from_plain, to_plain
from evalve.gate.limits.state import Refusal, Settlement, apply
from evalve.gate.messages import Cost, Limits

ONE: Cost = {"requests": 1}
NOW_S = 100.0
EVENED_OUT_S = 5.0
"""All have begun, and the calls that were made before that have ended."""


def a_line(*names: str, ceiling: int = 4) -> Line:
    """Who waits longest is named first."""
    return Line({name: Wait(ceiling) for name in names})


# -- whose turn it is


@pytest.mark.parametrize(
    ("ceiling", "in_flight", "waiting", "whose"),
    [
        (4, {"a": 4}, ["a", "b"], []),
        (4, {"a": 3}, ["a", "b"], ["b"]),
        (4, {"a": 2, "b": 1}, ["a", "b"], ["b"]),
        (4, {"a": 1, "b": 2}, ["a", "b"], ["a"]),
        (4, {"a": 3}, ["a"], ["a"]),  # nobody else wants it, however many it has
        (4, {"a": 2}, ["a", "b"], ["b"]),  # both places: with them it has as many
        (4, {"a": 1}, ["a", "b"], ["a", "b"]),
        (4, {"a": 2, "b": 1}, ["a"], ["a"]),  # b has fewer, but has nothing to send
        (3, {"a": 1, "b": 1}, ["a", "b"], ["a"]),  # what cannot be divided: who waits longest
        (3, {"a": 1, "b": 1}, ["b", "a"], ["b"]),
        (1, {}, ["c", "a", "b"], ["c"]),
        (2, {}, ["c", "a", "b"], ["c", "a"]),
        (2, {"z": 3}, ["a", "b"], []),
    ],
)
def test_a_free_place_is_for_who_has_the_fewest_and_then_for_who_waits_longest(
    ceiling: int, in_flight: dict[str, int], waiting: list[str], whose: list[str]
) -> None:
    line = a_line(*waiting, ceiling=ceiling)

    assert line.offer(in_flight, NOW_S, but=None) == whose


def test_who_asks_just_now_comes_after_all_that_wait() -> None:
    line = a_line("z", ceiling=1)

    assert not line.leaves_one_for("a", 1, {})


def test_who_waits_under_a_lower_ceiling_of_its_own_keeps_no_place_from_others() -> None:
    line = Line({"careful": Wait(ceiling=2), "other": Wait(ceiling=4)})

    assert line.offer({"other": 2}, NOW_S, but=None) == ["other"]


def test_who_was_told_is_not_told_twice_and_who_asks_just_now_is_not_told() -> None:
    line = a_line("a", "b", "c")
    line.offer({"x": 3}, NOW_S, but=None)

    assert line.offer({"x": 1}, NOW_S, but="b") == ["c"]


def test_who_has_not_come_for_its_place_is_passed_over() -> None:
    line = a_line("stopped", "b", ceiling=1)
    line.offer({}, NOW_S, but=None)

    line.pass_over(NOW_S + OFFERED_FOR_S - 0.01, but="b")
    kept = line.leaves_one_for("b", 1, {})
    line.pass_over(NOW_S + OFFERED_FOR_S, but="b")
    free = line.leaves_one_for("b", 1, {})

    assert (kept, free) == (False, True)


def test_who_asks_again_keeps_its_turn() -> None:
    line = a_line("a", "b", ceiling=1)

    line.join("a", 1)

    assert line.offer({}, NOW_S, but=None) == ["a"]


# -- as part of a scope


def ask(state: ScopeState, holder: str, *settlements: Settlement, ceiling: int = 4) -> Booking:
    limits = Limits(concurrency=ceiling)
    (booking,) = apply(state, limits, settlements, [ONE], holder=holder, now_s=NOW_S, horizon_s=0.0)
    return booking


def ask_until_denied(state: ScopeState, holder: str) -> None:
    while ask(state, holder).granted:
        pass


def in_flight(state: ScopeState) -> dict[str, int]:
    return {name: held.in_flight for name, held in state.holders.items() if held.in_flight}


def test_who_has_all_places_hands_over_those_that_end_until_shares_are_even() -> None:
    state = ScopeState()
    ask_until_denied(state, "first")
    ask_until_denied(state, "second")
    shares = []

    for holder in ("first", "first", "first", "second", "first"):
        if ask(state, holder, Settlement(ONE, ONE, NOW_S)).granted:
            ask_until_denied(state, holder)
        for told in state.offer_places(NOW_S, but=holder):
            ask_until_denied(state, told)
        shares.append(in_flight(state))

    assert shares == [
        {"first": 3, "second": 1},
        {"first": 2, "second": 2},
        {"first": 2, "second": 2},
        {"first": 2, "second": 2},
        {"first": 2, "second": 2},
    ]


def test_who_is_granted_a_place_or_is_dead_waits_no_longer() -> None:
    state = ScopeState()
    for holder in ("a", "b", "c"):
        ask(state, holder, ceiling=1)

    state.forget_holder("a")
    state.forget_holder("b")
    assert ask(state, "c", ceiling=1).granted

    assert not state.line.waits


def test_while_a_place_is_kept_for_another_it_is_worth_asking_when_that_one_has_had_its_moment() -> None:
    state = ScopeState(holders={"busy": Holder(3)}, line=a_line("other"))

    booking = ask(state, "busy")

    assert (booking.granted, booking.start_s) == (False, NOW_S + OFFERED_FOR_S)


def test_under_a_configured_ceiling_only_others_can_make_room() -> None:
    state = ScopeState(holders={"busy": Holder(4)})

    assert ask(state, "other").start_s == float("inf")


def test_under_a_ceiling_that_a_refusal_showed_it_is_worth_asking_when_one_more_is_tried() -> None:
    state = ScopeState(holders={"busy": Holder(4)})
    refused = Settlement({}, {}, NOW_S, answered=True, refusal=Refusal("concurrency", 1.0))
    apply(state, Limits(), [refused], [], holder="busy", now_s=NOW_S, horizon_s=0.0)

    first, second = [
        apply(state, Limits(), [], [ONE, ONE], holder="busy", now_s=at_s, horizon_s=0.0)[-1].start_s
        for at_s in (NOW_S + 0.3, NOW_S + 1.3)
    ]

    assert (first, second) == (NOW_S + 1, NOW_S + 2)


def test_a_shown_ceiling_rises_fast_until_one_more_is_refused_and_then_ever_more_seldom() -> None:
    shown = ShownCeiling(2, 0.0)
    assert [shown.at(now_s) for now_s in (0.0, 0.9, 1.0, 3.0)] == [2, 2, 3, 5]

    refused = shown.lowered(4, 3.0)  # it had risen since, so it may have been too low
    assert [refused.at(now_s) for now_s in (3.0, 4.0)] == [4, 5]
    again = refused.lowered(4, 4.0)
    assert [again.at(now_s) for now_s in (4.0, 5.9, 6.0)] == [4, 4, 5]
    assert again.lowered(3, 4.1).rises_at_s(4.1) == pytest.approx(6.1)  # of the same episode

    for _ in range(20):
        again = again.lowered(4, again.rises_at_s(again.since_s))
    assert again.rises_at_s(again.since_s) - again.since_s == LONGEST_BEFORE_ONE_MORE_S


def test_without_a_ceiling_nobody_stands_in_line() -> None:
    state = ScopeState()
    apply(state, Limits(), [], [ONE] * 50, holder="a", now_s=NOW_S, horizon_s=0.0)

    assert not state.line.waits


def test_the_line_is_the_same_after_it_was_stored() -> None:
    state = ScopeState(line=a_line("a", "b"))
    state.line.offer({"x": 3}, NOW_S, but=None)

    assert from_plain(to_plain(state)) == state


def test_what_was_stored_before_there_was_a_line_is_read() -> None:
    plain = to_plain(ScopeState(holders={"a": Holder(2)}))
    del plain["line"]

    state = from_plain(plain)

    assert (in_flight(state), state.line) == ({"a": 2}, Line())


# -- several holders at random


@dataclass
class Process:
    """Has so many calls to make, of different lengths, and may be stopped for good at some instant."""

    name: str
    work: int
    begins_s: float = 0.0
    stops_s: float = float("inf")
    ended: int = 0
    asked: int = 0


@dataclass
class World:
    """Processes that share a ceiling; who is told of a place asks at once."""

    ceiling: int
    processes: list[Process]
    lasts_s: Callable[[], float]
    state: ScopeState = field(default_factory=ScopeState)
    now_s: float = 0.0
    idle_s: float = 0.0
    """How long a place was free while somebody waited that was not stopped."""
    shares: list[Counter[str]] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: Any = field(default_factory=itertools.count)

    def at(self, at_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), do))

    def run(self) -> None:
        for process in self.processes:
            self.at(process.begins_s, lambda process=process: self.exchange(process, [], asks=True))  # type: ignore[misc]
        while self._events:
            at_s, _, do = heapq.heappop(self._events)
            if self._is_free() and self._somebody_waits():
                self.idle_s += at_s - self.now_s
            self.now_s = at_s
            do()
            assert sum(in_flight(self.state).values()) <= self.ceiling

    def exchange(self, process: Process, settlements: list[Settlement], *, asks: bool) -> None:
        if self.now_s >= process.stops_s:
            return
        costs = [ONE] * process.work if asks else []
        process.asked += asks
        bookings = apply(
            self.state,
            Limits(concurrency=self.ceiling),
            settlements,
            costs,
            holder=process.name,
            now_s=self.now_s,
            horizon_s=0.0,
        )
        for booking in bookings:
            if booking.granted:
                process.work -= 1
                self.at(self.now_s + self.lasts_s(), lambda: self._end(process))
        if bookings and not bookings[-1].granted:
            # who had some asks for more at once, and is denied; only who has none waits
            wait_s = min(bookings[-1].start_s - self.now_s, 1.0) if len(bookings) == 1 else 0.0
            asked = process.asked
            self.at(self.now_s + wait_s, lambda: self._ask_again(process, asked))
        for name in self.state.offer_places(self.now_s, but=process.name if asks else None):
            told = next(each for each in self.processes if each.name == name)
            self.at(self.now_s, lambda told=told: self._ask_again(told, told.asked))  # type: ignore[misc]

    def _end(self, process: Process) -> None:
        process.ended += 1
        if self.now_s > EVENED_OUT_S and all(each.work for each in self.processes):
            self.shares.append(Counter({each.name: each.ended for each in self.processes}))
        if self.now_s >= process.stops_s:
            self.state.forget_holder(process.name)  # as if it had been killed
            return
        self.exchange(process, [Settlement(ONE, ONE, self.now_s)], asks=process.work > 0)

    def _ask_again(self, process: Process, asked: int) -> None:
        if process.work and process.asked == asked:  # or it has asked since
            self.exchange(process, [], asks=True)

    def _is_free(self) -> bool:
        return sum(in_flight(self.state).values()) < self.ceiling

    def _somebody_waits(self) -> bool:
        return any(
            process.name in self.state.line.waits
            for process in self.processes
            if self.now_s < process.stops_s and process.work
        )


@pytest.mark.parametrize("seed", range(40))
def test_no_place_is_free_while_anybody_waits_and_all_progress_alike(seed: int) -> None:
    chance = random.Random(seed)
    ceiling, number = chance.randint(1, 9), chance.randint(2, 6)
    world = World(
        ceiling,
        [Process(f"process {n}", work=80, begins_s=chance.uniform(0, 3)) for n in range(number)],
        lambda: chance.uniform(0.5, 1.5),
    )

    world.run()

    assert [process.work for process in world.processes] == [0] * number
    assert world.idle_s == 0.0
    # until the first had sent all of its calls
    began, over = world.shares[0], world.shares[-1]
    progress = [over[process.name] - began[process.name] for process in world.processes]
    assert min(progress) >= 0.8 * max(progress) - 4


@pytest.mark.parametrize("seed", range(40))
def test_processes_that_stop_hold_the_others_up_for_a_moment_each(seed: int) -> None:
    chance = random.Random(seed)
    ceiling, number = chance.randint(1, 9), chance.randint(3, 6)
    world = World(
        ceiling,
        [
            Process(f"process {n}", work=40, stops_s=chance.uniform(0, 8) if n % 2 else float("inf"))
            for n in range(number)
        ],
        lambda: chance.uniform(0.5, 1.5),
    )

    world.run()

    assert [process.work for process in world.processes[::2]] == [0] * len(world.processes[::2])
    assert world.idle_s <= OFFERED_FOR_S * number + 1.0
