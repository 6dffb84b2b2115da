"""One client, made before any sample, serves all of them: each call counts for the sample that made it."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import anthropic
import httpx
import httpx2
import openai
import pytest

from evalve.contracts import SAMPLE, SampleContext
from evalve.gate.doors.gateway.leases import Tag
from evalve.gate.doors.gateway.tagging import tagging
from evalve.gate.doors.transport import async_http_client, http_client
from evalve.simulator import Behaviour, Simulator
from gateway_world import REAL_KEY, World, gateway_to
from loopback import PassThrough

ASK: Any = [{"role": "user", "content": "Say something"}]
BODY = {"model": "gpt-x", "messages": ASK}


@contextmanager
def tagging_world(left: list[tuple[str, str]] | None = None) -> Iterator[World]:
    """What leaves for elsewhere is added to `left`."""
    with gateway_to(mode="off") as world:

        def tag_for(host: str | None, port: int | None) -> Tag | None:
            sample = SAMPLE.get()
            return world.gateway.tag(sample) if sample is not None and port == world.gateway.port else None

        with tagging(tag_for, lambda method, url: None if left is None else left.append((method, url))):
            yield world


async def under(sample: SampleContext, ask: Callable[[], Any]) -> Any:
    """In a task of its own, as the runner does it."""

    async def work() -> Any:
        SAMPLE.set(sample)
        return await ask()

    return await asyncio.create_task(work())


async def test_a_shared_async_client_attributes_each_call_to_its_sample() -> None:
    with tagging_world() as world:
        base = world.process.base_url("openai") + "/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key=REAL_KEY) as client:

            async def ask() -> None:
                await client.chat.completions.create(model="gpt-x", messages=ASK)
                stream = await client.chat.completions.create(model="gpt-x", messages=ASK, stream=True)
                assert [part async for part in stream]

            samples = [world.sample(f"s{number}") for number in range(5)]
            await asyncio.gather(*(under(sample, ask) for sample in samples))
            await client.chat.completions.create(model="gpt-x", messages=ASK)  # of no sample
        assert [sample.calls.requests for sample in samples] == [2] * 5
        assert world.account.totals()["requests"] == 11


async def test_a_shared_sync_client_does_so_from_threads_too() -> None:
    with tagging_world() as world:
        with anthropic.Anthropic(base_url=world.process.base_url("anthropic"), api_key=REAL_KEY) as client:

            async def ask() -> None:
                await asyncio.to_thread(
                    lambda: client.messages.create(model="claude-x", max_tokens=9, messages=ASK)
                )

            samples = [world.sample(f"s{number}") for number in range(3)]
            await asyncio.gather(*(under(sample, ask) for sample in samples))
        assert [sample.calls.requests for sample in samples] == [1] * 3


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient() as client:
        (
            await client.post(url, json=BODY, headers={"authorization": f"Bearer {REAL_KEY}"})
        ).raise_for_status()


async def by_httpx2_at_once(url: str) -> None:
    await asyncio.to_thread(lambda: httpx2.post(url, json=BODY).raise_for_status())


async def by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.post(url, json=BODY) as got:
        await got.read()


async def by_urllib(url: str) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(BODY).encode(), headers)
    await asyncio.to_thread(lambda: urllib.request.urlopen(request).read())


@pytest.mark.parametrize("send", [by_httpx, by_httpx2_at_once, by_aiohttp, by_urllib])
async def test_whatever_library_sends_says_whose_call_it_is(send: Callable[[str], Any]) -> None:
    with tagging_world() as world:
        sample = world.sample()
        url = world.process.base_url("openai") + "/v1/chat/completions"
        await under(sample, lambda: send(url))
        assert sample.calls.requests == 1


async def test_nothing_is_tagged_afterwards_or_elsewhere() -> None:
    wrapped = [(library.AsyncClient, "send") for library in (httpx, httpx2)]
    before = [getattr(*each) for each in wrapped]
    with tagging_world():
        assert [getattr(*each) for each in wrapped] != before
    assert [getattr(*each) for each in wrapped] == before


async def test_a_client_that_passes_the_gate_already_leaves_it_to_the_gateway() -> None:
    gate = PassThrough()
    with tagging_world() as world:
        base = world.process.base_url("openai") + "/v1"
        sample = world.sample()
        async with openai.AsyncOpenAI(
            base_url=base, api_key=REAL_KEY, http_client=async_http_client(gate)
        ) as client:
            await under(sample, lambda: client.chat.completions.create(model="gpt-x", messages=ASK))
        with http_client(gate, library="httpx") as plain:
            await asyncio.to_thread(lambda: plain.post(f"{base}/chat/completions", json=BODY))
        assert gate.requests == []
        assert gate.passed == []
        assert sample.calls.requests == 1


@pytest.mark.parametrize("send", [by_httpx, by_httpx2_at_once, by_urllib])
async def test_what_goes_elsewhere_is_told(send: Callable[[str], Any]) -> None:
    left: list[tuple[str, str]] = []
    async with Simulator(Behaviour(answers=["Hello."])) as elsewhere:
        url = f"{elsewhere.url}/v1/chat/completions"
        with tagging_world(left) as world:
            await under(world.sample(), lambda: send(url))
            await under(
                world.sample(), lambda: send(world.process.base_url("openai") + "/v1/chat/completions")
            )
    assert left == [("POST", url)]


async def test_a_client_that_passes_the_gate_goes_nowhere_else() -> None:
    left: list[tuple[str, str]] = []
    gate = PassThrough()
    async with Simulator(Behaviour(answers=["Hello."])) as elsewhere:
        url = f"{elsewhere.url}/v1/chat/completions"
        with tagging_world(left), http_client(gate) as plain:
            await asyncio.to_thread(lambda: plain.post(url, json=BODY))
            async with async_http_client(gate, library="httpx") as client:
                await client.post(url, json=BODY)
    assert len(gate.requests) == 2
    assert left == []


async def test_a_tag_is_forgotten_with_its_call() -> None:
    with tagging_world() as world:
        tag = world.gateway.tag(world.sample())
        value = tag.value
        assert world.gateway._leases.tagged(value) is not None
        del tag
        assert world.gateway._leases.tagged(value) is None
