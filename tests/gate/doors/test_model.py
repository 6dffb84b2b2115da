"""`evalve.model`: what is sent, what comes back, and how failures are told."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from evalve.errors import EvalveError, MissingKey, ModelError, OptionError, StreamBroken
from evalve.gate.doors.answers import Answer, TextDelta
from evalve.gate.doors.local import LocalServer
from evalve.gate.doors.model import Connection, Model, open_model
from evalve.gate.messages import Problem, Reply, Request, Sender, SendError, StreamedReply, Usage, Withheld
from evalve.gate.sender import AiohttpSender, Timeouts
from evalve.jsontext import as_plain
from evalve.simulator import Answer as Scripted
from evalve.simulator import Behaviour, Simulator
from evalve.simulator import ToolCall as ScriptedCall

KEY = "sk-very-secret"
ENVIRON = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY}
MESSAGE = {
    "type": "message",
    "model": "claude-x",
    "content": [{"type": "text", "text": "Grüße"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 2},
}
COMPLETION = {
    "model": "gpt-x",
    "choices": [{"message": {"role": "assistant", "content": "Grüße"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2},
}


class PassingGate:
    """Adds nothing."""

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        return await sender.send(request)

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]:
        return sender.stream(request)


@dataclass
class FakeSender:
    """Answers every request with one reply or failure, in chunks where it is streamed."""

    reply: Reply = field(default_factory=lambda: Reply(200, {}, json.dumps(MESSAGE).encode()))
    error: SendError | None = None
    chunk_bytes: int = 1 << 20
    sent: list[Request] = field(default_factory=list)
    closed: int = 0

    async def send(self, request: Request) -> Reply:
        self.sent.append(request)
        if self.error is not None:
            raise self.error
        return self.reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        self.sent.append(request)
        try:
            yield StreamedReply(
                self.reply.status, self.reply.headers, self._chunks(), cached=self.reply.cached
            )
        finally:
            self.closed += 1

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.reply.body), self.chunk_bytes):
            yield self.reply.body[start : start + self.chunk_bytes]
        if self.error is not None:
            raise self.error


def connection(sender: Sender, **others: Any) -> Connection:
    given: dict[str, Any] = {
        "gate": PassingGate(),
        "sender": sender,
        "sender_within": lambda timeout_s: sender,
        "price": lambda provider, model, usage: None,
        "call_sync": asyncio.run,
        "local": LocalServer(),
    }
    return Connection(**{**given, **others})


def a_model(sender: Sender, name: str = "anthropic/claude-x", **others: Any) -> Model:
    return open_model(name, connection=connection(sender, **others), environ=ENVIRON)


def replying(status: int, body: Any, **headers: str) -> FakeSender:
    return FakeSender(Reply(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode()))


def events(*said: dict[str, Any] | str) -> bytes:
    lines = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in said]
    return "".join([f"data: {line}\n\n" for line in lines]).encode()


ANTHROPIC_STREAM = events(
    {"type": "message_start", "message": {**MESSAGE, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grü"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ße"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
OPENAI_STREAM = events(
    {"model": "gpt-x", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Grü"}}]},
    {"model": "gpt-x", "choices": [{"index": 0, "delta": {"content": "ße"}, "finish_reason": "stop"}]},
    {"model": "gpt-x", "choices": [], "usage": COMPLETION["usage"]},
    "[DONE]",
)


# -- whole answers


async def test_a_question_is_sent_to_the_providers_address_with_its_key() -> None:
    sender = FakeSender()

    await a_model(sender).generate("Hi", max_tokens=5, top_k=3, options={"metadata": {"user_id": "u"}})

    [request] = sender.sent
    assert (request.method, request.url) == ("POST", "https://api.anthropic.com/v1/messages")
    assert request.headers["x-api-key"] == KEY
    assert json.loads(request.body) == {
        "model": "claude-x",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
        "metadata": {"user_id": "u"},
        "top_k": 3,
    }


async def test_headers_of_ones_own_are_sent_in_lower_case() -> None:
    sender = FakeSender()
    model = open_model(
        "anthropic/m", connection=connection(sender), environ=ENVIRON, headers={"Anthropic-Beta": "b"}
    )

    await model.generate("Hi")

    assert sender.sent[0].headers["anthropic-beta"] == "b"


async def test_an_answer_has_text_usage_and_price() -> None:
    prices: list[tuple[str, str, Usage]] = []

    def price(provider: str, model: str, usage: Usage) -> float:
        prices.append((provider, model, usage))
        return 0.25

    answer = await a_model(FakeSender(), price=price).generate("Hi")

    assert (str(answer), answer.cost_usd, answer.cached) == ("Grüße", 0.25, False)
    assert prices == [("anthropic", "claude-x", Usage(10, 2))]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
async def test_a_byte_that_is_no_text_is_replaced(streams: bool) -> None:
    body = OPENAI_STREAM if streams else json.dumps(COMPLETION, ensure_ascii=False).encode()
    model = a_model(replying(200, body.replace("ü".encode(), b"\xfc")), "openai/m")

    if streams:
        said = "".join([str(event) async for event in model.stream("Hi") if isinstance(event, TextDelta)])
    else:
        said = (await model.generate("Hi")).text

    assert said == "Gr\N{REPLACEMENT CHARACTER}ße"


async def test_an_answer_from_the_cache_says_so_and_keeps_its_price() -> None:
    sender = FakeSender(Reply(200, {}, json.dumps(MESSAGE).encode(), cached=True))

    answer = await a_model(sender, price=lambda *of: 0.25).generate("Hi")

    assert (answer.cached, answer.cost_usd) == (True, 0.25)


async def test_a_record_keeps_of_an_answer_what_it_says_and_not_how_it_was_written() -> None:
    answer = await a_model(FakeSender()).generate("Hi")

    assert as_plain(answer) == {
        "cached": False,
        "model": "claude-x",
        "stop_reason": "end_turn",
        "text": "Grüße",
        "usage": {
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "long_cache_write_tokens": 0,
            "input_tokens": 10,
            "output_tokens": 2,
        },
    }


def test_code_that_is_not_async_may_ask_too() -> None:
    assert a_model(FakeSender()).generate_sync("Hi", max_tokens=3).text == "Grüße"


async def test_a_timeout_is_the_senders() -> None:
    usual, patient = FakeSender(), FakeSender()
    asked: list[float] = []

    def sender_within(timeout_s: float) -> Sender:
        asked.append(timeout_s)
        return patient

    await a_model(usual, sender_within=sender_within).generate("Hi", timeout_s=7.5)

    assert (asked, len(usual.sent), len(patient.sent)) == ([7.5], 0, 1)


async def test_a_schema_keeps_the_answer_parseable() -> None:
    said = {**MESSAGE, "content": [{"type": "text", "text": '{"n": 3}'}]}

    answer = await a_model(replying(200, said)).generate("Hi", response_schema={"type": "object"})

    assert answer.parsed() == {"n": 3}


def test_a_model_shows_its_name_and_not_its_key() -> None:
    sender = FakeSender()

    assert repr(a_model(sender)) == "Model('anthropic/claude-x')"
    moved = open_model("openai/m", connection=connection(sender), environ=ENVIRON, base_url="http://h/v1")
    assert repr(moved) == "Model('openai/m', base_url='http://h/v1')"
    assert KEY not in repr(vars(moved)["_target"])


@pytest.mark.parametrize("value", [float("nan"), object()])
async def test_what_json_cannot_hold_is_told_before_anything_is_sent(value: Any) -> None:
    sender = FakeSender()

    with pytest.raises(OptionError, match="cannot be written as JSON"):
        await a_model(sender).generate("Hi", top_p=value)
    assert sender.sent == []


@pytest.mark.parametrize("asked", [{"stream": True}, {"options": {"stream": True}}])
async def test_a_stream_is_not_asked_for_by_an_option(asked: dict[str, Any]) -> None:
    sender = FakeSender()

    with pytest.raises(OptionError, match=r"generate gives whole answers.*model\.stream"):
        await a_model(sender).generate("Hi", **asked)
    assert sender.sent == []


# -- failures


@pytest.mark.parametrize(
    ("name", "status", "error", "kind", "told"),
    [
        ("anthropic/m", 401, {"type": "authentication_error"}, "permanent", "ANTHROPIC_API_KEY"),
        ("openai/m", 401, {"code": "invalid_api_key"}, "permanent", "OPENAI_API_KEY"),
        ("anthropic/m", 404, {"type": "not_found_error"}, "permanent", "a model called 'm'"),
        ("anthropic/m", 413, {"type": "request_too_large"}, "permanent", "smaller"),
        ("anthropic/m", 429, {"type": "rate_limit_error"}, "rate_limit", "429"),
        ("openai/m", 429, {"type": "insufficient_quota"}, "spent", "add credit"),
        ("anthropic/m", 529, {"type": "overloaded_error"}, "overload", "529"),
        ("openai/m", 400, {"type": "invalid_request_error"}, "permanent", "400"),
    ],
)
async def test_a_final_refusal_says_what_the_provider_said_and_what_to_do(
    name: str, status: int, error: dict[str, str], kind: str, told: str
) -> None:
    sender = replying(status, {"type": "error", "error": {**error, "message": f"No, {KEY} cannot."}})

    with pytest.raises(ModelError, match=told) as caught:
        await a_model(sender, name).generate("Hi")

    assert (caught.value.status, caught.value.kind, caught.value.model) == (status, kind, "m")
    assert "cannot." in str(caught.value)
    assert KEY not in str(caught.value)


async def test_a_key_of_unusual_form_is_not_shown_either() -> None:
    model = open_model(
        "openai-compatible/m@http://h/v1",
        connection=connection(replying(401, {"error": {"message": "Wrong key: open sesame"}})),
        environ={},
        api_key="open sesame",
    )

    with pytest.raises(ModelError, match=r"Wrong key: \[key\]; check the API key"):
        await model.generate("Hi")


async def test_a_word_in_place_of_a_key_is_not_taken_out_of_what_is_told() -> None:
    model = open_model(
        "openai-compatible/m@http://h/v1",
        connection=connection(replying(400, {"error": {"message": "Of the tools, none fits."}})),
        environ={},
        api_key="none",
    )

    with pytest.raises(ModelError, match="none fits"):
        await model.generate("Hi")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "server"),
        (b"{", "server"),
        (b"[]", "no_answer"),
        (b"{}", "no_answer"),
        (b'{"content": 7}', "no_answer"),
        (b'{"content": [{}]}', "no_answer"),
        (b"<html>", "no_answer"),
    ],
)
async def test_a_success_without_an_answer_in_it_is_a_failure(body: bytes, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await a_model(replying(200, body)).generate("Hi")

    assert (caught.value.status, caught.value.kind) == (200, kind)


async def test_an_error_inside_a_success_is_told() -> None:
    sender = replying(200, {"error": {"message": "upstream is down", "code": 502}})

    with pytest.raises(ModelError, match="upstream is down"):
        await a_model(sender, "openai/m").generate("Hi")


async def test_no_answer_at_all_is_final_for_the_sample_because_the_gate_has_retried() -> None:
    sender = FakeSender(error=SendError("POST https://api.anthropic.com: refused", reached=False))

    with pytest.raises(ModelError, match="right address, and can it be reached") as caught:
        await a_model(sender).generate("Hi")

    assert caught.value.kind == "connection"
    assert isinstance(caught.value, EvalveError)
    assert not isinstance(caught.value, OSError | TimeoutError)


async def test_what_we_do_not_send_is_told_as_it_is() -> None:
    sender = FakeSender(error=Withheld("the answer is not in the cache"))

    with pytest.raises(ModelError) as caught:
        await a_model(sender).generate("Hi")

    assert str(caught.value) == "anthropic/claude-x: the answer is not in the cache"
    assert caught.value.kind == "permanent"


async def test_without_a_key_nothing_is_sent_and_the_variable_is_named() -> None:
    sender = FakeSender()
    model = open_model("openai/gpt-x", connection=connection(sender), environ={})

    with pytest.raises(MissingKey, match="set OPENAI_API_KEY, or give api_key="):
        await model.generate("Hi")
    with pytest.raises(MissingKey, match="set OPENAI_API_KEY"):
        await model.generate("Hi", timeout_s=1.0)
    with pytest.raises(MissingKey, match="set OPENAI_API_KEY"):
        await anext(model.stream("Hi"))
    assert sender.sent == []


async def test_what_the_cache_has_needs_no_key() -> None:
    class CachingGate(PassingGate):
        async def exchange(self, request: Request, sender: Sender) -> Reply:
            return Reply(200, {}, json.dumps(COMPLETION).encode(), cached=True)

    given = connection(FakeSender(), gate=CachingGate())

    answer = await open_model("openai/gpt-x", connection=given, environ={}).generate("Hi")

    assert answer.text == "Grüße"


@pytest.mark.parametrize("failure", [ModelError, MissingKey, StreamBroken])
def test_failures_travel_between_processes(failure: type[ModelError]) -> None:
    error = failure("told", kind="overload", status=529, model="m")

    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.kind, again.status, again.model) == ("told", "overload", 529, "m")


# -- streams


@pytest.mark.parametrize(
    ("name", "body"),
    [("anthropic/m", ANTHROPIC_STREAM), ("openai/m", OPENAI_STREAM)],
    ids=["anthropic", "openai"],
)
@pytest.mark.parametrize("rewritten", [lambda b: b, lambda b: b.replace(b"\n", b"\r\n"), bytes.rstrip])
async def test_a_stream_may_be_cut_anywhere(
    name: str, body: bytes, rewritten: Callable[[bytes], bytes]
) -> None:
    body = rewritten(body)
    for chunk_bytes in (1, 2, 3, 7, 64, len(body)):
        sender = FakeSender(Reply(200, {}, body, cached=True), chunk_bytes=chunk_bytes)

        *deltas, answer = [event async for event in a_model(sender, name).stream("Hi", max_tokens=9)]

        assert deltas == [TextDelta("Grü"), TextDelta("ße")]
        assert isinstance(answer, Answer)
        assert (answer.text, answer.stop_reason, answer.cached) == ("Grüße", "end_turn", True)
        assert answer.usage == Usage(10, 2)


async def test_a_streamed_question_says_so_and_takes_the_same_arguments() -> None:
    sender = replying(200, OPENAI_STREAM)
    model = a_model(sender, "openai/m")

    async with model.stream("Hi", system="S", max_tokens=9, seed=1, options={"user": "u"}) as stream:
        async for _ in stream:
            pass

    assert stream.answer is not None
    assert json.loads(sender.sent[0].body) == {
        "model": "m",
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
        "max_completion_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 1,
        "user": "u",
    }


async def test_leaving_a_stream_early_ends_the_request() -> None:
    sender = replying(200, OPENAI_STREAM)
    async with a_model(sender, "openai/m").stream("Hi") as stream:
        await anext(stream)

    assert (sender.closed, stream.answer) == (1, None)


async def test_a_server_that_does_not_stream_is_understood_all_the_same() -> None:
    sender = replying(200, COMPLETION, **{"content-type": "application/json"})

    said = [str(event) async for event in a_model(sender, "openai/m").stream("Hi")]

    assert said == ["Grüße", "Grüße"]


@pytest.mark.parametrize("said_type", ["application/json", "application/x-ndjson"])
async def test_a_stream_under_a_wrong_content_type_is_understood_all_the_same(said_type: str) -> None:
    sender = replying(200, OPENAI_STREAM, **{"content-type": said_type})

    said = [str(event) async for event in a_model(sender, "openai/m").stream("Hi")]

    assert said == ["Grü", "ße", "Grüße"]


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ({"prompt_tokens": "10", "completion_tokens": "2"}, Usage(10, 2)),
        (
            {"prompt_tokens": 10, "completion_tokens": "2", "prompt_tokens_details": {"cached_tokens": "4"}},
            Usage(6, 2, 4),
        ),
        ({"prompt_tokens": "ten"}, None),
        (None, None),
    ],
)
async def test_counts_are_numbers_however_a_server_writes_them(usage: Any, read: Usage | None) -> None:
    sender = replying(200, {**COMPLETION, "usage": usage})

    answer = await a_model(sender, "openai/m").generate("Hi")

    assert answer.usage == read


async def test_a_refused_stream_is_told_like_any_refusal() -> None:
    sender = replying(404, {"type": "error", "error": {"type": "not_found_error", "message": "model: m"}})

    with pytest.raises(ModelError, match="a model called 'claude-x'") as caught:
        await anext(a_model(sender).stream("Hi"))

    assert caught.value.status == 404


@pytest.mark.parametrize(
    "body",
    [
        ANTHROPIC_STREAM[:-60],
        ANTHROPIC_STREAM[:-60]
        + events({"type": "error", "error": {"type": "overloaded_error", "message": "Full"}}),
        ANTHROPIC_STREAM[:-60] + b"data: {oops}\n\n",
    ],
    ids=["cut", "error", "garbage"],
)
async def test_a_stream_that_breaks_off_is_left_to_the_samples_retries(body: bytes) -> None:
    with pytest.raises(StreamBroken) as caught:
        _ = [event async for event in a_model(replying(200, body)).stream("Hi")]

    assert isinstance(caught.value, ConnectionError)


async def test_a_connection_lost_in_the_middle_is_left_to_the_samples_retries() -> None:
    sender = replying(200, ANTHROPIC_STREAM[:300])
    sender.error = SendError("reset", reached=True)

    with pytest.raises(StreamBroken, match="broke off before its end: reset"):
        _ = [event async for event in a_model(sender).stream("Hi")]


async def test_an_error_event_is_told_rather_than_that_the_stream_broke_off() -> None:
    said = {"type": "error", "error": {"type": "overloaded_error", "message": "Full"}}
    begun = b"".join([event + b"\n\n" for event in ANTHROPIC_STREAM.split(b"\n\n")[:3]])
    sender = replying(200, begun + events(said))
    sender.error = SendError("after the error the gate says that there is no whole", reached=True)

    with pytest.raises(StreamBroken, match=r"overloaded_error: Full$") as caught:
        _ = [event async for event in a_model(sender).stream("Hi")]

    assert caught.value.kind == "overload"


async def test_a_stream_that_never_began_is_told_by_its_kind_and_is_final() -> None:
    class GivingUp(PassingGate):
        @asynccontextmanager
        async def stream(self, request: Request, sender: Sender) -> AsyncIterator[StreamedReply]:
            async with sender.stream(request) as reply:
                reply.problem = Problem("overload", "anthropic answered 200 overloaded_error: Full", 200)
                yield reply

    with pytest.raises(ModelError, match=r"overloaded_error: Full$") as caught:
        await anext(a_model(FakeSender(), gate=GivingUp()).stream("Hi"))

    assert (caught.value.kind, type(caught.value)) == ("overload", ModelError)


@pytest.mark.parametrize(
    "error", [SendError("reset", reached=True), SendError("slow", reached=True, timed_out=True)]
)
async def test_a_server_that_was_reached_is_not_asked_about_its_address(error: SendError) -> None:
    with pytest.raises(ModelError) as caught:
        await a_model(FakeSender(error=error)).generate("Hi")

    assert "right address" not in str(caught.value)


# -- against a provider


@pytest.mark.parametrize(("name", "path"), [("anthropic/m", ""), ("openai/m", "/v1")])
async def test_a_simulated_provider_is_understood_whole_and_streamed(name: str, path: str) -> None:
    said = Scripted("Let me add. ", (ScriptedCall("add", {"n": [1, 2]}),))
    sender = AiohttpSender()
    async with Simulator(Behaviour(answers=[said], keys=frozenset({KEY}))) as simulator:
        model = open_model(
            name, connection=connection(sender), environ=ENVIRON, base_url=simulator.url + path
        )
        whole = await model.generate("1+2?", tools=[{"name": "add", "parameters": {"type": "object"}}])
        async with model.stream("1+2?") as stream:
            text = "".join([str(event) async for event in stream if isinstance(event, TextDelta)])
        await sender.aclose()

    assert (whole.text, text) == ("Let me add. ", "Let me add. ")
    assert stream.answer is not None
    for answer in (whole, stream.answer):
        assert [(call.name, call.arguments) for call in answer.tool_calls] == [("add", {"n": [1, 2]})]
        assert answer.stop_reason == "tool_use"
        assert answer.usage is not None
        assert answer.usage.output_tokens > 0


@pytest.mark.parametrize(("name", "path"), [("anthropic/m", ""), ("openai/m", "/v1")])
async def test_a_simulated_provider_that_knows_another_key_refuses(name: str, path: str) -> None:
    sender = AiohttpSender(Timeouts())
    async with Simulator(Behaviour(keys=frozenset({"another"}))) as simulator:
        model = open_model(
            name, connection=connection(sender), environ=ENVIRON, base_url=simulator.url + path
        )
        with pytest.raises(ModelError, match="check the API key") as caught:
            await model.generate("Hi")
        await sender.aclose()

    assert caught.value.status == 401
