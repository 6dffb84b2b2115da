"""What Bedrock's `converse` and `invoke` mean, in JSON and in Amazon's frames."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amazon_frames import chunk, failure, frame
from evalve.gate.dialects.bedrock import BedrockDialect
from evalve.gate.events import ServerEvents
from evalve.gate.messages import Call, Reply, Request, Usage

HOST = "https://bedrock-runtime.us-east-1.amazonaws.com"
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0"
CONVERSE = f"{HOST}/model/{CLAUDE}/converse"
INVOKE = f"{HOST}/model/{CLAUDE}/invoke"
TITAN = f"{HOST}/model/amazon.titan-text/invoke"
SIGNED = {
    "authorization": "AWS4-HMAC-SHA256 Credential=AKIA1/20260101/us-east-1/bedrock/aws4_request, Signature=x"
}

ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hi"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 30, "outputTokens": 8, "totalTokens": 38, "cacheReadInputTokens": 4},
}
START = frame("messageStart", {"role": "assistant"})
DELTA = frame("contentBlockDelta", {"delta": {"text": "Hi"}, "contentBlockIndex": 0})
STOP = frame("messageStop", {"stopReason": "end_turn"})
METADATA = frame("metadata", {"usage": {"inputTokens": 30, "outputTokens": 8}})
MESSAGE = {
    "type": "message",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 30, "output_tokens": 8},
}
CLAUDES = (
    chunk({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}}),
    chunk({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}),
    chunk({"type": "message_delta", "usage": {"output_tokens": 8}}),
    chunk({"type": "message_stop"}),
)

dialect = BedrockDialect()


def call_of(url: str = CONVERSE, **body: Any) -> Call:
    prompt = {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}
    call = dialect.read(Request("POST", url, SIGNED, json.dumps({**prompt, **body}).encode()))
    assert call is not None
    return call


def claude_call(url: str = INVOKE) -> Call:
    return call_of(url, anthropic_version="bedrock-2023-05-31", max_tokens=50)


# -- requests


def test_a_request_is_read_as_a_call() -> None:
    call = call_of(inferenceConfig={"maxTokens": 200})

    assert (call.provider, call.model) == ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    assert (call.max_output_tokens, call.streams, call.endpoint) == (200, False, "converse")
    assert call_of(f"{CONVERSE}-stream").streams is True
    assert claude_call(f"{INVOKE}-with-response-stream").streams is True
    assert claude_call().max_output_tokens == 50
    assert call_of(TITAN, textGenerationConfig={"maxTokenCount": 9}).max_output_tokens == 9
    assert call_of(f"{HOST}/model/amazon.titan-embed-text/invoke").max_output_tokens == 0


def test_signatures_change_and_the_account_stays() -> None:
    assert "AKIA1" not in repr(call_of())
    assert call_of().key_hash != "none"


@pytest.mark.parametrize("path", ["/model/m/count-tokens", "/guardrail/g/version/1/apply", "/async-invoke"])
def test_what_is_no_call_passes_untouched(path: str) -> None:
    assert dialect.read(Request("POST", HOST + path, SIGNED, b"{}")) is None


# -- answers


@pytest.mark.parametrize(
    ("call", "body", "usage"),
    [
        (call_of(), json.dumps(ANSWER).encode(), Usage(30, 8, 4)),
        (call_of(f"{CONVERSE}-stream"), START + DELTA + STOP + METADATA, Usage(30, 8)),
        (claude_call(), json.dumps(MESSAGE).encode(), Usage(30, 8)),
        (claude_call(f"{INVOKE}-with-response-stream"), b"".join(CLAUDES), Usage(30, 8)),
        (
            claude_call(f"{INVOKE}-with-response-stream"),
            b"".join(CLAUDES[:-1])
            + chunk(
                {
                    "type": "message_stop",
                    "amazon-bedrock-invocationMetrics": {"inputTokenCount": 31, "outputTokenCount": 9},
                }
            ),
            Usage(31, 9),
        ),
        (call_of(TITAN), b'{"results": [{"outputText": "Hi"}]}', None),
    ],
)
def test_a_whole_answer_is_no_problem_and_says_what_it_took(
    call: Call, body: bytes, usage: Usage | None
) -> None:
    assert dialect.problem(Reply(200, {}, body), call) is None
    assert dialect.usage(call, body) == usage


@pytest.mark.parametrize(
    ("call", "body", "kind"),
    [
        (call_of(), b"{}", "no_answer"),
        (call_of(), b'{"output": {"mess', "server"),
        (call_of(f"{CONVERSE}-stream"), START + DELTA, "server"),
        (call_of(f"{CONVERSE}-stream"), (START + DELTA + STOP)[:-5], "server"),
        (
            call_of(f"{CONVERSE}-stream"),
            START + DELTA + failure("throttlingException", "slower"),
            "rate_limit",
        ),
        (call_of(f"{CONVERSE}-stream"), START + failure("modelStreamErrorException", "no"), "overload"),
        (claude_call(f"{INVOKE}-with-response-stream"), b"".join(CLAUDES[:-1]), "server"),
        (claude_call(), b'{"type": "message"}', "no_answer"),
    ],
)
def test_what_broke_off_or_has_another_form_is_no_answer(call: Call, body: bytes, kind: str) -> None:
    problem = dialect.problem(Reply(200, {}, body), call)

    assert problem is not None
    assert problem.kind == kind


def test_a_stream_begins_with_its_first_piece_and_ends_with_its_reason() -> None:
    events = ServerEvents()
    body = START + DELTA + STOP + METADATA
    data = [event for at in range(0, len(body), 7) for event in events.feed(body[at : at + 7])]

    assert [dialect.begins(call_of(), each) for each in data[:2]] == [False, True]
    assert [dialect.ends(each) for each in data] == [False, False, True, False]


# -- errors


@pytest.mark.parametrize(
    ("status", "name", "message", "kind"),
    [
        (429, "ThrottlingException", "Too many requests", "rate_limit"),
        (400, "ThrottlingException", "Too many tokens, please wait", "rate_limit"),
        (403, "ThrottlingException", "Rate exceeded", "rate_limit"),
        (429, "ThrottlingException", "Too many tokens per day", "spent"),
        (400, "ServiceQuotaExceededException", "quota", "spent"),
        (503, "ServiceUnavailableException", "busy", "overload"),
        (429, "ModelNotReadyException", "loading", "overload"),
        (424, "ModelErrorException", "no", "overload"),
        (408, "ModelTimeoutException", "slow", "server"),
        (500, "InternalServerException", "no", "server"),
        (400, "ValidationException", "bad", "permanent"),
        (403, "AccessDeniedException", "no", "permanent"),
        (403, "InvalidSignatureException", "Signature expired", "permanent"),
    ],
)
def test_an_error_has_a_kind_by_its_name(status: int, name: str, message: str, kind: str) -> None:
    headers = {"x-amzn-errortype": f"{name}:http://internal.amazon.com/coral/"}
    body = json.dumps({"message": message}).encode()

    problem = dialect.problem(Reply(status, headers, body), call_of())

    assert problem is not None
    assert (problem.kind, problem.message) == (kind, f"bedrock answered {status} {name}: {message}")


def test_the_name_may_stand_in_the_body() -> None:
    body = b'{"__type": "com.amazon.coral#ThrottlingException", "message": "Too many tokens"}'

    problem = dialect.problem(Reply(400, {}, body), call_of())

    assert problem is not None
    assert (problem.kind, problem.dimension) == ("rate_limit", "tokens")
