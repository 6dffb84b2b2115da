"""The gateway with real SDKs and plain HTTP, in front of a simulated provider that knows one key."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
import anthropic
import httpx2
import openai
import pytest

from evalve.contracts import GatewayLease, SampleContext
from evalve.gate.doors.gateway.delivery import Patience
from evalve.gate.doors.gateway.server import LARGEST_BODY_BYTES
from evalve.gate.messages import Call, Limit
from evalve.gate.messages import Limits as KnownLimits
from evalve.simulator import Behaviour, Faults, Latency, Limits, OutputLength, Simulator
from fake_surroundings import FakeSurroundings
from gateway_world import REAL_KEY, World, gateway_to
from loopback import answering, read_request, serving_in_thread

ASK: Any = [{"role": "user", "content": "Say something"}]
KEYS = frozenset({REAL_KEY})
USAGE: Any = {"include_usage": True}
HOURLY = KnownLimits({"requests": Limit(per_minute=1 / 60, burst=1)})
"""One call, and then a wait that no test sits through."""


def openai_at(lease: GatewayLease, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=lease.base_url("openai") + "/v1", api_key=lease.token, **options)


def anthropic_at(lease: GatewayLease, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=lease.base_url("anthropic"), api_key=lease.token, **options)


def lending(world: World, sample: SampleContext) -> AbstractAsyncContextManager[GatewayLease]:
    return world.gateway.lender().lend(sample)


def http() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=60.0)


def chat(model: str = "gpt-x", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": ASK, **more}


async def eventually(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 60.0
    while not holds() and time.monotonic() < ends_s:  # noqa: ASYNC110  counts have no event to wait for
        await asyncio.sleep(0.01)
    assert holds()


# -- answers


async def test_async_sdks_are_answered_and_their_calls_count_for_the_sample() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with lending(world, sample) as lease, openai_at(lease) as one, anthropic_at(lease) as other:
            completion = await one.chat.completions.create(**chat())
            message = await other.messages.create(model="claude-x", max_tokens=50, messages=ASK)
        assert completion.choices[0].message.content == "Hello."
        assert getattr(message.content[0], "text", "") == "Hello."
        assert (sample.calls.requests, sample.calls.ungated) == (2, 0)
        assert sample.calls.output_tokens == world.provider.stats.output_tokens > 0
        assert sample.trace is not None
        events = json.loads(sample.trace.to_json() or "[]")
        assert [event["kind"] for event in events] == ["call", "call"]
        assert lease.token not in json.dumps(events)
        assert REAL_KEY not in json.dumps(events)
        assert world.account.totals()["requests"] == 2


async def test_sync_sdks_are_answered_while_they_block_the_loop_of_their_sample() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with world.gateway.lender().lend(sample) as lease:
            with openai.OpenAI(base_url=lease.base_url("openai") + "/v1", api_key=lease.token) as one:
                completion = one.chat.completions.create(**chat())  # on the loop's own thread
            with anthropic.Anthropic(base_url=lease.base_url("anthropic"), api_key=lease.token) as other:
                message = other.messages.create(model="claude-x", max_tokens=50, messages=ASK)
        assert completion.choices[0].message.content == "Hello."
        assert getattr(message.content[0], "text", "") == "Hello."
        assert sample.calls.requests == 2


async def test_sdks_stream_and_usage_is_counted() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with lending(world, sample) as lease, openai_at(lease) as one, anthropic_at(lease) as other:
            async with other.messages.stream(model="claude-x", max_tokens=50, messages=ASK) as stream:
                said = [text async for text in stream.text_stream]
            chunks = await one.chat.completions.create(**chat(), stream=True, stream_options=USAGE)
            parts = [part.choices[0].delta.content or "" async for part in chunks if part.choices]
        assert "".join(said) == "".join(parts) == "Hello."
        assert sample.calls.requests == 2
        assert sample.calls.output_tokens == world.provider.stats.output_tokens


@pytest.mark.parametrize("streams", [False, True])
async def test_what_the_embedded_model_cannot_do_is_told(streams: bool) -> None:
    with gateway_to() as world:
        async with lending(world, world.sample()) as lease, http() as client:
            url = lease.base_url("local") + "/v1/chat/completions"
            tools = [{"type": "function", "function": {"name": "search"}}]
            answer = await client.post(url, json=chat(stream=streams, tools=tools))
        assert answer.status_code == 403
        assert "the embedded model calls no tools; ask another model" in answer.text


async def test_a_stream_whose_client_does_not_ask_what_it_took_is_counted_all_the_same() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with lending(world, sample) as lease, openai_at(lease) as one:
            chunks = await one.chat.completions.create(**chat(), stream=True)
            parts = [part async for part in chunks]
        assert "".join(part.choices[0].delta.content or "" for part in parts) == "Hello."
        assert (sample.calls.input_tokens, sample.calls.output_tokens) == (
            world.provider.stats.input_tokens,
            world.provider.stats.output_tokens,
        )
        assert sample.calls.output_tokens > 0


async def test_a_stream_reaches_the_client_piece_by_piece() -> None:
    behaviour = Behaviour(
        latency=Latency(per_output_token_s=0.05, first_token_s=0.0),
        output=OutputLength("fixed", tokens=2000),
        stream_chunk_tokens=1,
    )
    with gateway_to(behaviour) as world:
        async with openai_at(world.process) as client:
            stream = await client.chat.completions.create(**chat(), stream=True)
            async for part in stream:
                if part.choices and part.choices[0].delta.content:
                    break
        assert world.provider.stats.completed == 0  # the answer would take 100 s


@pytest.mark.parametrize("version", ["/v1beta", ""])
async def test_gemini_is_answered_whole_and_as_events_with_the_key_wherever_it_stands(version: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    with gateway_to() as world:
        sample = world.sample()
        async with world.gateway.lender().lend(sample) as lease, http() as client:
            models = lease.base_url("gemini") + version + "/models/gemini-x"
            whole = await client.post(
                f"{models}:generateContent", json=body, headers={"x-goog-api-key": lease.token}
            )
            streamed = await client.post(
                f"{models}:streamGenerateContent?alt=sse&key={lease.token}", json=body
            )
        assert whole.json()["candidates"][0]["content"]["parts"][0]["text"] == "Hello."
        assert streamed.text.startswith("data: ")
        assert sample.calls.requests == 2


async def test_the_token_opens_the_gateway_as_a_key_too() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with world.gateway.lender().lend(sample) as lease, http() as client:
            url = lease.url.partition("/t/")[0] + "/openai/v1/chat/completions"
            answer = await client.post(url, json=chat(), headers={"authorization": f"Bearer {lease.token}"})
        assert answer.status_code == 200
        assert sample.calls.requests == 1


@pytest.mark.parametrize("named", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8"])
async def test_json_under_the_name_that_curl_and_fetch_give_a_body_is_gated(named: str) -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with lending(world, sample) as lease, http() as client:
            reply = await client.post(
                lease.base_url("openai") + "/v1/chat/completions",
                content=json.dumps(chat()),
                headers={"content-type": named},
            )
        assert reply.status_code == 200
        assert (sample.calls.requests, sample.calls.ungated) == (1, 0)


async def test_a_compressed_request_is_read() -> None:
    with gateway_to() as world:
        sample = world.sample()
        async with world.gateway.lender().lend(sample) as lease, http() as client:
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            url = lease.base_url("openai") + "/v1/chat/completions"
            packed = gzip.compress(json.dumps(chat()).encode())
            answer = await client.post(url, content=packed, headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == "Hello."
        assert sample.calls.requests == 1


async def test_an_answer_is_compressed_for_a_client_that_takes_nothing_else() -> None:
    with gateway_to() as world:
        url = world.process.base_url("openai") + "/v1/chat/completions"
        async with http() as client:
            packed = await client.post(url, json=chat(), headers={"accept-encoding": "gzip, identity;q=0"})
            plain = await client.post(url, json=chat(), headers={"accept-encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.json()["choices"] == plain.json()["choices"]


CHAT_ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5},
}
COHERE_ANSWER = {
    "id": "x",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
    "usage": {"tokens": {"input_tokens": 3, "output_tokens": 5}},
}
OLLAMA_ANSWER = {
    "model": "m",
    "message": {"role": "assistant", "content": "Hi"},
    "done": True,
    "prompt_eval_count": 3,
    "eval_count": 5,
}


@pytest.mark.parametrize(
    ("path", "key_header", "answer"),
    [
        ("/openai/deployments/d/chat/completions?api-version=2026-01-01", "api-key", CHAT_ANSWER),
        ("/openai/v1/chat/completions", "authorization", CHAT_ANSWER),
        ("/v2/chat", "authorization", COHERE_ANSWER),
        ("/api/chat", "authorization", OLLAMA_ANSWER),
    ],
    ids=["azure", "groq", "cohere", "ollama"],
)
async def test_what_other_clients_send_is_gated_with_the_real_key_where_theirs_was(
    path: str, key_header: str, answer: dict[str, Any]
) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, headers, _ = await read_request(reader)
        seen.append((line, headers))
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    with serving_in_thread(server) as port:
        models = {"mine": {"base_url": f"http://127.0.0.1:{port}", "api_key": "${MY_KEY}"}}
        with gateway_to(models=models, environ={"MY_KEY": "sk-mine-4711"}) as world:
            sample = world.sample()
            async with lending(world, sample) as lease, http() as client:
                bearer = "Bearer " if key_header == "authorization" else ""
                headers = {key_header: bearer + lease.token}
                body = chat("m", stream=False)
                came = await client.post(lease.base_url("mine") + path, json=body, headers=headers)
    assert came.json() == answer
    assert seen[0][0] == f"POST {path} HTTP/1.1"
    assert seen[0][1][key_header] == f"{bearer}sk-mine-4711"
    assert lease.token not in str(seen)
    assert (sample.calls.requests, sample.calls.output_tokens) == (1, 5)


# -- what the gate does


async def test_limits_hold_for_all_samples_together_and_nobody_is_refused() -> None:
    per_minute = 3000.0
    stated = Behaviour(limits=Limits(requests_per_minute=per_minute, depth_s=0.2), keys=KEYS)
    known = KnownLimits({"requests": Limit(per_minute=per_minute, burst=10)})
    surroundings = FakeSurroundings()
    with gateway_to(stated, limits_for=lambda call: known) as world:

        async def sample(number: int) -> int:
            context = world.sample(f"s{number}", surroundings=surroundings)
            async with world.gateway.lender().lend(context) as lease, openai_at(lease, max_retries=0) as one:
                for _ in range(10):
                    await one.chat.completions.create(**chat(max_tokens=5))
            return context.calls.requests

        assert await asyncio.gather(*(sample(number) for number in range(4))) == [10] * 4
        assert world.provider.stats.refused == 0
        assert world.provider.stats.completed == 40
    assert ("held", "limits") in surroundings.waits


async def test_a_failing_call_is_repeated_by_us_and_the_sample_keeps_its_slot() -> None:
    surroundings = FakeSurroundings()
    behaviour = Behaviour(answers=["Hello."], faults=Faults(schedule=("error", None)))
    with gateway_to(behaviour) as world:
        sample = world.sample(surroundings=surroundings)
        async with world.gateway.lender().lend(sample) as lease, openai_at(lease, max_retries=0) as one:
            completion = await one.chat.completions.create(**chat())
        assert completion.choices[0].message.content == "Hello."
        assert (sample.calls.requests, sample.calls.retries) == (2, 1)
    assert {how for how, _ in surroundings.waits} == {"held"}


async def test_the_lease_knows_how_the_last_call_was_refused() -> None:
    with gateway_to(budget_usd=1.0, price=lambda model, usage: 1.5, environ={"GEMINI_API_KEY": ""}) as world:
        async with lending(world, world.sample()) as lease, http() as client:
            url = lease.base_url("openai") + "/v1/chat/completions"
            gemini = lease.base_url("gemini") + "/v1beta/models/gemini-x:generateContent"
            told = []
            for where, body in ((gemini, {"contents": []}), (url, chat()), (url, chat("gpt-y"))):
                await client.post(where, json=body)
                told.append(lease.last_error())
    no_key, answered, no_budget = told
    assert no_key == (400, "API key not valid. Please pass a valid API key.")
    assert answered is None
    assert no_budget is not None
    assert no_budget[0] == 403
    assert no_budget[1].startswith("evalve sent nothing: the budget of 1 USD is used up")


async def test_a_spent_budget_withholds_the_call_and_stops_the_run() -> None:
    surroundings = FakeSurroundings()
    with gateway_to(budget_usd=1.0, price=lambda model, usage: 1.5) as world:
        sample = world.sample(surroundings=surroundings)
        async with world.gateway.lender().lend(sample) as lease, openai_at(lease) as one:
            await one.chat.completions.create(**chat())
            with pytest.raises(openai.PermissionDeniedError, match="evalve sent nothing"):
                await one.chat.completions.create(**chat())
        assert world.provider.stats.requests == 1
        assert sample.calls.cost_usd == 1.5
    assert len(surroundings.reasons) == 1


async def test_agents_calls_are_cached_only_where_that_is_asked_for() -> None:
    async def ask(world: World, sample_id: str, *, caches: bool) -> None:
        lender = world.gateway.lender(caches=caches)
        async with lender.lend(world.sample(sample_id)) as lease, openai_at(lease) as one:
            await one.chat.completions.create(**chat())

    with gateway_to(mode="on") as world:
        await ask(world, "s1", caches=False)
        await ask(world, "s1", caches=False)
        assert world.cache.counts.stored == world.cache.counts.hits == 0
        assert world.account.totals()["requests"] == 2


async def test_a_call_that_no_dialect_reads_passes_and_is_counted() -> None:
    handler = answering(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok")
    with serving_in_thread(handler) as port:
        models = {"mine": {"base_url": f"http://127.0.0.1:{port}"}}
        with gateway_to(models=models) as world:
            sample = world.sample()
            async with world.gateway.lender().lend(sample) as lease, http() as client:
                listed = await client.get(lease.base_url("mine") + "/v1/models?after=x")
                posted = await client.post(lease.base_url("mine") + "/v1/predict", json={"prompt": "x"})
        assert (listed.text, posted.text) == ("ok", "ok")
        assert (sample.calls.requests, sample.calls.ungated) == (0, 1)


# -- errors


async def test_the_providers_own_error_reaches_the_client_and_is_remembered_for_who_asks_again() -> None:
    with gateway_to(Behaviour(keys=KEYS), environ={"OPENAI_API_KEY": "sk-wrong"}) as world:
        async with world.gateway.lender().lend(world.sample()) as lease, http() as client:
            url = lease.base_url("openai") + "/v1/chat/completions"
            answers = [await client.post(url, json=chat()) for _ in range(3)]
            direct = await client.post(
                f"{world.provider.url}/v1/chat/completions",
                json=chat(),
                headers={"authorization": "Bearer sk-wrong"},
            )
        assert [answer.status_code for answer in answers] == [401, 401, 401]
        assert answers[0].json() == direct.json()
        assert answers[0].headers["x-should-retry"] == "false"
        assert world.provider.stats.rejections.total() == 2  # one of them through the gateway


async def test_a_missing_key_is_said_before_anybody_is_asked() -> None:
    environ = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
    with gateway_to(environ=environ) as world:
        async with openai_at(world.process) as client:
            with pytest.raises(openai.AuthenticationError, match="set OPENAI_API_KEY where evalve runs"):
                await client.chat.completions.create(**chat())


async def test_a_provider_that_is_not_there_is_told_in_the_clients_own_language() -> None:
    handler = answering(b"nonsense\r\n\r\n")
    with serving_in_thread(handler) as port:
        models = {"mine": {"base_url": f"http://127.0.0.1:{port}"}}
        with gateway_to(models=models) as world:
            async with http() as client:
                url = world.process.base_url("mine")
                chatted = await client.post(f"{url}/v1/chat/completions", json=chat())
                google = await client.post(f"{url}/v1beta/models/g:generateContent", json={"contents": []})
    assert chatted.status_code == google.status_code == 503
    assert "evalve got no answer" in chatted.json()["error"]["message"]
    assert google.json()["error"]["status"] == "UNAVAILABLE"


async def test_a_stream_that_breaks_off_has_no_end_for_the_client_either() -> None:
    behaviour = Behaviour(
        answers=["one two three four five six"],
        faults=Faults(probabilities={"cut_stream": 1.0}),
        stream_chunk_tokens=1,
    )
    with gateway_to(behaviour) as world:
        async with http() as client:
            with pytest.raises(httpx2.HTTPError):
                async with client.stream(
                    "POST", world.process.base_url("openai") + "/v1/chat/completions", json=chat(stream=True)
                ) as answer:
                    async for _ in answer.aiter_bytes():
                        pass


# -- clients that go and come


async def test_a_client_that_leaves_in_the_middle_of_a_stream_loses_nothing_that_was_paid_for() -> None:
    slow = Behaviour(
        latency=Latency(per_output_token_s=0.01, first_token_s=0.0),
        output=OutputLength("fixed", tokens=60),
        stream_chunk_tokens=1,
        keys=KEYS,
    )
    with gateway_to(slow) as world:
        sample = world.sample()
        async with world.gateway.lender(caches=True).lend(sample) as lease, openai_at(lease) as one:
            stream = await one.chat.completions.create(**chat(), stream=True, stream_options=USAGE)
            async for _ in stream:
                break
            await stream.close()
        await eventually(lambda: world.cache.counts.stored == 1)
        assert (world.provider.stats.completed, world.provider.stats.abandoned) == (1, 0)
        assert sample.calls.output_tokens == 60  # the lease waited for its last answer
        again = world.sample()
        async with world.gateway.lender(caches=True).lend(again) as lease, openai_at(lease) as one:
            stream = await one.chat.completions.create(**chat(), stream=True, stream_options=USAGE)
            assert len([part async for part in stream if part.choices]) > 1
        assert (again.calls.cached, again.calls.requests) == (1, 0)
        assert world.provider.stats.requests == 1


async def test_a_client_whose_patience_ends_gets_the_call_that_is_under_way_when_it_asks_again() -> None:
    slow = Behaviour(answers=["Hello."], latency=Latency(median_s=5.0), keys=KEYS)
    with gateway_to(slow, mode="off") as world:
        async with world.gateway.lender().lend(world.sample()) as lease, http() as client:
            url = lease.base_url("openai") + "/v1/chat/completions"
            with pytest.raises(httpx2.ReadTimeout):
                await client.post(url, json=chat(), timeout=0.3)
            await eventually(lambda: world.provider.stats.admitted == 1)
            answer = await client.post(url, json=chat())
        assert answer.json()["choices"][0]["message"]["content"] == "Hello."
        assert world.provider.stats.requests == 1


async def test_a_call_that_still_waits_when_its_sample_ends_is_never_sent() -> None:
    with gateway_to(limits_for=lambda call: HOURLY) as world:
        async with http() as client:
            async with world.gateway.lender().lend(world.sample()) as lease:
                url = lease.base_url("openai") + "/v1/chat/completions"
                assert (await client.post(url, json=chat())).status_code == 200
                with contextlib.suppress(httpx2.ReadTimeout):
                    await client.post(url, json=chat(), timeout=0.2)
            assert (await client.post(url, json=chat())).status_code == 401
        assert world.provider.stats.requests == 1


# -- while a call waits


def limited_once(per_minute: float) -> Callable[[Call], KnownLimits]:
    return lambda call: KnownLimits({"requests": Limit(per_minute=per_minute, burst=1)})


async def test_a_waiting_stream_gets_comments_that_sdks_read_over() -> None:
    patience = Patience(stream_s=0.05, every_s=0.05)
    with gateway_to(limits_for=limited_once(60.0), patience=patience, mode="off") as world:
        url = world.process.base_url("openai") + "/v1/chat/completions"
        async with http() as client:  # all at once: one after the other, a busy machine takes the time itself
            answers = await asyncio.gather(*(client.post(url, json=chat(stream=True)) for _ in range(3)))
        waited = max(answers, key=lambda answer: len(answer.text))
        assert waited.headers["content-type"] == "text/event-stream"
        assert waited.text.startswith(": evalve holds this call back")
        assert waited.text.count(": evalve holds") > 2
        assert waited.text.rstrip().endswith("data: [DONE]")
        short = httpx2.Timeout(0.6)
        async with anthropic_at(world.process, timeout=short, max_retries=0) as other:
            for _ in range(2):  # the second waits for a second, longer than the client would
                async with other.messages.stream(model="claude-x", max_tokens=50, messages=ASK) as stream:
                    assert (await stream.get_final_text()) == "Hello."


async def test_a_waiting_whole_answer_begins_with_blanks() -> None:
    patience = Patience(whole_s=0.05, every_s=0.05)
    with gateway_to(limits_for=limited_once(60.0), patience=patience, mode="off") as world:
        async with openai_at(world.process, timeout=httpx2.Timeout(0.6), max_retries=0) as one:
            for _ in range(2):
                completion = await one.chat.completions.create(**chat())
                assert completion.choices[0].message.content == "Hello."


async def test_an_error_after_a_comment_is_an_event_and_after_a_blank_is_told_to_who_asks_again() -> None:
    patience = Patience(stream_s=0.05, whole_s=0.05, every_s=0.05)
    environ = {"OPENAI_API_KEY": "sk-wrong", "ANTHROPIC_API_KEY": "sk-wrong"}
    with gateway_to(limits_for=limited_once(60.0), patience=patience, environ=environ) as world:
        async with openai_at(world.process) as one, anthropic_at(world.process, max_retries=0) as other:
            with contextlib.suppress(openai.AuthenticationError):
                await one.chat.completions.create(**chat())
            with pytest.raises(openai.APIError, match=r"[Ii]ncorrect API key|invalid"):
                async for _ in await one.chat.completions.create(**chat(max_tokens=7), stream=True):
                    pass
            with pytest.raises(openai.AuthenticationError):  # the SDK has tried again
                await one.chat.completions.create(**chat(max_tokens=8))
            with contextlib.suppress(anthropic.AuthenticationError):
                await other.messages.create(model="claude-x", max_tokens=50, messages=ASK)
            with pytest.raises(anthropic.APIStatusError, match=r"invalid x-api-key|authentication"):
                async with other.messages.stream(model="claude-x", max_tokens=51, messages=ASK) as stream:
                    await stream.get_final_text()


async def stopped_while_waiting(patience: Patience, *, stream: bool) -> httpx2.Response:
    """What a client is told whose call waits for limits when the run stops."""
    surroundings = FakeSurroundings()

    async def stop() -> None:
        surroundings.end_waits()

    with gateway_to(limits_for=limited_once(1 / 60), patience=patience) as world:
        sample = world.sample(surroundings=surroundings)
        async with world.gateway.lender().lend(sample) as lease, http() as client:
            url = lease.base_url("openai") + "/v1/chat/completions"
            await client.post(url, json=chat())
            waiting = asyncio.create_task(client.post(url, json=chat(stream=stream)))
            await eventually(lambda: ("held", "limits") in surroundings.waits)
            await asyncio.sleep(0.3)  # for a word, if one is due
            await asyncio.to_thread(world.gateway._background.call, stop())
            try:
                return await waiting
            finally:
                assert world.provider.stats.requests == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_whose_run_stops_is_told_so(stream: bool) -> None:
    answer = await stopped_while_waiting(Patience(), stream=stream)
    assert answer.status_code == 503
    assert "the run has stopped" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_was_told_to_wait_has_no_end_when_its_run_stops(stream: bool) -> None:
    with pytest.raises(httpx2.HTTPError):
        await stopped_while_waiting(Patience(0.05, 0.05, 0.05), stream=stream)


# -- who is refused


async def status_of(lease: GatewayLease, path: str, **request: Any) -> tuple[int, str]:
    async with http() as client:
        answer = await client.request(request.pop("method", "POST"), lease.url + path, **request)
    return answer.status_code, answer.json()["error"]["message"] if answer.text else ""


async def test_an_unknown_token_is_refused_also_that_of_a_sample_that_has_ended() -> None:
    with gateway_to() as world:
        async with world.gateway.lender().lend(world.sample()) as lease:
            pass
        unknown = GatewayLease(world.process.url + "x", "x")
        for one in (lease, unknown):
            status, message = await status_of(one, "/openai/v1/chat/completions", json=chat())
            assert status == 401
            assert "this token is unknown" in message
        assert world.provider.stats.requests == 0


async def test_another_host_is_refused() -> None:
    with gateway_to() as world:
        headers = {"host": "evil.example"}
        asked = await status_of(world.process, "/openai/v1/chat/completions", json=chat(), headers=headers)
    assert asked[0] == 403


async def test_a_body_that_is_too_large_is_refused_however_it_is_sent() -> None:
    def pieces() -> Any:
        async def each() -> Any:
            for _ in range(LARGEST_BODY_BYTES // (1 << 20) + 1):
                yield bytes(1 << 20)

        return each()

    with gateway_to() as world:
        url = world.process.base_url("openai") + "/v1/chat/completions"
        async with aiohttp.ClientSession() as session, session.post(url, data=pieces()) as answer:
            assert answer.status == 413
            assert "larger than 64 MB" in (await answer.json())["error"]["message"]
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        path = url.partition(str(world.gateway.port))[2]
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{world.gateway.port}\r\n"
        writer.write(f"{head}content-length: {LARGEST_BODY_BYTES + 1}\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")  # before any of it was sent
        writer.close()
        await writer.wait_closed()


async def test_an_unknown_upstream_is_named_with_a_suggestion() -> None:
    with gateway_to() as world:
        status, message = await status_of(world.process, "/opnai/v1/chat/completions", json=chat())
    assert status == 404
    assert "did you mean 'openai'" in message


async def test_whoever_looks_whether_anybody_is_there_finds_somebody() -> None:
    with gateway_to() as world:
        assert (await status_of(world.process, "/anthropic", method="HEAD"))[0] == 200
        headers = {"upgrade": "websocket", "connection": "upgrade"}
        assert (await status_of(world.process, "/openai/v1/responses", method="GET", headers=headers))[
            0
        ] == 426


def test_it_listens_on_the_loopback_interface_only() -> None:
    with gateway_to() as world:
        runner = world.gateway._server._runner
        assert runner is not None
        assert [address[0] for address in runner.addresses] == ["127.0.0.1"]


def test_the_simulator_itself_refuses_the_token() -> None:
    """Or the tests above would prove nothing about keys."""
    with Simulator(Behaviour(keys=KEYS)).start_in_thread() as provider:
        answer = httpx2.post(
            f"{provider.url}/v1/chat/completions", json=chat(), headers={"authorization": "Bearer evalve-x"}
        )
    assert answer.status_code == 401
