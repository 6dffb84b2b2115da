"""The command that a person typed, to be shown to others and to be typed again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_PROGRAMS = ("pytest", "py.test", "evalve", "doteval", "dotevals")


def typed(config: pytest.Config) -> list[str]:
    """Its words, as far as they are known."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program in _PROGRAMS:
        return [program, *sys.argv[1:]]
    return ["pytest", *map(str, config.invocation_params.args)]


def without_fresh(words: Sequence[str]) -> list[str]:
    """The words that go on with what is recorded."""
    return [word for word in words if word not in ("--fresh", "--evalve-fresh")]
