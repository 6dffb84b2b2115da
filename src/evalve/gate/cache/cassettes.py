"""Answers in a directory that is committed beside the evaluations, so that CI runs them offline.

One JSON file for each answer, named by its cache key: easy to read, and the same bytes whenever the
same answer is recorded. Only headers that are safe to publish are in it.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evalve.gate.cache.entries import Entry
from evalve.gate.messages import Usage

_LOG = logging.getLogger(__name__)
_KEY = re.compile(r"[0-9a-f]{64}")
_PUBLIC_HEADERS = frozenset({"content-type", "request-id", "x-request-id"})
"""Others name an organisation or a project, or change with every answer."""


class Cassettes:
    """The cassettes of one directory, which appears with the first recording."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> Entry | None:
        path = self._path(key)
        try:
            return entry_of_text(path.read_text("utf-8"), key=key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _LOG.warning("%s: this cassette cannot be read and counts as missing: %s", path, error)
            return None

    def has(self, key: str) -> bool:
        return self._path(key).exists()

    def record(self, key: str, entry: Entry) -> None:
        """Write the file whole or not at all."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            unfinished.write_text(text_of(key, entry), "utf-8")
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} is not a cache key: 64 hexadecimal digits")
        return self._directory / f"{key}.json"


def text_of(key: str, entry: Entry) -> str:
    fields: dict[str, Any] = {
        "key": key,
        "provider": entry.provider,
        "model": entry.model,
        "status": entry.status,
        "headers": {
            name: value for name, value in sorted(entry.headers.items()) if name.lower() in _PUBLIC_HEADERS
        },
        "usage": _counts(entry.usage),
        **_readable(entry.body),
    }
    text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as models do send
        return json.dumps(fields, indent=2, ensure_ascii=True) + "\n"
    return text


def entry_of_text(text: str, *, key: str) -> Entry:
    """`ValueError` where it is not a cassette of this key."""
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.get("key") != key:
        raise ValueError("its `key` is not the one in its name")
    try:
        usage = fields["usage"]
        return Entry(
            status=int(fields["status"]),
            headers={str(name): str(value) for name, value in fields["headers"].items()},
            body=_bytes_of(fields),
            provider=str(fields["provider"]),
            model=str(fields["model"]),
            usage=Usage(**usage) if usage is not None else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a field is missing or wrong: {error!r}") from error


def _counts(usage: Usage | None) -> dict[str, int] | None:
    if usage is None:
        return None
    plain: dict[str, int] = asdict(usage)
    if not usage.long_cache_write_tokens:
        del plain["long_cache_write_tokens"]  # which most providers do not have
    return plain


def _readable(body: bytes) -> dict[str, Any]:
    """As JSON where it is that, else as lines of text, else as base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode("ascii")}
    try:
        return {"body": json.loads(text, parse_constant=_refuse)}
    except (ValueError, RecursionError):
        return {"body_lines": text.split("\n")}


def _bytes_of(fields: Mapping[str, Any]) -> bytes:
    if "body" in fields:
        return json.dumps(fields["body"], separators=(",", ":")).encode()
    if "body_lines" in fields:
        return "\n".join(fields["body_lines"]).encode()
    return base64.b64decode(fields["body_base64"], validate=True)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
