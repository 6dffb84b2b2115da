"""Asking OpenAI's streams what they took, for clients that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.doors.gateway.upstreams import Upstream
from evalve.gate.doors.gateway.usage import WithoutUsage, asking_for_usage
from evalve.gate.messages import Request

OPENAI = Upstream("openai", "https://api.openai.com/v1")
CHAT = "https://api.openai.com/v1/chat/completions"
PIECE = b'data: {"choices":[{"delta":{"content":"Hi"}}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


def asked(body: dict[str, Any], upstream: Upstream = OPENAI, url: str = CHAT) -> dict[str, Any] | None:
    asking = asking_for_usage(Request("POST", url, {}, json.dumps(body).encode()), upstream)
    return None if asking is None else json.loads(asking.body)["stream_options"]


def test_a_stream_is_asked_and_keeps_its_other_options() -> None:
    assert asked({"stream": True}) == {"include_usage": True}
    assert asked({"stream": True, "stream_options": {"x": 1}}) == {"x": 1, "include_usage": True}


@pytest.mark.parametrize(
    "arguments",
    [
        ({"stream": True, "stream_options": {"include_usage": True}},),
        ({"stream": False},),
        ({"messages": "stream"},),
        ({"stream": True}, Upstream("groq", "https://api.groq.com")),
        ({"stream": True}, OPENAI, "https://api.openai.com/v1/responses"),
    ],
    ids=["asks itself", "whole", "no such key", "another server", "another API"],
)
def test_what_need_not_or_cannot_be_asked_stays_as_it_is(arguments: tuple[Any, ...]) -> None:
    assert asked(*arguments) is None


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_event_that_has_only_the_usage_is_left_out_however_the_bytes_come(size: int) -> None:
    stream, hidden = PIECE + USAGE + DONE, WithoutUsage()

    said = [hidden.feed(stream[start : start + size]) for start in range(0, len(stream), size)]

    assert b"".join([*said, hidden.end()]) == PIECE + DONE


def test_a_last_event_without_its_blank_line_comes_too() -> None:
    hidden = WithoutUsage()

    assert (hidden.feed(PIECE + DONE.strip()), hidden.end()) == (PIECE, DONE.strip())
