"""The cache in its modes: what is read, what is written, and what a hit looks like."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from evalve.gate.accounts import Account, CacheMode
from evalve.gate.cache.cache import CacheCounts, CacheMiss, CacheTurn, ResponseCache, events_in, replayed
from evalve.gate.cache.cassettes import Cassettes
from evalve.gate.cache.flights import Flights
from evalve.gate.cache.leases import Leases
from evalve.gate.cache.store import CacheStore
from evalve.gate.messages import Call, Reply, Usage

KEY = "ab" * 32
OTHER = "cd" * 32
CALL = Call("anthropic", "host", "claude", "claude", "hash", 10, 20, False)
HEADERS = {"Content-Type": "application/json", "date": "today", "x-ratelimit-limit-requests": "5"}


class RunsCache:
    """The cache as one run uses it."""

    def __init__(
        self,
        mode: CacheMode,
        *,
        store: CacheStore | None = None,
        flights: Flights | None = None,
        cassettes: Cassettes | None = None,
    ) -> None:
        self.cache = ResponseCache(store=store, flights=flights, cassettes=cassettes)
        self.account = Account(mode)

    @property
    def counts(self) -> CacheCounts:
        return self.cache.counts

    def turn(self, key: str) -> CacheTurn:
        return self.cache.turn(key, self.account)


MakeCache = Callable[[CacheMode], RunsCache]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CacheStore]:
    store = CacheStore(tmp_path / "cache")
    yield store
    store.close()


@pytest.fixture
def cache_in(store: CacheStore) -> Iterator[MakeCache]:
    """Each is as if in a run of its own, on one store."""
    all_leases = []

    def make(mode: CacheMode) -> RunsCache:
        leases = Leases(store.writer)
        all_leases.append(leases)
        return RunsCache(mode, store=store, flights=Flights(leases))

    yield make
    for leases in all_leases:
        leases.close()


async def ask(cache: RunsCache, answer: bytes, *, key: str = KEY, status: int = 200) -> Reply:
    """What the gate does: the kept answer, or a call that gives `answer`."""
    turn = cache.turn(key)
    async with turn as kept:
        if kept is not None:
            return kept
        reply = Reply(status, HEADERS, answer)
        await turn.keep(reply, CALL, Usage(1, 2), "exp")
        return reply


async def test_on_the_second_ask_is_answered_from_the_cache(cache_in: MakeCache) -> None:
    cache = cache_in("on")
    first = await ask(cache, b"one")
    second = await ask(cache, b"two")

    assert (first.body, first.cached) == (b"one", False)
    assert (second.body, second.cached) == (b"one", True)
    assert second.headers == {"content-type": "application/json"}
    assert cache.counts == CacheCounts(hits=1, misses=1, stored=1, stored_bytes=3)


async def test_on_what_an_earlier_run_kept_is_read(cache_in: MakeCache) -> None:
    await ask(cache_in("on"), b"one")

    assert (await ask(cache_in("on"), b"two")).body == b"one"


async def test_on_after_a_miss_what_another_run_kept_is_still_found(cache_in: MakeCache) -> None:
    ours = cache_in("on")
    await ask(cache_in("on"), b"theirs", key=OTHER)
    await ask(ours, b"ours")

    found = await ask(ours, b"again", key=OTHER)

    assert (found.body, found.cached) == (b"theirs", True)


async def test_on_a_cache_that_can_only_be_read_is_read_after_a_miss_too(
    cache_in: MakeCache, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(cache_in("on"), b"kept", key=OTHER)

    async def refused(order: object) -> None:
        return None

    monkeypatch.setattr(store.writer, "do", refused)
    cache = cache_in("on")
    await ask(cache, b"made")

    assert (await ask(cache, b"again", key=OTHER)).body == b"kept"


async def test_keeping_an_answer_ends_its_lease(cache_in: MakeCache, store: CacheStore) -> None:
    await ask(cache_in("on"), b"one")
    store.flush()

    with closing(sqlite3.connect(store.path)) as database:
        assert database.execute("SELECT count(*) FROM leases").fetchone() == (0,)


async def test_off_neither_reads_nor_writes(cache_in: MakeCache, store: CacheStore) -> None:
    await ask(cache_in("on"), b"one")
    cache = cache_in("off")

    assert (await ask(cache, b"two")).body == b"two"
    assert (await ask(cache, b"three", key=OTHER)).body == b"three"
    assert store.get(OTHER) is None
    assert cache.counts == CacheCounts()


async def test_off_does_not_make_equal_calls_wait_for_each_other(cache_in: MakeCache) -> None:
    cache = cache_in("off")
    async with cache.turn(KEY) as first, cache.turn(KEY) as second:
        assert first is None
        assert second is None


async def test_read_answers_from_the_cache_and_never_calls(cache_in: MakeCache, store: CacheStore) -> None:
    await ask(cache_in("on"), b"one")
    cache = cache_in("read")

    assert (await ask(cache, b"two")).body == b"one"
    with pytest.raises(CacheMiss, match=r"key cdcdcdcdcdcd….*is not in the cache, .*--cache on to record it"):
        await ask(cache, b"three", key=OTHER)
    await cache.turn(OTHER).keep(Reply(200, {}, b"three"), CALL)
    assert store.get(OTHER) is None
    assert cache.counts == CacheCounts(hits=1, misses=1)


async def test_refresh_asks_anew_once_for_each_key_and_keeps_that(cache_in: MakeCache) -> None:
    await ask(cache_in("on"), b"old")
    cache = cache_in("refresh")

    assert (await ask(cache, b"new")).body == b"new"
    assert (await ask(cache, b"newer")).body == b"new"
    assert (await ask(cache_in("on"), b"newest")).body == b"new"


@pytest.mark.parametrize("status", [199, 301, 400, 429, 500, 529])
async def test_only_a_2xx_is_kept(cache_in: MakeCache, store: CacheStore, status: int) -> None:
    cache = cache_in("on")
    await ask(cache, b"no", status=status)

    assert store.get(KEY) is None
    assert (await ask(cache, b"yes")).body == b"yes"


async def test_equal_asks_at_once_make_one_call(cache_in: MakeCache) -> None:
    cache = cache_in("on")

    replies = await asyncio.gather(*(ask(cache, f"answer {n}".encode()) for n in range(20)))

    assert {reply.body for reply in replies} == {b"answer 0"}
    assert [reply.cached for reply in replies] == [False] + [True] * 19
    assert cache.counts == CacheCounts(hits=19, misses=1, stored=1, stored_bytes=8)


async def test_when_a_call_raises_the_next_who_waits_makes_it(cache_in: MakeCache) -> None:
    cache = cache_in("on")

    async def fail() -> None:
        async with cache.turn(KEY):
            raise OSError("reset")

    failed, answered = await asyncio.gather(fail(), ask(cache, b"yes"), return_exceptions=True)

    assert isinstance(failed, OSError)
    assert isinstance(answered, Reply)
    assert answered.body == b"yes"


async def test_an_answer_whose_caller_is_cancelled_while_it_is_kept_is_not_asked_for_again(
    cache_in: MakeCache, store: CacheStore
) -> None:
    cache, is_calling, is_answered = cache_in("on"), asyncio.Event(), asyncio.Event()

    async def call() -> None:
        turn = cache.turn(KEY)
        async with turn:
            is_calling.set()
            await is_answered.wait()
            await turn.keep(Reply(200, {}, b"one"), CALL)

    first = asyncio.create_task(call())
    await is_calling.wait()
    with a_busy_database(store.path):
        is_answered.set()
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(ask(cache, b"two"))
        await asyncio.sleep(0)

    assert (await second).body == b"one"
    assert first.cancelled()


@contextmanager
def a_busy_database(path: Path) -> Iterator[None]:
    """Nothing can be committed meanwhile."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


async def test_without_a_store_equal_asks_at_once_still_make_one_call() -> None:
    cache = RunsCache("on")

    async def slow() -> Reply:
        turn = cache.turn(KEY)
        async with turn as kept:
            if kept is None:
                await asyncio.sleep(0)
                await turn.keep(Reply(200, {}, b"one"), CALL)
                return Reply(200, {}, b"one")
            return kept

    replies = await asyncio.gather(slow(), slow())

    assert [reply.cached for reply in replies] == [False, True]


# -- cassettes


async def test_a_call_is_recorded_and_replayed_without_the_cache(tmp_path: Path, store: CacheStore) -> None:
    cassettes = Cassettes(tmp_path / "cassettes")
    await ask(RunsCache("on", store=store, cassettes=cassettes), b'{"a":1}')
    offline = RunsCache("read", cassettes=cassettes)

    reply = await ask(offline, b"never")

    assert (reply.body, reply.cached) == (b'{"a":1}', True)


async def test_an_answer_from_a_warm_cache_is_recorded_too(tmp_path: Path, store: CacheStore) -> None:
    await ask(RunsCache("on", store=store), b"one")
    cassettes = Cassettes(tmp_path / "cassettes")

    await ask(RunsCache("on", store=store, cassettes=cassettes), b"two")

    assert cassettes.has(KEY)


async def test_read_records_nothing(tmp_path: Path, store: CacheStore) -> None:
    await ask(RunsCache("on", store=store), b"one")
    cassettes = Cassettes(tmp_path / "cassettes")

    await ask(RunsCache("read", store=store, cassettes=cassettes), b"two")

    assert not cassettes.has(KEY)


async def test_refresh_records_anew(tmp_path: Path, store: CacheStore) -> None:
    cassettes = Cassettes(tmp_path / "cassettes")
    await ask(RunsCache("on", store=store, cassettes=cassettes), b"1")
    await ask(RunsCache("refresh", store=store, cassettes=cassettes), b"2")

    recorded = cassettes.get(KEY)
    assert recorded is not None
    assert recorded.body == b"2"


async def test_two_runs_on_one_cache_keep_to_their_own_modes(store: CacheStore) -> None:
    cache = ResponseCache(store=store)
    reading, refreshing, again = RunsCache("on"), RunsCache("refresh"), RunsCache("refresh")
    for run in (reading, refreshing, again):
        run.cache = cache
    await ask(reading, b"one")

    assert (await ask(refreshing, b"two")).body == b"two"
    assert (await ask(reading, b"never")).body == b"two"
    assert (await ask(refreshing, b"never")).body == b"two"
    assert (await ask(again, b"three")).body == b"three"


async def test_a_cassette_that_cannot_be_written_fails_no_run(tmp_path: Path, store: CacheStore) -> None:
    (tmp_path / "cassettes").write_text("a file")
    cache = RunsCache("on", store=store, cassettes=Cassettes(tmp_path / "cassettes"))

    assert (await ask(cache, b"one")).body == b"one"
    assert (await ask(cache, b"two")).body == b"one"


# -- streams


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"", []),
        (b"data: 1\n\ndata: 2\n\n", [b"data: 1\n\n", b"data: 2\n\n"]),
        (b"event: a\r\ndata: 1\r\n\r\ndata: [DONE]", [b"event: a\r\ndata: 1\r\n\r\n", b"data: [DONE]"]),
        (b"data: 1\r\rdata: 2\r\r", [b"data: 1\r\r", b"data: 2\r\r"]),
        (b'{"not": "a stream"}', [b'{"not": "a stream"}']),
    ],
    ids=["nothing", "lines", "unfinished", "old line ends", "whole"],
)
async def test_a_stream_is_replayed_event_by_event(body: bytes, events: list[bytes]) -> None:
    assert events_in(body) == events
    assert [chunk async for chunk in replayed(body)] == events


async def test_a_directory_that_vanishes_fails_no_run(tmp_path: Path, cache_in: MakeCache) -> None:
    cache = cache_in("on")
    await ask(cache, b"one")

    shutil.rmtree(tmp_path / "cache")

    assert (await ask(cache, b"two", key=OTHER)).body == b"two"
