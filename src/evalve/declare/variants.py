"""Which arguments of a direct call tell one variant of an evaluation from another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from evalve.contracts import is_lender
from evalve.jsontext import digest, to_json

_LONGEST = 60
_DEEPEST = 20


def variant(arguments: Mapping[str, Any]) -> str:
    """`[model=gpt, settings={"temperature":0.5}]`; objects that are not made of plain values do not count."""
    said = [f"{name}={text}" for name, text in parameters(arguments).items()]
    return f"[{', '.join(said)}]" if said else ""


def parameters(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The arguments that count, by name, in words."""
    texts = {name: _text(value) for name, value in sorted(arguments.items()) if not is_lender(value)}
    return {name: text for name, text in texts.items() if text is not None}


def _text(value: Any) -> str | None:
    if isinstance(value, str | int | float | bool):
        return str(value) if len(str(value)) <= _LONGEST else digest(value)
    if value is None:
        return None
    try:
        plain = _plain(value, _DEEPEST)
    except _NotPlain:
        return None
    name = type(value).__name__ if dataclasses.is_dataclass(value) else ""
    text = f"{name}{to_json(plain)}"
    return text if len(text) <= _LONGEST else f"{name}{digest(text)}"


class _NotPlain(Exception):
    """Something in the value is neither text nor number nor a container of such."""


def _plain(value: Any, deepest: int) -> Any:
    """The value out of lists and dicts, equal for equal values in every process."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if deepest == 0:
        raise _NotPlain
    if isinstance(value, list | tuple):
        return [_plain(item, deepest - 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item, deepest - 1) for item in value), key=to_json)
    if isinstance(value, dict):
        return {_key(key): _plain(item, deepest - 1) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return {name: _plain(getattr(value, name), deepest - 1) for name in fields}
    raise _NotPlain


def _key(key: Any) -> str:
    if isinstance(key, str | int | float | bool | None):
        return str(key)
    raise _NotPlain
