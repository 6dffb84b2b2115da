"""Where a request goes, whose key it carries, how much input it has."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.gate.dialects.request_parts import (
    DOCUMENT_BYTES,
    IMAGE_BYTES,
    address,
    input_bytes,
    key_hash,
    undated,
)


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        ("https://api.anthropic.com/v1/messages", "api.anthropic.com", "/v1/messages"),
        ("https://API.Anthropic.com/v1/messages?beta=true", "api.anthropic.com", "/v1/messages"),
        ("http://127.0.0.1:8080/v1/chat/completions/", "127.0.0.1:8080", "/v1/chat/completions"),
        ("http://me:secret@proxy:1/v1/messages#x", "proxy:1", "/v1/messages"),
        ("http://host?x=/v1/messages", "host", "/"),
    ],
)
def test_an_address_is_host_with_port_and_path_without_query(url: str, host: str, path: str) -> None:
    assert address(url) == (host, path)


def test_one_key_has_one_hash_in_whichever_header_it_comes() -> None:
    hashes = {
        key_hash({"x-api-key": "sk-test"}),
        key_hash({"authorization": "Bearer sk-test"}),
        key_hash({"authorization": "bearer  sk-test "}),
        key_hash({"api-key": "sk-test"}),
    }

    assert len(hashes) == 1
    assert all(len(name) == 12 and "sk" not in name for name in hashes)


@pytest.mark.parametrize("headers", [{}, {"x-api-key": ""}, {"authorization": "Bearer "}])
def test_a_request_without_a_key_is_named_so(headers: dict[str, str]) -> None:
    assert key_hash(headers) == "none"


def test_two_keys_have_two_hashes() -> None:
    assert key_hash({"x-api-key": "sk-one"}) != key_hash({"x-api-key": "sk-two"})


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku"),
        ("claude-opus-4-8", "claude-opus-4-8"),
        ("gpt-4o-mini", "gpt-4o-mini"),
    ],
)
def test_a_model_loses_only_its_date(model: str, name: str) -> None:
    assert undated(model) == name


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("hello", 5),
        ("grüße", 7),
        (["ab", "cd"], 4),
        ({"ab": "cd"}, 8),
        (None, 0),
        ([1, 2, 3], 12),
        ({"type": "image", "source": {"type": "base64", "data": "A" * 1_000_000}}, IMAGE_BYTES),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}, IMAGE_BYTES),
        ({"type": "input_file", "file_data": "A" * 100_000}, DOCUMENT_BYTES),
        ({"type": "document", "source": {"type": "base64", "data": "A" * 100_000}}, DOCUMENT_BYTES),
        ("data:image/png;base64," + "A" * 100_000, IMAGE_BYTES),
    ],
)
def test_text_counts_by_its_bytes_and_an_attachment_by_its_kind(value: Any, size: int) -> None:
    assert input_bytes(value) == size


def test_a_document_of_text_counts_by_its_text() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "A" * 50_000}}

    assert 50_000 < input_bytes(document) < 50_100


def test_an_image_inside_a_tool_result_is_still_an_image() -> None:
    result = {"type": "tool_result", "content": [{"type": "image", "source": {"data": "A" * 1_000_000}}]}

    assert IMAGE_BYTES <= input_bytes(result) < IMAGE_BYTES + 100
