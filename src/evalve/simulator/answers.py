"""What the simulated model says: scripted, conforming to a schema, or a short text made from the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalve.errors import OptionError
from evalve.simulator.asks import Ask
from evalve.simulator.conforming import conforming
from evalve.simulator.draws import Draw, OutputLength
from evalve.simulator.tokens import BYTES_PER_TOKEN, count_text, text_bytes

Stop = Literal["end", "length", "tool"]
_FILLER = " and so on, word after word, as a model does when it is asked for more" * 64


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model calls."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says; `output_tokens` is counted from it unless given."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """An answer as it is sent: cut at the request's maximum, counted, with the reason why it ended."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    tokens: int
    stop: Stop


Said = str | Answer
Script = Callable[[Ask], Said | None] | Sequence[Said] | Mapping[str, Said]
"""A function of the request (None: the default answer); a list, the first for the first admitted request and
the last again for those beyond it; or a mapping by a text in the prompt, the first that occurs."""


def output_for(ask: Ask, *, script: Script | None, length: OutputLength, ordinal: int, draw: Draw) -> Output:
    """The answer to the request admitted as number `ordinal`, counted from 0."""
    said = _scripted(script, ask, ordinal)
    if said is None:
        said = _unscripted(ask, length, draw)
    answer = Answer(said) if isinstance(said, str) else said
    return _sent(answer, ask.max_tokens)


def _scripted(script: Script | None, ask: Ask, ordinal: int) -> Said | None:
    if script is None:
        return None
    if isinstance(script, Mapping):
        prompt = ask.prompt
        return next((said for text, said in script.items() if text in prompt), None)
    if callable(script):
        return script(ask)
    return script[min(ordinal, len(script) - 1)] if script else None


def _unscripted(ask: Ask, length: OutputLength, draw: Draw) -> Answer:
    if ask.forced_tool is not None:
        arguments = conforming(ask.forced_tool.schema, draw.of_content("schema"))
        return Answer(tool_calls=(ToolCall(ask.forced_tool.name, arguments),))
    if ask.schema is not None:
        return Answer(json.dumps(conforming(ask.schema, draw.of_content("schema"))))
    text = f"Answer {ask.digest:016x}."
    tokens = length.tokens_for(ask.max_tokens, draw)
    if tokens is None:
        return Answer(text)
    if ask.max_tokens is not None:
        tokens = min(tokens, ask.max_tokens + 1)  # one more shows that it was cut
    size_bytes = tokens * BYTES_PER_TOKEN
    repeats = max(0, size_bytes - len(text)) // len(_FILLER) + 1
    return Answer((text + _FILLER * repeats)[:size_bytes], output_tokens=tokens)


def _sent(answer: Answer, max_tokens: int | None) -> Output:
    text, tokens = answer.text, answer.output_tokens
    if tokens is None:
        tokens = max(1, count_text(text) + sum(_count_call(call) for call in answer.tool_calls))
    if max_tokens is not None and tokens > max_tokens and not answer.tool_calls:
        if text_bytes(text) > max_tokens * BYTES_PER_TOKEN:
            text = text.encode()[: max_tokens * BYTES_PER_TOKEN].decode(errors="ignore")
        return Output(text, (), max_tokens, "length")
    return Output(text, answer.tool_calls, tokens, "tool" if answer.tool_calls else "end")


def _count_call(call: ToolCall) -> int:
    return count_text(call.name + json.dumps(dict(call.arguments)))


def read_script(value: Any) -> Script | None:
    """A script from JSON or YAML: a list, or a mapping by a text in the prompt."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(text): _read_said(said, f"answers[{text!r}]") for text, said in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_read_said(said, f"answers[{place}]") for place, said in enumerate(value)]
    raise OptionError(f"answers is {value!r}; it must be a list, or a mapping from a text in the prompt")


def _read_said(value: Any, name: str) -> Said:
    if isinstance(value, str | Answer):
        return value
    known = {"text", "tool_calls", "output_tokens"}
    if not isinstance(value, Mapping) or not known.issuperset(value):
        raise OptionError(
            f"{name} is {value!r}; it must be a text or have some of {', '.join(sorted(known))}"
        )
    try:
        calls = tuple(ToolCall(str(c["name"]), dict(c["arguments"])) for c in value.get("tool_calls", ()))
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{name}.tool_calls: each needs a name and an object of arguments") from error
    tokens = value.get("output_tokens")
    if tokens is not None and (not isinstance(tokens, int) or tokens < 0):
        raise OptionError(f"{name}.output_tokens is {tokens!r}; it must be an integer of at least 0")
    return Answer(str(value.get("text", "")), calls, tokens)
