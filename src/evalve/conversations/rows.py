"""A row of a dataset as a conversation: what is said turn by turn, and what is expected. Validated here."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evalve.conversations.references import references_in
from evalve.errors import DatasetError
from evalve.jsontext import as_text
from evalve.options import suggestion
from evalve.records import ToolCall

Criteria = Literal["all_turns", "final_state", "both"]
CRITERIA: tuple[str, ...] = get_args(Criteria)
EVALUATIONS = ("structured", "judge")
_OF_CONVERSATIONS = ("initial_entities", "final_expected_state", "success_criteria")
_OF_TURNS = (
    *("expected_tool", "expected_args", "expected_calls"),
    *("expect_success", "expected_error_substring", "expected_response"),
)
_NEAR = 0.8
"""How alike a key must be to be one of these, misspelt: `expected_tools`, `expected_arguments`."""


@dataclass(frozen=True, slots=True)
class ExpectedResponse:
    """What a reply must say: one of the answers, or the same as the text by a judge's verdict."""

    text: str
    answers: tuple[Any, ...]
    needs_judge: bool


@dataclass(frozen=True, slots=True)
class ExpectedTurn:
    """One turn: what the user says, and what is expected of the agent."""

    number: int
    utterance: str
    calls: tuple[ToolCall, ...] | None = None
    """`None` where nothing is said about calls."""
    takes_others: bool = True
    """Whether calls that write nothing may stand beside the expected ones."""
    expect_success: bool = True
    error_substring: str | None = None
    response: ExpectedResponse | None = None

    @property
    def tool(self) -> str | None:
        return self.calls[0].name if self.calls else None

    @property
    def expects_nothing(self) -> bool:
        return self.calls is None and self.response is None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A whole conversation."""

    id: str
    turns: Sequence[ExpectedTurn]
    seed: Mapping[str, Any] = field(default_factory=dict)
    """Rows by entity and id, inserted before the first turn."""
    state: Mapping[str, Any] | None = None
    criteria: Criteria = "all_turns"

    @property
    def needs_judge(self) -> bool:
        return any(turn.response is not None and turn.response.needs_judge for turn in self.turns)


def read_conversation(row: Any) -> Conversation:
    """`DatasetError` for a row that cannot be played or scored. Unknown keys are left alone."""
    if isinstance(row, Conversation):
        return row
    if not isinstance(row, Mapping):
        raise DatasetError(f"a conversation is a mapping with `turns`, not {_shown(row)}")
    name = str(row.get("conversation_id") or row.get("id") or "")
    who = f"conversation {name!r}" if name else "a conversation"
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns:
        raise DatasetError(f"{who} has no `turns`, a list of what the user says{_meant('turns', row)}")
    _check_keys(row, _OF_CONVERSATIONS, who)
    read = [_turn(turn, place, f"{who}, turn {place}") for place, turn in enumerate(turns, 1)]
    state = _mapping(row, "final_expected_state", who) or None
    found = Conversation(name, read, _seed(row, who), state, _criteria(row, state, who))
    _check(found, who)
    return found


def _turn(turn: Any, place: int, who: str) -> ExpectedTurn:
    if not isinstance(turn, Mapping):
        raise DatasetError(f"{who}: a turn is a mapping with `user_utterance`, not {_shown(turn)}")
    utterance = turn.get("user_utterance")
    if not isinstance(utterance, str) or not utterance.strip():
        hint = _meant("user_utterance", turn)
        raise DatasetError(f"{who} has no `user_utterance`, the text that the user says{hint}")
    _check_keys(turn, _OF_TURNS, who)
    number = turn.get("turn_id", place)
    if not isinstance(number, int) or isinstance(number, bool):
        raise DatasetError(f"{who}: turn_id is a whole number, 1 for the first turn; got {_shown(number)}")
    success = turn.get("expect_success")
    if success is not None and not isinstance(success, bool):
        raise DatasetError(f"{who}: expect_success is true or false; got {_shown(success)}")
    error = turn.get("expected_error_substring") or None
    calls = turn.get("expected_calls")
    return ExpectedTurn(
        number=number,
        utterance=utterance,
        calls=_calls(calls, who) if calls is not None else _one_call(turn, who),
        takes_others=calls is None,
        expect_success=error is None if success is None else success,
        error_substring=None if error is None else str(error),
        response=_response(turn.get("expected_response"), who),
    )


def _one_call(turn: Mapping[str, Any], who: str) -> tuple[ToolCall, ...] | None:
    tool, arguments = turn.get("expected_tool"), turn.get("expected_args")
    if tool is None or tool == "":
        if arguments:
            raise DatasetError(f"{who} has `expected_args` and no `expected_tool`")
        return None
    if not isinstance(tool, str):
        raise DatasetError(f"{who}: expected_tool is the name of a tool; got {_shown(tool)}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise DatasetError(f"{who}: expected_args are arguments by name; got {_shown(arguments)}")
    return (ToolCall(tool, None if arguments is None else dict(arguments)),)


def _calls(given: Any, who: str) -> tuple[ToolCall, ...]:
    if not isinstance(given, list):
        raise DatasetError(
            f"{who}: expected_calls is a list, [] where none is to be made; got {_shown(given)}"
        )
    found = []
    for one in given:
        call = {"name": one} if isinstance(one, str) else one
        arguments = call.get("arguments") if isinstance(call, Mapping) else None
        named = isinstance(call, Mapping) and isinstance(call.get("name"), str)
        if not named or not (arguments is None or isinstance(arguments, Mapping)):
            raise DatasetError(
                f'{who}: each of expected_calls is {{"name": …, "arguments": {{…}}}}; got {_shown(call)}'
            )
        found.append(ToolCall(call["name"], None if arguments is None else dict(arguments)))
    return tuple(found)


def _response(given: Any, who: str) -> ExpectedResponse | None:
    if given is None or given == "":
        return None
    if isinstance(given, str):
        return ExpectedResponse(given, (), needs_judge=False)
    if not isinstance(given, Mapping):
        raise DatasetError(f"{who}: expected_response is a mapping with text or answers; got {_shown(given)}")
    text, answers = given.get("text") or "", given.get("answers") or []
    if not isinstance(text, str) or not isinstance(answers, list):
        raise DatasetError(f"{who}: expected_response has a text, and a list of answers; got {_shown(given)}")
    evaluation = given.get("evaluation") or "structured"
    if evaluation not in EVALUATIONS:
        hint = suggestion(str(evaluation), EVALUATIONS) or f" (there is: {', '.join(EVALUATIONS)})"
        raise DatasetError(f"{who}: expected_response: evaluation is {_shown(evaluation)}{hint}")
    if "text" not in given and "answers" not in given and given.keys() - {"evaluation", "requires_judge"}:
        hint = _meant("answers", given)
        raise DatasetError(
            f"{who}: expected_response has neither text nor answers; got {_shown(given)}{hint}"
        )
    if not text and not answers:
        return None
    return ExpectedResponse(text, tuple(answers), evaluation == "judge" or bool(given.get("requires_judge")))


def _seed(row: Mapping[str, Any], who: str) -> Mapping[str, Any]:
    entities = _mapping(row, "initial_entities", who)
    seed = _mapping(entities, "seed_data", f"{who}: initial_entities")
    if "seed_data" not in entities and any(isinstance(one, Mapping | list) for one in entities.values()):
        raise DatasetError(
            f'{who}: initial_entities has no `seed_data`: write {{"seed_data": {{"Client": …}}}}; '
            f"got {_shown(entities)}"
        )
    for entity, rows in seed.items():
        list(rows_of(entity, rows, f"{who}: initial_entities.seed_data"))
    return seed


def rows_of(entity: str, rows: Any, who: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The rows of one entity with their ids: `{ID: {field: value}}`, or a list of rows without ids."""
    if not isinstance(rows, Mapping | list | None):
        raise DatasetError(f"{who}.{entity} has rows by id, or a list of rows; got {_shown(rows)}")
    pairs = rows.items() if isinstance(rows, Mapping) else ((None, row) for row in rows or ())
    for key, row in pairs:
        if not isinstance(row, Mapping):
            raise DatasetError(f"{who}.{entity}: a row is a mapping of fields to values; got {_shown(row)}")
        yield key, row


def _criteria(row: Mapping[str, Any], state: Any, who: str) -> Criteria:
    said = row.get("success_criteria")
    if said is None:
        return "both" if state else "all_turns"
    if said not in CRITERIA:
        hint = suggestion(str(said), CRITERIA) or f" (there is: {', '.join(CRITERIA)})"
        raise DatasetError(f"{who}: success_criteria is {_shown(said)}{hint}")
    if said == "final_state" and not state:
        raise DatasetError(f"{who}: success_criteria is final_state, and there is no `final_expected_state`")
    return said if state else "all_turns"


def _mapping(row: Mapping[str, Any], key: str, who: str) -> Mapping[str, Any]:
    value = row.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DatasetError(f"{who}: {key} is a mapping; got {_shown(value)}")
    return value


def _check(conversation: Conversation, who: str) -> None:
    """What can be told before anybody is asked: numbers, and what references refer to."""
    numbers: list[int] = []
    for turn in conversation.turns:
        if turn.number in numbers:
            raise DatasetError(f"{who}: two turns have the turn_id {turn.number}")
        calls = [call.arguments for call in turn.calls or ()]
        _check_references(calls, numbers, f"{who}, turn {turn.number}")
        numbers.append(turn.number)
        if turn.response is not None:
            said = [turn.response.text, *turn.response.answers]
            _check_references(said, numbers, f"{who}, turn {turn.number}: expected_response")
    _check_references(conversation.state, numbers, f"{who}: final_expected_state")
    if conversation.state is None and all(turn.expects_nothing for turn in conversation.turns):
        raise DatasetError(
            f"{who} expects nothing, so nothing can be scored: give turns an `expected_tool` or an "
            "`expected_response`, or the conversation a `final_expected_state`"
        )


def _check_references(value: Any, before: Sequence[int], who: str) -> None:
    try:
        found = list(references_in(value))
    except DatasetError as error:
        raise DatasetError(f"{who}: {error}") from None
    for number, path in found:
        if number not in before:
            there = f"there is: {', '.join(map(str, before))}" if before else "there is none"
            raise DatasetError(f"{who}: {{{{turn_{number}.{path}}}}} refers to no earlier turn ({there})")


def _check_keys(given: Mapping[str, Any], known: Sequence[str], who: str) -> None:
    """Other keys are left alone. One that is missing, and misspelt, would leave something unscored."""
    missing = [key for key in known if key not in given]
    for key in map(str, given):
        same = [one for one in missing if sorted(one.split("_")) == sorted(key.split("_"))]
        near = [] if key in known else difflib.get_close_matches(key, missing, n=1, cutoff=_NEAR)
        for meant in (*same, *near):
            raise DatasetError(f"{who}: unknown key {key!r}; did you mean {meant!r}?")


def _meant(key: str, given: Mapping[str, Any]) -> str:
    return suggestion(key, [str(one) for one in given if one != key])


def _shown(value: Any) -> str:
    text = as_text(value)
    return text if len(text) <= 80 else text[:79] + "…"
