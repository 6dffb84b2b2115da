"""What turns a response into a score."""

from evalve.evaluators.declaring import evaluator
from evalve.evaluators.judge import llm_compare, llm_judge
from evalve.evaluators.match import contains, exact_match, matches, numeric_match, valid_json
from evalve.evaluators.rubrics import Rubric
from evalve.evaluators.tools import (
    ArgumentRules,
    ToolCall,
    llm_tool_arguments,
    llm_tool_selection,
    tool_arguments,
    tool_call_match,
    tool_order,
    tool_schema_valid,
    tool_scores,
    tool_selection,
    valid_tool_schemas,
)

__all__ = [
    "ArgumentRules",
    "Rubric",
    "ToolCall",
    "contains",
    "evaluator",
    "exact_match",
    "llm_compare",
    "llm_judge",
    "llm_tool_arguments",
    "llm_tool_selection",
    "matches",
    "numeric_match",
    "tool_arguments",
    "tool_call_match",
    "tool_order",
    "tool_schema_valid",
    "tool_scores",
    "tool_selection",
    "valid_json",
    "valid_tool_schemas",
]
