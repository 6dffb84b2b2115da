"""Who is told about calls that nobody limits, keeps and counts: once for each host, and without keys."""

from __future__ import annotations

import pytest

from evalve.gate.messages import Request
from evalve.gate.ungated import Ungated, may_ask_a_model


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
        ("/v1/responses/r1/cancel", b"{}", False),
        ("/api/pull", b"{}", False),
        ("/mcp", b'{"jsonrpc": "2.0"}', False),
    ],
)
def test_what_is_clearly_no_question_to_a_model_is_not_worth_a_word(
    path: str, body: bytes, may: bool
) -> None:
    assert may_ask_a_model(Request("POST", f"http://a{path}", {}, body)) is may
