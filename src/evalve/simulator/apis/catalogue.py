"""The lists of models that clients ask for. Any name is served; these are the ones that are listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

_ANTHROPIC = ("claude-haiku-4-5", "claude-sonnet-5", "claude-opus-5")
_OPENAI = ("gpt-5", "gpt-5-mini", "gpt-5.2")
_GEMINI = ("gemini-3-flash", "gemini-3-pro")
_PATH = re.compile(r"/(?P<version>v1|v1beta)/models(?:/(?P<name>[^/:]+))?")
_CREATED, _CREATED_AT = 1_767_225_600, "2026-01-01T00:00:00Z"


def models_at(path: str, headers: Mapping[str, str], pools: Iterable[str]) -> dict[str, Any] | None:
    """The answer to a GET for models, in the shape of the API that the path and headers are of.

    `pools` are the models that have limits of their own; patterns among them are not listed.
    """
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    named = unquote(found["name"]) if found["name"] else None
    own = [pool for pool in pools if not set(pool) & set("*?[")]
    if found["version"] == "v1beta" or "x-goog-api-key" in headers:
        models = [_gemini(name) for name in _names(named, own, _GEMINI, "gemini")]
        return models[0] if named else {"models": models}
    if "anthropic-version" in headers:
        models = [_anthropic(name) for name in _names(named, own, _ANTHROPIC, "claude")]
        if named:
            return models[0]
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]}
        return {"data": models, "has_more": False, **ends}
    models = [_openai(name) for name in _names(named, own, _OPENAI, "")]
    return models[0] if named else {"object": "list", "data": models}


def _names(named: str | None, own: list[str], usual: tuple[str, ...], family: str) -> list[str]:
    if named is not None:
        return [named]
    return list(dict.fromkeys([*(name for name in own if name.startswith(family)), *usual]))


def _anthropic(name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": _CREATED_AT}


def _openai(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "simulator"}


def _gemini(name: str) -> dict[str, Any]:
    return {
        "name": f"models/{name}",
        "version": "1",
        "displayName": name,
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
