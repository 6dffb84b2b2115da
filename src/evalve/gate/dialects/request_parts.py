"""What every dialect reads from a request: where it goes, whose key it carries, how much input it has."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from evalve.gate.messages import Request

IMAGE_BYTES = 4_000
"""An image counts by its pixels, about 1,300 tokens at the usual size, and not by its base64."""
DOCUMENT_BYTES = 12_000
"""A PDF or a recording: a few pages; what it really took is learnt from usage."""

_IMAGES = {"image", "image_url", "input_image"}
_FILES = {"file", "input_file", "input_audio", "audio", "video", "video_url"}
_DATA = frozenset({"data", "fileUri", "file_uri"})
_SOURCE = frozenset({"source"})
_NAMED_PARTS = {
    "inlineData": _DATA,
    "inline_data": _DATA,
    "fileData": _DATA,
    "file_data": _DATA,
    "image": _SOURCE,
    "document": _SOURCE,
    "video": _SOURCE,
}
"""Gemini's and Bedrock's attachments, and what one of each must have in it."""
_MAY_BE_JSON = ("json", "x-www-form-urlencoded", "text/plain")
_STRUCTURE_BYTES = 4
_LONG_DATA_URL = 512
_LONGEST_COUNT = 16
_SALT = b"evalve/key/"
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key", "authorization")
_KEY_PARAMETERS = ("key", "api_key", "api-key", "subscription-key")
_SIGNED_BY = re.compile(r"Credential=([^/,\s]+)")
_LASTING_CLAIMS = ("iss", "aud", "tid", "sub", "oid", "appid", "azp", "client_id")
_PROJECT = re.compile(r"/projects/([^/]+)/locations/")
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


@lru_cache(maxsize=256)
def address(url: str) -> tuple[str, str]:
    """Host with port, in lower case and without credentials, and path without query."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2].lower(), "/" + parts.path.strip("/")


def json_object(request: Request) -> dict[str, Any] | None:
    """The body of a JSON POST; `None` for any other request.

    `curl -d` and `fetch` name no JSON unless they are told to, and some servers take it all the same.
    """
    headers = request.headers
    if request.method.upper() != "POST" or headers.get("content-encoding", "identity") != "identity":
        return None
    content_type = headers.get("content-type", "json")
    if not any(kind in content_type for kind in _MAY_BE_JSON):
        return None
    try:
        body = request.json()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def account_hash(request: Request, path: str) -> str:
    """Of Google's project where the path names one, because tokens change every hour; else of the key."""
    project = _PROJECT.search(path)
    return hash_of(f"project/{project[1]}") if project is not None else key_hash(request.headers, request.url)


def key_hash(headers: Mapping[str, str], url: str = "") -> str:
    """Names an API key without giving it away; `none` where there is none.

    Of credentials that change while the account stays the same, what stays is hashed: the access key of a
    request that Amazon's client signed, the account in a token that is renewed every hour.
    """
    key = next((headers[name] for name in _KEY_HEADERS if headers.get(name)), "") or _key_in_query(url)
    return _name_of(key)


@lru_cache(maxsize=64)
def _name_of(key: str) -> str:
    if key[:7].lower() == "bearer ":
        key = key[7:]
    key = key.strip()
    if key.startswith("AWS4-") and (signed := _SIGNED_BY.search(key)):
        key = signed[1]
    return hash_of(_account_in(key) or key)


def _account_in(token: str) -> str:
    """What stays the same in a JSON web token when it is renewed; nothing of any other key."""
    if not token.startswith("eyJ") or token.count(".") != 2:
        return ""
    part = token.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(claims, dict):
        return ""
    lasting = {name: str(claims[name]) for name in _LASTING_CLAIMS if name in claims}
    return json.dumps(lasting, sort_keys=True) if lasting.keys() - {"iss", "aud", "tid"} else ""


def _key_in_query(url: str) -> str:
    if "key=" not in url:
        return ""
    query = parse_qsl(urlsplit(url).query)
    return next((value for name, value in query if name.lower() in _KEY_PARAMETERS), "")


def hash_of(key: str) -> str:
    """A short name for a key or an account."""
    return hashlib.sha256(_SALT + key.encode("utf-8", "surrogatepass")).hexdigest()[:12] if key else "none"


@lru_cache(maxsize=1024)
def undated(model: str) -> str:
    """`claude-haiku-4-5-20251001` and `gpt-4o-2024-08-06` without their dates."""
    return _DATED.sub("", model)


def whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def counted(value: Any) -> int | None:
    """A count in an answer: some servers write it as text, or as a number with a point."""
    if value is None:
        return None
    if type(value) is int:
        return value if value >= 0 else None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < _LONGEST_COUNT:
        return int(value)
    if isinstance(value, float) and value.is_integer() and value >= 0:
        return int(value)
    return whole_number(value)


def input_bytes(value: Any) -> int:
    """Bytes of text in a prompt, a schema or a list of messages; attachments count by their kind."""
    if isinstance(value, str):
        return _text_bytes(value)
    if isinstance(value, list):
        return sum([input_bytes(item) for item in value])
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and (size := _attached_bytes(value, kind)):
            return size
        return sum([len(name) + _part_bytes(name, item) + _STRUCTURE_BYTES for name, item in value.items()])
    return 0 if value is None else _STRUCTURE_BYTES


def is_attachment(value: Any, name: str = "") -> bool:
    """Whether it is an image, a document, a recording: what it takes is not told by its bytes.

    `name` is what it stands under, where that is all that tells.
    """
    if isinstance(value, str):
        return _is_data_url(value)
    if isinstance(value, dict):
        kind = value.get("type")
        return (isinstance(kind, str) and _attached_bytes(value, kind) > 0) or _is_named_part(name, value)
    return name == "images" and _are_images(value)


def _attached_bytes(value: Mapping[str, Any], kind: str) -> int:
    if kind in _IMAGES:
        return IMAGE_BYTES
    is_document = kind in _FILES or (kind == "document" and _is_opaque(value.get("source")))
    return DOCUMENT_BYTES if is_document else 0


def _part_bytes(name: str, item: Any) -> int:
    """Where attachments have no `type`, they are known by the name that they stand under and their form."""
    if _is_named_part(name, item):
        return IMAGE_BYTES if name == "image" or "image/" in str(_mime(item)) else DOCUMENT_BYTES
    if name == "images" and _are_images(item):
        return IMAGE_BYTES * len(item)
    return input_bytes(item)


def _is_named_part(name: str, item: Any) -> bool:
    return name in _NAMED_PARTS and isinstance(item, dict) and not _NAMED_PARTS[name].isdisjoint(item)


def _are_images(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(each, str) for each in item)


def _mime(item: Mapping[str, Any]) -> Any:
    return item.get("mimeType", item.get("mime_type", ""))


def _text_bytes(text: str) -> int:
    if _is_data_url(text):
        return IMAGE_BYTES
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_data_url(text: str) -> bool:
    return len(text) > _LONG_DATA_URL and text.startswith("data:")


def _is_opaque(source: Any) -> bool:
    """A document may also be given as text or as blocks, which count as what they are."""
    return not isinstance(source, dict) or source.get("type") not in ("text", "content")
