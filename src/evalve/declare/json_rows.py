"""The rows of one large JSON array, one at a time: memory holds a row, not the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from evalve.errors import DatasetError

_FIRST_READ = 1 << 16
"""Characters: most rows are shorter."""
_CUT_OFF = 16
"""An error so near to the end of what is read may come from where it was cut: `tru`, `1.5e`, an escape."""
_SPACE = re.compile(r"[ \t\n\r]*")


def begins_array(path: Path) -> bool:
    """Whether the first sign of the file is `[`."""
    with path.open(encoding="utf-8-sig") as file:
        while piece := file.read(_FIRST_READ):
            if text := piece.strip(" \t\n\r"):
                return text.startswith("[")
    return False


def array_rows(path: Path) -> Iterator[Any]:
    """What stands in the array; what is not JSON is a `DatasetError`, after the rows before it."""
    with path.open(encoding="utf-8-sig") as file:
        text = _Text(file, path)
        text.expect("[")
        if text.next_sign() == "]":
            text.expect("]")
        else:
            while True:
                yield text.value()
                if text.next_sign() == "]":
                    text.expect("]")
                    break
                text.expect(",")
        if text.next_sign():
            raise text.error("the array has ended, and more follows")


class _Text:
    """As much of the file as the next value takes."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self._file = file
        self._path = path
        self._text = ""
        self._place = 0
        self._lines_before = 0
        self._is_whole = False
        self._decode = json.JSONDecoder().raw_decode

    def next_sign(self) -> str:
        """The next that is not space; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._place)
            self._place = space.end() if space is not None else self._place
            if self._place < len(self._text) or self._is_whole:
                return self._text[self._place : self._place + 1]
            self._more()

    def expect(self, sign: str) -> None:
        if self.next_sign() != sign:
            raise self.error(f"Expecting {sign!r}")
        self._place += 1

    def value(self) -> Any:
        self.next_sign()
        while True:
            try:
                value, end = self._decode(self._text, self._place)
            except json.JSONDecodeError as error:
                if self._is_whole or not self._may_be_cut(error):
                    raise self.error(error.msg, error.pos) from error
            else:
                if self._is_whole or end <= len(self._text) - self._needed_after(value):
                    self._place = end
                    return value
            self._more()

    def _needed_after(self, value: Any) -> int:
        """How much must follow to know that the value ends there: `12` may go on as `12.5e10`."""
        return _CUT_OFF if isinstance(value, int | float) else 1

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _CUT_OFF

    def _more(self) -> None:
        """Forget what is behind, and read on: each time more, as a value is parsed from its start again."""
        unread = len(self._text) - self._place
        piece = self._file.read(max(_FIRST_READ, unread))
        self._is_whole = not piece
        self._lines_before += self._text.count("\n", 0, self._place)
        self._text = self._text[self._place :] + piece
        self._place = 0

    def error(self, message: str, place: int | None = None) -> DatasetError:
        upto = self._place if place is None else place
        line = self._lines_before + self._text.count("\n", 0, upto) + 1
        return DatasetError(f"{self._path}:{line}: not JSON: {message}")
