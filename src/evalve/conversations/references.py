"""`{{turn_N.field}}` in what is expected: stands for what turn N's call returned. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalve.errors import DatasetError
from evalve.jsontext import to_json
from evalve.options import suggestion

_REFERENCE = re.compile(r"\{\{\s*turn_(\d+)\.([^{}]+?)\s*\}\}")
_MEANT = re.compile(r"(?i)\{\{\s*turn[\s_-]*\d[^{}]*(?:\}\}?|$)")
_MISSING = object()


class Unknown:
    """Stands for what a call returned to an agent that works by itself: nobody has seen it."""


class Unresolved(Exception):
    """A reference to a turn that went wrong; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What the expected calls of a turn returned to the agent, as far as they were made."""

    results: Sequence[Any]
    is_right: bool
    """Whether all that the turn expects was called, and went as expected."""
    is_known: bool = True
    """Whether anybody has seen what calls returned."""


def references_in(value: Any) -> Iterator[tuple[int, str]]:
    """Turn and field of every reference, wherever it stands. `DatasetError` for what was meant as one."""
    if isinstance(value, str):
        for meant in _MEANT.findall(value):
            if _REFERENCE.fullmatch(meant) is None:
                raise DatasetError(f"{meant!r} is no reference: write {{{{turn_1.field}}}}")
        for match in _REFERENCE.finditer(value):
            yield int(match[1]), match[2]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from references_in(key)
            yield from references_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references_in(item)


def resolved(value: Any, turns: Mapping[int, Returned]) -> Any:
    """The value with what its references stand for; a text that is one reference keeps the type."""
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value.strip())
        if whole is not None:
            return _looked_up(int(whole[1]), whole[2], turns)
        found = {match[0]: _looked_up(int(match[1]), match[2], turns) for match in _REFERENCE.finditer(value)}
        if any(isinstance(one, Unknown) for one in found.values()):
            return Unknown()
        return _REFERENCE.sub(lambda match: _text(found[match[0]]), value)
    if isinstance(value, Mapping):
        return {_key(resolved(key, turns)): resolved(item, turns) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(item, turns) for item in value]
    return value


def _looked_up(number: int, path: str, turns: Mapping[int, Returned]) -> Any:
    turn = turns.get(number) or Returned((), is_right=False)
    if not turn.is_known:
        return Unknown()
    for result in turn.results:
        found = _at(result, path)
        if found is not _MISSING:
            return found
    if turn.is_right and turn.results:
        fields = _fields(turn.results[0])
        there = f"there is: {', '.join(fields)}" if fields else f"it is {_text(turn.results[0])[:80]}"
        hint = suggestion(path, fields) or f" ({there})"
        raise DatasetError(
            f"{{{{turn_{number}.{path}}}}}: what the call of turn {number} returned has no {path!r}{hint}"
        )
    raise Unresolved(f"{{{{turn_{number}.{path}}}}} is not known, because turn {number} went wrong")


def _at(result: Any, path: str) -> Any:
    """By names and places: `client.id`, `0.id`, `items[0].id`. Of a list without a place, the first item."""
    if isinstance(result, Mapping) and path in result:
        return result[path]
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(result, list | tuple):
            if part.isdigit():
                result = result[int(part)] if int(part) < len(result) else _MISSING
                continue
            result = result[0] if result else _MISSING
        if not isinstance(result, Mapping) or part not in result:
            return _MISSING
        result = result[part]
    return result


def _fields(result: Any) -> list[str]:
    first = result[0] if isinstance(result, list | tuple) and result else result
    return [str(key) for key in first] if isinstance(first, Mapping) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def _key(value: Any) -> Any:
    return value if isinstance(value, str | int | float | Unknown) else _text(value)
