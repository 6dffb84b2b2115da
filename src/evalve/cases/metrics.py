"""Metrics of test cases: right tools, right arguments; by rules alone, or with a model as judge."""

from __future__ import annotations

from typing import Any, Protocol

from evalve import metrics
from evalve.cases.case import TestCase
from evalve.errors import OptionError
from evalve.evaluators import llm_tool_arguments, llm_tool_selection, tool_arguments, tool_schema_valid
from evalve.evaluators.tools.definitions import definitions
from evalve.evaluators.tools.examining import Examination, Mode, Standard, examine
from evalve.evaluators.tools.misses import noted
from evalve.evaluators.tools.rules import as_rules
from evalve.records import UNSCORED, Score, ToolCall

_MEAN = (metrics.mean,)


class CaseMetric(Protocol):
    """What `evaluate` takes as a metric."""

    name: str

    async def score(self, case: TestCase, called: list[ToolCall]) -> Score: ...

    def settings(self) -> dict[str, Any]:
        """In plain values: part of what an evaluation is made of."""


class ToolCorrectnessMetric:
    """How many of the expected tools were called; calls beside them cost nothing unless a match is wanted."""

    def __init__(
        self,
        threshold: float = 0.5,
        *,
        name: str = "tool_correctness",
        should_exact_match: bool = False,
        should_consider_ordering: bool = False,
        arguments: Any = "ignore",
        model: Any = None,
        strict_mode: bool = False,
    ) -> None:
        """`should_exact_match`: these calls in this order and no others, or nothing.

        `should_consider_ordering`: those count that were called in their order. `arguments` says whether and
        how arguments are compared, as in `tool_call_match`. With a `model`, it judges each call too, and the
        lower of both counts. Two of them in one `evaluate` need a `name` each.
        """
        self.name = name
        self._threshold = _checked_threshold(threshold, strict_mode=strict_mode)
        self._exact, self._ordered = should_exact_match, should_consider_ordering
        self._rules = as_rules(arguments)
        self._model = model

    async def score(self, case: TestCase, called: list[ToolCall]) -> Score:
        if case.expected_tools is None:
            raise OptionError(
                f"ToolCorrectnessMetric: the case {case.input[:80]!r} has no expected_tools; write [] where"
                " no tool is to be called"
            )
        mode: Mode = "exact" if self._exact else "in_order" if self._ordered else "superset"
        tools = () if case.tools is None else definitions(case.tools)
        found = examine(called, case.expected_tools, Standard(mode, self._rules, tools))
        value, told = self._value(found), noted(found.misses)
        if self._model is not None:
            judged = await llm_tool_selection(
                called, case.expected_tools, question=case.input, model=self._model, tools=case.tools
            )
            if judged.value is None:
                return Score.unscored(self.name, judged.metadata[UNSCORED], _MEAN, told)
            told = {
                **told,
                "by_rules": value,
                "by_judge": judged.value,
                "verdicts": judged.metadata["verdicts"],
            }
            value = min(value, judged.value)
        return _with_threshold(self.name, value, told, self._threshold)

    def _value(self, found: Examination) -> float:
        if self._exact:
            return float(not found.misses)
        if not found.expected:
            return float(not found.called)
        right = found.in_order if self._ordered else found.matched
        return right / found.expected * (1.0 if self._rules.compare == "ignore" else found.argument_share)

    def settings(self) -> dict[str, Any]:
        return {
            "metric": self.name,
            "threshold": self._threshold,
            "exact": self._exact,
            "ordered": self._ordered,
            "arguments": self._rules,
            "model": _model_name(self._model),
        }


class ArgumentCorrectnessMetric:
    """The share of right arguments: against the expected calls, else against the schemas of the tools.

    With a `model`, it judges the arguments of each call by what was asked, and needs no expected calls.
    """

    def __init__(
        self,
        threshold: float = 0.5,
        *,
        name: str = "argument_correctness",
        arguments: Any = "exact",
        model: Any = None,
        strict_mode: bool = False,
    ) -> None:
        self.name = name
        self._threshold = _checked_threshold(threshold, strict_mode=strict_mode)
        self._arguments = as_rules(arguments)
        self._model = model

    async def score(self, case: TestCase, called: list[ToolCall]) -> Score:
        if self._model is not None:
            judged = await llm_tool_arguments(
                called, case.expected_tools, question=case.input, model=self._model, tools=case.tools
            )
            if judged.value is None:
                return Score.unscored(self.name, judged.metadata[UNSCORED], _MEAN)
        elif case.expected_tools is not None:
            judged = tool_arguments(called, case.expected_tools, arguments=self._arguments, tools=case.tools)
        elif case.tools is not None:
            judged = tool_schema_valid(called, case.tools)
        else:
            raise OptionError(
                f"ArgumentCorrectnessMetric: the case {case.input[:80]!r} has neither expected_tools nor"
                " tools: give it one of them, or the metric a model= that judges"
            )
        return _with_threshold(self.name, float(judged.value), judged.metadata, self._threshold)

    def settings(self) -> dict[str, Any]:
        return {
            "metric": self.name,
            "threshold": self._threshold,
            "arguments": self._arguments,
            "model": _model_name(self._model),
        }


def _checked_threshold(threshold: Any, *, strict_mode: bool) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise OptionError(f"a metric's threshold is a number from 0 to 1; got {threshold!r}")
    return 1.0 if strict_mode else float(threshold)


def _with_threshold(name: str, value: float, told: dict[str, Any], threshold: float) -> Score:
    beside = {"threshold": threshold, "success": value >= threshold}
    return Score(name, value, _MEAN, {**told, **beside})


def _model_name(model: Any) -> str | None:
    return None if model is None else str(getattr(model, "name", model))
