"""Claude and Mistral on Vertex: the maker's format under Google's addresses, keys and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.vertex import VertexDialect
from evalve.gate.messages import Call, Reply, Request, Usage

PLACE = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/us-east5/publishers"
CLAUDE = f"{PLACE}/anthropic/models/claude-sonnet-4-5@20250929"
BODY = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 50, "messages": []}
MESSAGE = {"type": "message", "content": [], "usage": {"input_tokens": 30, "output_tokens": 8}}
STREAMED = b"".join(
    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
    for event in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 8}},
        {"type": "message_stop"},
    )
)

dialect = VertexDialect()


def call_of(url: str, **body: Any) -> Call:
    call = dialect.read(
        Request("POST", url, {"authorization": "Bearer ya29.x"}, json.dumps({**BODY, **body}).encode())
    )
    assert call is not None
    return call


def test_claude_is_read_with_the_model_of_the_path() -> None:
    call = call_of(f"{CLAUDE}:rawPredict")

    assert (call.provider, call.model, call.pool) == ("vertex", "claude-sonnet-4-5", "claude-sonnet-4.5-4.6")
    assert (call.max_output_tokens, call.streams, call.endpoint) == (50, False, "messages")
    assert call_of(f"{CLAUDE}:streamRawPredict").streams is True


def test_mistral_is_read_as_a_chat() -> None:
    call = call_of(f"{PLACE}/mistralai/models/mistral-large@2411:rawPredict")

    assert (call.model, call.endpoint) == ("mistral-large", "chat/completions")


@pytest.mark.parametrize("path", ["anthropic/models/count-tokens:rawPredict", "meta/models/llama:rawPredict"])
def test_what_is_no_call_passes_untouched(path: str) -> None:
    assert dialect.read(Request("POST", f"{PLACE}/{path}", {}, b"{}")) is None


def test_answers_are_the_makers() -> None:
    whole, streamed = call_of(f"{CLAUDE}:rawPredict"), call_of(f"{CLAUDE}:streamRawPredict")

    assert dialect.problem(Reply(200, {}, json.dumps(MESSAGE).encode()), whole) is None
    assert dialect.problem(Reply(200, {}, STREAMED), streamed) is None
    assert dialect.usage(whole, json.dumps(MESSAGE).encode()) == Usage(30, 8)
    assert dialect.usage(streamed, STREAMED) == Usage(30, 8)
    assert dialect.problem(Reply(200, {}, STREAMED[:-30]), streamed) is not None
    assert dialect.problem(Reply(200, {}, b"{}"), whole) is not None


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            429,
            [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded"}}],
            "rate_limit",
        ),
        (
            429,
            {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded"}},
            "rate_limit",
        ),
        (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slower"}}, "rate_limit"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overload"),
        (403, {"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "no"}}, "permanent"),
    ],
)
def test_errors_are_googles_or_the_makers(status: int, error: Any, kind: str) -> None:
    problem = dialect.problem(Reply(status, {}, json.dumps(error).encode()), call_of(f"{CLAUDE}:rawPredict"))

    assert problem is not None
    assert problem.kind == kind
