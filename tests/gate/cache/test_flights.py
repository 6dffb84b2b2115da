"""Single flight: one call for all who ask at once, and always somebody who makes it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evalve.gate.cache.entries import Entry
from evalve.gate.cache.flights import Flights
from evalve.gate.cache.leases import Holder, Leases, is_dead
from evalve.gate.cache.store import CacheStore
from evalve.gate.messages import Reply
from evalve.testing import run_in_virtual_time

KEY = "ab" * 32
ANSWER = Reply(200, {}, b"answer")


def nothing() -> Reply | None:
    return None


async def boarded(flights: Flights, made: list[str], name: str, *, lands: bool = True) -> bytes | None:
    """Board, make the call where it is ours, leave."""
    reply = await flights.board(KEY, nothing)
    if reply is not None:
        return reply.body
    try:
        made.append(name)
        await asyncio.sleep(1)
        if lands:
            flights.land(KEY, ANSWER)
        return ANSWER.body if lands else None
    finally:
        flights.leave(KEY)


def test_equal_calls_at_once_are_made_once() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()

        answers = await asyncio.gather(*(boarded(flights, made, f"call {n}") for n in range(10)))

        assert answers == [b"answer"] * 10
        assert made == ["call 0"]

    run_in_virtual_time(story())


def test_who_asks_anew_is_not_given_what_another_only_finds_in_the_cache() -> None:
    async def story() -> None:
        flights = Flights()
        await flights.board(KEY, nothing)
        anew = [asyncio.create_task(flights.board(KEY, nothing, is_anew=True)) for _ in range(2)]
        other = asyncio.create_task(flights.board(KEY, nothing))
        await asyncio.sleep(0)

        flights.land(KEY, ANSWER, is_found=True)
        flights.leave(KEY)

        assert await other == ANSWER
        assert await anew[0] is None  # the call is its own
        flights.land(KEY, Reply(200, {}, b"new"))
        flights.leave(KEY)
        assert await anew[1] == Reply(200, {}, b"new")

    run_in_virtual_time(story())


def test_each_who_waited_has_a_reply_of_its_own() -> None:
    async def story() -> None:
        flights = Flights()
        await flights.board(KEY, nothing)
        waiting = [asyncio.create_task(flights.board(KEY, nothing)) for _ in range(2)]
        await asyncio.sleep(0)
        flights.land(KEY, ANSWER)
        flights.leave(KEY)

        one, other = await asyncio.gather(*waiting)

        assert one == other == ANSWER
        assert one is not other

    run_in_virtual_time(story())


def test_when_a_call_fails_one_of_those_who_wait_makes_it() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()

        first, second, third, fourth = await asyncio.gather(
            boarded(flights, made, "first", lands=False),
            boarded(flights, made, "second", lands=False),
            boarded(flights, made, "third"),
            boarded(flights, made, "fourth"),
        )

        assert (first, second, third, fourth) == (None, None, b"answer", b"answer")
        assert made == ["first", "second", "third"]

    run_in_virtual_time(story())


def test_when_the_holder_is_cancelled_another_makes_the_call() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()
        first = asyncio.create_task(boarded(flights, made, "first"))
        second = asyncio.create_task(boarded(flights, made, "second"))
        await asyncio.sleep(0.5)

        first.cancel()

        assert await second == b"answer"
        assert made == ["first", "second"]
        assert first.cancelled()

    run_in_virtual_time(story())


def test_cancelling_one_who_waits_disturbs_nobody() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()
        first, second, third = (
            asyncio.create_task(boarded(flights, made, name)) for name in ("first", "second", "third")
        )
        await asyncio.sleep(0.5)

        second.cancel()

        assert (await first, await third) == (b"answer", b"answer")
        assert made == ["first"]

    run_in_virtual_time(story())


def test_a_turn_handed_to_one_who_is_cancelled_at_that_moment_goes_on_to_the_next() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()
        await flights.board(KEY, nothing)
        second = asyncio.create_task(boarded(flights, made, "second"))
        third = asyncio.create_task(boarded(flights, made, "third"))
        await asyncio.sleep(0)

        flights.leave(KEY)
        second.cancel()

        assert await third == b"answer"
        assert made == ["third"]

    run_in_virtual_time(story())


def test_after_landing_the_next_call_is_a_new_one() -> None:
    async def story() -> None:
        flights, made = Flights(), list[str]()
        await boarded(flights, made, "first")
        await boarded(flights, made, "second")

        assert made == ["first", "second"]

    run_in_virtual_time(story())


def test_what_landed_since_the_first_look_is_seen() -> None:
    async def story() -> None:
        assert await Flights().board(KEY, lambda: ANSWER) == ANSWER

    run_in_virtual_time(story())


def test_loops_in_two_threads_share_a_flight() -> None:
    flights, made, answers = Flights(), list[str](), list[bytes | None]()
    is_flying, is_waiting = threading.Event(), threading.Event()

    async def first() -> None:
        assert await flights.board(KEY, nothing) is None
        made.append("first")
        is_flying.set()
        await asyncio.to_thread(is_waiting.wait)
        flights.land(KEY, ANSWER)
        flights.leave(KEY)

    async def second() -> None:
        await asyncio.to_thread(is_flying.wait)
        waiting = asyncio.create_task(boarded(flights, made, "second"))
        await asyncio.sleep(0)
        is_waiting.set()
        answers.append(await waiting)

    threads = [threading.Thread(target=asyncio.run, args=(story(),)) for story in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert made == ["first"]
    assert answers == [b"answer"]


# -- among processes


class MovingClock:
    """Sleeping moves it, and lets others run."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.now.timestamp()

    def utc_now(self) -> datetime:
        return self.now

    async def sleep(self, delay_s: float) -> None:
        self.slept.append(delay_s)
        self.now += timedelta(seconds=delay_s)
        await asyncio.sleep(0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CacheStore]:
    store = CacheStore(tmp_path, inline=True)
    yield store
    store.close()


def flights_of_a_process(store: CacheStore, clock: MovingClock) -> Flights:
    return Flights(Leases(store.writer, clock=clock), clock=clock)


def leases_in(store: CacheStore) -> int:
    with store.file.reading() as connection:
        assert connection is not None
        return int(connection.execute("SELECT count(*) FROM leases").fetchone()[0])


def change(store: CacheStore, statement: str) -> None:
    connection = sqlite3.connect(store.path)
    with connection:
        connection.execute(statement)
    connection.close()


async def test_a_lease_is_held_while_flying_and_given_up_after(store: CacheStore) -> None:
    flights = flights_of_a_process(store, MovingClock())

    await flights.board(KEY, nothing)
    assert leases_in(store) == 1
    flights.leave(KEY)

    assert leases_in(store) == 0


async def test_one_who_waits_for_another_process_looks_at_growing_intervals(store: CacheStore) -> None:
    clock = MovingClock()
    ours, theirs = flights_of_a_process(store, clock), flights_of_a_process(store, clock)
    await theirs.board(KEY, nothing)

    looks = iter([None] * 9 + [ANSWER])
    reply = await ours.board(KEY, lambda: next(looks))

    assert reply == ANSWER
    assert [round(delay_s, 3) for delay_s in clock.slept] == [
        *(0.02, 0.032, 0.051, 0.082, 0.131, 0.21, 0.336, 0.5, 0.5),
    ]
    theirs.leave(KEY)
    assert leases_in(store) == 0


async def test_a_lease_that_is_given_up_is_taken(store: CacheStore) -> None:
    clock = MovingClock()
    ours, theirs = flights_of_a_process(store, clock), flights_of_a_process(store, clock)
    await theirs.board(KEY, nothing)
    waiting = asyncio.create_task(ours.board(KEY, nothing))
    await asyncio.sleep(0)

    theirs.leave(KEY)

    assert await waiting is None
    ours.leave(KEY)


async def test_a_dead_process_is_not_waited_for(store: CacheStore) -> None:
    clock = MovingClock()
    await flights_of_a_process(store, clock).board(KEY, nothing)
    change(store, "UPDATE leases SET pid = 4194305")

    assert await flights_of_a_process(store, clock).board(KEY, nothing) is None
    assert clock.slept == []


async def test_after_the_clock_was_set_back_nobody_waits_for_the_hour_to_come_again(
    store: CacheStore,
) -> None:
    clock = MovingClock()
    await flights_of_a_process(store, clock).board(KEY, nothing)
    change(store, "UPDATE leases SET host = 'elsewhere', pid = 4194305, expires_at = expires_at + 3600")

    assert await flights_of_a_process(store, clock).board(KEY, nothing) is None
    assert sum(clock.slept) < 1


@pytest.mark.parametrize("step", [timedelta(hours=2), timedelta(hours=-2)], ids=["ahead", "back"])
async def test_a_call_that_was_in_flight_when_the_date_was_set_is_waited_for(
    store: CacheStore, step: timedelta
) -> None:
    clock = MovingClock()
    ours, theirs = flights_of_a_process(store, clock), flights_of_a_process(store, clock)
    await theirs.board(KEY, nothing)
    clock.now += step

    looks = iter([None] * 3 + [ANSWER])
    reply = await ours.board(KEY, lambda: next(looks))

    assert reply == ANSWER
    theirs.leave(KEY)


async def test_who_tidies_up_after_the_date_was_set_leaves_the_leases_of_calls_in_flight(
    store: CacheStore, tmp_path: Path
) -> None:
    clock = MovingClock()
    flights = flights_of_a_process(store, clock)
    await flights.board(KEY, nothing)
    clock.now += timedelta(hours=2)

    another = CacheStore(tmp_path, inline=True, clock=clock)
    await another.put("0f" * 32, Entry(200, {}, b"{}"))  # the first of a process looks at the size
    another.close()

    assert leases_in(store) == 1
    flights.leave(KEY)


async def test_a_process_that_lives_and_does_not_renew_its_lease_is_waited_for_half_a_minute(
    store: CacheStore,
) -> None:
    clock = MovingClock()
    await flights_of_a_process(store, clock).board(KEY, nothing)

    assert await flights_of_a_process(store, clock).board(KEY, nothing) is None
    assert 30 <= sum(clock.slept) < 31


async def test_a_process_elsewhere_is_waited_for_until_its_lease_expires(store: CacheStore) -> None:
    clock = MovingClock()
    await flights_of_a_process(store, clock).board(KEY, nothing)
    change(store, "UPDATE leases SET host = 'elsewhere', pid = 4194305")

    assert await flights_of_a_process(store, clock).board(KEY, nothing) is None
    assert 30 <= sum(clock.slept) < 31


async def test_cancelling_while_waiting_for_another_process_hands_over(store: CacheStore) -> None:
    clock = MovingClock()
    ours, theirs = flights_of_a_process(store, clock), flights_of_a_process(store, clock)
    await theirs.board(KEY, nothing)
    first = asyncio.create_task(ours.board(KEY, nothing))
    second = asyncio.create_task(ours.board(KEY, nothing))
    await asyncio.sleep(0)

    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    theirs.leave(KEY)

    assert await second is None


async def test_a_cache_that_cannot_be_written_keeps_nobody_from_calling(tmp_path: Path) -> None:
    (tmp_path / "responses.db").mkdir()
    store = CacheStore(tmp_path, inline=True)

    assert await flights_of_a_process(store, MovingClock()).board(KEY, nothing) is None
    store.close()


HOLDER = Holder("token", 77, 1000.0, "here")


@pytest.mark.parametrize(
    ("holder", "started_s", "dead"),
    [
        (HOLDER, 1000.0, False),
        (HOLDER, 1001.0, True),
        (HOLDER, None, True),
        (HOLDER, 1500.0, True),
        (replace(HOLDER, host="there"), None, False),
    ],
    ids=["running", "a tick later", "gone", "pid reused", "elsewhere"],
)
def test_who_is_dead(holder: Holder, started_s: float | None, dead: bool) -> None:
    assert is_dead(holder, here="here", started=lambda pid: started_s) is dead


CALLER = """
import asyncio, sys
from pathlib import Path
from evalve.gate.accounts import Account
from evalve.gate.cache.cache import ResponseCache
from evalve.gate.cache.store import CacheStore
from evalve.gate.cache.flights import Flights
from evalve.gate.cache.leases import Leases
from evalve.gate.messages import Call, Reply

async def main():
    store = CacheStore(Path(sys.argv[1]))
    leases = Leases(store.writer)
    cache = ResponseCache(store=store, flights=Flights(leases))
    turn = cache.turn("ab" * 32, Account("on"))
    async with turn as reply:
        if reply is None:
            print("calling", flush=True)
            line = await asyncio.to_thread(sys.stdin.readline)
            reply = Reply(200, {}, line.encode())
            await turn.keep(reply, Call("p", "h", "m", "m", "k", 1, None, False))
    print("answer", reply.body.decode().strip(), reply.cached, flush=True)
    leases.close()
    store.close()

asyncio.run(main())
"""


class Caller:
    """A process that asks for one answer; the line it is sent is what its call gives."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CALLER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def is_given(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ends(self) -> None:
        self.process.communicate()


def test_two_processes_that_ask_for_the_same_make_one_call(tmp_path: Path) -> None:
    first = Caller(tmp_path)
    assert first.says() == "calling"
    second = Caller(tmp_path)

    first.is_given("blue")

    assert first.says() == "answer blue False"
    assert second.says() == "answer blue True"
    first.ends()
    second.ends()


def test_the_call_of_a_killed_process_is_made_by_the_one_that_waits(tmp_path: Path) -> None:
    first = Caller(tmp_path)
    assert first.says() == "calling"
    second = Caller(tmp_path)

    first.process.send_signal(signal.SIGKILL)
    first.ends()

    assert second.says() == "calling"
    second.is_given("green")
    assert second.says() == "answer green False"
    second.ends()
