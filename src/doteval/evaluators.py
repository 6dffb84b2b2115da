"""doteval's evaluators are evalve's."""

from evalve.evaluators import contains, evaluator, exact_match, matches, numeric_match, valid_json

__all__ = ["contains", "evaluator", "exact_match", "matches", "numeric_match", "valid_json"]
