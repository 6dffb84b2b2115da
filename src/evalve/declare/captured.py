"""What a function captured from the one around it, as text that is the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from evalve.jsontext import digest

_MOST_ITEMS = 1000
_MOST_TEXT = 2000
_DEEPEST = 20
_BRACKETS: dict[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", dict: "{}"}


def captured_values(function: Callable[..., Any]) -> dict[str, str]:
    """Variable → its value, where that is text, a number, a truth value, `None` or a container of these.

    To be asked when the function is declared: what it counts or collects later is no change of it.
    """
    values: dict[str, str] = {}
    wrappers, own = unwrapped(function)
    for layer in (*wrappers, own):
        if is_beside(layer, own):
            _collect(layer, "", values, seen=[*wrappers, own])
    return values


def captured_functions(function: FunctionType) -> Iterator[tuple[str, FunctionType]]:
    """Those of the same file."""
    for variable, value in _cells(function):
        if isinstance(value, FunctionType) and is_beside(value, function):
            yield variable, value


def unwrapped(function: Callable[..., Any]) -> tuple[list[FunctionType], Any]:
    """The functions that decorators have put around a function, and the one that the person wrote."""
    wrappers: list[FunctionType] = []
    own: Any = function
    while isinstance(own, FunctionType) and hasattr(own, "__wrapped__") and own not in wrappers:
        wrappers.append(own)
        own = own.__wrapped__
    return wrappers, own


def is_beside(function: Any, other: Any) -> bool:
    """Whether both were written in one file."""
    if not isinstance(function, FunctionType) or not isinstance(other, FunctionType):
        return False
    return function.__code__.co_filename == other.__code__.co_filename


def plain_text(value: Any) -> str | None:
    """The value in Python's own notation, shortened to a digest where it is long; `None` where not plain."""
    text = _text(value, _DEEPEST)
    if text is None or len(text) <= _MOST_TEXT:
        return text
    return f"{text[:100]}… ({len(text)} characters, {digest(text)})"


def _collect(function: FunctionType, of: str, values: dict[str, str], seen: list[Any]) -> None:
    for variable, value in _cells(function):
        if is_beside(value, function) and value not in seen:
            seen.append(value)
            _collect(value, f" of {variable}{of}", values, seen)
        elif (text := plain_text(value)) is not None:
            values[f"{variable}{of}"] = text


def _text(value: Any, deepest: int) -> str | None:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return repr(value)
    if kind not in _BRACKETS or deepest == 0:
        return None
    items = list(value.items() if kind is dict else value)
    if kind in (set, frozenset):
        texts = sorted(_item(item, deepest) for item in items)[:_MOST_ITEMS]
    elif kind is dict:
        texts = [f"{_item(key, deepest)}: {_item(one, deepest)}" for key, one in items[:_MOST_ITEMS]]
    else:
        texts = [_item(item, deepest) for item in items[:_MOST_ITEMS]]
    if len(items) > _MOST_ITEMS:
        texts.append(f"… {len(items)} in all")
    return f"{_BRACKETS[kind][0]}{', '.join(texts)}{_BRACKETS[kind][1]}"


def _item(value: Any, deepest: int) -> str:
    return _text(value, deepest - 1) or f"<{type(value).__name__}>"


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield variable, cell.cell_contents
        except ValueError:  # given a value only after the function was made
            continue
