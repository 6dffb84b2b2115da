"""Arguments that cannot be meant are told before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.gate.doors.httpx_parts import library_named
from evalve.gate.doors.local import LocalServer
from evalve.gate.doors.misuse import check_tokens, misspelt
from evalve.gate.doors.model import Connection, Model, open_model
from evalve.gate.messages import Reply, Request, Sender, StreamedReply


class ClosedGate:
    """Nothing may come so far."""

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        raise AssertionError("something was sent")

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]:
        raise AssertionError("something was sent")


class NoSender:
    async def send(self, request: Request) -> Reply:
        raise AssertionError("something was sent")

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedReply]:
        raise AssertionError("something was sent")


def nobody_waits(coroutine: Coroutine[Any, Any, Any]) -> Any:
    raise AssertionError("nothing is waited for")


def a_model(name: str, **given: Any) -> Model:
    sender = NoSender()
    connection = Connection(
        gate=ClosedGate(),
        sender=sender,
        sender_within=lambda answer_s: sender,
        price=lambda *of: None,
        call_sync=nobody_waits,
        local=LocalServer(),
    )
    return open_model(name, connection=connection, environ={"OPENAI_API_KEY": "k"}, **given)


def message(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


WRONG = [
    ({"tools": "a"}, "tools= needs a list of tools, not 'a' (str)"),
    ({"tools": [print]}, "tools=: tool 0 needs a mapping of name, description, parameters, not"),
    ({"tools": [{"name": "a"}, 3]}, "tools=: tool 1 needs a mapping"),
    (
        {"response_schema": "a"},
        "response_schema= needs a JSON schema, a mapping as in {'type': 'object', …}",
    ),
    ({"system": 4}, "system= needs a text or a list of blocks, not 4 (int)"),
    ({"options": [1]}, "options= needs a mapping of names to values, not [1] (list)"),
    (
        {"timeout_s": "a"},
        "timeout_s= needs a number of seconds above 0, or None for the usual; got 'a'",
    ),
    ({"timeout_s": 0}, "timeout_s= needs a number of seconds above 0"),
    ({"timeout_s": -1}, "timeout_s= needs a number of seconds above 0"),
    ({"max_tokens": 0}, "max_tokens= needs a whole number above 0, or None; got 0 (int)"),
    ({"max_tokens": "5"}, "max_tokens= needs a whole number above 0"),
    ({"max_tokens": True}, "max_tokens= needs a whole number above 0"),
    ({"temperature": "hot"}, "temperature= needs a number, or None; got 'hot' (str)"),
    ({"stop": 5}, "stop= needs a text or a list of texts, not 5 (int)"),
    ({"timeout": 5}, "there is no argument 'timeout'; did you mean 'timeout_s'?"),
    ({"max_token": 5}, "there is no argument 'max_token'; did you mean 'max_tokens'?"),
    ({"prompt": message([b"png"])}, "message 0: its content holds texts and blocks, not b'png' (bytes)"),
    (
        {"prompt": message(5)},
        "message 0: its content needs a text or a list of texts and blocks, not 5",
    ),
    ({"prompt": message([{"type": "image", "data": "x"}])}, "an image's 'data' needs bytes, not 'x' (str)"),
    ({"prompt": message([{"type": "image", "path": None}])}, "an image's 'path' needs a text, not None"),
    (
        {"prompt": [{"role": "assistant", "content": "", "tool_calls": [3]}]},
        "a tool call in a message needs a name and arguments, not 3 (int)",
    ),
]
each_wrong = pytest.mark.parametrize(("given", "told"), WRONG, ids=[told[:40] for _, told in WRONG])
each_wire = pytest.mark.parametrize("name", ["anthropic/m", "openai/m"])


@each_wrong
@each_wire
async def test_a_wrong_argument_is_told_with_its_value(name: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        await a_model(name).generate(**{"prompt": "Hi", **given})


@each_wrong
async def test_a_stream_tells_the_same(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        a_model("openai/m").stream(**{"prompt": "Hi", **given})


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (["a: secret"], "headers= needs a mapping of names to texts, not a list"),
        ({"a": "secret\nb"}, "headers=: 'a' has a line break or another control character in it"),
        ({"a b": "secret"}, "headers=: 'a b' cannot be the name of a header"),
        ({"a": 5}, "headers=: 'a' needs a text, not a int"),
    ],
)
def test_headers_that_cannot_be_sent_are_told_without_their_values(headers: Any, told: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        a_model("openai/m", headers=headers)


@pytest.mark.parametrize(
    "name",
    ["top_p", "top_k", "max_completion_tokens", "min_tokens", "response_format", "stop_sequences", "seed"],
)
def test_what_is_a_providers_own_passes(name: str) -> None:
    assert misspelt(name) == ""


@pytest.mark.parametrize(
    ("name", "meant"), [("temprature", "temperature"), ("tool", "tools"), ("timeout_seconds", "timeout_s")]
)
def test_what_is_nearly_one_of_ours_is_taken_for_it(name: str, meant: str) -> None:
    assert misspelt(name) == meant


@pytest.mark.parametrize("tokens", [-5, "many", float("nan"), True, None])
def test_tokens_are_a_number_from_nought_up(tokens: Any) -> None:
    with pytest.raises(OptionError, match="input_tokens= needs a number of tokens, 0 or more; got"):
        check_tokens("input_tokens", tokens)


def test_a_library_that_is_not_offered_is_told_with_those_that_are() -> None:
    library: Any = "requests"

    with pytest.raises(OptionError, match=r"library= is 'httpx2' or 'httpx', .*; got 'requests'"):
        library_named(library)
