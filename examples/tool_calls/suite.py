"""The cases, and an evaluation for each resource: one call a case, scored by rules and perhaps by a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from api import ALL_TOOLS

from evalve import ForEach, Result
from evalve.evaluators import llm_tool_arguments, llm_tool_selection, tool_schema_valid, tool_scores

HERE = Path(__file__).parent
MODEL = "anthropic/claude-sonnet-5"
SYSTEM = (
    "You operate Lantern, an observability service, with its tools. Call the tools that the request needs,"
    " all of them at once and in the order in which they shall happen, with the arguments that it states and"
    " no others. Answer in words where no tool is needed."
)


@dataclass(frozen=True, slots=True)
class Case:
    """What somebody asks for, and the calls that are right for it."""

    resource: str
    name: str
    request: str
    calls: list[dict[str, Any]]
    mode: str = "exact"
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.resource}-{self.name}"

    @property
    def forbidden(self) -> list[str]:
        """Nothing is deleted unless that is what was asked for."""
        deletes = any(call["name"].startswith("delete_") for call in self.calls)
        return [] if deletes else ["delete_*"]

    @property
    def row(self) -> dict[str, Any]:
        return {"id": self.id, "request": self.request, "case": self}


def calls_in(written: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`{tool: arguments}`, as the files have them."""
    return [{"name": name, "arguments": given} for call in written for name, given in call.items()]


def _read(path: Path) -> Iterator[Case]:
    for resource, cases in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for name, case in cases.items():
            yield Case(resource, name, **{**case, "calls": calls_in(case["calls"])})


CASES = list(_read(HERE / "cases.yaml"))
RESOURCES = list(dict.fromkeys(case.resource for case in CASES))
FITS = {
    resource: tool_schema_valid(
        [call for case in CASES if case.resource == resource for call in case.calls], ALL_TOOLS
    )
    for resource in RESOURCES
}
"""Whether the expected calls are calls that the tools take: known before anybody is asked."""


async def ask(request: str, case: Case, model: Any, judge: Any) -> Result:
    """The one call of a case, which all of its tests share."""
    answer = await model.generate(request, system=SYSTEM, tools=ALL_TOOLS)
    scores = tool_scores(
        answer,
        case.calls,
        mode=case.mode,  # type: ignore[arg-type]  # a file says it
        arguments=case.arguments,
        tools=ALL_TOOLS,
        forbidden=case.forbidden,
    )
    if judge is not None:
        names = {call.name for call in answer.tool_calls}
        called = [tool for tool in ALL_TOOLS if tool["name"] in names]
        scores += await asyncio.gather(
            llm_tool_selection(answer, case.calls, question=request, tools=ALL_TOOLS, model=judge),
            llm_tool_arguments(answer, case.calls, question=request, tools=called, model=judge),
        )
    return Result(*scores, prompt=request, response=answer)


def _evaluation(resource: str) -> Callable[..., Any]:
    rows = [case.row for case in CASES if case.resource == resource]

    @ForEach(name=resource)("id,request,case", rows)
    async def eval_resource(id: str, request: str, case: Case, model: Any, judge: Any) -> Result:
        return await ask(request, case, model, judge)

    return eval_resource


EVALUATIONS = {resource: _evaluation(resource) for resource in RESOURCES}
