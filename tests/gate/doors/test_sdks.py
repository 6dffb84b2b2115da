"""The real SDKs through the transports, against the simulated provider."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from evalve.gate.accounts import Account
from evalve.gate.cache.cache import ResponseCache
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.transport import async_http_client, http_client
from evalve.gate.estimates import Estimates
from evalve.gate.exchange import Gate
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Limits as KnownLimits
from evalve.gate.messages import Problem, Reply, Request, Sender, StreamedReply, Withheld
from evalve.gate.metering import Meter
from evalve.gate.retry import Retries
from evalve.runner.failing import failure_class_of
from evalve.simulator import Answer, Behaviour, Faults, Latency, Limits, OutputLength, Simulator, ToolCall
from loopback import PassThrough, read_request, refusing_port, serving

ASK: Any = [{"role": "user", "content": "Say something"}]
ANTHROPIC_TOOL: Any = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
OPENAI_TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
WEATHER = Answer(tool_calls=(ToolCall("weather", {"city": "Bern"}),))
ENDLESS = Behaviour(
    latency=Latency(per_output_token_s=0.05, first_token_s=0.0),
    output=OutputLength("fixed", tokens=2000),
    stream_chunk_tokens=1,
)


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour(answers=["Hello."])).start_in_thread() as simulator:
        yield simulator


def async_anthropic(url: str, gate: PassThrough | None = None, **options: Any) -> anthropic.AsyncAnthropic:
    client = async_http_client(gate or PassThrough(), **options)
    return anthropic.AsyncAnthropic(api_key="k", base_url=url, http_client=client)


def async_openai(url: str, gate: PassThrough | None = None, **options: Any) -> openai.AsyncOpenAI:
    client = async_http_client(gate or PassThrough(), **options)
    return openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1", http_client=client)


def sync_anthropic(url: str, gate: PassThrough | None = None, **options: Any) -> anthropic.Anthropic:
    client = http_client(gate or PassThrough(), **options)
    return anthropic.Anthropic(api_key="k", base_url=url, http_client=client)


def sync_openai(url: str, gate: PassThrough | None = None, **options: Any) -> openai.OpenAI:
    client = http_client(gate or PassThrough(), **options)
    return openai.OpenAI(api_key="k", base_url=f"{url}/v1", http_client=client)


def text_of(message: anthropic.types.Message) -> str:
    block = message.content[0]
    assert isinstance(block, anthropic.types.TextBlock)
    return block.text


PATIENCE_S = 60.0


async def eventually(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < ends_s:  # noqa: ASYNC110  counts have no event to wait for
        await asyncio.sleep(0.01)
    assert holds()


# -- answers


async def test_async_sdks_get_answers_through_the_gate(provider: Simulator) -> None:
    gate = PassThrough()
    async with async_anthropic(provider.url, gate) as one, async_openai(provider.url, gate) as other:
        message = await one.messages.create(model="claude-x", max_tokens=50, messages=ASK)
        completion = await other.chat.completions.create(model="gpt-x", messages=ASK)
    assert text_of(message) == "Hello."
    assert completion.choices[0].message.content == "Hello."
    assert [request.url.removeprefix(provider.url) for request in gate.requests] == [
        "/v1/messages",
        "/v1/chat/completions",
    ]
    assert [request.headers["authorization"] for request in gate.requests] == ["Bearer k", "Bearer k"]


def test_sync_sdks_get_answers_through_the_gate(provider: Simulator) -> None:
    gate = PassThrough()
    with sync_anthropic(provider.url, gate) as one, sync_openai(provider.url, gate) as other:
        message = one.messages.create(model="claude-x", max_tokens=50, messages=ASK)
        completion = other.chat.completions.create(model="gpt-x", messages=ASK)
    assert text_of(message) == "Hello."
    assert completion.choices[0].message.content == "Hello."
    assert len(gate.requests) == provider.stats.requests == 2


async def test_async_sdks_stream(provider: Simulator) -> None:
    async with async_anthropic(provider.url) as one, async_openai(provider.url) as other:
        async with one.messages.stream(model="claude-x", max_tokens=50, messages=ASK) as stream:
            said = [text async for text in stream.text_stream]
        chunks = await other.chat.completions.create(model="gpt-x", messages=ASK, stream=True)
        parts = [part.choices[0].delta.content or "" async for part in chunks if part.choices]
    assert "".join(said) == "Hello."
    assert "".join(parts) == "Hello."


def test_sync_sdks_stream(provider: Simulator) -> None:
    with sync_anthropic(provider.url) as one, sync_openai(provider.url) as other:
        with one.messages.stream(model="claude-x", max_tokens=50, messages=ASK) as stream:
            said = list(stream.text_stream)
        chunks = other.chat.completions.create(model="gpt-x", messages=ASK, stream=True)
        parts = [part.choices[0].delta.content or "" for part in chunks if part.choices]
    assert "".join(said) == "Hello."
    assert "".join(parts) == "Hello."


async def test_tools_are_called_whole_and_streamed(provider: Simulator) -> None:
    provider.adopt(Behaviour(answers=[WEATHER]))
    async with async_anthropic(provider.url) as one, async_openai(provider.url) as other:
        message = await one.messages.create(
            model="claude-x", max_tokens=50, messages=ASK, tools=[ANTHROPIC_TOOL]
        )
        async with one.messages.stream(
            model="claude-x", max_tokens=50, messages=ASK, tools=[ANTHROPIC_TOOL]
        ) as stream:
            streamed = await stream.get_final_message()
        completion = await other.chat.completions.create(model="gpt-x", messages=ASK, tools=[OPENAI_TOOL])
    used = [block for block in message.content if block.type == "tool_use"]
    used_streamed = [block for block in streamed.content if block.type == "tool_use"]
    called = (completion.choices[0].message.tool_calls or [])[0]
    assert [(block.name, block.input) for block in used] == [("weather", {"city": "Bern"})]
    assert [(block.name, block.input) for block in used_streamed] == [("weather", {"city": "Bern"})]
    assert called.type == "function"
    assert (called.function.name, called.function.arguments) == ("weather", '{"city": "Bern"}')


def test_what_is_no_call_to_a_model_goes_past_the_gate(provider: Simulator) -> None:
    gate = PassThrough()
    with sync_anthropic(provider.url, gate) as client:
        counted = client.messages.count_tokens(model="claude-x", messages=ASK)
    assert counted.input_tokens > 0
    assert gate.requests == []
    assert provider.stats.token_counts == 1


# -- errors are final


async def test_a_refusal_is_raised_once_and_not_tried_again(provider: Simulator) -> None:
    provider.adopt(Behaviour(limits=Limits(requests_per_minute=1, depth_s=60)))
    async with async_anthropic(provider.url) as one, async_openai(provider.url) as other:
        await one.messages.create(model="m", max_tokens=50, messages=ASK)
        await other.chat.completions.create(model="n", messages=ASK)
        with pytest.raises(anthropic.RateLimitError):
            await one.messages.create(model="m", max_tokens=50, messages=ASK)
        with pytest.raises(openai.RateLimitError):
            await other.chat.completions.create(model="n", messages=ASK)
        with pytest.raises(anthropic.RateLimitError):
            await one.messages.create(model="m", max_tokens=50, messages=ASK, stream=True)
    assert (provider.stats.requests, provider.stats.refused) == (5, 3)


def test_a_server_error_is_raised_once_and_not_tried_again(provider: Simulator) -> None:
    provider.adopt(Behaviour(faults=Faults(probabilities={"error": 1.0})))
    with sync_anthropic(provider.url) as one, sync_openai(provider.url) as other:
        with pytest.raises(anthropic.InternalServerError):
            one.messages.create(model="m", max_tokens=50, messages=ASK)
        with pytest.raises(openai.InternalServerError):
            other.chat.completions.create(model="n", messages=ASK)
        with pytest.raises(openai.InternalServerError):
            other.chat.completions.create(model="n", messages=ASK, stream=True)
    assert provider.stats.requests == 3


async def test_a_refused_connection_is_a_status_error_told_once() -> None:
    gate = PassThrough()
    url = f"http://127.0.0.1:{refusing_port()}"
    async with async_anthropic(url, gate) as one, async_openai(url, gate) as other:
        with pytest.raises(anthropic.APIStatusError, match="evalve got no answer") as first:
            await one.messages.create(model="m", max_tokens=50, messages=ASK)
        with pytest.raises(openai.APIStatusError, match=r"given up: POST http://127\.0\.0\.1") as second:
            await other.chat.completions.create(model="m", messages=ASK)
        with pytest.raises(openai.APIStatusError):
            await other.chat.completions.create(model="m", messages=ASK, stream=True)
    assert (first.value.status_code, second.value.status_code) == (503, 503)
    assert len(gate.requests) == 3


def test_a_refused_connection_is_a_status_error_for_sync_sdks_too() -> None:
    gate = PassThrough()
    url = f"http://127.0.0.1:{refusing_port()}"
    with sync_anthropic(url, gate) as one, sync_openai(url, gate, verify=False) as other:
        with pytest.raises(anthropic.APIStatusError, match="evalve got no answer"):
            one.messages.create(model="m", max_tokens=50, messages=ASK)
        with pytest.raises(openai.APIStatusError, match="evalve got no answer"):
            other.chat.completions.create(model="m", messages=ASK, stream=True)
    assert len(gate.requests) == 2


class Withholding(PassThrough):
    """A gate that may not send what it is given."""

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        raise Withheld("the answer is not in the cache, and --cache read asks nobody")


async def test_whose_a_failure_is_can_be_told_of_what_sdks_raise() -> None:
    url = f"http://127.0.0.1:{refusing_port()}"

    async def raised(gate: PassThrough) -> set[str]:
        async with async_anthropic(url, gate) as one, async_openai(url, gate) as other:
            with pytest.raises(anthropic.APIStatusError) as first:
                await one.messages.create(model="m", max_tokens=50, messages=ASK)
            with pytest.raises(openai.APIStatusError) as second:
                await other.chat.completions.create(model="m", messages=ASK)
        return {failure_class_of(caught.value, made_calls=True) for caught in (first, second)}

    assert await raised(PassThrough()) == {"provider"}
    assert await raised(Unanswering()) == {"provider"}
    assert await raised(Withholding()) == {"code"}


class Unanswering(PassThrough):
    """A gate that got only 200s in which there is no answer."""

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        return Reply(200, {}, b"[1, 2]", problem=NO_ANSWER)

    @asynccontextmanager
    async def stream(self, request: Request, sender: Sender) -> AsyncIterator[StreamedReply]:
        yield StreamedReply(200, {}, one_chunk(b"[1, 2]"), problem=NO_ANSWER)


NO_ANSWER = Problem("server", "h answered 200, but what came does not have the form of a message", 200)


async def one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def test_a_success_without_an_answer_in_it_is_the_sdks_own_error() -> None:
    async with (
        async_anthropic("http://h", Unanswering()) as one,
        async_openai("http://h", Unanswering()) as other,
    ):
        with pytest.raises(anthropic.InternalServerError, match="does not have the form"):
            await one.messages.create(model="m", max_tokens=50, messages=ASK)
        with pytest.raises(anthropic.InternalServerError, match="does not have the form"):
            await one.messages.create(model="m", max_tokens=50, messages=ASK, stream=True)
        with pytest.raises(openai.InternalServerError, match="does not have the form"):
            await other.chat.completions.create(model="m", messages=ASK)


def test_a_success_without_an_answer_in_it_is_the_sync_sdks_own_error() -> None:
    with sync_openai("http://h", Unanswering()) as client:
        with pytest.raises(openai.InternalServerError, match="does not have the form"):
            client.chat.completions.create(model="m", messages=ASK)
        with pytest.raises(openai.InternalServerError, match="does not have the form"):
            client.chat.completions.create(model="m", messages=ASK, stream=True)


async def test_the_sdks_timeout_is_that_of_one_try(provider: Simulator) -> None:
    async with async_anthropic(provider.url) as one:
        # connected before, or a busy machine might take as long for that alone
        await one.messages.create(model="m", max_tokens=50, messages=ASK)
        provider.adopt(Behaviour(faults=Faults(probabilities={"hang": 1.0})))
        with pytest.raises(anthropic.APIStatusError, match="TimeoutError"):
            await one.messages.create(model="m", max_tokens=50, messages=ASK, timeout=0.2)
    await eventually(lambda: provider.stats.requests >= 2)
    assert provider.stats.requests == 2


async def test_a_stream_that_breaks_off_raises_and_is_not_tried_again(provider: Simulator) -> None:
    provider.adopt(Behaviour(faults=Faults(probabilities={"cut_stream": 1.0})))
    async with async_openai(provider.url) as client:
        chunks = await client.chat.completions.create(model="m", messages=ASK, stream=True)
        with pytest.raises(Exception, match=r"ClientPayloadError|Connection error"):
            async for _ in chunks:
                pass
    assert provider.stats.requests == 1


def a_gate() -> Gate:
    """All layers, with nothing kept and no limits known."""
    account = Account("off")
    return Gate(
        read=recognised,
        cache=ResponseCache(),
        retries=Retries(),
        limiter=Limiter(MemoryState(now_s=time.monotonic), limits_for=lambda call: KnownLimits()),
        estimates=Estimates(),
        meter=Meter(lambda model, usage: None),
        account=lambda: account,
    )


FAILING_LATE = Behaviour(
    answers=["one two three four five six"],
    faults=Faults(probabilities={"error_event": 1.0}),
    latency=Latency(per_output_token_s=0.02),
    stream_chunk_tokens=1,
)


BEFORE_THE_ERROR: dict[str, list[dict[str, Any]]] = {
    "/v1/messages": [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one"}},
    ],
    "/v1/chat/completions": [
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "n",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "one"}}],
        },
    ],
}


async def test_an_error_event_in_a_stream_is_the_sdks_own_error_after_the_text_before_it() -> None:
    texts: list[str] = []
    asked: list[str] = []
    has_text = asyncio.Event()

    async def fail_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The error only follows when the text has been seen: in one piece with it, it would be retried."""
        while True:
            line, _, _ = await read_request(reader)
            asked.append(line.split()[1])
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                + b"".join(as_event(data) for data in BEFORE_THE_ERROR[asked[-1]])
            )
            await has_text.wait()
            has_text.clear()
            writer.write(as_event({"type": "error", "error": {"type": "api_error", "message": "an error"}}))
            await writer.drain()
            return

    async with (
        serving(fail_late) as port,
        async_http_client(a_gate()) as one,
        anthropic.AsyncAnthropic(api_key="k", base_url=f"http://127.0.0.1:{port}", http_client=one) as claude,
        async_http_client(a_gate()) as other,
        openai.AsyncOpenAI(api_key="k", base_url=f"http://127.0.0.1:{port}/v1", http_client=other) as gpt,
    ):
        with pytest.raises(anthropic.APIStatusError, match="error"):
            async with claude.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
                async for text in stream.text_stream:
                    texts.append(text)
                    has_text.set()
        with pytest.raises(openai.APIError) as caught:
            async for chunk in await gpt.chat.completions.create(model="n", messages=ASK, stream=True):
                texts.append(chunk.choices[0].delta.content or "")
                has_text.set()
    assert type(caught.value) is openai.APIError
    assert texts == ["one", "one"]
    assert asked == ["/v1/messages", "/v1/chat/completions"]


def as_event(data: dict[str, Any]) -> bytes:
    kind = f"event: {data['type']}\n" if "type" in data else ""
    return f"{kind}data: {json.dumps(data)}\n\n".encode()


def test_an_error_event_in_a_stream_is_the_sync_sdks_own_error(provider: Simulator) -> None:
    provider.adopt(FAILING_LATE)
    with (
        http_client(a_gate()) as client,
        anthropic.Anthropic(api_key="k", base_url=provider.url, http_client=client) as claude,
        pytest.raises(anthropic.APIStatusError, match="error"),
        claude.messages.stream(model="m", max_tokens=50, messages=ASK) as stream,
    ):
        for _ in stream.text_stream:
            pass


# -- threads, loops, cancellation


def test_four_threads_share_one_sync_client(provider: Simulator) -> None:
    with sync_anthropic(provider.url) as client, ThreadPoolExecutor(4) as threads:

        def ask(number: int) -> str:
            with client.messages.stream(model="m", max_tokens=50, messages=ASK) as stream:
                streamed = "".join(stream.text_stream)
            return streamed + text_of(client.messages.create(model="m", max_tokens=50, messages=ASK))

        said = list(threads.map(ask, range(40)))
    assert said == ["Hello.Hello."] * 40
    assert provider.stats.requests == 80


def test_a_sync_client_works_in_a_thread_that_runs_a_loop(provider: Simulator) -> None:
    async def ask() -> str:
        with sync_anthropic(provider.url) as client:
            return text_of(client.messages.create(model="m", max_tokens=50, messages=ASK))

    assert asyncio.run(ask()) == "Hello."


def test_one_async_client_serves_several_loops(provider: Simulator) -> None:
    client = async_anthropic(provider.url)

    async def ask() -> list[str]:
        calls = [client.messages.create(model="m", max_tokens=50, messages=ASK) for _ in range(5)]
        return [text_of(message) for message in await asyncio.gather(*calls)]

    said = [asyncio.run(ask()), asyncio.run(ask())]
    both = [threading.Thread(target=lambda: said.append(asyncio.run(ask()))) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert said == [["Hello."] * 5] * 4


@pytest.mark.parametrize("options", [{}, {"trust_env": False}], ids=["our sender", "its own network"])
async def test_a_task_cancelled_in_the_middle_of_a_stream_closes_the_connection(
    provider: Simulator, options: dict[str, Any]
) -> None:
    provider.adopt(ENDLESS)
    async with async_anthropic(provider.url, **options) as client:
        begun = asyncio.Event()

        async def listen() -> None:
            async with client.messages.stream(model="m", max_tokens=5000, messages=ASK) as stream:
                async for _ in stream.text_stream:
                    begun.set()

        before = asyncio.all_tasks()
        task = asyncio.ensure_future(listen())
        await asyncio.wait_for(begun.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: provider.stats.abandoned == 1)
        await eventually(lambda: asyncio.all_tasks() <= before)


@pytest.mark.parametrize("options", [{}, {"trust_env": False}], ids=["our sender", "its own network"])
def test_a_sync_stream_left_in_the_middle_closes_the_connection(
    provider: Simulator, options: dict[str, Any]
) -> None:
    provider.adopt(ENDLESS)
    with sync_openai(provider.url, **options) as client:
        chunks = client.chat.completions.create(model="m", messages=ASK, stream=True)
        next(iter(chunks))
        chunks.close()
        asyncio.run(eventually(lambda: provider.stats.abandoned == 1))
