"""A row's values for one try, so that what the function does to them reaches no other try or repeat."""

from __future__ import annotations

from typing import Any

_COPIED = frozenset({list, dict, set, tuple})
"""A tuple only for what may lie in it. Objects of other kinds are shared: a client may be among them."""


def own_values(values: dict[str, Any]) -> dict[str, Any]:
    """The values with their lists, dicts and sets copied; the same dict where there are none."""
    for value in values.values():
        if type(value) in _COPIED:
            return {name: _own(value, {}) for name, value in values.items()}
    return values


def _own(value: Any, made: dict[int, Any]) -> Any:
    """A copy as deep as containers go; `made` holds the copies so far, for those that lie in themselves."""
    kind = type(value)
    if kind not in _COPIED:
        return value
    if id(value) in made:
        return made[id(value)]
    if kind is list:
        copied: Any = []
        made[id(value)] = copied
        copied.extend([_own(item, made) for item in value])
    elif kind is dict:
        copied = {}
        made[id(value)] = copied
        copied.update({key: _own(item, made) for key, item in value.items()})
    elif kind is set:
        copied = set(value)
    else:
        copied = tuple([_own(item, made) for item in value])
    return copied
