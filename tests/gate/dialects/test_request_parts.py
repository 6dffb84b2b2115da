"""Where a request goes, whose key it carries, how much input it has."""

from __future__ import annotations

import base64
import json
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


def web_token(**claims: str) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "signed"])


def test_a_token_that_is_renewed_names_the_same_account() -> None:
    first, renewed, others = (
        key_hash({"authorization": f"Bearer {web_token(sub=sub, exp=exp)}"})
        for sub, exp in [("me", "1"), ("me", "2"), ("you", "1")]
    )

    assert first == renewed != others


def test_of_a_signed_request_the_access_key_is_named() -> None:
    signed = "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/bedrock/aws4_request, Signature={}"
    first, again, others = (
        key_hash({"authorization": signed.format(*each)})
        for each in [("AK1", "a"), ("AK1", "b"), ("AK2", "a")]
    )

    assert first == again == key_hash({"x-api-key": "AK1"}) != others


def test_a_key_may_stand_in_the_address() -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent?alt=sse&key=AIza-1"

    assert key_hash({}, url) == key_hash({"x-goog-api-key": "AIza-1"}) != "none"


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "image/png", "data": "A" * 50_000}},
        {"inline_data": {"mime_type": "image/png", "data": "A" * 50_000}},
        {"image": {"format": "png", "source": {"bytes": "A" * 50_000}}},
        {"images": ["A" * 50_000]},
    ],
)
def test_images_that_have_no_type_are_known_by_their_names(part: dict[str, Any]) -> None:
    assert input_bytes([part]) == IMAGE_BYTES + len(next(iter(part))) + 4


@pytest.mark.parametrize(
    "part",
    [
        {"inlineData": {"mimeType": "application/pdf", "data": "A" * 50_000}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://bucket/a"}},
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": "A" * 50_000}}},
    ],
)
def test_documents_that_have_no_type_are_known_by_their_names(part: dict[str, Any]) -> None:
    assert input_bytes([part]) == DOCUMENT_BYTES + len(next(iter(part))) + 4


def test_a_schema_may_have_such_names() -> None:
    assert input_bytes({"image": {"type": "string"}}) == len("image") + 4 + len("type") + 4 + len("string")


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
