"""The names of doteval's published documentation, so that files written for it run unchanged."""

from __future__ import annotations

from evalve.declare.foreach import ForEach, foreach
from evalve.records import Result, Score
from evalve.wiring import run

__all__ = ["ForEach", "Result", "Score", "foreach", "run"]
