"""The cache as the gate uses it: what its mode allows, and who makes a call that is not in it."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType

from evalve.gate.accounts import Account
from evalve.gate.cache.cassettes import Cassettes
from evalve.gate.cache.entries import Entry, lasting_headers
from evalve.gate.cache.flights import Flights, Park, not_parked
from evalve.gate.cache.store import CacheStore
from evalve.gate.messages import Call, Reply, Usage, Withheld

_LOG = logging.getLogger(__name__)
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")

IsAnswer = Callable[[Reply], bool]


def _any_reply(cached: Reply) -> bool:
    return True


class CacheMiss(Withheld):
    """With `--cache read`: an answer is not in the cache, and nobody may be asked for it."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache did for this process."""

    hits: int = 0
    misses: int = 0
    stored: int = 0
    stored_bytes: int = 0


class ResponseCache:
    """Any thread, loop and run may use it. Without a store nothing is kept beyond the process."""

    def __init__(
        self,
        *,
        store: CacheStore | None = None,
        flights: Flights | None = None,
        cassettes: Cassettes | None = None,
    ) -> None:
        self._store = store
        self._flights = flights or Flights()
        self._cassettes = cassettes
        self._counting = threading.Lock()
        self._hits = self._misses = self._stored = self._stored_bytes = 0
        self._expects_hit = True

    @property
    def counts(self) -> CacheCounts:
        with self._counting:
            return CacheCounts(self._hits, self._misses, self._stored, self._stored_bytes)

    def turn(
        self, key: str, account: Account, *, is_answer: IsAnswer = _any_reply, park: Park = not_parked
    ) -> CacheTurn:
        """`async with cache.turn(key, account) as cached:` gives the answer, or `None`: the call is ours.

        Others who ask the same wait until the block is left, parked. What is kept in it answers them; if
        nothing is, the next of them makes the call. What is in the cache and is no answer counts as missing.
        """
        return CacheTurn(self, key, account, is_answer, park)

    def _count(self, *, hit: bool) -> None:
        self._expects_hit = hit
        with self._counting:
            if hit:
                self._hits += 1
            else:
                self._misses += 1

    def _entry(self, key: str, is_answer: IsAnswer, *, only_look: bool) -> Entry | None:
        stored = self._store.get(key, only_look=only_look) if self._store is not None else None
        entry = _usable(key, stored, is_answer)
        if self._cassettes is None:
            return entry
        if entry is None:
            return _usable(key, self._cassettes.get(key), is_answer)
        if not only_look and not self._cassettes.has(key):
            self._record(key, entry)  # or a directory recorded with a warm cache would lack it
        return entry

    async def _keep(self, key: str, entry: Entry) -> None:
        """Return when it is committed, and land the flight."""
        stored = self._store is not None and await self._store.put(key, entry)
        if self._cassettes is not None:
            await asyncio.to_thread(self._record, key, entry)
        with self._counting:
            self._stored += stored
            self._stored_bytes += stored * len(entry.body)
        self._flights.land(key, entry.as_reply(), is_leased=not stored)

    def _record(self, key: str, entry: Entry) -> None:
        if self._cassettes is not None:
            try:
                self._cassettes.record(key, entry)
            except OSError as error:
                _LOG.warning("a cassette was not written: %s", error)


class CacheTurn:
    """One request's turn at the cache, under the mode of its run."""

    __slots__ = ("_account", "_cache", "_is_answer", "_is_ours", "_key", "_park")

    def __init__(
        self, cache: ResponseCache, key: str, account: Account, is_answer: IsAnswer, park: Park
    ) -> None:
        self._cache = cache
        self._key = key
        self._account = account
        self._is_answer = is_answer
        self._park = park
        self._is_ours = False

    async def __aenter__(self) -> Reply | None:
        mode, cache = self._account.mode, self._cache
        if mode == "off":
            return None
        # After a miss the next is expected to be one: its lease looks as well, on a connection that has the
        # pages at hand. While answers are being written, ours has to read them anew each time, for 50 µs.
        looks_first = cache._expects_hit or mode != "on" or cache._cassettes is not None
        reply = self._lookup() if looks_first else None
        if reply is None and mode == "read":
            cache._count(hit=False)
            raise CacheMiss(_told_of_miss(self._key, has_cassettes=cache._cassettes is not None))
        if reply is None:
            is_anew = self._is_to_be_asked_anew()
            reply = await cache._flights.board(self._key, self._lookup, self._park, is_anew=is_anew)
            self._is_ours = reply is None
        cache._count(hit=reply is not None)
        return reply

    def look_again(self) -> Reply | None:
        """What somebody else has put there meanwhile, as an answer that is new to us."""
        entry = self._cache._entry(self._key, self._is_answer, only_look=False)
        return None if entry is None else Reply(entry.status, entry.headers, entry.body)

    async def keep(self, reply: Reply, call: Call, usage: Usage | None = None, experiment: str = "") -> None:
        """Return when a completely received 2xx is committed; other answers are not kept."""
        account = self._account
        if account.mode in ("off", "read") or reply.cached or not 200 <= reply.status < 300:
            return
        headers = lasting_headers(reply.headers)
        entry = Entry(reply.status, headers, reply.body, call.provider, call.model, experiment, usage)
        await self._cache._keep(self._key, entry)
        if account.mode == "refresh":
            account.refreshed.add(_short(self._key))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Those who wait have the answer, or one of them makes the call."""
        if self._is_ours:
            self._is_ours = False
            self._cache._flights.leave(self._key)

    def _lookup(self) -> Reply | None:
        """The answer, if the mode allows to read it. Nothing is counted, and nobody waits."""
        if self._is_to_be_asked_anew():
            return None
        entry = self._cache._entry(self._key, self._is_answer, only_look=self._account.mode == "read")
        return entry.as_reply() if entry is not None else None

    def _is_to_be_asked_anew(self) -> bool:
        account = self._account
        return account.mode == "refresh" and _short(self._key) not in account.refreshed


def _told_of_miss(key: str, *, has_cassettes: bool) -> str:
    places = "the cache or the cassettes" if has_cassettes else "the cache"
    how = "with EVALVE_CASSETTES naming the same directory" if has_cassettes else "to record it"
    return (
        f"the answer to this request (key {key[:12]}…) is not in {places}, and with --cache read"
        f" no provider is asked; run once with --cache on {how}"
    )


def _usable(key: str, entry: Entry | None, is_answer: IsAnswer) -> Entry | None:
    if entry is None or is_answer(entry.as_reply()):
        return entry
    _LOG.warning("what is kept under %s… is no answer of %s and counts as missing", key[:12], entry.model)
    return None


def events_in(body: bytes) -> list[bytes]:
    """The events of an SSE body, each with the blank line that ends it; together they are the body."""
    events, start = [], 0
    for end in _EVENT_END.finditer(body):
        events.append(body[start : end.end()])
        start = end.end()
    return [*events, body[start:]] if start < len(body) else events


async def replayed(body: bytes) -> AsyncIterator[bytes]:
    for event in events_in(body):
        yield event


def _short(key: str) -> bytes:
    """Enough of a key to tell a million apart, in little memory."""
    return bytes.fromhex(key[:32])
