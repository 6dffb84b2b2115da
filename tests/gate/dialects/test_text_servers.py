"""What llama.cpp's `/completion` and TGI's `/generate` mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.finding import recognised
from evalve.gate.dialects.text_servers import TextServerDialect
from evalve.gate.messages import Call, Reply, Request, Usage

HOST = "http://127.0.0.1:8080"
COMPLETED = {"content": "Paris", "stop": True, "tokens_evaluated": 30, "tokens_predicted": 8}
GENERATED = {"generated_text": "Paris", "details": {"generated_tokens": 8, "input_length": 30}}
TOKEN = {"index": 1, "token": {"id": 7, "text": "Par"}, "generated_text": None, "details": None}
LAST_TOKEN = {"index": 2, "token": {"id": 8, "text": "is"}, **GENERATED}

dialect = TextServerDialect()


def request_to(path: str, **body: Any) -> Request:
    return Request("POST", HOST + path, {}, json.dumps(body).encode())


def call_of(path: str, **body: Any) -> Call:
    call = dialect.read(request_to(path, **body))
    assert call is not None
    return call


def events(*values: Any) -> bytes:
    return b"".join(b"data:" + json.dumps(value).encode() + b"\n\n" for value in values)


def reply(body: Any, status: int = 200) -> Reply:
    return Reply(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "body", "streams", "most"),
    [
        ("/completion", {"prompt": "France?", "n_predict": 64}, False, 64),
        ("/completion", {"prompt": "France?", "n_predict": -1, "stream": True}, True, None),
        ("/generate", {"inputs": "France?", "parameters": {"max_new_tokens": 64}}, False, 64),
        ("/generate_stream", {"inputs": "France?"}, True, None),
    ],
)
def test_a_prompt_to_a_server_without_a_models_name_is_a_call(
    path: str, body: dict[str, Any], streams: bool, most: int | None
) -> None:
    found = recognised(request_to(path, **body))

    assert found is not None
    read, call = found
    assert (read.name, call.provider, call.model) == ("text-server", "127.0.0.1:8080", "default")
    assert (call.streams, call.max_output_tokens, call.input_bytes) == (streams, most, 7)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", {"prompt": ["France?", "Peru?"]}),
        ("/completion", {"messages": []}),
        ("/generate", {"text": "France?", "sampling_params": {}}),
        ("/", {"inputs": "France?"}),
    ],
)
def test_what_others_take_under_such_paths_is_left_alone(path: str, body: dict[str, Any]) -> None:
    assert recognised(request_to(path, **body)) is None


@pytest.mark.parametrize(
    ("path", "asked", "answer"),
    [
        ("/completion", {"prompt": "x"}, COMPLETED),
        (
            "/completion",
            {"prompt": "x", "stream": True},
            events({"content": "Par", "stop": False}, COMPLETED),
        ),
        ("/generate", {"inputs": "x"}, GENERATED),
        ("/generate_stream", {"inputs": "x"}, events(TOKEN, LAST_TOKEN)),
    ],
)
def test_an_answer_tells_its_tokens(path: str, asked: dict[str, Any], answer: Any) -> None:
    call = call_of(path, **asked)

    assert dialect.problem(reply(answer), call) is None
    assert dialect.usage(call, reply(answer).body) == Usage(30, 8)


def test_an_answer_without_counts_and_one_of_a_server_of_ones_own_are_answers() -> None:
    call = call_of("/generate", inputs="x")

    assert dialect.problem(reply({"generated_text": "Paris"}), call) is None
    assert dialect.usage(call, reply({"generated_text": "Paris"}).body) is None
    assert dialect.problem(reply({"output": "Paris"}), call) is None


@pytest.mark.parametrize(
    ("path", "asked", "answer"),
    [
        ("/completion", {"prompt": "x", "stream": True}, events({"content": "Par", "stop": False})),
        ("/generate_stream", {"inputs": "x"}, events(TOKEN)),
        ("/generate_stream", {"inputs": "x"}, events(TOKEN, {"error": "CUDA", "error_type": "generation"})),
        ("/completion", {"prompt": "x"}, {"error": {"code": 500, "message": "no", "type": "server_error"}}),
    ],
)
def test_what_broke_off_or_failed_is_not_an_answer(path: str, asked: dict[str, Any], answer: Any) -> None:
    problem = dialect.problem(reply(answer), call_of(path, **asked))

    assert problem is not None
    assert problem.kind == "server"


def test_what_tgi_finds_wrong_with_an_input_in_a_stream_is_not_its_own_fault() -> None:
    too_long = {"error": "`inputs` must have less than 1024 tokens", "error_type": "validation"}

    problem = dialect.problem(reply(events(too_long)), call_of("/generate_stream", inputs="x"))

    assert problem is not None and problem.kind == "permanent"


def test_tgi_refuses_for_want_of_places_and_llama_cpp_while_it_loads() -> None:
    overloaded = {"error": "Model is overloaded", "error_type": "overloaded"}
    full = dialect.problem(reply(overloaded, 429), call_of("/generate", inputs="x"))
    loads = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    loading = dialect.problem(reply(loads, 503), call_of("/completion", prompt="x"))

    assert full is not None and (full.kind, full.dimension) == ("rate_limit", "concurrency")
    assert loading is not None and loading.kind == "overload"
    assert loading.message == "127.0.0.1:8080 answered 503 unavailable_error: Loading model"


def test_a_stream_begins_with_its_first_piece_and_ends_with_its_last() -> None:
    call = call_of("/completion", prompt="x", stream=True)

    assert dialect.begins(call, b'{"content": "Par", "stop": false}')
    assert not dialect.begins(call, b'{"content": "", "stop": false, "prompt_progress": {}}')
    assert not dialect.begins(call, b'{"error": "no", "error_type": "generation"}')
    assert dialect.ends(json.dumps(COMPLETED).encode())
    assert not dialect.ends(json.dumps(TOKEN).encode())
