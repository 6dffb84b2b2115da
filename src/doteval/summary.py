"""The name that dotevals keeps here."""

from doteval.models import EvaluationSummary

__all__ = ["EvaluationSummary"]
