"""A batch from its intent to the cache, step by step, over a network that fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import evalve
from evalve import gating
from evalve.batches.building import apis, minder_of, store_in
from evalve.batches.desk import Desk, desk
from evalve.gate.batches.minding import look_again_in_s
from evalve.gate.messages import SendError
from evalve.simulator import Simulator

Started = Callable[..., Simulator]
CLAUDE = "anthropic/claude-haiku-4-5"


class FlakyNetwork:
    """The real one, which fails as often as told before it works, answer and all."""

    def __init__(self, fails: int, *, after_sending: bool = False) -> None:
        self._real = gating.house().sender
        self._fails = fails
        self._after_sending = after_sending

    async def send(self, request: Any) -> Any:
        return await self._tried(lambda: self._real.send(request))

    async def send_file(self, request: Any, file: Any, *, form: Any = None) -> Any:
        return await self._tried(lambda: self._real.send_file(request, file, form=form))

    @asynccontextmanager
    async def stream(self, request: Any) -> Any:
        async with self._real.stream(request) as reply:
            yield reply

    async def _tried(self, send: Callable[[], Any]) -> Any:
        if self._fails and not self._after_sending:
            self._fails -= 1
            raise SendError("the cable was pulled", reached=False)
        reply = await send()
        if self._fails:
            self._fails -= 1
            raise SendError("the cable was pulled", reached=True)
        return reply


def requests(count: int) -> list[dict[str, Any]]:
    return [{"custom_id": f"tc-{n}", "model": CLAUDE, "prompt": f"say {n}"} for n in range(count)]


async def minded_over(network: FlakyNetwork, count: int) -> list[str]:
    """What `results` gives for a batch that is taken on over that network."""
    from evalve.batches import asking

    at = desk()
    at.minder._network = network
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "desk", lambda: at)
        batch = await evalve.batches.submit_async(requests(count))
        return [one["status"] for one in await evalve.batches.results_async(batch)]


async def test_a_network_that_fails_is_tried_again(provider: Started) -> None:
    simulator = provider()
    assert await minded_over(FlakyNetwork(3), 4) == ["succeeded"] * 4
    assert simulator.stats.batched == 4


@pytest.mark.parametrize("model", [CLAUDE, "openai/gpt-5-mini"])
async def test_a_submission_whose_answer_is_lost_is_found_in_the_provider_s_list(
    provider: Started, model: str
) -> None:
    simulator = provider()
    simulator_requests = [{**one, "model": model} for one in requests(5)]
    stranger = await evalve.batches.submit_async([{"model": model, "prompt": f"x {n}"} for n in range(5)])
    at = desk()
    at.store.mark(stranger, provider_id="", state="collected")  # now it may be anybody's
    at.minder._network = LostAnswer()
    from evalve.batches import asking

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "desk", lambda: at)
        batch = await evalve.batches.submit_async(simulator_requests)
        results = await evalve.batches.results_async(batch)
    assert [one["status"] for one in results] == ["succeeded"] * 5
    assert (simulator.stats.batches, simulator.stats.batched_again) == (2, 0)


class LostAnswer(FlakyNetwork):
    """The answer to the first submission does not arrive."""

    def __init__(self) -> None:
        super().__init__(1, after_sending=True)

    async def send(self, request: Any) -> Any:
        if request.method == "POST" and request.url.endswith("/batches"):
            return await super().send(request)
        return await self._real.send(request)

    async def send_file(self, request: Any, file: Any, *, form: Any = None) -> Any:
        if request.url.endswith("/batches"):
            return await super().send_file(request, file, form=form)
        return await self._real.send_file(request, file, form=form)


async def test_another_process_waits_for_the_one_that_holds_a_batch(provider: Started) -> None:
    provider(delay_s=0.3)
    batch = await evalve.batches.submit_async(requests(3))
    environ = desk().environ
    folder = gating.state_directory(environ)
    other = store_in(folder)
    other.mark(batch, holder="1:0.00:elsewhere", heard_s=time.time())  # of another container
    at = Desk(other, minder_of(gating.house(), other, environ), environ)
    assert not other.hold(batch)
    other.mark(batch, heard_s=time.time() - 3600)  # not heard of for an hour: it counts as dead
    assert other.hold(batch)
    other.mark(batch, holder="1:0.00:elsewhere", heard_s=time.time())

    async def collected_elsewhere() -> None:
        other.mark(batch, holder="")
        await desk().until(batch, ("collected",))

    waiting = asyncio.create_task(at.until(batch, ("collected",)))
    await collected_elsewhere()
    assert (await waiting).state == "collected"


def test_the_same_requests_again_are_the_same_batch_in_whatever_process(provider: Started) -> None:
    simulator = provider()
    first = evalve.batches.submit(requests(4))
    gating._HOUSES.clear()  # as another process would begin
    assert evalve.batches.submit(requests(4)) == first
    assert [one["response"]["content"][0]["text"] for one in evalve.batches.results(first)] == list("0123")
    assert simulator.stats.batched == 4


def test_what_failed_is_resent_live_unless_it_is_asked_not_to(provider: Started) -> None:
    simulator = provider(errored=1.0)
    batch = evalve.batches.submit(requests(3))
    assert [one["status"] for one in evalve.batches.results(batch, resend=False)] == ["errored"] * 3
    assert [one["status"] for one in evalve.batches.results(batch)] == ["succeeded"] * 3
    assert simulator.stats.requests == 3


def test_requests_may_stand_as_their_provider_writes_them(provider: Started) -> None:
    provider()
    message = {"role": "user", "content": "say hello"}
    anthropics = {"custom_id": "a", "params": {"model": "claude-x", "max_tokens": 9, "messages": [message]}}
    openais = {
        "custom_id": "o",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "gpt-5", "messages": [message]},
    }
    told = [evalve.batches.results(evalve.batches.submit([one]))[0] for one in (anthropics, openais)]
    assert [one["custom_id"] for one in told] == ["a", "o"]
    assert told[0]["response"]["content"][0]["text"] == "hello"
    assert told[1]["response"]["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "there are no requests"),
        ([{"prompt": "x"}], "request '0' cannot be read; write it as"),
        ([requests(1)[0], requests(1)[0]], "two requests have the custom_id 'tc-0'"),
        ([{"params": {"model": "claude-x", "stream": True}}], "asks for a stream"),
        ([{"model": "openai-compatible/m@http://127.0.0.1:9/v1", "prompt": "x"}], "batches need a key"),
        (
            [{"model": CLAUDE, "prompt": "x"}, {"model": "openai/gpt-5", "prompt": "x"}],
            "the requests go to several places",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_sent(provider: Started, wrong: Any, message: str) -> None:
    simulator = provider()
    with pytest.raises(evalve.OptionError, match=message):
        evalve.batches.submit(wrong)
    assert simulator.stats.batches == 0


@pytest.mark.parametrize(
    ("age_s", "expected_s"), [(0.0, 0.5), (4.0, 1.0), (100.0, 25.0), (3600.0, 60.0), (80_000.0, 60.0)]
)
def test_looks_come_at_a_quarter_of_the_age_and_at_least_every_minute(
    age_s: float, expected_s: float
) -> None:
    assert look_again_in_s(age_s) == expected_s


def test_bodies_stand_in_batches_as_they_would_go_alone() -> None:
    anthropic, openai = apis()["anthropic"], apis()["openai"]
    from evalve.gate.batches.shapes import Lane

    lane = Lane("openai", "http://h/v1/chat/completions", (), "k")
    assert json.loads(anthropic.line(lane, "i-0", b'{"a":\n1}')) == {"custom_id": "i-0", "params": {"a": 1}}
    assert json.loads(openai.line(lane, "i-0", b'{"a":1}')) == {
        "custom_id": "i-0",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"a": 1},
    }
