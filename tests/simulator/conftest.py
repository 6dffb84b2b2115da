"""A simulator on loopback whose clock the test moves, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from simulated import Client, FakeClock, Start

from evalve.simulator import Behaviour, Simulator


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def start(clock: FakeClock) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def started(behaviour: Behaviour) -> tuple[Simulator, Client]:
            simulator = await stack.enter_async_context(Simulator(behaviour, clock=clock))
            return simulator, Client(session, simulator.url)

        yield started
