"""The same call through the official SDKs, with and without our transport."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

import evalve
from bench.sides import MOST_TOKENS, Ask, Side


def anthropic_sdk(url: str, model: str, *, gated: bool) -> Side:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        transport = evalve.async_http_client() if gated else None
        async with AsyncAnthropic(base_url=url, api_key="key", http_client=transport) as client:

            async def ask(prompt: str) -> object:
                return await client.messages.create(
                    model=model, max_tokens=MOST_TOKENS, messages=[{"role": "user", "content": prompt}]
                )

            yield ask

    return opened


def openai_sdk(url: str, model: str, *, gated: bool) -> Side:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Ask]:
        transport = evalve.async_http_client() if gated else None
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key", http_client=transport) as client:

            async def ask(prompt: str) -> object:
                return await client.chat.completions.create(
                    model=model, max_tokens=MOST_TOKENS, messages=[{"role": "user", "content": prompt}]
                )

            yield ask

    return opened
