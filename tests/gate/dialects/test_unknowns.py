"""What cannot be counted from a request's bytes is noticed, whatever the provider calls it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.unknowns import unknown_input, written_cache


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def asked(*parts: Any) -> bytes:
    return body(messages=[{"role": "user", "content": list(parts)}])


TEXT = {"type": "text", "text": "What does the image in the file show? See data: above, or search the web."}
FUNCTION = {"type": "function", "function": {"name": "file_search", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "sent",
    [
        body(messages=[{"role": "user", "content": "an image of a document"}]),
        asked(TEXT),
        asked({"type": "document", "source": {"type": "text", "data": "plain"}}),
        body(tools=[FUNCTION], messages=[]),
        body(tools=[{"name": "image", "input_schema": {"type": "object"}}], messages=[]),
        body(contents=[{"parts": [{"text": "prompt"}]}], tools=[{"functionDeclarations": [{"name": "f"}]}]),
        body(prompt="complete this file"),
        body(input="hello", previous_response_id=None),
        b"no JSON about an image",
    ],
)
def test_text_is_known(sent: bytes) -> None:
    assert unknown_input(sent) == ""


@pytest.mark.parametrize(
    "sent",
    [
        asked({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
        asked({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        asked(TEXT, {"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}),
        asked({"type": "document", "source": {"type": "file", "file_id": "file_1"}}),
        asked({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}),
        asked({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}),
        asked({"type": "tool_result", "content": [{"type": "image", "source": {}}]}),
        body(input=[{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
        body(contents=[{"parts": [{"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}}]}]),
        body(contents=[{"parts": [{"file_data": {"file_uri": "gs://x/y.mp4"}}]}]),
        body(messages=[{"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": ""}}}]}]),
        body(messages=[{"role": "user", "content": "?", "images": ["AAAA"]}]),
    ],
)
def test_attachments_are_not(sent: bytes) -> None:
    assert unknown_input(sent) == "attachments"


@pytest.mark.parametrize(
    "sent",
    [
        body(input="and then?", previous_response_id="resp_1"),
        body(input="and then?", conversation="conv_1"),
        body(prompt={"id": "pmpt_1"}),
        body(messages=[], container="container_1"),
        body(messages=[], mcp_servers=[{"url": "https://x"}]),
        body(contents=[], cachedContent="cachedContents/1"),
        body(messages=[], tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        body(input="?", tools=[FUNCTION, {"type": "file_search", "vector_store_ids": ["vs"]}]),
        body(contents=[], tools=[{"googleSearch": {}}]),
        body(contents=[], tools=[{"url_context": {}}]),
        body(messages=[], web_search_options={"search_context_size": "low"}),
        body(input=[{"type": "item_reference", "id": "msg_1"}]),
    ],
)
def test_what_the_provider_keeps_or_fetches_is_not(sent: bytes) -> None:
    assert unknown_input(sent) == "context"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, ""),
        ({"cache_control": {"type": "ephemeral"}}, "5m"),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, "1h"),
    ],
)
def test_how_long_a_cache_is_written_for_is_noticed(block: dict[str, Any], expected: str) -> None:
    assert written_cache(asked({**TEXT, **block})) == expected
