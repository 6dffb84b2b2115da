"""Each request finds its dialect by its path alone, whatever the host."""

from __future__ import annotations

import pytest

from evalve.gate.dialects.finding import recognised
from evalve.gate.messages import Request


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.anthropic.com/v1/messages", "anthropic"),
        ("http://127.0.0.1:8080/v1/messages", "anthropic"),
        ("https://api.openai.com/v1/responses", "openai"),
        ("http://127.0.0.1:8080/v1/chat/completions", "openai"),
    ],
)
def test_the_path_says_which_dialect_it_is(url: str, name: str) -> None:
    found = recognised(Request("POST", url, {}, b'{"model": "m"}'))

    assert found is not None
    dialect, call = found
    assert (dialect.name, call.model) == (name, "m")


def test_a_request_that_no_dialect_knows_is_left_alone() -> None:
    assert recognised(Request("POST", "https://api.openai.com/v1/files", {}, b"{}")) is None
