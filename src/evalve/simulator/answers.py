"""What the simulated model says: scripted, conforming to a schema, or a short text made from the request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from evalve.simulator.asks import Ask
from evalve.simulator.conforming import conforming
from evalve.simulator.draws import Draw, OutputLength
from evalve.simulator.scripts import Answer, Script, ToolCall, scripted
from evalve.simulator.tokens import BYTES_PER_TOKEN, count_text, text_bytes

Stop = Literal["end", "length", "tool"]
_FILLER = " and so on, word after word, as a model does when it is asked for more" * 64


@dataclass(frozen=True, slots=True)
class Output:
    """An answer as it is sent: cut at the request's maximum, counted, with the reason why it ended."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    tokens: int
    stop: Stop
    reasoning: str = ""

    @property
    def reasoning_tokens(self) -> int:
        """Those of all tokens that went into thinking."""
        return min(self.tokens, count_text(self.reasoning))


def output_for(ask: Ask, *, script: Script | None, length: OutputLength, ordinal: int, draw: Draw) -> Output:
    """The answer to the request admitted as number `ordinal`, counted from 0."""
    answer = scripted(script, ask, ordinal)
    if answer is None:
        answer = _unscripted(ask, length, draw)
    return _sent(answer, ask)


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


def _sent(answer: Answer, ask: Ask) -> Output:
    text, tokens, max_tokens = answer.text, answer.output_tokens, ask.max_tokens
    reasoning = answer.reasoning if ask.thinks else ""
    if tokens is None:
        calls = sum(_count_call(call) for call in answer.tool_calls)
        tokens = max(1, count_text(text) + calls + count_text(reasoning))
    if max_tokens is not None and tokens > max_tokens and not answer.tool_calls:
        room = max(0, max_tokens - count_text(reasoning)) * BYTES_PER_TOKEN
        if text_bytes(text) > room:
            text = text.encode()[:room].decode(errors="ignore")
        return Output(text, (), max_tokens, "length", reasoning)
    return Output(text, answer.tool_calls, tokens, "tool" if answer.tool_calls else "end", reasoning)


def _count_call(call: ToolCall) -> int:
    return count_text(call.name + call.text)
