"""The names that dotevals keeps here."""

from doteval.models import EvaluationMetadata, EvaluationStatus, Record, Result, Score

__all__ = ["EvaluationMetadata", "EvaluationStatus", "Record", "Result", "Score"]
