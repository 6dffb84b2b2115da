"""Gemini, Ollama and Bedrock through the client that an SDK is given: kept, tried again and counted."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import evalve
from amazon_frames import frame
from evalve import gating
from evalve.contracts import SAMPLE, CallLog, SampleContext
from evalve.experiments.file.configuration import Configuration
from evalve.simulator import Behaviour, Limits, Simulator
from loopback import read_request, serving

Answer = Callable[[asyncio.StreamWriter, int], Awaitable[None]]
KEY = "AIzaSecretSecret"
GEMINI = {"contents": [{"parts": [{"text": "Capital of France?"}]}]}
CANDIDATE = {"content": {"parts": [{"text": "Paris"}]}, "finishReason": "STOP"}
COUNTS = {"promptTokenCount": 30, "candidatesTokenCount": 8}
REFUSED = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "Quota",
        "details": [{"retryDelay": "0.01s"}],
    }
}


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("EVALVE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EVALVE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("EVALVE_LIMITS_STATE", "memory")
    monkeypatch.setattr(gating, "_HOUSES", {})
    yield
    house = gating.house()
    atexit.unregister(house.close)
    house.close()


class Provider:
    """Answers each request with what `answer` writes, and counts them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            self.requests += 1
            await self._answer(writer, self.requests)
            await writer.drain()


def whole(value: Any, status: int = 200) -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def all_bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@contextmanager
def sample(logs: list[CallLog]) -> Iterator[None]:
    """Calls in it are those of one sample, which asks for the first time and finds what is kept."""
    logs.append(CallLog())
    token = SAMPLE.set(SampleContext("exp", "eval_a", "s1", 0, 1, logs[-1]))
    try:
        yield
    finally:
        SAMPLE.reset(token)


def sums(logs: list[CallLog]) -> tuple[int, int, int, int, int]:
    """Requests, answers from the cache, refusals, tokens in and out."""
    return (
        sum(log.requests for log in logs),
        sum(log.cached for log in logs),
        sum(log.refusals for log in logs),
        sum(log.input_tokens for log in logs),
        sum(log.output_tokens for log in logs),
    )


async def test_a_refusal_of_gemini_is_waited_for_and_its_answer_kept(tmp_path: Path) -> None:
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        answered = whole({"candidates": [CANDIDATE], "usageMetadata": COUNTS})
        writer.write(whole(REFUSED, 429) if number == 1 else answered)

    provider = Provider(answer)
    logs: list[CallLog] = []
    async with serving(provider) as port, evalve.async_http_client() as client:
        url = f"http://127.0.0.1:{port}/v1beta/models/gemini-3-flash:generateContent?key={KEY}"
        rotated = url.replace(KEY, "AIzaAnother")
        answers = []
        for each in (url, url, rotated):
            with sample(logs):
                answers.append((await client.post(each, json=GEMINI)).json()["candidates"])

    assert answers == [[CANDIDATE]] * 3
    assert provider.requests == 2
    assert sums(logs) == (2, 2, 1, 30, 8)
    assert KEY.encode() not in all_bytes_in(tmp_path)


async def test_lines_of_ollama_are_passed_on_as_they_come_and_kept() -> None:
    may_go_on = asyncio.Event()
    piece = json.dumps({"message": {"content": "Par"}, "done": False}).encode() + b"\n"
    last = {"message": {"content": ""}, "done": True, "prompt_eval_count": 30, "eval_count": 8}

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + chunked(piece))
        await may_go_on.wait()
        writer.write(chunked(json.dumps(last).encode() + b"\n", b""))

    provider = Provider(answer)
    received: list[list[bytes]] = []
    logs: list[CallLog] = []
    async with serving(provider) as port, evalve.async_http_client() as client:
        for _ in range(2):
            received.append([])
            asked = {"model": "llama3.2", "messages": []}
            url = f"http://127.0.0.1:{port}/api/chat"
            with sample(logs):
                async with client.stream("POST", url, json=asked) as response:
                    async for chunk in response.aiter_bytes():
                        received[-1].append(chunk)
                        may_go_on.set()

    assert received[0][0] == piece
    assert b"".join(received[0]) == b"".join(received[1])
    assert provider.requests == 1
    assert sums(logs) == (1, 1, 0, 30, 8)


async def test_frames_of_bedrock_are_passed_on_and_kept() -> None:
    body = b"".join(
        [
            frame("messageStart", {"role": "assistant"}),
            frame("contentBlockDelta", {"delta": {"text": "Paris"}}),
            frame("messageStop", {"stopReason": "end_turn"}),
            frame("metadata", {"usage": {"inputTokens": 30, "outputTokens": 8}}),
        ]
    )

    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        cut_off = number == 1
        sent = body[:-200] if cut_off else body
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(sent, b""))

    provider = Provider(answer)
    async with serving(provider) as port, evalve.async_http_client() as client:
        url = f"http://127.0.0.1:{port}/model/amazon.nova-pro-v1%3A0/converse-stream"
        with pytest.raises(httpx2.ReadError, match="the answer broke off: its stream has no end"):
            await client.post(url, json={"messages": []})
        bodies = [(await client.post(url, json={"messages": []})).content for _ in range(2)]

    assert bodies == [body, body]
    assert provider.requests == 2


async def test_a_call_in_an_unknown_format_passes_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole({"content": "Paris"}))

    provider = Provider(answer)
    logs: list[CallLog] = []
    async with serving(provider) as port, evalve.async_http_client() as client:
        host = f"127.0.0.1:{port}"
        with sample(logs):
            for path in ("invocations?key=abc", "generate", "v1/messages/count_tokens"):
                await client.post(f"http://{host}/{path}", json={"prompt": "Capital?"})
            await client.post(f"http://{host}/mcp", json={"jsonrpc": "2.0", "method": "tools/call"})
            await client.get(f"http://{host}/health")

    assert provider.requests == 5
    assert logs[0].ungated == 2
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"calls to {host}/invocations pass without limits, cache and metering, because")


async def test_limits_for_gemini_hold_for_whoever_answers_in_its_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At half of what the provider allows, so that a busy machine does not matter; all at once, 20 fail."""
    monkeypatch.setenv("EVALVE_LIMITS_GEMINI_RPM", "1200")
    behaviour = Behaviour(limits=Limits(requests_per_minute=2400, depth_s=1), answers=["Paris"])

    async def ask(client: httpx2.AsyncClient, url: str, number: int) -> str:
        asked = {"contents": [{"parts": [{"text": f"Question {number}"}]}]}
        async with client.stream("POST", f"{url}?alt=sse&key={KEY}", json=asked) as reply:
            return "".join([line async for line in reply.aiter_lines() if "STOP" in line])

    async with Simulator(behaviour) as provider, evalve.async_http_client() as client:
        url = f"{provider.url}/v1beta/models/gemini-3-flash:streamGenerateContent"
        ends = await asyncio.gather(*(ask(client, url, number) for number in range(60)))

    assert all(ends)
    assert (provider.stats.completed, provider.stats.refused) == (60, 0)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("nova@https://bedrock-runtime.us-east-1.amazonaws.com", "EVALVE_LIMITS_BEDROCK_RPM"),
        (
            "gemini-3-flash@https://generativelanguage.googleapis.com/v1beta/openai",
            "EVALVE_LIMITS_GEMINI_RPM",
        ),
    ],
)
def test_limits_of_a_provider_hold_at_its_host_in_whatever_format(name: str, variable: str) -> None:
    """As for boto3, whose calls only `evalve.limiter` can hold back."""
    call = evalve.model(f"openai-compatible/{name}", api_key="any").call()

    limits = gating.limits_reader(Configuration(), {variable: "30", "EVALVE_LIMITS_OPENAI_RPM": "500"})(call)

    assert limits.by_dimension["requests"].per_minute == 30
