"""A recorded traceback, cut to what a person wrote: without frames of evalve, of packages and of Python."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_FRAME = re.compile(r'(?P<margin>(?: *\| )?)  File "(?P<path>.+)", line (?P<line>\d+), in ')
"""Errors of a group stand behind a margin."""
_OF_OTHERS = (
    str(Path(__file__).parents[1]) + os.sep,
    sysconfig.get_path("stdlib") + os.sep,
    "<",
)


def own_frames(traceback: str) -> list[str]:
    """The lines of the traceback less the frames of others; all of them where no frame is a person's."""
    blocks = list(_blocks(traceback.splitlines()))
    own = [block for block in blocks if not _is_others(block[0])]
    kept = own if any(_FRAME.match(block[0]) for block in own) else blocks
    return [line for block in kept for line in block]


def own_place(traceback: str) -> str | None:
    """`eval_math.py:12`: where it happened, as far as a person's code got."""
    lines = own_frames(traceback)
    found = [match for line in lines if (match := _FRAME.match(line)) and not _is_others(line)]
    return f"{_from_here(found[-1]['path'])}:{found[-1]['line']}" if found else None


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Each frame with the lines below it; every other line by itself."""
    block: list[str] = []
    below = ""
    for line in lines:
        if block and line.startswith(below):
            block.append(line)
            continue
        if block:
            yield block
        frame = _FRAME.match(line)
        block = [line] if frame else []
        if frame:
            below = frame["margin"] + "    "
        else:
            yield [line]
    if block:
        yield block


def _is_others(line: str) -> bool:
    frame = _FRAME.match(line)
    return frame is not None and (
        frame["path"].startswith(_OF_OTHERS) or f"{os.sep}site-packages{os.sep}" in frame["path"]
    )


def _from_here(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
