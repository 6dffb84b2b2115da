"""Texts with `{columns}` in them: which columns they need, and what they say for a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

from evalve.jsontext import to_json


class TemplateProblem(ValueError):
    """A text that cannot be filled in; reads on from the key that it stands under."""


def columns_of(template: str) -> list[str]:
    """The columns that stand in braces, in their order."""
    return list(dict.fromkeys(column for _, column in _parts(template) if column is not None))


def filled(template: str, row: Mapping[str, Any]) -> str:
    """The text for a row."""
    return "".join(
        literal + ("" if column is None else as_words(row[column])) for literal, column in _parts(template)
    )


def as_words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | int | float) else to_json(value)


def _parts(template: str) -> Iterator[tuple[str, str | None]]:
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise TemplateProblem(_told(str(error))) from None
    for literal, column, rule, conversion in parts:
        if column == "" or rule or conversion:
            raise TemplateProblem(_told("something else than a column stands in braces"))
        yield literal, column


def _told(problem: str) -> str:
    return f"{problem}: {{column}} stands for the row's value, and a brace of its own is written {{{{ or }}}}"
