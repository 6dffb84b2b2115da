"""Helpers of the simulator's tests: a clock that moves when told, requests, and a stream's events."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from evalve.simulator import Behaviour, Simulator

NOON = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


class FakeClock:
    """Stands still until it is told to advance; sleepers wake when their time has come."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self._changed = asyncio.Event()

    def now_s(self) -> float:
        return self._now_s

    def utc_now(self) -> datetime:
        return NOON + timedelta(seconds=self._now_s - 1000.0)

    async def sleep(self, delay_s: float) -> None:
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + delay_s, future))
        self._changed.set()
        await future

    def advance(self, delay_s: float) -> None:
        self._now_s += delay_s
        for due_s, future in self._sleepers:
            if due_s <= self._now_s + 1e-9 and not future.done():
                future.set_result(None)
        self._sleepers = [(due_s, future) for due_s, future in self._sleepers if not future.done()]

    async def until_sleeping(self, count: int) -> None:
        """Until so many calls wait for the clock."""
        while len([future for _, future in self._sleepers if not future.done()]) < count:
            self._changed.clear()
            await self._changed.wait()


class Client:
    """Sends requests to a running simulator."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def messages(self, prompt: Any = "Hello", **changes: Any) -> Reply:
        body = {"model": "claude-test", "max_tokens": 100, "messages": [{"role": "user", "content": prompt}]}
        return await self.post("/v1/messages", {**body, **changes})

    async def chat(self, prompt: Any = "Hello", **changes: Any) -> Reply:
        body = {"model": "gpt-test", "messages": [{"role": "user", "content": prompt}]}
        return await self.post("/v1/chat/completions", {**body, **changes})

    async def post(self, path: str, body: Any, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self._session.post(self.url + path, data=io.BytesIO(data), headers=sent) as response:
            return Reply(response.status, dict(response.headers), await response.text())

    async def status(self, path: str, *, method: str = "GET", **headers: str) -> int:
        async with self._session.request(method, self.url + path, headers=headers) as response:
            return response.status

    async def get(self, path: str, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.get(self.url + path, headers=sent) as response:
            return await response.json()


class Reply:
    """Status, headers with small letters, and the text."""

    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.text = text

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; text where it is not JSON."""
        lines = [line.removeprefix("data: ") for line in self.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line) if line.startswith("{") else line for line in lines]

    @property
    def event_names(self) -> list[str]:
        return [line.removeprefix("event: ") for line in self.text.splitlines() if line.startswith("event: ")]


Start = Callable[[Behaviour], Awaitable[tuple[Simulator, Client]]]
"""Starts a simulator for the length of a test."""
