"""Each turn beside what is expected of it: tool, arguments, outcome. Pure; replies are judged elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve.conversations.references import Returned, Unknown, Unresolved, resolved
from evalve.conversations.rows import Conversation, ExpectedTurn
from evalve.conversations.tools import MadeCall
from evalve.conversations.turns import PlayedTurn
from evalve.evaluators.tools.definitions import ToolDefinition
from evalve.evaluators.tools.examining import Standard, examine, is_named
from evalve.evaluators.tools.matchers import anything
from evalve.evaluators.tools.misses import OF_ARGUMENTS, OF_SELECTION, Miss, call_text, of_kinds
from evalve.evaluators.tools.rules import ArgumentRules
from evalve.records import ToolCall


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a turn is scored by; `None` where it could not be told."""

    value: bool | None
    reason: str = ""


@dataclass(slots=True)
class Verdict:
    """What came of a turn."""

    expected: ExpectedTurn
    played: PlayedTurn
    parts: dict[str, Part] = field(default_factory=dict)
    """`tool`, `arguments`, `outcome` and `response`, those of them that are expected."""
    results: list[Any] = field(default_factory=list)
    """Of the expected calls that were made and succeeded."""

    @property
    def value(self) -> bool | None:
        """Right, wrong, or `None` where nothing was wrong and something could not be told."""
        values = [part.value for part in self.parts.values()]
        if self.played.problem or False in values:
            return False
        return None if None in values else True

    @property
    def is_scored(self) -> bool:
        return bool(self.parts) or bool(self.played.problem)

    @property
    def why(self) -> list[str]:
        problem = [self.played.problem] if self.played.problem else []
        wrong = [part.reason for part in self.parts.values() if part.value is not True and part.reason]
        told = list(dict.fromkeys([*problem, *wrong]))
        return [one for one in told if not any(one != other and one in other for other in told)]


def verdicts_of(
    conversation: Conversation,
    played: Sequence[PlayedTurn],
    *,
    tools: Sequence[ToolDefinition],
    rules: ArgumentRules,
) -> tuple[list[Verdict], dict[int, Returned]]:
    """A verdict for each turn, and what each returned, for references to it."""
    returned: dict[int, Returned] = {}
    found = []
    for expected, turn in zip(conversation.turns, played, strict=True):
        verdict = Verdict(expected, turn)
        if expected.calls is not None and not turn.hides_calls:
            _compare(verdict, expected.calls, returned, Standard("any_order", rules, tools))
        returned[expected.number] = Returned(
            verdict.results, is_right=verdict.value is not False, is_known=not turn.hides_results
        )
        found.append(verdict)
    return found, returned


def _compare(
    verdict: Verdict, calls: Sequence[ToolCall], returned: Mapping[int, Returned], standard: Standard
) -> None:
    expected, problem = verdict.expected, ""
    try:
        wanted = [ToolCall(call.name, _anything(resolved(call.arguments, returned))) for call in calls]
    except Unresolved as unresolved:
        # the tool can still be told, and so can what it returned: later turns may refer to that
        wanted, problem = [ToolCall(call.name) for call in calls], str(unresolved)
    made = verdict.played.calls
    matches = _matched(wanted, made, standard, expect_success=expected.expect_success)
    matched = [one for one in matches if one is not None]
    verdict.results = [one.result for one in matched if one.error is None]
    others = [one for one in made if not any(one is each for each in matched) and _counts(one, expected)]
    misses = examine([_call(one) for one in (*matched, *others)], wanted, standard).misses
    selection = of_kinds(misses, OF_SELECTION)
    verdict.parts["tool"] = Part(not selection, _reasons(selection))
    if not wanted:
        return
    if problem:
        verdict.parts["arguments"] = Part(False, problem)
    elif any(call.arguments is not None for call in calls):
        about = of_kinds(misses, OF_ARGUMENTS)
        missing = "" if len(matched) == len(wanted) else _not_called(wanted, matches)
        verdict.parts["arguments"] = Part(not about and not missing, _reasons(about) or missing)
    if not verdict.played.hides_results:
        verdict.parts["outcome"] = _outcome(expected, wanted, matches)


def _anything(value: Any) -> Any:
    """With `anything` in place of what nobody has seen."""
    if isinstance(value, Unknown):
        return anything()
    if isinstance(value, dict):
        return {key: _anything(item) for key, item in value.items()}
    return [_anything(item) for item in value] if isinstance(value, list) else value


def _matched(
    wanted: Sequence[ToolCall], made: Sequence[MadeCall], standard: Standard, *, expect_success: bool
) -> list[MadeCall | None]:
    """For each expected call the one that was made for it: of those that went as expected the one with the
    most right arguments, and of equal ones the last."""
    weights = []
    for row, want in enumerate(wanted):
        for column, one in enumerate(made):
            if is_named(_call(one), want):
                share = examine([_call(one)], [want], standard).argument_share if want.arguments else 1.0
                went = (one.error is None) == expect_success
                weights.append(((went, share, column), row, column))
    found: list[MadeCall | None] = [None] * len(wanted)
    taken: set[int] = set()
    for _, row, column in sorted(weights, reverse=True):
        if found[row] is None and column not in taken:
            found[row] = made[column]
            taken.add(column)
    return found


def _counts(call: MadeCall, expected: ExpectedTurn) -> bool:
    """Whether a call beside the expected ones is wrong: what failed was undone, and to look is free."""
    return call.error is None and (call.wrote or not expected.takes_others)


def _outcome(expected: ExpectedTurn, wanted: Sequence[ToolCall], matches: Sequence[MadeCall | None]) -> Part:
    if any(one is None for one in matches):
        return Part(False, _not_called(wanted, matches))
    for one in matches:
        assert one is not None
        if expected.expect_success and one.error is not None:
            return Part(False, f"{one.name} failed: {one.error}")
        if not expected.expect_success and one.error is None:
            return Part(False, f"{one.name} succeeded, although an error was expected")
        sought = expected.error_substring
        if not expected.expect_success and sought and sought.casefold() not in str(one.error).casefold():
            return Part(False, f"{one.name} failed with {one.error!r}, expected {sought!r} in it")
    return Part(True)


def _not_called(wanted: Sequence[ToolCall], matches: Sequence[MadeCall | None]) -> str:
    missing = [call_text(call) for call, one in zip(wanted, matches, strict=True) if one is None]
    return f"{', '.join(missing)} was not called"


def _call(made: MadeCall) -> ToolCall:
    return ToolCall(made.name, made.arguments, unparsed=not isinstance(made.arguments, Mapping))


def _reasons(misses: Sequence[Miss]) -> str:
    return "; ".join(f"{miss.kind}: {miss.reason}" for miss in misses[:5])
