"""Gemini's wire format, limits and errors, over real HTTP with a clock that the test moves."""

from __future__ import annotations

import json
from typing import Any

from simulated import Client, FakeClock, Reply, Start

from evalve.simulator import Answer, Behaviour, Faults, Limits, SpendCap, ToolCall


async def ask(client: Client, prompt: str = "Hello", *, verb: str = "generateContent", **body: Any) -> Reply:
    asked = {"contents": [{"role": "user", "parts": [{"text": prompt}]}], **body}
    return await client.post(f"/v1beta/models/gemini-3-flash:{verb}", asked, x_goog_api_key="k")


async def test_an_answer_has_the_shape_of_a_candidate(start: Start) -> None:
    _, client = await start(Behaviour(answers={"France": "Paris"}))

    reply = await ask(client, "What is the capital of France?")

    assert reply.json["candidates"] == [
        {"content": {"parts": [{"text": "Paris"}], "role": "model"}, "index": 0, "finishReason": "STOP"}
    ]
    assert reply.json["usageMetadata"] == {
        "promptTokenCount": 8,
        "candidatesTokenCount": 2,
        "totalTokenCount": 10,
    }


async def test_a_stream_ends_with_its_reason_and_its_counts(start: Start) -> None:
    _, client = await start(Behaviour(answers=["one two three"], stream_chunk_tokens=1))

    reply = await ask(client, verb="streamGenerateContent?alt=sse")

    texts = [event["candidates"][0]["content"]["parts"][0]["text"] for event in reply.events]
    assert "".join(texts) == "one two three"
    assert ["finishReason" in event["candidates"][0] for event in reply.events] == [False] * 4 + [True]
    assert reply.events[-1]["usageMetadata"]["candidatesTokenCount"] == 4


async def test_a_refusal_says_in_its_details_when_to_come_back(start: Start, clock: FakeClock) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60, depth_s=1)))
    await ask(client)

    refused = await ask(client)

    assert (refused.status, refused.json["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert [name for name in refused.headers if "limit" in name or "retry" in name] == []
    quota, retry = refused.json["error"]["details"]
    assert quota["violations"] == [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]
    assert retry["retryDelay"] == "1.000s"
    clock.advance(1.0)
    assert (await ask(client)).status == 200


async def test_a_key_in_the_address_is_taken_too_and_another_is_refused(start: Start) -> None:
    simulator, client = await start(Behaviour(keys=frozenset({"k", "k2"})))
    asked = {"contents": [{"parts": [{"text": "Hello"}]}]}

    statuses = [
        (await client.post(f"/v1beta/models/m:generateContent?key={key}", asked)).status
        for key in ("k2", "wrong")
    ]

    assert statuses == [200, 400]
    assert "wrong" not in json.dumps(simulator.recent_requests())


async def test_a_tool_and_a_schema_are_obeyed(start: Start) -> None:
    _, client = await start(Behaviour())
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}
    tools = [{"functionDeclarations": [{"name": "weather", "parameters": schema}]}]

    called = await ask(client, tools=tools, toolConfig={"functionCallingConfig": {"mode": "ANY"}})
    written = await ask(client, generationConfig={"responseSchema": schema})

    call = called.json["candidates"][0]["content"]["parts"][0]["functionCall"]
    assert (call["name"], list(call["args"])) == ("weather", ["city"])
    assert list(json.loads(written.json["candidates"][0]["content"]["parts"][0]["text"])) == ["city"]


async def test_scripted_tools_faults_and_a_spent_account(start: Start) -> None:
    weather = Answer(tool_calls=(ToolCall("weather", {"city": "Bern"}),))
    faults = Faults(schedule=("overloaded",))
    _, client = await start(Behaviour(answers=[weather], faults=faults, spend_cap=SpendCap(calls=2)))

    replies = [await ask(client) for _ in range(3)]

    assert [reply.status for reply in replies] == [503, 200, 429]
    assert replies[0].json["error"]["status"] == "UNAVAILABLE"
    assert replies[1].json["candidates"][0]["content"]["parts"] == [
        {"functionCall": {"name": "weather", "args": {"city": "Bern"}}}
    ]
    assert "credits are depleted" in replies[2].json["error"]["message"]


async def test_a_request_without_contents_is_invalid(start: Start) -> None:
    _, client = await start(Behaviour())

    reply = await client.post("/v1beta/models/m:generateContent", {})

    assert (reply.status, reply.json["error"]["status"]) == (400, "INVALID_ARGUMENT")


async def test_tokens_are_counted_and_models_are_listed(start: Start) -> None:
    simulator, client = await start(Behaviour(models={"gemini-own": Limits(), "gpt-own": Limits()}))
    contents = [{"parts": [{"text": "Hello there"}]}]

    counted = await client.post("/v1beta/models/m:countTokens", {"contents": contents})
    request = {
        "model": "models/m",
        "contents": contents,
        "systemInstruction": {"parts": [{"text": "Short."}]},
    }
    wrapped = await client.post("/v1beta/models/m:countTokens", {"generateContentRequest": request})
    models = await client.get("/v1beta/models")

    assert counted.json == {
        "totalTokens": 3,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}],
    }
    assert wrapped.json["totalTokens"] == 5
    assert [one["name"] for one in models["models"]] == [
        "models/gemini-own",
        "models/gemini-3-flash",
        "models/gemini-3-pro",
    ]
    assert (simulator.stats.token_counts, simulator.stats.requests) == (2, 0)


async def test_a_path_without_a_version_is_answered_too(start: Start) -> None:
    _, client = await start(Behaviour())

    reply = await client.post("/models/m:generateContent", {"contents": [{"parts": [{"text": "Hello"}]}]})

    assert reply.status == 200


async def test_thoughts_and_calls_in_a_stream(start: Start) -> None:
    answer = Answer("Let me see.", (ToolCall("look", {"x": 1}), ToolCall("look", {"x": 2})), reasoning="Hm.")
    _, client = await start(Behaviour(answers=[answer]))
    settings = {"thinkingConfig": {"includeThoughts": True}}

    reply = await ask(client, verb="streamGenerateContent?alt=sse", generationConfig=settings)

    parts = [part for event in reply.events for part in event["candidates"][0]["content"]["parts"]]
    assert parts == [
        {"text": "Hm.", "thought": True},
        {"text": "Let me see."},
        {"functionCall": {"name": "look", "args": {"x": 1}}},
        {"functionCall": {"name": "look", "args": {"x": 2}}},
    ]


async def test_a_prompt_that_came_before_is_read_from_the_cache(start: Start) -> None:
    _, client = await start(Behaviour())

    usages = [(await ask(client, "word " * 1000)).json["usageMetadata"] for _ in range(2)]

    assert [usage.get("cachedContentTokenCount") for usage in usages] == [None, 1152]


async def test_an_unknown_path_is_refused_as_google_does(start: Start) -> None:
    _, client = await start(Behaviour())

    reply = await client.post("/v1beta/models/m:embedContent", {})

    assert (reply.status, reply.json["error"]["status"]) == (404, "NOT_FOUND")


async def test_without_events_a_stream_is_an_array(start: Start) -> None:
    _, client = await start(Behaviour(answers=["one two three"], stream_chunk_tokens=1))

    reply = await ask(client, verb="streamGenerateContent")

    assert reply.headers["content-type"].startswith("application/json")
    texts = [piece["candidates"][0]["content"]["parts"][0]["text"] for piece in reply.json]
    assert texts == ["one ", "two ", "thre", "e", ""]
    assert reply.json[-1]["candidates"][0]["finishReason"] == "STOP"
