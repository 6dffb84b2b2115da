"""Where in a person's code something was written, for errors that name file and line."""

from __future__ import annotations

import sys
from pathlib import Path

from evalve.errors import DeclarationError

_OURS = frozenset({"doteval", "dotevals", "evalve"})


def caller() -> str:
    """File and line of the nearest caller that is not evalve itself."""
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        if frame.f_back is None:
            return "?"
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename)}:{frame.f_lineno}"


def at_caller(error: DeclarationError) -> DeclarationError:
    """The same error, with the place where the declaration stands."""
    return DeclarationError(f"{caller()}: {error}")
