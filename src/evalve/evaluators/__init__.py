"""What turns a response into a score."""

from evalve.evaluators.declaring import evaluator
from evalve.evaluators.judge import llm_compare, llm_judge
from evalve.evaluators.match import contains, exact_match, matches, numeric_match, valid_json
from evalve.evaluators.rubrics import Rubric

__all__ = [
    "Rubric",
    "contains",
    "evaluator",
    "exact_match",
    "llm_compare",
    "llm_judge",
    "matches",
    "numeric_match",
    "valid_json",
]
