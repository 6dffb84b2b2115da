"""What every dialect reads from a request: where it goes, whose key it carries, how much input it has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from evalve.gate.messages import Request

IMAGE_BYTES = 4_000
"""An image counts by its pixels, about 1,300 tokens at the usual size, and not by its base64."""
DOCUMENT_BYTES = 12_000
"""A PDF or a recording: a few pages; what it really took is learnt from usage."""

_IMAGES = {"image", "image_url", "input_image"}
_FILES = {"file", "input_file", "input_audio", "audio", "video", "video_url"}
_STRUCTURE_BYTES = 4
_LONG_DATA_URL = 512
_SALT = b"evalve/key/"
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[str, str]:
    """Host with port, in lower case and without credentials, and path without query."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2].lower(), "/" + parts.path.strip("/")


def json_object(request: Request) -> dict[str, Any] | None:
    """The body of a JSON POST; `None` for any other request."""
    headers = request.headers
    if request.method.upper() != "POST" or headers.get("content-encoding", "identity") != "identity":
        return None
    if "json" not in headers.get("content-type", "json"):
        return None
    try:
        body = request.json()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def key_hash(headers: Mapping[str, str]) -> str:
    """Names an API key without giving it away; `none` where there is none."""
    key = headers.get("x-api-key") or headers.get("api-key") or headers.get("authorization") or ""
    if key[:7].lower() == "bearer ":
        key = key[7:]
    return _hash_of(key.strip())


@lru_cache(maxsize=64)
def _hash_of(key: str) -> str:
    return hashlib.sha256(_SALT + key.encode("utf-8", "surrogatepass")).hexdigest()[:12] if key else "none"


@lru_cache(maxsize=1024)
def undated(model: str) -> str:
    """`claude-haiku-4-5-20251001` and `gpt-4o-2024-08-06` without their dates."""
    return _DATED.sub("", model)


def whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def input_bytes(value: Any) -> int:
    """Bytes of text in a prompt, a schema or a list of messages; attachments count by their kind."""
    if isinstance(value, str):
        return _text_bytes(value)
    if isinstance(value, list):
        return sum([input_bytes(item) for item in value])
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str):
            if kind in _IMAGES:
                return IMAGE_BYTES
            if kind in _FILES or (kind == "document" and _is_opaque(value.get("source"))):
                return DOCUMENT_BYTES
        return sum([len(name) + input_bytes(item) + _STRUCTURE_BYTES for name, item in value.items()])
    return 0 if value is None else _STRUCTURE_BYTES


def _text_bytes(text: str) -> int:
    if len(text) > _LONG_DATA_URL and text.startswith("data:"):
        return IMAGE_BYTES
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_opaque(source: Any) -> bool:
    """A document may also be given as text or as blocks, which count as what they are."""
    return not isinstance(source, dict) or source.get("type") not in ("text", "content")
