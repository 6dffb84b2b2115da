"""From a conversation that was played to its scores and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evalve import metrics
from evalve.conversations.references import Returned, Unknown, Unresolved, resolved
from evalve.conversations.replies import judged, says
from evalve.conversations.rows import Conversation, ExpectedResponse
from evalve.conversations.turns import PlayedTurn
from evalve.conversations.verdicts import Part, Verdict, verdicts_of
from evalve.errors import DatasetError, OptionError
from evalve.evaluators.tools.definitions import ToolDefinition
from evalve.evaluators.tools.rules import ArgumentRules
from evalve.options import suggestion
from evalve.records import Result, Score, ToolCall

SCORES = ("success", "all_turns", "final_state", "turn", "tool", "arguments", "outcome", "response")
_ACCURACY = (metrics.accuracy,)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What conversations are held against, beside what their rows expect."""

    tools: Sequence[ToolDefinition] = ()
    rules: ArgumentRules = field(default_factory=ArgumentRules)
    judge: Any = None
    judge_options: Mapping[str, Any] = field(default_factory=dict)

    def check(self, conversation: Conversation) -> None:
        """Before anybody is asked."""
        if conversation.needs_judge and self.judge is None:
            raise OptionError(
                f"conversation {conversation.id!r} expects a response that needs a judge: say judge=, or "
                "`judge_model:` in an experiment"
            )
        known = [str(one.name) for one in self.tools]
        for turn in conversation.turns if known else ():
            for call in turn.calls or ():
                if call.name not in known and "*" not in call.name:
                    hint = suggestion(call.name, known) or f" (there is: {', '.join(known)})"
                    raise DatasetError(
                        f"conversation {conversation.id!r}, turn {turn.number}: the tool {call.name!r} is "
                        f"expected, and is not offered{hint}"
                    )

    def check_arguments(self, conversation: Conversation) -> None:
        """Those that no call can have and succeed; a run counts them as wrong."""
        if self.rules.ignore or self.rules.per_tool or self.rules.compare not in ("exact", "subset"):
            return
        tools = {one.name: one.schema for one in self.tools}
        for turn in conversation.turns:
            for call in turn.calls or () if turn.expect_success else ():
                _check_names(
                    call, tools.get(call.name), f"conversation {conversation.id!r}, turn {turn.number}"
                )

    def verdicts(
        self, conversation: Conversation, played: Sequence[PlayedTurn]
    ) -> tuple[list[Verdict], dict[int, Returned]]:
        return verdicts_of(conversation, played, tools=self.tools, rules=self.rules)


def _check_names(call: ToolCall, schema: Any, who: str) -> None:
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return
    takes = [str(name) for name in schema.get("properties", ())]
    for name in call.arguments if isinstance(call.arguments, Mapping) else ():
        if name not in takes:
            hint = suggestion(str(name), takes) or f" (there is: {', '.join(takes) or 'none'})"
            raise DatasetError(
                f"{who}: the argument {name!r} is expected, and the tool {call.name!r} has none of that "
                f"name{hint}"
            )


@dataclass(slots=True)
class Played:
    """A whole conversation as it went."""

    turns: list[PlayedTurn]
    state: str | None = None
    """How the final state differs from the expected one; `None` where none is expected."""

    def to_plain(self) -> dict[str, Any]:
        return {"turns": [turn.to_plain() for turn in self.turns], "state": self.state}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Played:
        return cls([PlayedTurn.of(turn) for turn in plain["turns"]], plain.get("state"))


async def score_conversation(conversation: Conversation, played: Played, scoring: Scoring) -> Result:
    """The scores, with the first utterance as prompt and what happened as response."""
    verdicts, returned = scoring.verdicts(conversation, played.turns)
    for verdict in verdicts:
        part = await _response(verdict, returned, scoring)
        if part is not None:
            verdict.parts["response"] = part
    scores = [score for verdict in verdicts for score in _scores_of(verdict)]
    whole = _whole(conversation, verdicts, played.state)
    success = next(score.value for score in whole if score.name == "success")
    response = {
        "conversation_id": conversation.id,
        "success": success,
        "failed_at_turn": next((one.expected.number for one in verdicts if one.value is False), None),
        "turns": [
            {**one.played.to_plain(), "right": one.value if one.is_scored else None, "why": one.why}
            for one in verdicts
        ],
        "state": played.state,
    }
    return Result(*whole, *scores, prompt=conversation.turns[0].utterance, response=response)


async def _response(verdict: Verdict, returned: Mapping[int, Returned], scoring: Scoring) -> Part | None:
    """`None` where nothing is expected of the reply, or nobody knows what."""
    expected, reply = verdict.expected.response, verdict.played.reply
    if expected is None:
        return None
    try:
        text, answers = resolved(expected.text, returned), resolved(expected.answers, returned)
    except Unresolved as unresolved:
        return Part(False, str(unresolved))
    if any(isinstance(one, Unknown) for one in (text, *answers)):
        return None
    expected = ExpectedResponse(str(text), tuple(answers), expected.needs_judge)
    if not expected.needs_judge or not reply:
        wrong = says(reply, expected)
        return Part(wrong is None, wrong or "")
    value, reason = await judged(
        reply,
        expected,
        utterance=verdict.expected.utterance,
        judge=scoring.judge,
        options=scoring.judge_options,
    )
    return Part(value, reason)


def _scores_of(verdict: Verdict) -> list[Score]:
    if not verdict.is_scored:
        return []
    noted = {"turn": verdict.expected.number, "tool": verdict.expected.tool or "none"}
    parts = {"turn": Part(verdict.value, "; ".join(verdict.why)), **verdict.parts}
    return [_score(name, part.value, part.reason, noted) for name, part in parts.items()]


def _whole(conversation: Conversation, verdicts: Sequence[Verdict], state: str | None) -> list[Score]:
    turns = _all([one.value for one in verdicts if one.is_scored])
    wrong = [one.expected.number for one in verdicts if one.value is False]
    why_turns = f"wrong: turn {', '.join(map(str, wrong))}" if wrong else ""
    is_same = None if state is None else state == ""
    is_scored = any(one.is_scored for one in verdicts)
    untold = "a turn could not be scored" if turns is None and (is_scored or is_same is None) else ""
    criteria = conversation.criteria
    parts = {
        "all_turns": [turns],
        "final_state": [is_same],
        # calls that are not known say nothing: then the state decides
        "both": [is_same, *([turns] if is_scored else [])],
    }[criteria]
    whole = [
        _score("success", _all(parts), "; ".join(filter(None, [why_turns or untold, state])), {}),
        _score("all_turns", turns, why_turns or untold, {}),
    ]
    if not is_scored:
        whole.pop()
    return whole if state is None else [*whole, _score("final_state", is_same, state, {})]


def _all(values: Sequence[bool | None]) -> bool | None:
    """Wrong where one is; `None` where none is and one is not known, or there is none."""
    if False in values:
        return False
    return None if None in values or not values else True


def _score(name: str, value: bool | None, reason: str, noted: Mapping[str, Any]) -> Score:
    if value is None:
        return Score.unscored(name, reason or "it could not be told", _ACCURACY, noted)
    return Score(name, value, _ACCURACY, noted if value or not reason else {**noted, "reason": reason})
