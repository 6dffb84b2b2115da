"""The scores of tool calls: selection, order, arguments, schema, and all of it at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

from evalve import metrics
from evalve.errors import OptionError
from evalve.evaluators.declaring import evaluator
from evalve.evaluators.tools.definitions import definitions, provided_names
from evalve.evaluators.tools.examining import Examination, Mode, Standard, examine
from evalve.evaluators.tools.misses import (
    OF_ARGUMENTS,
    OF_ORDER,
    OF_SELECTION,
    call_text,
    noted,
    of_kinds,
)
from evalve.evaluators.tools.reading import expected_calls, tool_calls
from evalve.evaluators.tools.rules import ArgumentRules, as_rules, tell_unused
from evalve.evaluators.tools.schemas import invalid_calls
from evalve.records import Score, ToolCall

Measure = Literal["f1", "precision", "recall"]
_MEAN = (metrics.mean,)
_ACCURACY = (metrics.accuracy,)
_MOST_SHOWN = 20


@evaluator(name="tool_call_match")
def tool_call_match(
    called: Any,
    expected: Any,
    *,
    mode: Mode = "exact",
    arguments: Any = "exact",
    tools: Any = None,
    forbidden: str | Collection[str] = (),
    allow_extra: bool | None = None,
) -> Score:
    """Whether the calls are those that are expected, with their arguments: all or nothing.

    `called` is an `Answer`, a response of an SDK, or a list of `ToolCall` or of dicts with `name` and
    `arguments`; `expected` likewise, `[]` where no tool is to be called. `mode` is `exact` (the same calls in
    the same order), `in_order` (in this order, others may stand between), `any_order` (the same calls),
    `subset` (no others than these) or `superset` (at least these). `arguments` says how they are compared:
    `exact`, `subset`, `values`, `ignore`, a function, or rules (`ArgumentRules`). `tools` are the tools'
    definitions, whose defaults then count as left out. Tools that are `forbidden` are never right.
    """
    made, right = tool_calls(called), expected_calls(expected)
    standard = _standard(mode, arguments, tools, forbidden, allow_extra)
    return _match(made, _examined(made, right, standard))


@evaluator(name="tool_selection")
def tool_selection(
    called: Any,
    expected: Any,
    *,
    measure: Measure = "f1",
    mode: Mode = "any_order",
    forbidden: str | Collection[str] = (),
    allow_extra: bool | None = None,
) -> Score:
    """How far the right tools were called, each as often as expected, whatever their arguments and order.

    The value is F1; `precision` (how many of the calls are right) and `recall` (how many of the expected ones
    were made) stand beside it, or are the value with `measure=`. `mode` says what is a miss, as elsewhere.
    """
    made = tool_calls(called)
    standard = _standard(mode, "ignore", None, forbidden, allow_extra)
    return _selection(made, examine(made, expected_calls(expected), standard), measure)


@evaluator(name="tool_order")
def tool_order(called: Any, expected: Any) -> Score:
    """How far the expected tools were called in their order: 1 where all were, and nothing else.

    The longest run of expected tools in their order, twice, over the number of made and expected calls (F1).
    """
    made = tool_calls(called)
    return _order(made, examine(made, expected_calls(expected), _standard("exact", "ignore", None, (), None)))


@evaluator(name="tool_arguments")
def tool_arguments(called: Any, expected: Any, *, arguments: Any = "exact", tools: Any = None) -> Score:
    """The share of arguments that are right, averaged over the calls of expected tools.

    Each expected call is set beside the made one of the same tool that fits best, over all of them. Calls
    that are missing or too many are no matter of arguments; where there is no pair at all, the value is 0.
    """
    made, right = tool_calls(called), expected_calls(expected)
    standard = _standard("any_order", arguments, tools, (), None)
    return _arguments(made, _examined(made, right, standard))


@evaluator(name="tool_schema_valid")
def tool_schema_valid(called: Any, tools: Any) -> Score:
    """The share of calls whose tool exists and whose arguments fit its JSON Schema; without any call, 1.

    An object that does not say whether it takes further members takes none: no function would.
    """
    return _schema_valid(tool_calls(called), tools)


def tool_scores(
    called: Any,
    expected: Any,
    *,
    mode: Mode = "exact",
    arguments: Any = "exact",
    tools: Any = None,
    forbidden: str | Collection[str] = (),
    allow_extra: bool | None = None,
) -> list[Score]:
    """All of them, to return from an evaluation; `tool_schema_valid` where `tools` are given."""
    made = tool_calls(called)
    standard = _standard(mode, arguments, tools, forbidden, allow_extra)
    right = expected_calls(expected)
    found = _examined(made, right, standard)
    # the order of tools, whatever their arguments: calls of one tool may stand for each other
    of_names = examine(made, right, replace(standard, rules=ArgumentRules("ignore")))
    return [
        _selection(made, found, "f1"),
        _order(made, of_names),
        _arguments(made, found),
        *([_schema_valid(made, tools)] if tools is not None else []),
        _match(made, found),
    ]


def _examined(made: Sequence[ToolCall], right: Sequence[ToolCall], standard: Standard) -> Examination:
    offered = [tool.name for tool in standard.tools if isinstance(tool.name, str)]
    tell_unused(standard.rules, [call.name for call in (*made, *right)], offered or None)
    return examine(made, right, standard)


def _standard(
    mode: Mode,
    arguments: Any,
    tools: Any,
    forbidden: str | Collection[str],
    allow_extra: bool | None,
) -> Standard:
    names = [forbidden] if isinstance(forbidden, str) else list(forbidden or ())
    if not all(isinstance(name, str) for name in names):
        raise OptionError(f"forbidden= has names of tools; got {forbidden!r}")
    found = () if tools is None else definitions(tools)
    return Standard(mode, as_rules(arguments), found, names, allow_extra)


def _selection(made: Sequence[ToolCall], found: Examination, measure: Measure) -> Score:
    values = {"f1": found.f1, "precision": found.precision, "recall": found.recall}
    if measure not in values:
        raise OptionError(f"measure={measure!r} is none of f1, precision, recall")
    beside = {name: round(value, 6) for name, value in values.items() if name != measure}
    misses = of_kinds(found.misses, OF_SELECTION)
    return Score("tool_selection", values[measure], _MEAN, {**beside, **_told(made), **noted(misses)})


def _order(made: Sequence[ToolCall], found: Examination) -> Score:
    misses = of_kinds(found.misses, OF_ORDER)
    return Score("tool_order", found.order, _MEAN, {**_told(made), **noted(misses)})


def _arguments(made: Sequence[ToolCall], found: Examination) -> Score:
    misses = of_kinds(found.misses, OF_ARGUMENTS)
    return Score("tool_arguments", found.argument_share, _MEAN, {**_told(made), **noted(misses)})


def _match(made: Sequence[ToolCall], found: Examination) -> Score:
    return Score("tool_call_match", not found.misses, _ACCURACY, {**_told(made), **noted(found.misses)})


def _schema_valid(made: Sequence[ToolCall], tools: Any) -> Score:
    bad = invalid_calls(made, definitions(tools), provided_names(tools))
    value = 1 - len(bad) / len(made) if made else 1.0
    misses = [miss for _, found in bad for miss in found]
    return Score("tool_schema_valid", value, _MEAN, {**_told(made), **noted(misses)})


def _told(made: Sequence[ToolCall]) -> dict[str, list[str]]:
    """What was called, for whoever reads the record."""
    more = len(made) - _MOST_SHOWN
    return {"called": [*map(call_text, made[:_MOST_SHOWN]), *([f"… {more} more"] if more > 0 else [])]}
