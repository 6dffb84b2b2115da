"""The names of doteval's published documentation, so that files written for it run unchanged."""

from __future__ import annotations

import pytest

from doteval.core import Batch, ForEach, batch, foreach
from evalve import __version__ as __version__
from evalve.records import Result, Score
from evalve.wiring import run

fixture = pytest.fixture
parametrize = pytest.mark.parametrize

__all__ = ["Batch", "ForEach", "Result", "Score", "batch", "fixture", "foreach", "parametrize", "run"]
