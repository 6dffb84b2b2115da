"""What turns a response into a score."""

from evalve.evaluators.declaring import evaluator
from evalve.evaluators.match import contains, exact_match, matches, numeric_match, valid_json

__all__ = ["contains", "evaluator", "exact_match", "matches", "numeric_match", "valid_json"]
