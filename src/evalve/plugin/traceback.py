"""What pytest shows of an error that came through evalve: the person's own frames, without ours."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from types import TracebackType

from evalve.errors import EvalveError

_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_PACKAGES = ("evalve",)
_ROOMS = ("evalve.runner", "evalve.declare")
"""Those that call what people wrote."""


def leave_own_frames(error: BaseException) -> None:
    """Take our frames out of the traceback, also out of those of its causes.

    What led to a mistake that we found stays, and so does all that a person's own code did when we
    called it. An error that we made ourselves keeps everything.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        entries = _entries(current.__traceback__)
        own = _of_caller(entries) if isinstance(current, EvalveError) else _of_called(entries)
        if own:
            current.__traceback__ = _linked(own)
        current = current.__cause__ or current.__context__


def down_to_the_person(error: BaseException) -> TracebackType | None:
    """The traceback as far as the last line that a person wrote; whole where there is none."""
    entries = _entries(error.__traceback__)
    own = [place for place, entry in enumerate(entries) if _is_written_here(entry)]
    return _linked(entries[: own[-1] + 1]) if own else error.__traceback__


def _of_caller(entries: list[TracebackType]) -> list[TracebackType]:
    return [entry for entry in entries if not _is_in(_PACKAGES, entry)]


def _of_called(entries: list[TracebackType]) -> list[TracebackType]:
    """Below the first frame of those that call people's code; what is above is pytest and the loop."""
    first = next((place for place, entry in enumerate(entries) if _is_in(_ROOMS, entry)), len(entries))
    own = [entry for entry in entries[first:] if not _is_in(_PACKAGES, entry)]
    return own if any(_is_the_persons(entry) for entry in own) else []


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries


def _linked(entries: list[TracebackType]) -> TracebackType | None:
    linked = None
    for entry in reversed(entries):
        linked = TracebackType(linked, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return linked


def _is_in(packages: Sequence[str], entry: TracebackType) -> bool:
    name = str(entry.tb_frame.f_globals.get("__name__", ""))
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


def _is_written_here(entry: TracebackType) -> bool:
    in_package = "/site-packages/" in entry.tb_frame.f_code.co_filename
    return _is_the_persons(entry) and not in_package and not _is_in(_PACKAGES, entry)


def _is_the_persons(entry: TracebackType) -> bool:
    return not entry.tb_frame.f_code.co_filename.startswith((_STANDARD_LIBRARY, "<"))
