"""Evaluators by name: those of evalve, a person's own, and the judge; called with what each asks for."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalve import evaluators
from evalve.errors import DeclarationError, OptionError
from evalve.evaluators.judge import checked_rubric
from evalve.evaluators.tools.definitions import definitions
from evalve.evaluators.tools.examining import Standard
from evalve.evaluators.tools.rules import ArgumentRules, as_rules
from evalve.experiments.file.resolving import Entry
from evalve.experiments.parts.tools import OfferedTools, tools_of
from evalve.metrics import lookup, resolve
from evalve.options import Threshold, suggestion

JUDGE = "llm_judge"
NONE = "none"
"""In place of evaluators: answers are collected, and nothing scores them."""
JUDGES = (JUDGE, "llm_tool_selection", "llm_tool_arguments")
_NOT_FOR_ANSWERS = frozenset({"evaluator", "llm_compare", "valid_tool_schemas"})
_CONTEXT = ("question", "prompt", "row", "tools")
_CALLED = "called"
"""The first argument of an evaluator that wants the answer with its tool calls, not its text."""
_FOR_OTHERS = ("args", "kwargs", "options")
_COLUMN = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Scorer:
    """One evaluator, and the arguments that were written beside its name."""

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs_expected: bool = False
    takes_expected: bool = False
    is_own: bool = False
    """Whether it is a person's own function: its scores may have any names."""

    async def score(self, answer: Any, expected: Any, context: Mapping[str, Any]) -> Any:
        known = inspect.signature(self.function).parameters
        offered = {key: context[key] for key in _CONTEXT if key in known and context.get(key) is not None}
        takes_calls = self.takes_calls
        # a model that was offered no tools may write its calls as JSON text
        has_calls = takes_calls and (context.get("tools") is not None or getattr(answer, "tool_calls", None))
        first = answer if has_calls else str(answer)
        has_expected = self.takes_expected and (expected is not None or (takes_calls and self.needs_expected))
        given = (first, expected) if has_expected else (first,)
        row = context["row"]
        columns = {name: row[column] for name, column in self.columns().items()}
        score = self.function(*given, **{**offered, **self.arguments, **columns})
        return await score if inspect.isawaitable(score) else score

    @property
    def takes_calls(self) -> bool:
        """Whether it scores what was called, beside or instead of what was said."""
        return next(iter(inspect.signature(self.function).parameters), "") == _CALLED

    @property
    def compares_texts(self) -> bool:
        """Whether an answer, which is a text, is compared with what is right, as it stands."""
        return self.takes_expected and not (self.is_own or self.takes_calls or self.name in JUDGES)

    @property
    def may_take_long(self) -> bool:
        """A judge waits for its provider; what a person's own function does, nobody knows."""
        return self.is_own or self.name in JUDGES

    def columns(self) -> dict[str, str]:
        """Arguments that are a column of the row: `{llm_judge: {label: "{human}"}}`."""
        matches = {
            name: _COLUMN.fullmatch(text) for name, text in self.arguments.items() if isinstance(text, str)
        }
        return {name: match[1] for name, match in matches.items() if match is not None}


def known_evaluators() -> list[str]:
    return [name for name in evaluators.__all__ if name not in _NOT_FOR_ANSWERS and name[0].islower()]


def scorers_of(entry: Entry, *, judge: Any = None) -> list[Scorer]:
    """What the experiment names; `judge` is the model of `judge_model:`."""
    folder = entry.folder("evaluators")
    asked = entry.get("evaluators", [])
    if asked in (NONE, [NONE]):
        asked = []
    found = [_scorer(entry, one, folder) for one in (asked if isinstance(asked, list) else [asked])]
    if judge is not None:
        if all(scorer.name not in JUDGES for scorer in found):
            found.append(_named(entry, JUDGE, {}, folder))
        found = [_judged_by(scorer, judge) if scorer.name in JUDGES else scorer for scorer in found]
    if not found and "evaluators" not in entry.values:
        raise OptionError(
            f"{entry.place}: experiments.{entry.name} says nothing about how answers are scored: add "
            "`evaluators: [exact_match]`, or `judge_model: NAME`; `evaluators: none` only collects answers"
        )
    for scorer in found:
        if scorer.name in JUDGES and "model" not in scorer.arguments:
            raise OptionError(
                f"{entry.where('evaluators')}: experiments.{entry.name}: {scorer.name} needs a model; add "
                "`judge_model: NAME`"
            )
        if scorer.name == "tool_schema_valid" and "tools" not in {*entry.values, *scorer.arguments}:
            raise OptionError(
                f"{entry.where('evaluators')}: experiments.{entry.name}: {scorer.name} needs the schemas: "
                "add `tools:` with the definitions that the model is offered"
            )
        if scorer.name == JUDGE:
            _check_judge(entry, scorer)
        if scorer.name.startswith("tool_"):
            _check_of_tools(entry, scorer)
        if scorer.needs_expected and "expected" not in entry.values:
            raise OptionError(
                f"{entry.where('evaluators')}: experiments.{entry.name}: {scorer.name} compares the answer "
                "with what is right: add `expected:` with the column that has it"
            )
    return found


def check_gates(scores: Sequence[str], gates: Iterable[Threshold], where: str) -> None:
    """`OptionError` for a gate that no score can have."""
    for gate in gates:
        name = re.sub(r"\.(low|high)$", "", gate.name)
        evaluator, _, metric = name.rpartition(".")
        if name in scores or lookup(name) is not None:
            continue
        if evaluator in scores:
            _check_metric(metric, f"{where}: {gate.name}")
            continue
        hint = suggestion(evaluator or name, scores)
        there = f"there is: {', '.join(scores)}" if scores else "nothing is scored"
        raise OptionError(f"{where}: no score is called {gate.name!r}{hint or f' ({there})'}")


def _check_metric(name: str, where: str) -> None:
    try:
        resolve(name)
    except DeclarationError as error:
        raise OptionError(f"{where}: {error}") from None


def _check_judge(entry: Entry, scorer: Scorer) -> None:
    """Before an agent has worked for it."""
    told = {key: scorer.arguments[key] for key in ("rubric", "repeats") if key in scorer.arguments}
    try:
        checked_rubric(**told)
    except OptionError as error:
        raise OptionError(
            f"{entry.where('evaluators')}: experiments.{entry.name}: {JUDGE}: {error}"
        ) from None


def _check_of_tools(entry: Entry, scorer: Scorer) -> None:
    told = {key: value for key, value in scorer.arguments.items() if key not in scorer.columns()}
    try:
        rules = as_rules(told.get("arguments", "exact"))
        Standard(mode=told.get("mode", "exact"), rules=rules)
        _check_rules_for_tools(rules, tools_of(entry))
    except OptionError as error:
        raise OptionError(
            f"{entry.where('evaluators')}: experiments.{entry.name}: {scorer.name}: {error}"
        ) from None


def _check_rules_for_tools(rules: ArgumentRules, offered: OfferedTools | None) -> None:
    if offered is None or offered.column is not None:
        return  # whoever brings the tools: they are not known here
    names = [str(tool.name) for tool in definitions(offered.tools)]
    for name in rules.unused(names):
        hint = suggestion(name, names) or f" (there is: {', '.join(names)})"
        raise OptionError(f"per_tool has rules for {name!r}, and `tools:` has no such tool{hint}")


def _judged_by(scorer: Scorer, judge: Any) -> Scorer:
    return replace(scorer, arguments={"model": judge, **scorer.arguments})


def _scorer(entry: Entry, asked: Any, folder: Path) -> Scorer:
    if isinstance(asked, str):
        return _named(entry, asked, {}, folder)
    ((name, arguments),) = asked.items()
    return _named(entry, str(name), arguments, folder)


def _named(entry: Entry, name: str, arguments: Mapping[str, Any], folder: Path) -> Scorer:
    where = f"{entry.where('evaluators')}: experiments.{entry.name}"
    is_own = ":" in name
    if is_own:
        function = _own(name, folder, where)
        name = name.rpartition(":")[2]
    elif name in known_evaluators():
        function = getattr(evaluators, name)
    else:
        known = known_evaluators()
        hint = suggestion(name, known) or f" (known: {', '.join(known)})"
        raise OptionError(
            f"{where}: unknown evaluator {name!r}{hint}; one of your own is written FILE.py:FUNCTION"
        )
    positional = _positional(function, arguments)
    for argument in arguments:
        if argument == "name" and hasattr(function, "__wrapped__"):  # every evaluator takes another name
            continue
        named = inspect.signature(function).parameters
        hint = suggestion(str(argument), [one for one in named if one not in _FOR_OTHERS])
        if argument not in named and (hint or not _takes_any(function)):
            raise OptionError(f"{where}: {name} has no argument {argument!r}{hint}")
    return Scorer(
        name,
        function,
        arguments,
        needs_expected=sum(p.default is p.empty for p in positional) > 1,
        takes_expected=len(positional) > 1 and positional[1].name not in ("schema",),
        is_own=is_own,
    )


def _positional(function: Callable[..., Any], given: Mapping[str, Any]) -> Sequence[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name not in (*_CONTEXT, *given)
    ]


def _takes_any(function: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _own(name: str, folder: Path, where: str) -> Callable[..., Any]:
    """`checks.py:close_enough`: a function of a person's own file."""
    file, _, function_name = name.rpartition(":")
    path = folder / file
    if not path.is_file():
        raise OptionError(f"{where}: there is no file {str(path)!r}, which the evaluator {name!r} names")
    spec = importlib.util.spec_from_file_location(f"evalve_own_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the person's own code
        raise OptionError(f"{where}: {path} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [
            key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
        ]
        raise OptionError(
            f"{where}: {path} has no function {function_name!r}{suggestion(function_name, functions)}"
        )
    return evaluators.evaluator(function) if not hasattr(function, "__wrapped__") else function
