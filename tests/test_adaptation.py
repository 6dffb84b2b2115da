"""How `Adaptive` decides."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from evalve.adaptation import Bounds, Controller, HostSide, Interval, Memory, decide, decide_for_host
from evalve.concurrency import Adaptive
from evalve.contracts import CLEAR, CallCounts, HostPressure, Task
from evalve.testing import run_in_virtual_time

BOUNDS = Bounds(minimum=1, maximum=100, increase_threshold=0.98, decrease_threshold=0.90)
BUSY = Interval(per_second=10.0, success_share=1.0, saturated=True)


@pytest.mark.parametrize(("limit", "higher"), [(1, 2), (2, 4), (7, 14), (60, 100), (99, 100)])
def test_it_doubles_from_any_size_at_first(limit: int, higher: int) -> None:
    memory, reason = decide(Memory(limit), BUSY, BOUNDS)

    assert memory == Memory(higher, probing_from=(limit, 10.0))
    assert reason == "10.0/s with all in use"


@pytest.mark.parametrize(("limit", "higher"), [(1, 2), (9, 10), (20, 22), (95, 100)])
def test_it_grows_by_a_tenth_once_it_knows_better(limit: int, higher: int) -> None:
    memory, _ = decide(Memory(limit, doubling=False), BUSY, BOUNDS)

    assert memory.limit == higher


@pytest.mark.parametrize(("limit", "lower"), [(100, 70), (10, 7), (4, 2), (2, 1), (1, 1)])
def test_it_cuts_where_turns_fail(limit: int, lower: int) -> None:
    memory, reason = decide(Memory(limit), Interval(10.0, 0.89, True), BOUNDS)

    assert memory == Memory(lower, doubling=False, hold=1)
    assert reason == "only 89% of turns succeeded"


def test_it_cuts_also_while_it_tries_out_a_growth() -> None:
    memory, _ = decide(Memory(20, probing_from=(10, 5.0)), Interval(50.0, 0.5, True), BOUNDS)

    assert memory == Memory(14, doubling=False, hold=1)


def test_between_the_thresholds_it_holds() -> None:
    memory, reason = decide(Memory(10), Interval(10.0, 0.95, True), BOUNDS)

    assert (memory, reason) == (Memory(10), "holding")


def test_it_goes_back_where_growth_made_things_slower() -> None:
    memory, reason = decide(Memory(20, probing_from=(10, 12.5)), BUSY, BOUNDS)

    assert memory == Memory(10, doubling=False, hold=10)
    assert reason == "20 at once gave 0.80 × the throughput of 10"


def test_it_goes_back_where_growth_brought_nothing() -> None:
    memory, reason = decide(Memory(20, probing_from=(10, 10.0)), BUSY, BOUNDS)

    assert memory == Memory(10, doubling=False, hold=10)
    assert reason == "20 at once gave no more than 10"


def test_it_grows_on_where_growth_paid() -> None:
    memory, _ = decide(Memory(20, probing_from=(10, 5.0)), BUSY, BOUNDS)

    assert memory == Memory(40, probing_from=(20, 10.0))


def test_it_grows_on_from_a_standstill() -> None:
    memory, _ = decide(Memory(2, probing_from=(1, 0.0)), BUSY, BOUNDS)

    assert memory.limit == 4


def test_while_it_holds_it_counts_down() -> None:
    memory, reason = decide(Memory(10, hold=2), BUSY, BOUNDS)

    assert (memory, reason) == (Memory(10, hold=1), "holding")


def test_it_does_not_grow_where_the_limit_is_not_in_use() -> None:
    memory, reason = decide(Memory(10), Interval(10.0, 1.0, saturated=False), BOUNDS)

    assert (memory, reason) == (Memory(10), "the limit is not in use")


def test_it_never_grows_beyond_its_maximum() -> None:
    memory, reason = decide(Memory(100), BUSY, BOUNDS)

    assert (memory, reason) == (Memory(100), "holding")


def test_it_never_cuts_below_its_minimum() -> None:
    bounds = Bounds(minimum=8, maximum=100, increase_threshold=0.98, decrease_threshold=0.90)

    memory, _ = decide(Memory(9), Interval(10.0, 0.0, True), bounds)

    assert memory.limit == 8


def _controller(limit: int = 4) -> Controller:
    controller = Controller(
        limit=limit,
        minimum=1,
        maximum=100,
        interval_s=2.0,
        increase_threshold=0.98,
        decrease_threshold=0.90,
    )
    controller.start(98.0)
    _end_turns(controller, limit, at_s=100.0)
    return controller


def _end_turns(controller: Controller, turns: int, *, at_s: float, succeeded: bool = True) -> None:
    for _ in range(turns):
        controller.observe(succeeded=succeeded, in_flight=4)
        controller.adapt(at_s)


def _observe(controller: Controller, turns: int, *, succeeded: bool = True, in_flight: int = 4) -> None:
    for _ in range(turns):
        controller.observe(succeeded=succeeded, in_flight=in_flight)


def test_before_the_interval_is_over_nothing_is_decided() -> None:
    controller = _controller()
    _observe(controller, 50)

    assert not controller.adapt(101.9)
    assert controller.limit == 4


def test_before_a_whole_window_has_ended_nothing_is_decided() -> None:
    controller = _controller()
    _observe(controller, 3)

    assert not controller.adapt(150.0)


def test_the_first_window_is_not_counted() -> None:
    controller = Controller(4, 1, 100, 2.0, 0.98, 0.90)
    controller.start(0.0)
    _end_turns(controller, 4, at_s=60.0, succeeded=False)
    _observe(controller, 4)

    assert not controller.adapt(61.9)
    assert controller.adapt(62.0)
    assert controller.history[0]["success_share"] == 1.0


def test_a_decision_is_kept_with_what_was_seen() -> None:
    controller = _controller()
    _observe(controller, 10)

    assert controller.adapt(102.5)
    assert controller.history == [
        {
            "at_s": 4.5,
            "from": 4,
            "to": 8,
            "side": "provider",
            "per_second": 4.0,
            "success_share": 1.0,
            "reason": "4.0/s with all in use",
        }
    ]


def test_a_decision_to_stay_is_not_kept() -> None:
    controller = _controller()
    _observe(controller, 10, in_flight=3)

    assert not controller.adapt(102.5)
    assert controller.history == []


def test_each_interval_is_counted_by_itself() -> None:
    controller = _controller()
    _observe(controller, 10, in_flight=3)
    controller.adapt(102.0)
    _observe(controller, 10, succeeded=False)

    assert controller.adapt(104.0)
    assert controller.history[-1]["success_share"] == 0.0
    assert controller.limit == 2


def test_turns_that_began_under_the_old_limit_do_not_count_for_the_new_one() -> None:
    controller = _controller()
    _observe(controller, 10)
    controller.adapt(102.0)
    _end_turns(controller, 4, at_s=102.8, succeeded=False)
    _observe(controller, 16, in_flight=8)

    assert controller.adapt(104.8)
    assert controller.history[-1] == {
        "at_s": 6.8,
        "from": 8,
        "to": 16,
        "side": "provider",
        "per_second": 8.0,
        "success_share": 1.0,
        "reason": "8.0/s with all in use",
    }


def test_an_interval_without_length_is_no_error() -> None:
    controller = Controller(4, 1, 100, 0.0, 0.98, 0.90)
    controller.start(0.0)
    _end_turns(controller, 4, at_s=0.0)
    _observe(controller, 4)

    assert controller.adapt(0.0)
    assert controller.history[0]["per_second"] == math.inf


class Server:
    """Serves up to `capacity` at once, in about a second; more at once only wait for each other."""

    def __init__(self, capacity: int) -> None:
        self._slots = asyncio.Semaphore(capacity)
        self._random = random.Random(7)

    async def serve(self) -> str:
        async with self._slots:
            await asyncio.sleep(self._random.uniform(0.5, 1.5))
        return "done"


class Overloaded:
    """Fails every call beyond `capacity` at once."""

    def __init__(self, capacity: int) -> None:
        self._slots = asyncio.Semaphore(capacity)
        self._random = random.Random(7)

    async def serve(self) -> str:
        if self._slots.locked():
            await asyncio.sleep(1.0)
            return "failed"
        async with self._slots:
            await asyncio.sleep(self._random.uniform(0.5, 1.5))
        return "done"


async def _sizes_against(server: Any, *, initial: int, tasks: int) -> list[int]:
    async def many() -> AsyncIterator[Task]:
        for _ in range(tasks):
            yield server.serve

    strategy = Adaptive(initial, max_concurrency=200, adaptation_interval=2.0)
    sizes = [strategy.concurrency async for _ in strategy.execute(many())]
    return sizes[len(sizes) // 2 :]


@pytest.mark.parametrize("initial", [1, 5, 64])
def test_against_a_server_of_forty_slots_it_settles_where_more_brings_nothing(initial: int) -> None:
    async def run() -> list[int]:
        return await _sizes_against(Server(40), initial=initial, tasks=6000)

    sizes = run_in_virtual_time(run())

    assert min(sizes) >= 40
    assert max(sizes) <= 102


def test_against_a_server_that_refuses_above_twenty_it_stays_near_twenty() -> None:
    async def run() -> list[int]:
        return await _sizes_against(Overloaded(20), initial=5, tasks=6000)

    sizes = run_in_virtual_time(run())

    assert min(sizes) >= 14
    assert max(sizes) <= 22


# -- causes apart


def test_calls_that_are_refused_lower_the_providers_side() -> None:
    memory, reason = decide(Memory(20), Interval(10.0, 1.0, True, refused_share=0.3), BOUNDS)

    assert (memory.limit, reason) == (14, "30% of calls were refused")


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        (CallCounts(sent=100, lost=30), "30% of calls were lost"),
        (CallCounts(sent=100, refused=25), "25% of calls were refused"),
    ],
)
def test_calls_count_from_decision_to_decision(calls: CallCounts, reason: str) -> None:
    controller = _controller(limit=10)
    _observe(controller, 10)

    assert controller.adapt(103.0, calls)
    assert (controller.limit, controller.history[-1]["reason"]) == (7, reason)

    for _ in range(4):  # those that began before
        controller.observe(succeeded=True, in_flight=7)
        controller.adapt(104.0, calls)
    _observe(controller, 20)
    assert not controller.adapt(110.0, calls)  # none since


def test_refusals_at_random_are_no_cause() -> None:
    memory, _ = decide(Memory(20), Interval(10.0, 1.0, True, refused_share=0.1), BOUNDS)

    assert memory.limit == 40


def test_where_limits_hold_some_back_it_does_not_grow() -> None:
    memory, reason = decide(Memory(20), Interval(10.0, 1.0, True, in_flight=20, held_back=1.5), BOUNDS)

    assert (memory.limit, reason) == (20, "the provider's limits are used up")


@pytest.mark.parametrize("per_second", [50.0, 5.0, 0.05])
def test_latency_alone_holds(per_second: float) -> None:
    """Less per second, and nothing else: at the limit that nothing is being tried out, it is no reason."""
    seen = Interval(per_second=per_second, success_share=1.0, saturated=True)

    memory, reason = decide(Memory(BOUNDS.maximum, doubling=False), seen, BOUNDS)

    assert (memory.limit, memory.hold, reason) == (BOUNDS.maximum, 0, "holding")


OVER = HostPressure("over", "0.5 of 16.0 GB memory left")
TIGHT = HostPressure("tight", "2.0 of 16.0 GB memory left")


@pytest.mark.parametrize(
    ("side", "pressure", "in_flight", "after"),
    [
        (HostSide(), CLEAR, 20, HostSide()),
        (HostSide(), TIGHT, 20, HostSide(20)),
        (HostSide(), OVER, 20, HostSide(14)),
        (HostSide(14), OVER, 20, HostSide(14)),  # the cut has not taken effect yet
        (HostSide(14), OVER, 14, HostSide(9)),
        (HostSide(14), TIGHT, 14, HostSide(14)),
        (HostSide(1), OVER, 1, HostSide(1)),
        (HostSide(), OVER, 0, HostSide(1)),
        (HostSide(14, calm=3), TIGHT, 10, HostSide(14)),
        (HostSide(14, calm=3), CLEAR, 14, HostSide(14, calm=4)),
        (HostSide(14, calm=14), CLEAR, 14, HostSide(17)),
        (HostSide(90, calm=14), CLEAR, 90, HostSide()),
        (HostSide(), HostPressure("over", "load", at_least=4), 5, HostSide(4)),
        (HostSide(), HostPressure("over", "load", at_least=4), 3, HostSide(3)),
    ],
)
def test_the_hosts_side_shrinks_under_pressure_and_recovers(
    side: HostSide, pressure: HostPressure, in_flight: int, after: HostSide
) -> None:
    assert decide_for_host(side, pressure, in_flight=in_flight, bounds=BOUNDS)[0] == after


class Signals:
    """What a run would tell."""

    def __init__(self) -> None:
        self.now = CLEAR
        self.failures = 0
        self.heard: list[Any] = []

    def held_back(self) -> int:
        return 0

    def calls(self) -> CallCounts:
        return CallCounts()

    def own_failures(self) -> int:
        return self.failures

    def pressure(self) -> HostPressure:
        return self.now

    def decided(self, decision: Any) -> None:
        self.heard.append(decision)


def test_pressure_lowers_what_is_allowed_between_the_ends_of_long_samples_and_is_told() -> None:
    strategy, signals = Adaptive(20, max_concurrency=20), Signals()
    strategy.watch(signals)
    in_flight: list[int] = [0]
    seen: list[tuple[float, int]] = []

    async def serve() -> str:
        in_flight[0] += 1
        seen.append((asyncio.get_running_loop().time(), in_flight[0]))
        await asyncio.sleep(600)
        in_flight[0] -= 1
        return "done"

    async def many() -> AsyncIterator[Task]:
        for _ in range(60):
            yield serve

    async def run() -> None:
        asyncio.get_running_loop().call_later(100, lambda: setattr(signals, "now", OVER))
        asyncio.get_running_loop().call_later(1000, lambda: setattr(signals, "now", CLEAR))
        _ = [result async for result in strategy.execute(many())]

    run_in_virtual_time(run())

    first = signals.heard[0]
    assert (first["at_s"], first["from"], first["to"], first["side"]) == (100.0, 20, 14, "host")
    assert first["reason"] == "0.5 of 16.0 GB memory left"
    assert max(count for at_s, count in seen if 600 <= at_s < 1000) <= 14
    assert signals.heard[-1]["reason"] == "the machine has room again"
    assert strategy.concurrency == 20


def test_mistakes_of_the_evaluation_are_no_reason_for_fewer_samples() -> None:
    strategy, signals = Adaptive(10, max_concurrency=10, adaptation_interval=1.0), Signals()
    strategy.watch(signals)

    async def serve() -> str:
        await asyncio.sleep(0.5)
        signals.failures += 1
        return "failed"

    async def many() -> AsyncIterator[Task]:
        for _ in range(200):
            yield serve

    async def run() -> None:
        _ = [result async for result in strategy.execute(many())]

    run_in_virtual_time(run())

    assert strategy.history == []
