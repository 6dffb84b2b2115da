"""The names that dotevals keeps here."""

from doteval.core import Batch, ForEach, batch, foreach

__all__ = ["Batch", "ForEach", "batch", "foreach"]
