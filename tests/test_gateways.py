"""The process's gateway: what it does to the environment, and runs that ask for it in code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import evalve
from evalve import gateways, gating
from evalve.simulator import Behaviour, Simulator


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A gate and a gateway of the test's own, in front of a simulated provider."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gating, "_HOUSES", {})
    monkeypatch.setattr(gateways, "_GATEWAYS", {})
    for name in ("state", "cache"):
        monkeypatch.setenv(f"EVALVE_{name.upper()}_DIR", str(tmp_path / name))
    with Simulator(Behaviour(answers=["Hello."])).start_in_thread() as simulator:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{simulator.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
        monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
        yield simulator
        for each in gateways._GATEWAYS.values():
            each.close()


def test_the_environment_is_as_it_was_when_the_last_user_has_left(provider: Simulator) -> None:
    before = dict(os.environ)
    first, second = gateways.used(), gateways.used()
    lease = first.__enter__()
    assert second.__enter__() == lease
    assert os.environ["OPENAI_BASE_URL"] == lease.base_url("openai") + "/v1"
    assert os.environ["ANTHROPIC_BASE_URL"] == lease.base_url("anthropic")
    first.__exit__(None, None, None)
    assert os.environ["OPENAI_BASE_URL"] == lease.base_url("openai") + "/v1"
    second.__exit__(None, None, None)
    assert dict(os.environ) == before


def test_a_run_may_ask_for_it_in_code(provider: Simulator) -> None:
    @evalve.foreach("number", range(3))
    async def eval_said(number: int) -> bool:
        ask: Any = [{"role": "user", "content": f"say {number}"}]
        async with openai.AsyncOpenAI() as client:
            answer = await client.chat.completions.create(model="gpt-x", messages=ask)
        return answer.choices[0].message.content == "Hello."

    result = evalve.run(eval_said, gateway=True)

    assert [(record.calls or {}).get("requests") for record in result.records] == [1, 1, 1]
    assert os.environ["OPENAI_BASE_URL"] == f"{provider.url}/v1"


def test_a_lender_in_code_lends_each_sample_an_address_of_its_own(provider: Simulator) -> None:
    @evalve.foreach("number", range(3))
    async def eval_lent(number: int, gateway: Any) -> bool:
        ask: Any = [{"role": "user", "content": f"say {number}"}]
        url = gateway.base_url("openai") + "/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=gateway.token) as client:
            await asyncio.gather(
                *(client.chat.completions.create(model="gpt-x", messages=ask) for _ in range(2))
            )
        return True

    result = evalve.run(eval_lent, gateway=evalve.gateway())

    assert [(record.calls or {}).get("requests") for record in result.records] == [2, 2, 2]
    assert provider.stats.requests == 6
