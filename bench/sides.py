"""Ways to make the same call: bare aiohttp and `evalve.model`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import aiohttp

import evalve
from evalve.gating import house

Ask = Callable[[str], Awaitable[object]]
Side = Callable[[], AbstractAsyncContextManager[Ask]]
"""Opens, on the running loop, what asks."""

MOST_TOKENS = 1024
_HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01", "x-api-key": "key"}


def bare(url: str, model: str) -> Side:
    """Encode, post, read, decode: what anybody would have to do."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def ask(prompt: str) -> object:
                messages = [{"role": "user", "content": prompt}]
                body = json.dumps({"model": model, "messages": messages, "max_tokens": MOST_TOKENS})
                async with session.post(f"{url}/v1/messages", data=body.encode(), headers=_HEADERS) as answer:
                    assert answer.status == 200, answer.status
                    return json.loads(await answer.read())["content"][0]["text"]

            yield ask

    return opened


def through_model(url: str, model: str) -> Side:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        asked = evalve.model(f"anthropic/{model}", base_url=url, api_key="key")
        yield asked.generate
        await house().sender.aclose()

    return opened
