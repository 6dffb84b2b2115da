"""The names that dotevals keeps here."""

from doteval.evaluators import evaluator, exact_match, numeric_match, valid_json

__all__ = ["evaluator", "exact_match", "numeric_match", "valid_json"]
