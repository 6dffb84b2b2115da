"""What the simulated model is told to say: a text, calls of tools, or a whole conversation with tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalve.errors import OptionError
from evalve.simulator.asks import Ask

_FOUND = "{found}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model calls; arguments that are a text go out as they are: models break their JSON."""

    name: str
    arguments: Mapping[str, Any] | str

    @property
    def text(self) -> str:
        """The arguments as JSON, or as the text that is none."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))

    @property
    def value(self) -> dict[str, Any] | str:
        """The arguments where a wire format has them as a value."""
        return self.arguments if isinstance(self.arguments, str) else dict(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says; `output_tokens` is counted from it unless given.

    `find` is a pattern that is searched in what tools answered, the latest first, and where none did in the
    prompt: its first group, or all of it, stands where `{found}` does in the text and in arguments ("nothing"
    if it is not there). `reasoning` is what the model thinks before: told, and counted as output, as the API
    does it; Anthropic's only where the request asks for thinking.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    output_tokens: int | None = None
    find: str | None = None
    reasoning: str = ""

    def __post_init__(self) -> None:
        if self.find is None:
            return
        try:
            re.compile(self.find)
        except re.error as error:
            raise OptionError(
                f"an answer's find is {self.find!r}, which is not a pattern: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class Turns:
    """What the model says in a conversation with tools, by how often tools have answered in it already.

    The first before any has answered, the next after that, and the last from then on. Only tools that the
    request offers are called, so one script serves agents whose tools have different names; a turn that calls
    none of them is passed over. Without tools and with a schema it is a question beside the conversation, as
    agents ask some, and gets what conforms.
    """

    turns: tuple[Said, ...]

    def __post_init__(self) -> None:
        if not self.turns:
            raise OptionError("turns is empty; it needs at least one answer")


Said = str | Answer
Script = Turns | Callable[[Ask], Said | Turns | None] | Sequence[Said | Turns] | Mapping[str, Said | Turns]
"""Turns for every request; a function of the request (None: the default answer); a list, the first for the
first admitted request and the last again for those beyond it; or a mapping by a text in the prompt, the first
that occurs."""


def scripted(script: Script | None, ask: Ask, ordinal: int) -> Answer | None:
    """What the script says to the request admitted as number `ordinal`; None where it says nothing."""
    said = _said(script, ask, ordinal)
    if isinstance(said, Turns):
        said = _turn(said, ask)
    if said is None:
        return None
    answer = Answer(said) if isinstance(said, str) else said
    return answer if answer.find is None else _filled(answer, _found(answer.find, ask))


def _said(script: Script | None, ask: Ask, ordinal: int) -> Said | Turns | None:
    if script is None or isinstance(script, Turns):
        return script
    if isinstance(script, Mapping):
        prompt = ask.prompt
        return next((said for text, said in script.items() if text in prompt), None)
    if callable(script):
        return script(ask)
    return script[min(ordinal, len(script) - 1)] if script else None


def _turn(script: Turns, ask: Ask) -> Answer | None:
    offered = set(ask.tools)
    if ask.schema is not None and not offered:
        return None
    possible = []
    for said in script.turns:
        answer = Answer(said) if isinstance(said, str) else said
        calls = tuple(call for call in answer.tool_calls if call.name in offered)
        if calls or not answer.tool_calls:
            possible.append(replace(answer, tool_calls=calls))
    return possible[min(len(ask.tool_rounds), len(possible) - 1)] if possible else None


def _found(pattern: str, ask: Ask) -> str:
    results = [result for results in reversed(ask.tool_rounds) for result in results]
    for text in results or [ask.prompt]:
        match = re.search(pattern, text)
        if match is not None:
            return str(match[0] if not match.re.groups or match[1] is None else match[1])
    return "nothing"


def _filled(answer: Answer, found: str) -> Answer:
    calls = tuple(replace(call, arguments=_put(call.arguments, found)) for call in answer.tool_calls)
    return replace(answer, text=answer.text.replace(_FOUND, found), tool_calls=calls)


def _put(value: Any, found: str) -> Any:
    if isinstance(value, str):
        return value.replace(_FOUND, found)
    if isinstance(value, Mapping):
        return {name: _put(inner, found) for name, inner in value.items()}
    return [_put(inner, found) for inner in value] if isinstance(value, list) else value


def read_script(value: Any) -> Script | None:
    """A script from JSON or YAML: a list, a mapping by a text in the prompt, or `turns` for all requests."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        if isinstance(value.get("turns"), list):
            return _read_turns(value, "answers")
        return {str(text): _read_said(said, f"answers[{text!r}]") for text, said in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_read_said(said, f"answers[{place}]") for place, said in enumerate(value)]
    raise OptionError(f"answers is {value!r}; it must be a list, or a mapping from a text in the prompt")


def _read_said(value: Any, name: str) -> Said | Turns:
    if isinstance(value, Mapping) and "turns" in value:
        return _read_turns(value, name)
    return _read_answer(value, name)


def _read_turns(value: Mapping[str, Any], name: str) -> Turns:
    turns = value["turns"]
    if len(value) > 1 or not isinstance(turns, list) or not turns:
        raise OptionError(
            f"{name} is {dict(value)!r}; turns must be a list of answers, with nothing beside it"
        )
    return Turns(tuple(_read_answer(said, f"{name}.turns[{place}]") for place, said in enumerate(turns)))


def _read_answer(value: Any, name: str) -> Said:
    if isinstance(value, str | Answer):
        return value
    known = {"text", "tool_calls", "output_tokens", "find", "reasoning"}
    if not isinstance(value, Mapping) or not known.issuperset(value):
        raise OptionError(
            f"{name} is {value!r}; it must be a text or have some of {', '.join(sorted(known))}"
        )
    try:
        calls = tuple(_read_call(call) for call in value.get("tool_calls", ()))
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(
            f"{name}.tool_calls: each needs a name and an object of arguments, or a text that is no JSON"
        ) from error
    tokens = value.get("output_tokens")
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise OptionError(f"{name}.output_tokens is {tokens!r}; it must be an integer of at least 0")
    pattern = value.get("find")
    if pattern is not None and not isinstance(pattern, str):
        raise OptionError(f"{name}.find is {pattern!r}; it must be a pattern, as text")
    return Answer(str(value.get("text", "")), calls, tokens, pattern, str(value.get("reasoning", "")))


def _read_call(value: Any) -> ToolCall:
    arguments = value["arguments"]
    return ToolCall(str(value["name"]), arguments if isinstance(arguments, str) else dict(arguments))
