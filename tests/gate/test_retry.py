"""When a call is tried again, how much of that is allowed, and when a host is spared."""

from __future__ import annotations

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalve.gate.circuit import Circuit, Hold, Pass
from evalve.gate.messages import Problem, ProblemKind
from evalve.gate.retry import GiveUp, Retries, RetryBudget, Tries, Wait, decide, is_failure
from evalve.testing import run_in_virtual_time


def half() -> float:
    return 0.5


def almost_one() -> float:
    return 0.999999


def zero() -> float:
    return 0.0


# -- decisions


@pytest.mark.parametrize(
    ("kind", "retry_after_s", "tries", "delay_s"),
    [
        ("rate_limit", 12.0, 1, 12.3),
        ("rate_limit", 12.0, 500, 12.3),
        ("rate_limit", 0.1, 1, 0.125),
        ("rate_limit", 3600.0, 1, 3602.5),
        ("rate_limit", None, 1, 0.25),
        ("rate_limit", None, 4, 2.0),
        ("rate_limit", None, 100, 15.0),
        ("rate_limit", 0.0, 3, 1.0),
        ("overload", None, 1, 0.25),
        ("overload", None, 5, 4.0),
        ("overload", 9.0, 1, 9.0),
        ("server", None, 3, 1.0),
        ("server", 0.1, 3, 1.0),
        ("connection", None, 2, 0.5),
        ("no_answer", None, 1, 0.25),
    ],
)
def test_the_delay_grows_with_the_tries_and_obeys_the_provider(
    kind: ProblemKind, retry_after_s: float | None, tries: int, delay_s: float
) -> None:
    decision = decide(Problem(kind, "no", retry_after_s=retry_after_s), tries, 1.0, half)

    assert isinstance(decision, Wait)
    assert decision.delay_s == pytest.approx(delay_s)


def test_a_refusal_is_never_tried_before_the_time_it_names() -> None:
    decision = decide(Problem("rate_limit", "no", retry_after_s=7.0), 1, 0.0, zero)

    assert decision == Wait(7.0)


def test_a_backoff_never_exceeds_thirty_seconds() -> None:
    decision = decide(Problem("rate_limit", "no"), 10_000, 0.0, almost_one)

    assert isinstance(decision, Wait)
    assert 29.9 < decision.delay_s <= 30.0


@pytest.mark.parametrize("kind", ["overload", "server", "connection"])
def test_a_fault_is_tried_six_times(kind: ProblemKind) -> None:
    problem = Problem(kind, "it broke")

    assert isinstance(decide(problem, 5, 10.0, half), Wait)
    assert decide(problem, 6, 31.4, half) == GiveUp("gave up after 6 tries in 31 s: it broke")


def test_what_is_no_answer_is_asked_for_once_more() -> None:
    problem = Problem("no_answer", "a page came")

    assert isinstance(decide(problem, 1, 1.0, half), Wait)
    assert decide(problem, 2, 2.0, half) == GiveUp("gave up after 2 tries in 2 s: a page came")


@pytest.mark.parametrize("kind", ["permanent", "spent"])
def test_what_no_retry_can_mend_is_final_at_once(kind: ProblemKind) -> None:
    assert decide(Problem(kind, "bad key", retry_after_s=1.0), 1, 0.0, half) == GiveUp("bad key")


def test_refusals_do_not_use_up_the_tries_for_faults() -> None:
    tries = Tries()
    for _ in range(50):
        tries.add(Problem("rate_limit", "no"))

    assert tries.add(Problem("overload", "no")) == 1


def test_faults_do_not_use_up_the_other_try_of_what_is_no_answer() -> None:
    tries = Tries()
    for _ in range(3):
        tries.add(Problem("server", "no"))

    assert tries.add(Problem("no_answer", "no")) == 1


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("overload", True),
        ("server", True),
        ("connection", True),
        ("rate_limit", False),
        ("no_answer", False),
        ("permanent", False),
        ("spent", False),
    ],
)
def test_only_faults_speak_against_a_host(kind: ProblemKind, failure: bool) -> None:
    assert is_failure(Problem(kind, "no")) is failure


# -- the budget


def test_ten_retries_are_free_in_ten_seconds() -> None:
    budget = RetryBudget()

    assert [budget.retry(0.0) for _ in range(10)] == [0.0] * 10


def test_an_exhausted_budget_delays_until_a_credit_is_free() -> None:
    budget = RetryBudget()
    for moment_s in range(10):
        budget.retry(moment_s / 10)

    assert [budget.retry(1.0), budget.retry(1.0)] == [pytest.approx(9.0), pytest.approx(9.1)]


def test_many_that_wait_are_spread_out_and_none_fails() -> None:
    budget = RetryBudget()

    delays = [budget.retry(0.0) for _ in range(35)]

    assert delays == [0.0] * 10 + [10.0] * 10 + [20.0] * 10 + [30.0] * 5


def test_a_tenth_of_the_requests_may_be_retried_beside_the_floor() -> None:
    budget = RetryBudget()
    for _ in range(100):
        budget.request(0.0)

    delays = [budget.retry(0.5) for _ in range(21)]

    assert delays == [0.0] * 20 + [10.0]


def test_credit_lives_ten_seconds() -> None:
    budget = RetryBudget()
    for _ in range(1000):
        budget.request(0.0)

    delays = [budget.retry(10.0) for _ in range(11)]

    assert delays == [0.0] * 10 + [10.0]


def test_the_budget_counts_right_with_many_threads() -> None:
    budget = RetryBudget()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: budget.request(0.0), range(1000)))
        delays = list(pool.map(lambda _: budget.retry(0.0), range(120)))

    assert delays.count(0.0) == 110


# -- the circuit


def opened(now_s: float = 0.0) -> Circuit:
    circuit = Circuit()
    for _ in range(10):
        given = circuit.admit(now_s)
        assert isinstance(given, Pass)
        circuit.settle(given, True, now_s)
    return circuit


@pytest.mark.parametrize(
    ("good", "bad", "is_open"),
    [(0, 9, False), (0, 10, True), (5, 5, False), (5, 6, True), (100, 99, False), (3, 4, False)],
)
def test_a_circuit_opens_when_more_than_half_of_ten_or_more_fail(good: int, bad: int, is_open: bool) -> None:
    circuit = Circuit()
    for failed in [False] * good + [True] * bad:
        given = circuit.admit(0.0)
        assert isinstance(given, Pass)
        circuit.settle(given, failed, 0.0)

    assert circuit.is_open is is_open


def test_failures_older_than_thirty_seconds_are_forgotten() -> None:
    circuit = Circuit()
    given = circuit.admit(0.0)
    assert isinstance(given, Pass)
    for _ in range(9):
        circuit.settle(given, True, 0.0)

    circuit.settle(given, True, 30.0)

    assert not circuit.is_open


def test_an_open_circuit_holds_everyone_for_a_second_and_then_lets_one_probe() -> None:
    circuit = opened(now_s=100.0)

    held = circuit.admit(100.5)
    probe = circuit.admit(101.0)
    behind = circuit.admit(101.0)

    assert isinstance(held, Hold)
    assert held.until_s == 101.0
    assert isinstance(probe, Pass)
    assert probe.probe
    assert isinstance(behind, Hold)


def test_a_probe_that_succeeds_closes_the_circuit_and_wakes_those_who_wait() -> None:
    circuit = opened()
    probe = circuit.admit(1.0)
    behind = circuit.admit(1.0)
    assert isinstance(probe, Pass)
    assert isinstance(behind, Hold)

    circuit.settle(probe, False, 1.4)

    assert behind.changed.done()
    assert not circuit.is_open
    assert isinstance(circuit.admit(1.4), Pass)


def test_each_failed_probe_doubles_the_wait_up_to_thirty_seconds() -> None:
    circuit, now_s, waits = opened(), 1.0, []
    for _ in range(7):
        probe = circuit.admit(now_s)
        assert isinstance(probe, Pass)
        circuit.settle(probe, True, now_s)
        held = circuit.admit(now_s)
        assert isinstance(held, Hold)
        waits.append(held.until_s - now_s)
        now_s = held.until_s

    assert waits == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_cancelled_probe_makes_room_for_the_next_at_once() -> None:
    circuit = opened()
    probe = circuit.admit(1.0)
    assert isinstance(probe, Pass)

    circuit.settle(probe, None, 1.5)
    following = circuit.admit(1.5)

    assert isinstance(following, Pass)
    assert following.probe


def test_a_probe_that_is_never_heard_of_again_is_replaced_after_a_minute() -> None:
    circuit = opened()
    circuit.admit(1.0)

    waiting = circuit.admit(60.9)
    following = circuit.admit(61.0)

    assert isinstance(waiting, Hold)
    assert isinstance(following, Pass)


def test_failures_of_requests_sent_before_the_opening_count_no_more() -> None:
    circuit = Circuit()
    before = circuit.admit(0.0)
    assert isinstance(before, Pass)
    for _ in range(10):
        circuit.settle(before, True, 0.0)
    probe = circuit.admit(1.0)
    assert isinstance(probe, Pass)
    circuit.settle(probe, False, 1.0)

    for _ in range(50):
        circuit.settle(before, True, 1.1)

    assert not circuit.is_open


def test_of_many_threads_exactly_one_probes() -> None:
    circuit, barrier = opened(), threading.Barrier(8)

    def ask(_: int) -> Pass | Hold:
        barrier.wait()
        return circuit.admit(1.0)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))

    assert [isinstance(answer, Pass) for answer in answers].count(True) == 1


# -- a call's tries

OVERLOAD = Problem("overload", "busy", status=529)


def test_a_call_gives_up_after_six_faults_and_says_why() -> None:
    async def story() -> tuple[list[float | None], str]:
        with Retries(random=half).begin("host") as tries:
            delays = []
            for _ in range(6):
                await tries.may_send()
                tries.note(OVERLOAD)
                delays.append(tries.next_delay_s(OVERLOAD))
            return delays, tries.reason

    delays, reason = run_in_virtual_time(story())

    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, None]
    assert reason == "gave up after 6 tries in 0 s: busy"


def test_an_exhausted_budget_makes_a_retry_wait_longer() -> None:
    async def story() -> float | None:
        retries = Retries(random=half)
        for _ in range(10):
            retries.budget.retry(retries.clock.now_s())
        with retries.begin("host") as tries:
            await tries.may_send()
            tries.note(OVERLOAD)
            return tries.next_delay_s(OVERLOAD)

    assert run_in_virtual_time(story()) == 10.0


def test_a_refusal_takes_nothing_from_the_budget() -> None:
    async def story() -> list[float | None]:
        with Retries(random=zero).begin("host") as tries:
            return [tries.next_delay_s(Problem("rate_limit", "no", retry_after_s=2.0)) for _ in range(30)]

    assert run_in_virtual_time(story()) == [2.0] * 30


async def storm(retries: Retries) -> None:
    for _ in range(10):
        with retries.begin("host") as tries:
            await tries.may_send()
            tries.note(OVERLOAD)


def test_while_a_host_fails_one_call_probes_and_the_others_wait_for_its_outcome() -> None:
    async def story() -> tuple[list[float], list[str]]:
        retries, sent_s = Retries(random=half), []
        await storm(retries)
        spared = retries.open_hosts()

        async def call() -> None:
            with retries.begin("host") as tries:
                await tries.may_send()
                sent_s.append(round(retries.clock.now_s(), 3))
                await asyncio.sleep(0.5)
                tries.note(None)

        await asyncio.gather(*(call() for _ in range(4)))
        return sent_s, spared

    sent_s, spared = run_in_virtual_time(story())

    assert spared == ["host"]
    assert sent_s == [1.0, 1.5, 1.5, 1.5]


def test_a_cancelled_probe_does_not_keep_the_others_waiting() -> None:
    async def story() -> float:
        retries = Retries(random=half)
        await storm(retries)

        async def call(duration_s: float) -> float:
            with retries.begin("host") as tries:
                await tries.may_send()
                sent_s = retries.clock.now_s()
                await asyncio.sleep(duration_s)
                tries.note(None)
                return sent_s

        probe = asyncio.create_task(call(1000.0))
        behind = asyncio.create_task(call(0.1))
        await asyncio.sleep(2.0)
        probe.cancel()
        return await behind

    assert run_in_virtual_time(story()) == pytest.approx(2.0)


def test_one_host_that_fails_does_not_hold_back_another() -> None:
    async def story() -> float:
        retries = Retries(random=half)
        await storm(retries)
        with retries.begin("another") as tries:
            await tries.may_send()
            return retries.clock.now_s()

    assert run_in_virtual_time(story()) == 0.0


def test_jitter_is_not_that_of_a_program_that_seeds_its_random_numbers() -> None:
    drawn = []
    for _ in range(2):
        random.seed(0)
        drawn.append([Retries().random() for _ in range(4)])

    assert drawn[0] != drawn[1]
