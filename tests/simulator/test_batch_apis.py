"""Both batch APIs of the simulator, as the providers' own clients use them; the test moves the clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anthropic
import openai
import pytest
from simulated import FakeClock, Start

from evalve.simulator import Batches, Behaviour, Simulator

Client = Callable[[Simulator], Any]
MESSAGE = {"model": "claude-haiku-4-5", "max_tokens": 20}


def messages(count: int) -> list[Any]:
    return [
        {"custom_id": f"r-{n}", "params": {**MESSAGE, "messages": [{"role": "user", "content": f"say {n}"}]}}
        for n in range(count)
    ]


@pytest.fixture
async def of_anthropic() -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:

        def client(provider: Simulator) -> Any:
            made = anthropic.AsyncAnthropic(base_url=provider.url, api_key="any", max_retries=0)
            stack.push_async_callback(made.close)
            return made

        yield client


@pytest.fixture
async def of_openai() -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:

        def client(provider: Simulator) -> Any:
            made = openai.AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="any", max_retries=0)
            stack.push_async_callback(made.close)
            return made

        yield client


async def test_a_message_batch_ends_after_its_delay_with_a_result_for_each_request(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    provider, _ = await start(Behaviour(answers=lambda ask: ask.prompt.upper(), batches=Batches(delay_s=60)))
    client = of_anthropic(provider)
    batch = await client.messages.batches.create(requests=messages(5))
    assert (batch.processing_status, batch.request_counts.processing) == ("in_progress", 5)
    clock.advance(61)
    batch = await client.messages.batches.retrieve(batch.id)
    assert (batch.processing_status, batch.request_counts.succeeded) == ("ended", 5)
    results = {one.custom_id: one.result async for one in await client.messages.batches.results(batch.id)}
    texts = {name: result.message.content[0].text for name, result in results.items()}
    assert texts == {f"r-{n}": f"SAY {n}" for n in range(5)}
    assert list(texts) != sorted(texts)  # in any order
    assert (provider.stats.batches, provider.stats.batched, provider.stats.batched_again) == (1, 5, 0)


async def test_a_script_that_raises_errs_for_that_request_alone(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    provider, _ = await start(Behaviour(answers=lambda ask: {"say 0": "yes"}[ask.prompt], batches=Batches()))
    client = of_anthropic(provider)
    batch = await client.messages.batches.create(requests=messages(2))
    clock.advance(86_400)
    results = {one.custom_id: one.result async for one in await client.messages.batches.results(batch.id)}
    assert results["r-0"].message.content[0].text == "yes"
    assert results["r-1"].error.error.message == "the script raised KeyError: 'say 1'"


async def test_requests_fail_expire_and_go_missing_by_their_shares(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    settings = Batches(delay_s=1, errored=0.25, expired=0.25, missing=0.25)
    provider, _ = await start(Behaviour(batches=settings))
    client = of_anthropic(provider)
    batch = await client.messages.batches.create(requests=messages(200))
    clock.advance(2)
    await client.messages.batches.retrieve(batch.id)
    kinds = Counter([one.result.type async for one in await client.messages.batches.results(batch.id)])
    assert sorted(kinds) == ["errored", "expired", "succeeded"]
    assert sum(kinds.values()) + provider.stats.batch_results["missing"] == 200
    assert all(30 <= count <= 70 for count in provider.stats.batch_results.values() if count)


async def test_what_is_not_done_when_a_batch_expires_or_is_cancelled_is_told(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    provider, _ = await start(Behaviour(batches=Batches(delay_s=100, expires_after_s=50)))
    client = of_anthropic(provider)
    first = await client.messages.batches.create(requests=messages(10))
    clock.advance(51)
    assert (await client.messages.batches.retrieve(first.id)).request_counts.expired == 5
    second = await client.messages.batches.create(requests=messages(10))
    clock.advance(20)
    await client.messages.batches.cancel(second.id)
    assert (await client.messages.batches.retrieve(second.id)).request_counts.canceled == 8


async def test_a_full_queue_refuses_and_has_room_again_when_a_batch_has_ended(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    provider, _ = await start(Behaviour(batches=Batches(delay_s=10, queue_limit=5)))
    client = of_anthropic(provider)
    await client.messages.batches.create(requests=messages(5))
    with pytest.raises(anthropic.RateLimitError, match="processing queue"):
        await client.messages.batches.create(requests=messages(1))
    clock.advance(11)
    await client.messages.batches.create(requests=messages(1))
    assert [len((await client.messages.batches.list()).data), provider.stats.batched_again] == [2, 1]


async def test_an_openai_batch_is_a_file_and_gives_files(
    start: Start, clock: FakeClock, of_openai: Client
) -> None:
    provider, _ = await start(
        Behaviour(answers=lambda ask: ask.prompt.upper(), batches=Batches(delay_s=60, errored=0.5))
    )
    client = of_openai(provider)
    lines = [
        {
            "custom_id": f"r-{n}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "gpt-5", "messages": [{"role": "user", "content": f"say {n}"}]},
        }
        for n in range(20)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await client.batches.create(
        input_file_id=file.id,
        endpoint="/v1/chat/completions",
        completion_window="24h",
        metadata={"tag": "x"},
    )
    assert (batch.status, batch.metadata) == ("in_progress", {"tag": "x"})
    clock.advance(61)
    batch = await client.batches.retrieve(batch.id)
    assert batch.status == "completed"
    assert batch.output_file_id is not None and batch.error_file_id is not None
    out = [json.loads(line) for line in (await client.files.content(batch.output_file_id)).text.splitlines()]
    bad = [json.loads(line) for line in (await client.files.content(batch.error_file_id)).text.splitlines()]
    assert {one["custom_id"] for one in out + bad} == {f"r-{n}" for n in range(20)}
    said = {one["custom_id"]: one["response"]["body"]["choices"][0]["message"]["content"] for one in out}
    assert all(text == f"SAY {name[2:]}" for name, text in said.items())
    assert {one["error"]["code"] for one in bad} == {"server_error"}


async def test_an_openai_batch_beyond_the_queue_fails_by_itself(start: Start, of_openai: Client) -> None:
    provider, _ = await start(Behaviour(batches=Batches(queue_limit=1)))
    client = of_openai(provider)
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    lines = [
        {"custom_id": f"r-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for n in range(2)
    ]
    file = await client.files.create(
        file=("in.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch"
    )
    batch = await client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert batch.errors is not None and batch.errors.data is not None
    assert (batch.status, batch.errors.data[0].code) == ("failed", "token_limit_exceeded")
    assert provider.stats.batched == 0


async def test_at_a_crash_point_the_first_answer_is_withheld(
    start: Start, clock: FakeClock, of_anthropic: Client
) -> None:
    provider, _ = await start(Behaviour(batches=Batches(crash_point="after_create")))
    client = of_anthropic(provider)
    with pytest.raises(anthropic.APITimeoutError):
        await client.with_options(timeout=0.2).messages.batches.create(requests=messages(1))
    assert provider.stats.crash_points == {"after_create": 1}
    assert len((await client.messages.batches.list()).data) == 1
