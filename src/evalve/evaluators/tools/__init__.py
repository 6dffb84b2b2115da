"""Whether the right tools were called, with the right arguments."""

from evalve.evaluators.tools.checking import valid_tool_schemas
from evalve.evaluators.tools.evaluators import (
    tool_arguments,
    tool_call_match,
    tool_order,
    tool_schema_valid,
    tool_scores,
    tool_selection,
)
from evalve.evaluators.tools.judged import llm_tool_arguments, llm_tool_selection
from evalve.evaluators.tools.matchers import anything, near, one_of, optional, regex
from evalve.evaluators.tools.misses import KINDS
from evalve.evaluators.tools.reading import tool_calls
from evalve.evaluators.tools.rules import ArgumentRules
from evalve.records import ToolCall

__all__ = [
    "KINDS",
    "ArgumentRules",
    "ToolCall",
    "anything",
    "llm_tool_arguments",
    "llm_tool_selection",
    "near",
    "one_of",
    "optional",
    "regex",
    "tool_arguments",
    "tool_call_match",
    "tool_calls",
    "tool_order",
    "tool_schema_valid",
    "tool_scores",
    "tool_selection",
    "valid_tool_schemas",
]
