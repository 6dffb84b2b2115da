"""Plain text for a terminal: tables that line up, and foreign text that cannot drive it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")

GAP = "  "
_ELLIPSIS = "…"
# direction overrides reorder what is read on screen, so they are shown like control characters
_OVERRIDES = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_WIDTHLESS_CATEGORIES = frozenset({"Mn", "Me", "Cf"})


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is set. Where the table would be too wide, a flexible one is shortened first.

    Then optional ones are left out, the first of them first. What a person has to tell apart or to
    copy is neither: rather than cut a name, a table is wider than the terminal.
    """

    title: str
    align: Literal["left", "right"] = "left"
    flexible: bool = False
    minimum: int = 8
    optional: bool = False


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, width: int | None = None, indent: str = ""
) -> list[str]:
    """Lines of an aligned table with a header; `None` for no limit of the width."""
    cells = [[visible(cell) for cell in row] for row in rows]
    room = None if width is None else width - len(indent)
    widths = _widths(columns, cells, room)
    while room is not None and _taken(widths) > room and any(column.optional for column in columns):
        dropped = next(place for place, column in enumerate(columns) if column.optional)
        columns = _without(columns, dropped)
        cells = [_without(row, dropped) for row in cells]
        widths = _widths(columns, cells, room)
    header = _line([column.title for column in columns], columns, widths)
    rule = GAP.join("─" * size for size in widths)
    return [indent + line for line in (header, rule, *(_line(row, columns, widths) for row in cells))]


def fits(lines: Sequence[str], width: int | None) -> bool:
    """Whether a table is no wider than that; `None` for no limit."""
    return width is None or all(width_of(line) <= width for line in lines)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _without(cells: Sequence[T], place: int) -> list[T]:
    return [*cells[:place], *cells[place + 1 :]]


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int | None) -> list[int]:
    """Takes the excess from the widest flexible column, one by one, never below its minimum."""
    widths = [
        max([width_of(column.title), *(width_of(row[place]) for row in cells)])
        for place, column in enumerate(columns)
    ]
    if room is None:
        return widths
    for _ in range(max(0, _taken(widths) - room)):
        shrinkable = [
            place
            for place, column in enumerate(columns)
            if column.flexible and widths[place] > max(column.minimum, width_of(column.title))
        ]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda place: widths[place])] -= 1
    return widths


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        text = shortened(cell, width)
        padding = " " * (width - width_of(text))
        parts.append(padding + text if column.align == "right" else text + padding)
    return GAP.join(parts).rstrip()


def visible(text: str, *, lines: bool = False) -> str:
    """The text with control characters written out (`\\x1b`), so that a response stays a text.

    With `lines`, line ends and tabs keep their meaning.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        character if character in kept or not _is_control(character) else _written_out(character)
        for character in text
    )


def _is_control(character: str) -> bool:
    return character in _OVERRIDES or unicodedata.category(character) in _ESCAPED_CATEGORIES


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def width_of(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in _WIDTHLESS_CATEGORIES:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int) -> str:
    """The text in at most `width` cells, with `…` where something is left out."""
    if width_of(text) <= width:
        return text
    kept, used = [], width_of(_ELLIPSIS)
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept).rstrip() + _ELLIPSIS


def block(text: str, *, indent: str) -> list[str]:
    """Every line of a longer text, indented, control characters written out."""
    return [(indent + line.expandtabs(4)).rstrip() for line in visible(text, lines=True).split("\n")]
