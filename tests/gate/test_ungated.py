"""Who is told about calls that nobody limits, keeps and counts: once for each host, and without keys."""

from __future__ import annotations

import pytest

from evalve.gate.messages import Request
from evalve.gate.ungated import Ungated, asks_a_model, may_ask_a_model


def test_a_host_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    ungated = Ungated()

    for url in ("http://a:1/completion", "http://a:1/generate", "http://b/generate", "http://B/x"):
        ungated.tell(url)

    assert [record.getMessage().split()[2] for record in caplog.records] == ["a:1/completion", "b/generate"]


def test_what_may_be_a_key_in_an_address_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    Ungated().tell("https://me:pass@hooks.test/services/T1/abcdefghijklmnopqrstuvwx?key=secret#top")

    (record,) = caplog.records
    assert record.getMessage().split()[2] == "hooks.test/services/T1/…"


@pytest.mark.parametrize(
    ("path", "body", "may"),
    [
        ("/completion", b'{"prompt": "x"}', True),
        ("/generate", b'{"inputs": "x"}', True),
        ("/v1/responses", b'{"background": true}', True),
        ("/anything", b"not JSON", True),
        ("/api/generate", b'{"model": "m", "keep_alive": 0}', False),
        ("/v1/messages/count_tokens", b"{}", False),
        ("/v1/models/m:countTokens", b"{}", False),
        ("/v1/messages/batches", b"{}", False),
        ("/v1/responses/input_tokens", b'{"model": "m", "input": "x"}', False),
        ("/v1/responses/r1/cancel", b"{}", False),
        ("/api/pull", b"{}", False),
        ("/mcp", b'{"jsonrpc": "2.0"}', False),
    ],
)
def test_what_is_clearly_no_question_to_a_model_is_not_worth_a_word(
    path: str, body: bytes, may: bool
) -> None:
    assert may_ask_a_model(Request("POST", f"http://a{path}", {}, body)) is may


@pytest.mark.parametrize(
    ("method", "url", "asks"),
    [
        ("POST", "https://api.together.ai/v1/chat/completions", True),
        (
            "POST",
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-pro-v1%3A0/converse",
            True,
        ),
        ("POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/invoke-with-response-stream", True),
        ("POST", "https://x.googleapis.com/v1beta/models/g:streamGenerateContent?alt=sse", True),
        ("POST", "http://gpu-box:11434/api/chat", True),
        ("GET", "https://api.together.ai/v1/chat/completions", False),
        ("POST", "https://surveys.test/responses", False),
        ("POST", "https://api.openai.com/v1/files", False),
    ],
)
def test_an_address_tells_whether_a_model_is_asked(method: str, url: str, asks: bool) -> None:
    assert asks_a_model(method, url) is asks


def test_a_call_past_the_gateway_is_told_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    Ungated().tell("https://api.mistral.ai/v1/chat/completions", is_past_gateway=True)

    (record,) = caplog.records
    assert record.getMessage() == (
        "calls to api.mistral.ai/v1/chat/completions do not go over the gateway, because their client does"
        " not take its address from the environment: they pass without cache and metering, and without"
        " limits; give the client evalve's HTTP client (docs/sdks.md) or, if it takes none, hold the calls"
        ' back with evalve.limiter("openai-compatible/NAME@https://api.mistral.ai")'
    )
