"""The layers of the gate together: what is sent, when, what is kept, and what it is counted as."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import httpx
import pytest

from evalve.contracts import SAMPLE, CallLog, SampleContext
from evalve.errors import MissingKey
from evalve.gate.accounts import Account, CacheMode
from evalve.gate.cache.cache import ResponseCache
from evalve.gate.cache.key import content_key, numbered_key
from evalve.gate.cache.store import CacheStore
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.httpx_senders import AsyncTransportSender
from evalve.gate.estimates import Estimates
from evalve.gate.exchange import Gate
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import (
    Call,
    Limit,
    Limits,
    Problem,
    Reply,
    Request,
    Sender,
    SendError,
    StreamedReply,
    Usage,
    Withheld,
)
from evalve.gate.metering import Meter
from evalve.gate.retry import Retries
from evalve.gate.sender import AiohttpSender, Timeouts
from evalve.simulator import Behaviour, Faults, Latency, Simulator
from evalve.simulator import Limits as TrueLimits
from evalve.testing import run_in_virtual_time
from fake_surroundings import FakeSurroundings
from loopback import read_request, serving

KEY = "sk-very-secret-0123456789"
URL = "https://api.anthropic.com/v1/messages"
WIDE = Limits({"requests": Limit(6e6, 1e5)})


def a_request(prompt: str = "hello", *, stream: bool = False, url: str = URL) -> Request:
    body = {
        "model": "claude-test",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": prompt}],
        **({"stream": True} if stream else {}),
    }
    headers = {"content-type": "application/json", "x-api-key": KEY, "anthropic-version": "2023-06-01"}
    return Request("POST", url, headers, json.dumps(body).encode())


def ok(text: str = "fine", *, input_tokens: int = 10, output_tokens: int = 5, **headers: str) -> Reply:
    body = {
        "type": "message",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(200, {"content-type": "application/json", **named}, json.dumps(body).encode())


def failed(status: int, kind: str = "api_error", message: str = "no", **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"content-type": "application/json", **named}, json.dumps(body).encode())


EVENTS = [
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":10}}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"b"}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":5}}\n\n',
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Full"}}\n\n'


@dataclass
class FakeSender:
    """Gives its answers in order, the last again and again, and remembers when it was asked."""

    answers: Sequence[Reply | BaseException] = field(default_factory=lambda: [ok()])
    takes_s: float = 1.0
    events: Sequence[bytes | BaseException] = field(default_factory=lambda: EVENTS)
    failing: Sequence[Sequence[bytes | BaseException]] = ()
    """Events of the first streams, before there are those above."""
    sent_at_s: list[float] = field(default_factory=list)
    closed: int = 0

    async def send(self, request: Request) -> Reply:
        answer = self._next()
        await asyncio.sleep(self.takes_s)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        answer = self._next()
        if isinstance(answer, BaseException):
            raise answer
        try:
            if answer.status == 200:
                yield StreamedReply(200, {"content-type": "text/event-stream"}, self._chunks())
            else:
                yield StreamedReply(answer.status, answer.headers, one_chunk(answer.body))
        finally:
            self.closed += 1

    def _next(self) -> Reply | BaseException:
        self.sent_at_s.append(asyncio.get_running_loop().time())
        return self.answers[min(len(self.sent_at_s), len(self.answers)) - 1]

    async def _chunks(self) -> AsyncIterator[bytes]:
        tries = len(self.sent_at_s)
        for event in self.failing[tries - 1] if tries <= len(self.failing) else self.events:
            await asyncio.sleep(self.takes_s)
            if isinstance(event, BaseException):
                raise event
            yield event


async def one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


class World:
    """A gate with everything it is made of."""

    def __init__(self, folder: Path, *, limits: Limits = WIDE, mode: CacheMode = "on") -> None:
        self.store = CacheStore(folder, inline=True)
        self.cache = ResponseCache(store=self.store)
        self.account = Account(mode)
        self.state = MemoryState(now_s=lambda: asyncio.get_running_loop().time())
        self.limiter = Limiter(self.state, limits_for=lambda call: limits)
        self.retries = Retries(random=lambda: 0.0)
        self.gate = Gate(
            read=recognised,
            cache=self.cache,
            retries=self.retries,
            limiter=self.limiter,
            estimates=Estimates(),
            meter=Meter(price),
            account=lambda: self.account,
        )

    async def in_flight(self) -> int:
        views = await self.state.views()
        return sum(held.in_flight for view in views for held in view.state.holders.values())

    async def chunks(self, request: Request, sender: Sender) -> list[bytes]:
        async with self.gate.stream(request, sender) as reply:
            return [chunk async for chunk in reply.chunks]


def price(model: str, usage: Usage) -> float | None:
    """A cent for every token of an answer."""
    return usage.output_tokens / 100


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_in_virtual_time(test(*arguments, **named))

    return run


@contextmanager
def in_sample(repeat: int = 0, **changes: Any) -> Iterator[SampleContext]:
    context = replace(SampleContext("exp", "eval_a", "s1", repeat, 1, CallLog()), **changes)
    token = SAMPLE.set(context)
    try:
        yield context
    finally:
        SAMPLE.reset(token)


# -- the order of the layers


@virtually
async def test_what_no_dialect_reads_passes_straight_through(world: World) -> None:
    sender = FakeSender([failed(500), ok()])
    request = Request("GET", "https://api.anthropic.com/v1/models", {}, b"")

    reply = await world.gate.exchange(request, sender)
    async with world.gate.stream(request, sender) as streamed:
        status = streamed.status

    assert (reply.status, status) == (500, 200)
    assert await world.state.views() == []
    assert world.account.totals()["requests"] == 0
    assert world.cache.counts.misses == 0


@virtually
async def test_a_hit_spends_no_budget_and_waits_for_no_limit(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(1, 1)}))
    sender = FakeSender()
    loop = asyncio.get_running_loop()
    first = await world.gate.exchange(a_request(), sender)
    asked_s = loop.time()
    world.account.budget.limit_usd = 0.0

    second = await world.gate.exchange(a_request(), sender)

    assert (first.cached, second.cached) == (False, True)
    assert second.body == first.body
    assert loop.time() == asked_s
    assert len(sender.sent_at_s) == 1
    assert (world.account.totals()["cached"], world.account.totals()["cost_usd"]) == (1, 0.05)
    world.store.close()


@virtually
async def test_equal_requests_at_once_are_sent_once(world: World) -> None:
    sender = FakeSender()

    replies = await asyncio.gather(*(world.gate.exchange(a_request(), sender) for _ in range(5)))

    assert [reply.body for reply in replies] == [ok().body] * 5
    assert len(sender.sent_at_s) == 1
    assert (world.account.totals()["requests"], world.account.totals()["cached"]) == (1, 4)


@virtually
async def test_without_the_cache_everything_is_sent(tmp_path: Path) -> None:
    world, sender = World(tmp_path, mode="off"), FakeSender()

    await asyncio.gather(*(world.gate.exchange(a_request(), sender) for _ in range(3)))

    assert len(sender.sent_at_s) == 3
    world.store.close()


@virtually
async def test_calls_are_held_to_the_limits(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(60, 1)}))
    sender = FakeSender(takes_s=0.0)

    await asyncio.gather(*(world.gate.exchange(a_request(f"{n}"), sender) for n in range(4)))

    gaps = [later - earlier for earlier, later in zip(sender.sent_at_s, sender.sent_at_s[1:], strict=False)]
    assert gaps[1:] == pytest.approx([1.0, 1.0])
    world.store.close()


@pytest.mark.parametrize("stream", [False, True])
@virtually
async def test_an_answer_is_kept_before_it_is_settled(stream: bool, world: World) -> None:
    sender = FakeSender()

    async def broken(*arguments: Any, **named: Any) -> None:
        raise RuntimeError("the limits are gone")

    settle, world.limiter.settle = world.limiter.settle, broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        if stream:
            await world.chunks(a_request(stream=True), sender)
        else:
            await world.gate.exchange(a_request(), sender)
    world.limiter.settle = settle  # type: ignore[method-assign]

    again = await world.gate.exchange(a_request(stream=stream), sender)

    assert again.cached
    assert len(sender.sent_at_s) == 1


@virtually
async def test_a_refusal_that_asks_for_years_is_tried_again_in_minutes_by_one_call_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refused = failed(429, "rate_limit_error", retry_after="1763280000")
    sender = FakeSender([refused, refused, ok()], takes_s=0.1)

    with caplog.at_level(logging.WARNING):
        calls = [world.gate.exchange(a_request(f"{number}"), sender) for number in range(3)]
        replies = await asyncio.gather(*calls)

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert 300.0 <= sender.sent_at_s[3] - sender.sent_at_s[2] <= 320.0
    assert sender.sent_at_s[-1] < 700.0
    assert [record.getMessage()[:17] for record in caplog.records] == ["api.anthropic.com"]


# -- which answers are the same


@virtually
async def test_asking_twice_in_one_attempt_gives_two_answers(world: World) -> None:
    sender = FakeSender([ok("one"), ok("two")])

    with in_sample():
        first = await world.gate.exchange(a_request(), sender)
        second = await world.gate.exchange(a_request(), sender)

    assert (b"one" in first.body, b"two" in second.body) == (True, True)


@virtually
async def test_the_same_attempt_again_has_the_same_answers(world: World) -> None:
    sender = FakeSender([ok("one"), ok("two"), ok("three")])
    bodies: list[bytes] = []

    for _ in range(2):
        with in_sample():
            bodies += [(await world.gate.exchange(a_request(), sender)).body for _ in range(2)]

    assert bodies[:2] == bodies[2:]
    assert len(sender.sent_at_s) == 2


@virtually
async def test_after_a_failure_the_next_try_of_the_sample_pays_only_for_what_is_missing(
    world: World,
) -> None:
    sender = FakeSender([ok("one"), ok("two")])

    with in_sample() as sample:
        first = await world.gate.exchange(a_request(), sender)
        sample.calls.ordinals.clear()  # what the runner does when a try raised
        again = await world.gate.exchange(a_request(), sender)
        further = await world.gate.exchange(a_request(), sender)

    assert again.body == first.body
    assert again.cached and not further.cached
    assert len(sender.sent_at_s) == 2


@virtually
async def test_each_repeat_has_answers_of_its_own(world: World) -> None:
    sender = FakeSender([ok("one"), ok("two")])

    with in_sample(repeat=0):
        first = await world.gate.exchange(a_request(), sender)
    with in_sample(repeat=1):
        second = await world.gate.exchange(a_request(), sender)

    assert first.body != second.body


@virtually
async def test_the_key_of_the_account_does_not_matter_to_the_cache(world: World) -> None:
    sender, request = FakeSender(), a_request()
    await world.gate.exchange(request, sender)

    other = replace(request, headers={**request.headers, "x-api-key": "sk-another"})
    reply = await world.gate.exchange(other, sender)

    assert reply.cached


# -- trying again


@virtually
async def test_a_refusal_is_obeyed_in_full_and_admitted_anew(world: World) -> None:
    sender = FakeSender([failed(429, "rate_limit_error", retry_after="7"), ok()], takes_s=0.0)

    with in_sample() as sample:
        reply = await world.gate.exchange(a_request(), sender)

    assert reply.status == 200
    assert sender.sent_at_s == pytest.approx([0.0, 7.0], abs=0.5)
    assert sender.sent_at_s[1] >= 7.0
    assert (sample.calls.requests, sample.calls.refusals, sample.calls.retries) == (2, 1, 1)
    assert await world.in_flight() == 0


@virtually
async def test_a_refusal_holds_back_every_other_call_of_the_scope(world: World) -> None:
    refused = FakeSender([failed(429, "rate_limit_error", retry_after="7"), ok()], takes_s=0.0)
    other = FakeSender()
    waiting = asyncio.create_task(world.gate.exchange(a_request("one"), refused))
    await asyncio.sleep(0.5)

    await world.gate.exchange(a_request("two"), other)
    await waiting

    assert other.sent_at_s[0] >= 7.0


@virtually
async def test_refusals_are_obeyed_however_many_there_are(world: World) -> None:
    refused = failed(429, "rate_limit_error", retry_after="1")
    sender = FakeSender([*[refused] * 12, ok()], takes_s=0.0)

    reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (200, 13)


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "api_error"), (529, "overloaded_error"), (503, "overloaded_error")]
)
@virtually
async def test_a_broken_server_is_tried_six_times_and_its_last_answer_is_final(
    status: int, kind: str, world: World
) -> None:
    sender = FakeSender([failed(status, kind)])

    reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (status, 6)
    assert await world.in_flight() == 0


@virtually
async def test_a_client_that_asks_again_after_the_last_try_is_answered_with_the_failure(world: World) -> None:
    sender = FakeSender([failed(500)])
    with in_sample():
        statuses = [(await world.gate.exchange(a_request(), sender)).status for _ in range(3)]
        assert (statuses, len(sender.sent_at_s)) == ([500, 500, 500], 6)
        assert await world.chunks(a_request(), sender) == [failed(500).body]
        assert len(sender.sent_at_s) == 6
        await world.gate.exchange(a_request("something else"), sender)
    assert len(sender.sent_at_s) == 12


@virtually
async def test_a_connection_that_failed_for_good_fails_again_at_once(world: World) -> None:
    sender = FakeSender([SendError("reset", reached=True)])
    with in_sample():
        for _ in range(2):
            with pytest.raises(SendError, match="reset"):
                await world.gate.exchange(a_request(), sender)
    assert len(sender.sent_at_s) == 3


@virtually
async def test_a_minute_later_or_in_the_next_try_of_the_sample_a_failed_request_is_sent_again(
    world: World,
) -> None:
    sender = FakeSender([*[failed(500)] * 6, ok()])
    with in_sample():
        assert (await world.gate.exchange(a_request(), sender)).status == 500
        await asyncio.sleep(61)
        assert (await world.gate.exchange(a_request(), sender)).status == 200
    again = FakeSender([*[failed(500)] * 6, ok()])
    for status in (500, 200):
        with in_sample():
            assert (await world.gate.exchange(a_request("next"), again)).status == status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
@virtually
async def test_what_is_wrong_with_the_request_is_told_at_once(status: int, world: World) -> None:
    sender = FakeSender([failed(status, "invalid_request_error")])

    reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (status, 1)


@virtually
async def test_spent_credit_stops_the_run_at_once(world: World) -> None:
    message = "Your credit balance is too low to access the Anthropic API."
    sender = FakeSender([failed(400, "invalid_request_error", message)])
    run = FakeSurroundings()

    with in_sample(surroundings=run):
        reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (400, 1)
    assert len(run.reasons) == 1
    assert "credit balance" in run.reasons[0]


@pytest.mark.parametrize("reached", [False, True])
@virtually
async def test_a_connection_that_fails_is_tried_again(reached: bool, world: World) -> None:
    sender = FakeSender([SendError("reset", reached=reached), SendError("reset", reached=reached), ok()])

    reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (200, 3)


@pytest.mark.parametrize("stream", [False, True])
@virtually
async def test_what_there_was_no_key_for_is_no_call_and_holds_no_place(stream: bool, world: World) -> None:
    sender = FakeSender([MissingKey("no key")], takes_s=0.0)
    request = a_request(stream=stream)

    with in_sample() as sample, pytest.raises(MissingKey):
        await (world.chunks(request, sender) if stream else world.gate.exchange(request, sender))

    assert (sample.calls.requests, world.account.totals()["requests"]) == (0, 0)
    assert await world.in_flight() == 0


@virtually
async def test_a_connection_that_keeps_failing_is_an_error_in_the_end(world: World) -> None:
    await world.gate.exchange(a_request("before"), FakeSender())
    sender = FakeSender([SendError("reset", reached=False)])

    with pytest.raises(SendError, match="reset"):
        await world.gate.exchange(a_request(), sender)

    assert len(sender.sent_at_s) == 6
    assert await world.in_flight() == 0


HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(ok().body)
UNREADABLE = {
    "brotli": HEADERS + b"Content-Encoding: br\r\nContent-Length: 4\r\n\r\n\x0b\x01\x80\x03",
    "zstd": HEADERS + b"Content-Encoding: zstd\r\nContent-Length: 4\r\n\r\n\x28\xb5\x2f\xfd",
    "broken gzip": HEADERS + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    "two lengths": HEADERS + LENGTH + LENGTH + b"\r\n" + ok().body,
    "500 headers": HEADERS + b"X-A: 1\r\n" * 500 + LENGTH + b"\r\n" + ok().body,
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "deep": HEADERS + b"Content-Length: 10000\r\n\r\n" + b"[" * 5000 + b"]" * 5000,
    "501": b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("network", ["aiohttp", "httpx"])
@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_no_repeat_would_make_readable_is_asked_for_once(
    answer: bytes, network: str, world: World
) -> None:
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await read_request(reader)
        asked += 1
        writer.write(answer)
        await writer.drain()

    async with serving(handle) as port, httpx.AsyncHTTPTransport() as transport, AsyncExitStack() as end:
        sender: Sender = AsyncTransportSender(httpx, transport, {})
        if network == "aiohttp":
            sender = AiohttpSender()
            end.push_async_callback(sender.aclose)
        request = a_request(url=f"http://127.0.0.1:{port}/v1/messages")
        with suppress(SendError):
            await world.gate.exchange(request, sender)

    assert asked == 1


async def test_a_stream_whose_lines_end_with_a_bare_cr_is_read_and_kept(world: World) -> None:
    body = b"".join(EVENTS).replace(b"\n", b"\r")
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await read_request(reader)
        asked += 1
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()

    sender = AiohttpSender()
    async with serving(handle) as port:
        request = a_request(url=f"http://127.0.0.1:{port}/v1/messages", stream=True)
        first, second = [await world.chunks(request, sender) for _ in range(2)]
        await sender.aclose()

    assert b"".join(first) == b"".join(second) == body
    assert asked == 1


@virtually
async def test_a_host_that_was_never_reached_is_given_up_soon(world: World) -> None:
    sender = FakeSender([SendError("refused", reached=False)])

    with pytest.raises(SendError, match="refused"):
        await world.gate.exchange(a_request(), sender)

    assert len(sender.sent_at_s) == 3


@virtually
async def test_half_an_answer_is_asked_for_again_and_never_kept(world: World) -> None:
    half = Reply(200, {"content-type": "application/json"}, ok().body[:40])
    sender = FakeSender([half, ok("whole")])

    reply = await world.gate.exchange(a_request(), sender)
    kept = await world.gate.exchange(a_request(), sender)

    assert b"whole" in reply.body
    assert kept.body == reply.body
    assert len(sender.sent_at_s) == 2


@virtually
async def test_a_wait_between_tries_holds_no_concurrent_call(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(6e6, 1e5)}, concurrency=1))
    troubled = FakeSender([failed(500, retry_after="100"), ok()], takes_s=0.0)
    other = FakeSender()
    waiting = asyncio.create_task(world.gate.exchange(a_request("one"), troubled))
    await asyncio.sleep(1)

    await world.gate.exchange(a_request("two"), other)
    await waiting

    assert other.sent_at_s[0] < 2
    world.store.close()


# -- what is kept


@virtually
async def test_an_answer_is_committed_before_the_caller_sees_it(world: World, tmp_path: Path) -> None:
    await world.gate.exchange(a_request(), FakeSender())

    with sqlite3.connect(f"file:{world.store.path}?mode=ro", uri=True) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    connection.close()

    assert rows == 1


@pytest.mark.parametrize("status", [400, 500])
@virtually
async def test_an_error_is_never_kept(status: int, world: World) -> None:
    await world.gate.exchange(a_request(), FakeSender([failed(status)]))

    reply = await world.gate.exchange(a_request(), FakeSender())

    assert (reply.status, reply.cached) == (200, False)


NO_ANSWERS = {
    "a list": b"[1, 2]",
    "null": b"null",
    "content null": b'{"type": "message", "content": null, "usage": {"input_tokens": 9, "output_tokens": 3}}',
    "a stream": b"".join(EVENTS),
    "a page": b"<!doctype html>\n<title>Sign in</title>",
}


@pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
@virtually
async def test_a_success_without_an_answer_in_it_is_asked_for_again_and_never_kept(
    body: bytes, world: World
) -> None:
    sender = FakeSender([Reply(200, {}, body), ok("whole")])

    reply = await world.gate.exchange(a_request(), sender)
    kept = await world.gate.exchange(a_request(), sender)

    assert b"whole" in reply.body
    assert (kept.cached, kept.body) == (True, reply.body)
    assert len(sender.sent_at_s) == 2


@virtually
async def test_what_is_still_no_answer_after_another_try_says_so_and_is_not_kept(world: World) -> None:
    sender = FakeSender([Reply(200, {}, NO_ANSWERS["content null"])])

    reply = await world.gate.exchange(a_request(), sender)

    assert (reply.status, len(sender.sent_at_s)) == (200, 2)
    assert reply.problem is not None
    assert reply.problem.kind == "no_answer"
    assert world.cache.counts.stored == 0
    assert world.account.totals()["output_tokens"] == 2 * 3  # each was paid for


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@virtually
async def test_a_host_that_answers_everything_with_a_page_is_soon_told_of_and_holds_up_no_other_call(
    stream: bool, world: World
) -> None:
    page = NO_ANSWERS["a page"]
    sender = FakeSender([Reply(200, {}, page)], events=[page])
    loop = asyncio.get_running_loop()

    async def problem_of(number: int) -> Problem | None:
        request = a_request(f"{number}", stream=stream)
        if not stream:
            return (await world.gate.exchange(request, sender)).problem
        async with world.gate.stream(request, sender) as reply:
            return reply.problem

    problems = await asyncio.gather(*(problem_of(number) for number in range(200)))
    took_s = loop.time()
    good = FakeSender()
    await world.gate.exchange(a_request("good"), good)

    assert {problem.message for problem in problems if problem is not None} == {
        "anthropic answered 200, but what came does not have the form of a message: "
        "<!doctype html> <title>Sign in</title>"
    }
    assert (len(problems), len(sender.sent_at_s)) == (200, 400)
    assert took_s < 10
    assert good.sent_at_s == [pytest.approx(took_s, abs=0.1)]
    assert world.cache.counts.stored == 1


@virtually
async def test_a_page_from_a_host_that_failed_shows_that_it_answers_again(world: World) -> None:
    failing = FakeSender([failed(500)], takes_s=0.0)
    await asyncio.gather(*(world.gate.exchange(a_request(f"{n}"), failing) for n in range(3)))
    was_open = world.retries.open_hosts()

    await world.gate.exchange(a_request("page"), FakeSender([Reply(200, {}, NO_ANSWERS["a page"])]))

    assert (was_open, world.retries.open_hosts()) == (["api.anthropic.com"], [])


@pytest.mark.parametrize("body", NO_ANSWERS.values(), ids=NO_ANSWERS)
@virtually
async def test_what_was_kept_and_is_no_answer_is_missing_with_a_warning(
    body: bytes, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    understood = recognised(a_request())
    assert understood is not None
    key = numbered_key(
        content_key(a_request(), meaning_headers=understood[0].meaning_headers), repeat=0, ordinal=0
    )
    await world.cache.turn(key, world.account).keep(Reply(200, {}, body), understood[1])

    reply = await world.gate.exchange(a_request(), FakeSender())
    again = await world.gate.exchange(a_request(), FakeSender())

    assert (reply.cached, again.cached) == (False, True)
    assert reply.body == again.body == ok().body
    assert "is no answer of claude-test and counts as missing" in caplog.text


# -- going away


@virtually
async def test_a_cancelled_call_frees_its_place_and_what_it_booked_stays_spent(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(60, 10)}, concurrency=1))
    call = asyncio.create_task(world.gate.exchange(a_request(), FakeSender(takes_s=60)))
    await asyncio.sleep(0.1)

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert await world.in_flight() == 0
    (view,) = await world.state.views()
    assert view.state.buckets["requests"].level(0.1) < 10.0
    assert (await world.gate.exchange(a_request(), FakeSender())).status == 200
    world.store.close()


@virtually
async def test_when_the_caller_that_asks_is_cancelled_another_asks_instead(world: World) -> None:
    sender = FakeSender()
    first = asyncio.create_task(world.gate.exchange(a_request(), sender))
    second = asyncio.create_task(world.gate.exchange(a_request(), sender))
    await asyncio.sleep(0.5)

    first.cancel()
    reply = await second

    assert reply.status == 200
    assert len(sender.sent_at_s) == 2


# -- streams


@virtually
async def test_a_stream_is_passed_on_as_it_comes(world: World) -> None:
    loop = asyncio.get_running_loop()
    seen: list[float] = []

    async with world.gate.stream(a_request(stream=True), FakeSender()) as reply:
        async for _ in reply.chunks:
            seen.append(loop.time())

    # the events come after 1, 2, 3, 4 and 5 seconds, and the second is the first with a piece of the answer
    assert seen == pytest.approx([2.0, 2.0, 3.0, 4.0, 5.0])


@virtually
async def test_the_first_piece_is_given_while_the_next_is_still_with_the_provider(world: World) -> None:
    may_go_on = asyncio.Event()

    class Pausing(FakeSender):
        async def _chunks(self) -> AsyncIterator[bytes]:
            yield EVENTS[0]
            yield EVENTS[1]
            await may_go_on.wait()
            for event in EVENTS[2:]:
                yield event

    async with world.gate.stream(a_request(stream=True), Pausing()) as reply:
        async with asyncio.timeout(1):
            first = [await anext(reply.chunks), await anext(reply.chunks)]
        may_go_on.set()
        rest = [chunk async for chunk in reply.chunks]

    assert first + rest == EVENTS


@virtually
async def test_streams_that_are_opened_together_and_read_later_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    world, sender = World(tmp_path, limits=Limits({}, concurrency=2)), FakeSender()

    async with AsyncExitStack() as stack:
        replies = [
            await stack.enter_async_context(world.gate.stream(a_request(f"{number}", stream=True), sender))
            for number in range(5)
        ]
        firsts = [await anext(reply.chunks) for reply in replies]
        rest = [[chunk async for chunk in reply.chunks] for reply in replies]

    assert firsts == [EVENTS[0]] * 5
    assert rest == [EVENTS[1:]] * 5
    assert world.account.totals()["output_tokens"] == 25
    assert await world.in_flight() == 0
    assert await world.chunks(a_request("0", stream=True), FakeSender([failed(400)])) == EVENTS


@virtually
async def test_a_reader_who_comes_back_gets_what_was_read_ahead_and_then_what_comes(world: World) -> None:
    loop, seen = asyncio.get_running_loop(), list[float]()

    async with world.gate.stream(a_request(stream=True), FakeSender(takes_s=4.0)) as reply:
        await asyncio.sleep(8.0)  # the opening has come after 8 s; after 13 s somebody asks for the third
        async for _ in reply.chunks:
            seen.append(loop.time())

    assert seen == pytest.approx([16.0, 16.0, 17.0, 21.0, 25.0])


@pytest.mark.parametrize("error", [SendError("cut", reached=True), OVERLOADED], ids=["reset", "error event"])
@virtually
async def test_a_stream_that_breaks_while_nobody_reads_holds_no_place_and_tells_its_reader(
    error: bytes | BaseException, world: World
) -> None:
    received: list[bytes] = []

    async with world.gate.stream(a_request(stream=True), FakeSender(events=[*EVENTS[:3], error])) as reply:
        await asyncio.sleep(20.0)
        held = await world.in_flight()
        with pytest.raises(SendError):
            async for chunk in reply.chunks:
                received.append(chunk)

    assert (held, received[:3]) == (0, EVENTS[:3])


@virtually
async def test_a_stream_that_is_left_while_it_is_read_ahead_is_closed(world: World) -> None:
    sender = FakeSender(takes_s=10.0)

    async with world.gate.stream(a_request(stream=True), sender) as reply:
        await anext(reply.chunks)
        await asyncio.sleep(8.0)

    assert (sender.closed, await world.in_flight()) == (1, 0)


@virtually
async def test_a_stream_without_an_end_is_not_read_ahead_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalve.gate.opening.FARTHEST_AHEAD_BYTES", 3 * len(EVENTS[2]))
    came: list[bytes] = []

    class Endless(FakeSender):
        async def _chunks(self) -> AsyncIterator[bytes]:
            yield EVENTS[0]
            yield EVENTS[1]
            while True:
                came.append(EVENTS[2])
                yield EVENTS[2]

    async with world.gate.stream(a_request(stream=True), Endless()) as reply:
        await asyncio.sleep(60.0)
        ahead = len(came)
        chunks = [await anext(reply.chunks) for _ in range(10)]

    assert (ahead, chunks) == (3, [EVENTS[0], EVENTS[1], *[EVENTS[2]] * 8])


@pytest.mark.parametrize("cut", [5, 30, -2, -1])
@virtually
async def test_an_end_that_comes_in_two_chunks_is_not_complete_before_the_whole_is_committed(
    cut: int, world: World
) -> None:
    events = [*EVENTS[:-1], EVENTS[-1][:cut], EVENTS[-1][cut:]]
    stored: list[int] = []

    async with world.gate.stream(a_request(stream=True), FakeSender(events=events)) as reply:
        async for _ in reply.chunks:
            stored.append(world.cache.counts.stored)

    assert stored == [0, 0, 0, 0, 0, 1]


@virtually
async def test_the_end_of_a_stream_is_given_when_the_whole_is_committed(world: World) -> None:
    before_the_end: list[bool] = []

    async with world.gate.stream(a_request(stream=True), FakeSender()) as reply:
        async for chunk in reply.chunks:
            if chunk == EVENTS[-1]:
                before_the_end.append(world.cache.counts.stored == 1)

    assert before_the_end == [True]


@virtually
async def test_a_kept_stream_is_replayed_byte_for_byte(world: World) -> None:
    sender = FakeSender()
    first = await world.chunks(a_request(stream=True), sender)

    async with world.gate.stream(a_request(stream=True), sender) as reply:
        again = [chunk async for chunk in reply.chunks]

    assert reply.cached
    assert b"".join(first) == b"".join(again) == b"".join(EVENTS)
    assert len(sender.sent_at_s) == 1
    totals = world.account.totals()
    assert (totals["requests"], totals["cached"], totals["output_tokens"]) == (1, 1, 5)


@pytest.mark.parametrize(
    "events",
    [
        [*EVENTS[:2], SendError("cut", reached=True)],
        [*EVENTS, SendError("cut", reached=True)],
        EVENTS[:2],
        [*EVENTS[:2], OVERLOADED],
        [*EVENTS[:2], OVERLOADED, SendError("cut", reached=True)],
    ],
    ids=["reset", "reset at the end", "ended early", "error event", "error event and reset"],
)
@virtually
async def test_a_stream_that_fails_later_gives_what_came_then_raises_and_is_not_kept(
    events: list[bytes | BaseException], world: World
) -> None:
    received: list[bytes] = []

    async with world.gate.stream(a_request(stream=True), FakeSender(events=events)) as reply:
        with pytest.raises(SendError):
            async for chunk in reply.chunks:
                received.append(chunk)
    again = await world.chunks(a_request(stream=True), FakeSender())

    assert received == [event for event in events if isinstance(event, bytes)]
    assert again == EVENTS
    assert await world.in_flight() == 0


@pytest.mark.parametrize(
    "events",
    [
        [OVERLOADED],
        [EVENTS[0], OVERLOADED],
        [b"".join([*EVENTS[:3], OVERLOADED])],
        EVENTS[:1],
        [*EVENTS[:1], SendError("cut", reached=True)],
        [],
    ],
    ids=["error", "late error", "one chunk", "ended", "reset", "nothing"],
)
@virtually
async def test_a_stream_that_fails_before_a_piece_is_passed_on_is_asked_for_again(
    events: list[bytes | BaseException], world: World
) -> None:
    sender = FakeSender(failing=[events, events])

    chunks = await world.chunks(a_request(stream=True), sender)

    assert chunks == EVENTS
    assert (len(sender.sent_at_s), sender.closed) == (3, 3)
    assert (world.cache.counts.stored, await world.in_flight()) == (1, 0)


@virtually
async def test_a_stream_that_never_begins_is_given_up_with_its_last_problem(world: World) -> None:
    sender = FakeSender(events=[EVENTS[0], OVERLOADED])

    async with world.gate.stream(a_request(stream=True), sender) as reply:
        body = b"".join([chunk async for chunk in reply.chunks])

    assert (reply.status, body) == (200, EVENTS[0] + OVERLOADED)
    assert reply.problem is not None
    assert reply.problem.kind == "overload"
    assert (len(sender.sent_at_s), world.cache.counts.stored) == (6, 0)


@virtually
async def test_a_stream_that_comes_in_one_chunk_is_kept(world: World) -> None:
    sender = FakeSender(events=[b"".join(EVENTS)])

    first = await world.chunks(a_request(stream=True), sender)
    again = await world.chunks(a_request(stream=True), sender)

    assert b"".join(first) == b"".join(again) == b"".join(EVENTS)
    assert len(sender.sent_at_s) == 1


@virtually
async def test_a_stream_that_only_says_why_it_finished_is_kept_and_replayed(world: World) -> None:
    body = {"model": "m", "messages": [], "stream": True}
    request = Request("POST", "http://localhost:8000/v1/chat/completions", {}, json.dumps(body).encode())
    events = [
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    ]
    sender = FakeSender(events=events)

    first = await world.chunks(request, sender)
    again = await world.chunks(request, sender)

    assert first == again == events
    assert len(sender.sent_at_s) == 1


@pytest.mark.parametrize("seconds", [0.5, 1.5])
@virtually
async def test_a_cancellation_before_a_stream_begins_settles_and_frees_its_place(
    seconds: float, world: World
) -> None:
    sender = FakeSender()
    reading = asyncio.create_task(world.chunks(a_request(stream=True), sender))
    await asyncio.sleep(seconds)

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

    assert (await world.in_flight(), sender.closed) == (0, 1)


@virtually
async def test_a_stream_is_tried_again_until_it_begins(world: World) -> None:
    refusal = failed(429, "rate_limit_error", retry_after="3")
    sender = FakeSender([SendError("reset", reached=False), failed(529, "overloaded_error"), refusal, ok()])

    chunks = await world.chunks(a_request(stream=True), sender)

    assert chunks == EVENTS
    assert len(sender.sent_at_s) == 4
    assert sender.sent_at_s[3] - sender.sent_at_s[2] >= 3.0


@virtually
async def test_an_error_instead_of_a_stream_is_given_whole(world: World) -> None:
    error = failed(400, "invalid_request_error")

    async with world.gate.stream(a_request(stream=True), FakeSender([error])) as reply:
        body = b"".join([chunk async for chunk in reply.chunks])

    assert (reply.status, body) == (400, error.body)
    assert await world.in_flight() == 0


@pytest.mark.parametrize("read", [0, 1])
@virtually
async def test_a_stream_that_nobody_reads_to_its_end_is_settled_and_closed(read: int, world: World) -> None:
    sender = FakeSender()

    async with world.gate.stream(a_request(stream=True), sender) as reply:
        chunks = reply.chunks
        for _ in range(read):
            await anext(chunks)
    in_flight = await world.in_flight()

    assert (in_flight, sender.closed) == (0, 1)
    assert world.cache.counts.stored == 0
    assert chunks is not None  # held until here: nothing was left to the garbage collector


@virtually
async def test_a_cancellation_in_the_middle_of_a_stream_settles_and_frees_its_place(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(6e6, 1e5)}, concurrency=1))
    sender = FakeSender()
    reading = asyncio.create_task(world.chunks(a_request(stream=True), sender))
    await asyncio.sleep(2.5)

    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    in_flight = await world.in_flight()
    again = await world.chunks(a_request(stream=True), sender)

    assert (in_flight, again) == (0, EVENTS)
    world.store.close()


@virtually
async def test_while_a_stream_is_open_equal_requests_wait_for_it(world: World) -> None:
    sender = FakeSender()

    both = await asyncio.gather(*(world.chunks(a_request(stream=True), sender) for _ in range(2)))

    assert both == [EVENTS, EVENTS]
    assert len(sender.sent_at_s) == 1


# -- budget and figures


@virtually
async def test_a_spent_budget_stops_the_run_before_the_next_call(world: World) -> None:
    sender, run = FakeSender(), FakeSurroundings()
    world.account.budget.limit_usd = 1.04  # a call costs 0.05, and may cost a dollar

    with in_sample(surroundings=run):
        await world.gate.exchange(a_request("one"), sender)
        with pytest.raises(SendError, match=r"budget of 1\.04 USD"):
            await world.gate.exchange(a_request("two"), sender)

    assert len(sender.sent_at_s) == 1
    assert (len(run.reasons), run.drops_sample) == (1, True)
    assert world.account.spent_usd() == pytest.approx(0.05)


@virtually
async def test_calls_at_once_do_not_exceed_the_budget_together(world: World) -> None:
    sender = FakeSender([ok(output_tokens=10)])
    await world.gate.exchange(a_request("learn how long answers are"), sender)
    world.account.budget.limit_usd = 2.6  # a call costs 0.1, and may cost a dollar

    calls = [world.gate.exchange(a_request(f"{n}"), sender) for n in range(30)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {Reply, Withheld}
    assert world.account.spent_usd() == pytest.approx(1.7)


@virtually
async def test_a_budget_holds_when_answers_turn_out_much_longer_than_before(world: World) -> None:
    sender = FakeSender(
        [*(ok(output_tokens=1) for _ in range(20)), *(ok(output_tokens=100) for _ in range(20))]
    )
    world.account.budget.limit_usd = 5.0

    calls = [world.gate.exchange(a_request(f"{n}"), sender) for n in range(40)]
    await asyncio.gather(*calls, return_exceptions=True)

    assert 3.0 < world.account.spent_usd() <= 5.0


async def _cancelled(world: World) -> None:
    call = asyncio.create_task(world.gate.exchange(a_request("one"), FakeSender(takes_s=60)))
    await asyncio.sleep(0.1)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def _reset(world: World) -> None:
    sender = FakeSender([SendError("reset", reached=True), failed(400)])
    await world.gate.exchange(a_request("one"), sender)


async def _stream_left(world: World) -> None:
    async with world.gate.stream(a_request("one", stream=True), FakeSender()):
        pass


@pytest.mark.parametrize("unanswered", [_cancelled, _reset, _stream_left])
def test_a_call_that_was_sent_and_not_answered_counts_at_what_was_set_aside(
    tmp_path: Path, unanswered: Callable[[World], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.account.budget.limit_usd = 2.5  # one call may cost a dollar
        await unanswered(world)
        used_usd = world.account.budget.used_usd()
        world.account.budget.limit_usd = 1.5

        with pytest.raises(Withheld, match=r"1\.0000 USD spent"):
            await world.gate.exchange(a_request("two"), FakeSender())

        assert used_usd == 1.0
        world.store.close()

    run_in_virtual_time(run())


@virtually
async def test_a_call_inside_an_open_stream_is_told_that_the_budget_does_not_reach_for_both(
    world: World,
) -> None:
    world.account.budget.limit_usd = 1.5  # a call may cost a dollar

    async with world.gate.stream(a_request("one", stream=True), FakeSender()) as reply:
        await anext(reply.chunks)
        with pytest.raises(Withheld, match="set aside for streams that are open and not read"):
            await world.gate.exchange(a_request("two"), FakeSender())


@virtually
async def test_a_stream_that_is_read_on_slowly_is_waited_for(world: World) -> None:
    world.account.budget.limit_usd = 1.5

    async def reads_slowly() -> None:
        async with world.gate.stream(a_request("one", stream=True), FakeSender()) as reply:
            async for _ in reply.chunks:
                await asyncio.sleep(4)

    reading = asyncio.create_task(reads_slowly())
    await asyncio.sleep(0.5)
    reply = await world.gate.exchange(a_request("two"), FakeSender())

    assert reply.status == 200
    await reading


@virtually
async def test_calls_under_way_are_waited_for_after_a_stream_has_ended_unread(world: World) -> None:
    world.account.budget.limit_usd = 1.5  # a call may cost a dollar, and costs 0.05
    async with world.gate.stream(a_request("one", stream=True), FakeSender()) as reply:
        await anext(reply.chunks)
        await asyncio.sleep(60)
        assert [chunk async for chunk in reply.chunks] == EVENTS[1:]

    calls = [world.gate.exchange(a_request(prompt), FakeSender()) for prompt in ("two", "three")]

    assert [reply.status for reply in await asyncio.gather(*calls)] == [200, 200]


@pytest.mark.parametrize("opened_in_tasks", [False, True])
def test_equal_streams_that_are_read_in_turn_do_not_wait_for_each_other(
    opened_in_tasks: bool, tmp_path: Path
) -> None:
    async def run() -> None:
        world, sender = World(tmp_path), FakeSender()
        contexts = [world.gate.stream(a_request(stream=True), sender) for _ in range(2)]
        if opened_in_tasks:
            replies = list(await asyncio.gather(*(each.__aenter__() for each in contexts)))
        else:
            replies = [await each.__aenter__() for each in contexts]

        pieces = [[await anext(reply.chunks) for reply in replies] for _ in EVENTS]

        assert pieces == [[event, event] for event in EVENTS]
        assert len(sender.sent_at_s) == 2
        world.store.close()

    run_in_virtual_time(run())


@virtually
async def test_an_answer_that_breaks_off_counts_at_what_was_set_aside(world: World) -> None:
    world.account.budget.limit_usd = 2.5
    half = replace(ok(), body=ok().body[:20])

    await world.gate.exchange(a_request("one"), FakeSender([half, failed(400)]))

    assert world.account.budget.used_usd() == 1.0


def with_document(prompt: str) -> Request:
    document = {"type": "document", "source": {"type": "base64", "data": "JVBERi0" * 1000}}
    content = [document, {"type": "text", "text": prompt}]
    body = {"model": "claude-test", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    return replace(a_request(), body=json.dumps(body).encode())


@virtually
async def test_of_calls_whose_price_nobody_knows_the_first_shows_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    world.gate.meter = world.gate.spending._meter = Meter(lambda model, usage: usage.input_tokens / 1e6)
    world.account.budget.limit_usd = 1.0
    sender = FakeSender([ok(input_tokens=200_000)])

    calls = [world.gate.exchange(with_document(f"{n}"), sender) for n in range(20)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    # 0.2 for the first, which goes alone; then 0.26 are set aside for each
    assert sender.sent_at_s[:4] == [0.0, 1.0, 1.0, 1.0]
    assert world.account.spent_usd() == pytest.approx(0.8)
    assert sum(isinstance(outcome, Withheld) for outcome in outcomes) == 16
    assert [
        record.getMessage()
        for record in caplog.records
        if "nobody can know what they cost, for they have attachments" in record.getMessage()
    ]
    world.store.close()


def priced_to_a_thousand(model: str, usage: Usage) -> float | None:
    """A dollar for a thousand tokens; longer prompts have no price."""
    total = usage.input_tokens + usage.output_tokens
    return total / 1000 if usage.input_tokens <= 1000 else None


@virtually
async def test_a_long_text_whose_most_has_no_price_is_set_aside_at_what_it_is_expected_to_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    world.gate.meter = world.gate.spending._meter = Meter(priced_to_a_thousand)
    world.account.budget.limit_usd = 2.5
    sender = FakeSender([ok(input_tokens=500)])

    calls = [world.gate.exchange(a_request(f"{n}" + "word " * 400), sender) for n in range(20)]
    await asyncio.gather(*calls, return_exceptions=True)

    # two thousand bytes may be as many tokens, which has no price: the first goes alone and shows 500
    assert sender.sent_at_s == [0.0, 1.0, 1.0, 2.0]
    assert world.account.spent_usd() == pytest.approx(2.02)
    (told,) = [record.getMessage() for record in caplog.records if "the budget" in record.getMessage()]
    assert "for their text may be longer than its price is known for" in told
    world.store.close()


@virtually
async def test_a_text_too_long_for_its_price_is_said_to_have_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    world.gate.meter = world.gate.spending._meter = Meter(priced_to_a_thousand)
    world.account.budget.limit_usd = 1.0

    await world.gate.exchange(a_request("word " * 4000), FakeSender([ok(input_tokens=5000)]))

    (told,) = [record.getMessage() for record in caplog.records if "the budget" in record.getMessage()]
    assert told == "the budget does not hold for claude-test: calls as long as these have no known price"
    world.store.close()


@virtually
async def test_a_call_that_never_reached_the_provider_costs_nothing(world: World) -> None:
    world.account.budget.limit_usd = 1.5
    await world.gate.exchange(
        a_request("one"), FakeSender([SendError("no route", reached=False), failed(400)])
    )

    reply = await world.gate.exchange(a_request("two"), FakeSender())

    assert reply.status == 200
    assert world.account.budget.used_usd() == pytest.approx(0.05)


@virtually
async def test_several_answers_in_a_row_that_do_not_know_the_key_stop_the_run(world: World) -> None:
    run = FakeSurroundings()
    refused = FakeSender([failed(401, "authentication_error", "invalid x-api-key")])

    with in_sample(surroundings=run):
        for n in range(4):
            await world.gate.exchange(a_request(f"{n}"), refused)
        await world.gate.exchange(a_request("right"), FakeSender())
        for n in range(4):
            await world.gate.exchange(a_request(f"again {n}"), refused)
        before_the_fifth = list(run.reasons)
        await world.gate.exchange(a_request("last"), refused)

    assert before_the_fifth == []
    assert len(run.reasons) == 1
    assert "refused the key 5 times in a row" in run.reasons[0]


@virtually
async def test_calls_are_counted_for_their_sample_and_for_the_process(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"requests": Limit(60, 1)}))
    answers = [failed(500), ok(input_tokens=10, output_tokens=5), ok(input_tokens=20, output_tokens=7)]
    sender = FakeSender(answers, takes_s=0.0)

    with in_sample() as mine:
        await world.gate.exchange(a_request("mine"), sender)
    await world.gate.exchange(a_request("nobody's"), sender)
    await world.gate.exchange(a_request("nobody's"), sender)

    assert (mine.calls.requests, mine.calls.retries, mine.calls.cached) == (2, 1, 0)
    assert (mine.calls.input_tokens, mine.calls.output_tokens) == (10, 5)
    assert mine.calls.cost_usd == pytest.approx(0.05)
    assert mine.calls.waited_s > 0
    totals = world.account.totals()
    assert (totals["requests"], totals["retries"], totals["cached"]) == (3, 1, 1)
    assert (totals["input_tokens"], totals["output_tokens"]) == (30, 12)
    assert totals["cost_usd"] == pytest.approx(0.12)
    assert "ordinals" not in totals
    world.store.close()


@virtually
async def test_an_answer_that_does_not_tell_its_tokens_has_an_unknown_price_and_not_none(
    world: World,
) -> None:
    silent = [event.replace(b"usage", b"nothing") for event in EVENTS]

    with in_sample() as mine:
        await world.chunks(a_request(stream=True), FakeSender(events=silent))

    assert (mine.calls.requests, mine.calls.unpriced, mine.calls.cost_usd) == (1, 1, 0.0)


@virtually
async def test_the_bookings_are_settled_with_what_calls_really_took(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits({"output_tokens": Limit(60, 1000)}))
    sender = FakeSender([ok(output_tokens=3)], takes_s=0.0)
    await world.gate.exchange(a_request("one"), sender)
    await asyncio.sleep(2000)

    await world.gate.exchange(a_request("two"), sender)

    (view,) = await world.state.views()
    assert view.state.buckets["output_tokens"].level(view.now_s) == pytest.approx(1000 - 3)
    world.store.close()


# -- secrets


@virtually
async def test_the_api_key_is_nowhere_but_in_the_request(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sender = FakeSender([failed(401, "authentication_error", "bad key"), ok()])
    request = a_request()
    await world.gate.exchange(request, sender)
    await world.gate.exchange(request, sender)
    world.store.flush()

    understood = recognised(request)
    assert understood is not None
    call: Call = understood[1]
    views = await world.state.views()
    stored = b"".join(path.read_bytes() for path in files_in(world.store.path.parent))

    assert KEY.encode() not in stored
    assert KEY not in caplog.text
    assert KEY not in repr((call, views, world.account.totals(), world.gate, world.limiter.holds()))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# -- with the simulated provider over real sockets


@asynccontextmanager
async def provided(behaviour: Behaviour) -> AsyncIterator[tuple[Simulator, AiohttpSender]]:
    sender = AiohttpSender(Timeouts(answer_s=10.0))
    async with Simulator(behaviour) as simulator:
        yield simulator, sender
        await sender.aclose()


async def test_faults_of_a_provider_lose_no_answer(world: World) -> None:
    faults = Faults(schedule=("error", "reset", "truncated", "overloaded", None))

    async with provided(Behaviour(faults=faults)) as (simulator, sender):
        request = a_request(url=f"{simulator.url}/v1/messages")
        reply = await world.gate.exchange(request, sender)
        again = await world.gate.exchange(request, sender)

    assert reply.status == 200
    assert again.cached and again.body == reply.body
    assert (simulator.stats.requests, simulator.stats.completed) == (5, 1)


async def test_a_provider_that_states_its_limits_refuses_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, limits=Limits())
    limits = TrueLimits(requests_per_minute=1200, depth_s=1.0)

    async with provided(Behaviour(limits=limits)) as (simulator, sender):
        requests = [a_request(f"{n}", url=f"{simulator.url}/v1/messages") for n in range(40)]
        replies = await asyncio.gather(*(world.gate.exchange(each, sender) for each in requests))

    assert [reply.status for reply in replies] == [200] * 40
    assert simulator.stats.refused == 0
    world.store.close()


async def test_a_provider_that_refuses_is_obeyed(tmp_path: Path) -> None:
    # we are told more than the provider gives
    world = World(tmp_path, limits=Limits({"requests": Limit(1e6, 100)}))
    limits = TrueLimits(requests_per_minute=600, depth_s=1.0)

    async with provided(Behaviour(limits=limits)) as (simulator, sender):
        requests = [a_request(f"{n}", url=f"{simulator.url}/v1/messages") for n in range(25)]
        replies = await asyncio.gather(*(world.gate.exchange(each, sender) for each in requests))

    assert [reply.status for reply in replies] == [200] * 25
    assert simulator.stats.retry_after_ignored == 0
    assert simulator.stats.completed == 25
    world.store.close()


async def test_a_spend_cap_is_met_once(world: World) -> None:
    run = FakeSurroundings()
    behaviour = Behaviour(faults=Faults())

    async with provided(behaviour) as (simulator, sender):
        simulator.adopt(replace(behaviour, spend_cap=spend_cap_of(0)))
        with in_sample(surroundings=run):
            reply = await world.gate.exchange(a_request(url=f"{simulator.url}/v1/messages"), sender)

    assert 400 <= reply.status < 500
    assert (simulator.stats.requests, len(run.reasons)) == (1, 1)


def spend_cap_of(calls: int) -> Any:
    from evalve.simulator import SpendCap

    return SpendCap(calls=calls)


async def test_a_real_stream_is_replayed_and_a_cut_one_is_not_kept(world: World) -> None:
    behaviour = Behaviour(
        answers=["one two three four five six seven eight"],
        faults=Faults(schedule=("cut_stream", None)),
        latency=Latency(per_output_token_s=0.02),
        stream_chunk_tokens=1,
    )

    async with provided(behaviour) as (simulator, sender):
        request = a_request(stream=True, url=f"{simulator.url}/v1/messages")
        with pytest.raises(SendError):
            await world.chunks(request, sender)
        first = await world.chunks(request, sender)
        again = await world.chunks(request, sender)

    assert b"".join(first) == b"".join(again)
    assert b"message_stop" in first[-1]
    assert simulator.stats.requests == 2
    assert await world.in_flight() == 0


async def test_a_server_that_is_not_there_is_an_error_in_the_end(world: World) -> None:
    async with provided(Behaviour()) as (simulator, sender):
        url = f"{simulator.url}/v1/messages"
    sender = AiohttpSender()

    with pytest.raises(SendError) as told:
        await world.gate.exchange(a_request(url=url), sender)
    await sender.aclose()

    assert not told.value.reached
    assert KEY not in str(told.value)


# -- what is left in the trace


@dataclass
class FakeTrace:
    calls: list[dict[str, Any]] = field(default_factory=list)

    def call(self, **told: Any) -> None:
        self.calls.append(told)


def traced(trace: FakeTrace, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(call[name] for name in names) for call in trace.calls]


@virtually
async def test_a_call_leaves_its_bodies_and_figures_in_the_trace_and_never_its_key(world: World) -> None:
    trace, request = FakeTrace(), a_request()
    sender = FakeSender([failed(529, "overloaded_error"), ok()])

    with in_sample(trace=trace):
        reply = await world.gate.exchange(request, sender)

    (call,) = trace.calls
    assert call["request"] is request.body
    assert call["answer"] is reply.body
    assert (call["provider"], call["model"], call["endpoint"]) == ("anthropic", "claude-test", "messages")
    assert (call["status"], call["problem"], call["tries"], call["streamed"]) == (200, None, 2, False)
    assert (call["wall_s"], call["cost_usd"]) == (pytest.approx(2.0), pytest.approx(0.05))
    assert (call["usage"]["input_tokens"], call["usage"]["output_tokens"]) == (10, 5)
    assert KEY not in repr(call)


@virtually
async def test_cached_answers_and_final_failures_are_traced_too(world: World) -> None:
    trace = FakeTrace()
    await world.gate.exchange(a_request("cached"), FakeSender())

    with in_sample(trace=trace):
        await world.gate.exchange(a_request("cached"), FakeSender())
        await world.gate.exchange(a_request("wrong"), FakeSender([failed(400, message="no such model")]))
        with pytest.raises(SendError):
            await world.gate.exchange(a_request("lost"), FakeSender([SendError("reset", reached=True)]))

    assert traced(trace, "cached", "status", "problem", "tries") == [
        (True, 200, None, 0),
        (False, 400, "anthropic answered 400 api_error: no such model", 1),
        (False, None, "reset", 6),
    ]


@virtually
async def test_streams_are_traced_when_they_end_or_break_off(world: World) -> None:
    trace = FakeTrace()

    with in_sample(trace=trace):
        await world.chunks(a_request("whole", stream=True), FakeSender())
        async with world.gate.stream(a_request("left", stream=True), FakeSender()) as reply:
            await anext(aiter(reply.chunks))

    assert traced(trace, "streamed", "answer", "problem") == [
        (True, b"".join(EVENTS), None),
        (True, b"".join(EVENTS[:2]), "it was not read to its end"),
    ]
