"""A model's verdict on each tool call: whether the tool is right, whether its arguments are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalve import metrics
from evalve.errors import OptionError
from evalve.evaluators.asking import Judge, NoVerdict
from evalve.evaluators.declaring import evaluator
from evalve.evaluators.questions import JudgeQuestion, about_parts
from evalve.evaluators.rubrics import Rubric, as_rubric
from evalve.evaluators.tools.definitions import definitions
from evalve.evaluators.tools.reading import expected_calls, tool_calls
from evalve.evaluators.verdicts import Verdict
from evalve.jsontext import to_json
from evalve.records import Score, ToolCall

SELECTION = Rubric(
    "Is it right to call this tool for this request? Judge the choice of the tool, not its arguments. It is"
    " right if the tool serves the request, or a step towards it, and no other of the tools does so clearly"
    " better. With a reference, calls that reach the same are right as well. A call that the request does not"
    " need is wrong."
)
NO_CALL = Rubric(
    "The assistant called no tool. Is that right for this request? It is if none of the tools serves the"
    " request, or if the request lacks what a call would need. With a reference, judge by whether it has any."
)
ARGUMENTS = Rubric(
    "Are the arguments of this call right for this request? Judge the arguments, not the choice of the tool."
    " They are right if each says what the request says or clearly implies, none is invented, none that the"
    " request needs is left out, and all fit what the tool takes. With a reference, values that mean the same"
    " are right as well."
)
_MEAN = (metrics.mean,)


@evaluator(name="llm_tool_selection")
async def llm_tool_selection(
    called: Any,
    expected: Any = None,
    *,
    question: Any = None,
    model: Any = None,
    tools: Any = None,
    rubric: Rubric | str | Mapping[str, Any] = SELECTION,
    **options: Any,
) -> Score:
    """The share of calls whose tool a model judges right for the request (`question`), with its reasons.

    `expected`, the reference, and `tools`, what could be called, may be left out. Where more calls are
    expected than were made, the missing ones count as wrong. Where nothing was called, the judge says whether
    that is right. `model` and `options` are as those of `llm_judge`.
    """
    made, reference = tool_calls(called), None if expected is None else expected_calls(expected)
    judge = Judge(model, options)
    asked = _checked(rubric)
    beside = _beside(question, made, reference, tools)
    if made:
        questions = [about_parts(asked, {**beside, "call": _whole(call)}) for call in made]
    else:
        questions = [about_parts(NO_CALL, beside)]
    return await _judged("llm_tool_selection", judge, questions, made, reference)


@evaluator(name="llm_tool_arguments")
async def llm_tool_arguments(
    called: Any,
    expected: Any = None,
    *,
    question: Any = None,
    model: Any = None,
    tools: Any = None,
    rubric: Rubric | str | Mapping[str, Any] = ARGUMENTS,
    **options: Any,
) -> Score:
    """The share of calls whose arguments a model judges right for the request (`question`), with its reasons.

    The same as `llm_tool_selection` otherwise. Where nothing was called, nobody is asked: that is right
    unless calls are expected.
    """
    made, reference = tool_calls(called), None if expected is None else expected_calls(expected)
    judge = Judge(model, options)
    asked = _checked(rubric)
    name = "llm_tool_arguments"
    if not made:
        reason = "no tool was called" + (", although calls are expected" if reference else "")
        return Score(name, float(not reference), _MEAN, {"judge": judge.name, "reason": reason})
    beside = _beside(question, made, reference, tools)
    questions = [about_parts(asked, {**beside, "call": _whole(call)}) for call in made]
    return await _judged(name, judge, questions, made, None)


def _beside(
    question: Any, made: Sequence[ToolCall], reference: Sequence[ToolCall] | None, tools: Any
) -> dict[str, Any]:
    """What the judge is told beside the call; all calls, because one may be a step towards another."""
    offered = None
    if tools is not None:
        offered = [
            {"name": tool.name, "description": tool.description, "schema": tool.schema}
            for tool in definitions(tools)
        ]
    return {
        "request": question,
        "tools": None if offered is None else to_json(offered),
        "reference": None if reference is None else _all(reference),
        "all-calls": _all(made) if len(made) > 1 else None,
    }


def _all(calls: Sequence[ToolCall]) -> str:
    return f"[{', '.join(map(_whole, calls))}]"


def _whole(call: ToolCall) -> str:
    return to_json({"name": call.name, "arguments": call.arguments})


def _checked(rubric: Any) -> Rubric:
    asked = as_rubric(rubric)
    if asked.scale is not None:
        raise OptionError("the rubric of a tool call is answered by yes or no: leave its scale out")
    return asked


async def _judged(
    name: str,
    judge: Judge,
    questions: Sequence[JudgeQuestion],
    made: Sequence[ToolCall],
    reference: Sequence[ToolCall] | None,
) -> Score:
    came = await judge.verdicts(questions)
    noted: dict[str, Any] = {"judge": judge.name}
    unsaid = [one.reason for one in came if isinstance(one, NoVerdict)]
    if unsaid:
        of = f"{len(unsaid)} of {len(came)} verdicts are missing: " if len(came) > 1 else ""
        return Score.unscored(name, f"{of}{unsaid[0]}", _MEAN, noted)
    verdicts = [one for one in came if isinstance(one, Verdict)]
    values = [_value(one) for one in verdicts]
    tools = [call.name for call in made] or [""]
    noted["verdicts"] = [
        {"tool": tool, "value": value, "reason": verdict.reason}
        for tool, value, verdict in zip(tools, values, verdicts, strict=True)
    ]
    wrong = [one for one, value in zip(verdicts, values, strict=True) if not value]
    noted["reason"] = " ".join(one.reason for one in wrong or verdicts[:1])
    count = max(len(values), len(reference or ()))
    if count > len(values):
        noted["missing"] = count - len(values)
    return Score(name, sum(values) / count, _MEAN, noted)


def _value(verdict: Verdict) -> float:
    if verdict.value is not None:
        return float(verdict.value)
    values = [float(one.value or 0) for one in verdict.criteria.values()]
    return float(all(values))
