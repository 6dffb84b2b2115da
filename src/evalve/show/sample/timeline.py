"""The trace of a sample as a timeline: when, what, and as much of it as fits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from evalve.show import figures
from evalve.show.sample.dialogue import Asked, answered, asked
from evalve.show.tables import block, visible

_LINES = 10
_CHARACTERS = 800
_INLINE = 100
_HASH_DIGITS = 12

Event = Mapping[str, Any]

_PARTS = {
    "agent": {"agent", "confinement", "ran_s"},
    "call": {"provider", "model", "request"},
    "file": {"name"},
    "left_out": {"text"},
    "note": {"text"},
    "tool_call": {"name"},
    "turn": {"role", "content"},
}
"""What an event of ours has at least."""


def timeline(events: Sequence[Event], *, started_at: str, full: bool, indent: str = "") -> Iterator[str]:
    """The lines of all events; of long texts the beginning, unless `full`."""
    return _Timeline(started_at, full=full, indent=indent).lines(events)


class _Timeline:
    def __init__(self, started_at: str, *, full: bool, indent: str) -> None:
        self._started_at = started_at
        self._full = full
        self._indent = indent
        self._inner = indent + "    "
        self._before = Asked()
        self._kinds: dict[str, Callable[[Event], Iterator[str]]] = {
            "agent": self._agent,
            "call": self._call,
            "file": self._file,
            "left_out": self._left_out,
            "note": self._note,
            "tool_call": self._tool_call,
            "turn": self._turn,
        }

    def lines(self, events: Sequence[Event]) -> Iterator[str]:
        for event in events:
            kind = str(event.get("kind", "?"))
            # a person's own event may have the same name and other parts
            ours = _PARTS.get(kind, set()) <= event.keys()
            shown = self._kinds.get(kind, self._other)(event) if ours else self._other(event)
            when = f"+{figures.duration(_seconds_between(self._started_at, event.get('at')))}"
            yield f"{self._indent}{when}  {visible(kind)}  {next(shown, '')}".rstrip()
            yield from shown

    # -- kinds: the rest of the first line, then further lines

    def _call(self, event: Event) -> Iterator[str]:
        yield visible(" · ".join(_call_parts(event)))
        request = asked(str(event["request"]))
        yield from self._asked(request)
        self._before = request
        if event.get("answer"):
            yield from self._text("answer", answered(str(event["answer"])))

    def _agent(self, event: Event) -> Iterator[str]:
        yield visible(figures.agent(event))
        if event.get("problem"):
            yield from self._text("problem", str(event["problem"]))

    def _asked(self, request: Asked) -> Iterator[str]:
        """A conversation grows from call to call: what the call before had said is not shown again."""
        before = Asked() if self._full else self._before
        repeated = len(before.messages)
        if repeated and request.messages[:repeated] == before.messages:
            yield f"{self._inner}… {figures.plural(repeated, 'message')} as in the call before"
        else:
            repeated = 0
        for who, said in request.messages[repeated:]:
            yield from self._text(who, said)
        shown = {key: value for key, value in request.parameters.items() if key != "model"}
        if shown and request.parameters != before.parameters:
            yield from self._text("with", ", ".join(f"{key}={_parameter(shown[key])}" for key in shown))

    def _tool_call(self, event: Event) -> Iterator[str]:
        yield visible(figures.text_of(event["name"]))
        yield from self._rest(event, besides=("name",))

    def _turn(self, event: Event) -> Iterator[str]:
        yield from self._headed(f"{figures.text_of(event['role'])}: ", event["content"])
        yield from self._rest(event, besides=("role", "content"))

    def _note(self, event: Event) -> Iterator[str]:
        yield from self._headed("", event["text"])
        yield from self._rest(event, besides=("text",))

    def _file(self, event: Event) -> Iterator[str]:
        parts = [figures.text_of(event["name"])]
        if isinstance(event.get("size_bytes"), int):
            parts.append(figures.size(event["size_bytes"]))
        if "hash" in event:
            content_hash = figures.text_of(event["hash"])
            parts.append(content_hash if self._full else content_hash[:_HASH_DIGITS])
        if "problem" in event:
            parts.append(figures.text_of(event["problem"]))
        yield visible(" · ".join(parts))
        yield from self._rest(event, besides=("name", "size_bytes", "hash", "problem"))

    def _left_out(self, event: Event) -> Iterator[str]:
        yield visible(figures.text_of(event["text"]))

    def _other(self, event: Event) -> Iterator[str]:
        yield ""
        yield from self._rest(event, besides=())

    # -- texts

    def _rest(self, event: Event, *, besides: Sequence[str]) -> Iterator[str]:
        for key, value in event.items():
            if key not in ("kind", "at", *besides):
                yield from self._text(key, value)

    def _headed(self, head: str, content: Any) -> Iterator[str]:
        """A text on the event's own line where it has one line, else below."""
        lines = self._lines(content)
        if len(lines) == 1:
            yield visible(head) + lines[0]
            return
        yield visible(head).rstrip()
        for line in lines:
            yield f"{self._inner}{line}"

    def _text(self, label: str, content: Any) -> Iterator[str]:
        lines = self._lines(content)
        if len(lines) == 1:
            yield f"{self._inner}{visible(label)}: {lines[0]}".rstrip()
            return
        yield f"{self._inner}{visible(label)}:"
        for line in lines:
            yield f"{self._inner}  {line}"

    def _lines(self, content: Any) -> list[str]:
        text = _as_text(content)
        kept = text if self._full else "\n".join(text[:_CHARACTERS].split("\n")[:_LINES])
        lines = block(kept, indent="")
        if missing := len(text) - len(kept):
            lines.append(f"… {missing:,} more characters: --full shows all")
        return lines


def _call_parts(event: Event) -> Iterator[str]:
    if event.get("role"):
        yield f"by the {event['role']}"
    yield f"{event.get('provider')}/{event.get('model')}"
    if event.get("status") is not None:
        yield str(event["status"])
    if event.get("problem"):
        yield str(event["problem"])
    if event.get("cached"):
        yield "cached"
    if event.get("streamed"):
        yield "streamed"
    tries = event.get("tries")
    if isinstance(tries, int) and tries > 1:
        yield f"{tries} tries"
    usage = event.get("usage")
    if isinstance(usage, dict) and usage:
        read = sum(usage.get(f"{kind}_tokens") or 0 for kind in ("input", "cache_read", "cache_write"))
        yield f"{read:,} + {usage.get('output_tokens') or 0:,} tokens"
    if isinstance(event.get("cost_usd"), int | float):
        yield f"{event['cost_usd']:.4f} USD"
    if isinstance(event.get("wall_s"), int | float):
        yield figures.duration(event["wall_s"])


def _parameter(value: Any) -> str:
    """Of tools their names: their schemas are long, and the same in every call."""
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        functions = [one["function"] if isinstance(one.get("function"), dict) else one for one in value]
        if functions and all("name" in one for one in functions):
            return "[" + ", ".join(str(one["name"]) for one in functions) + "]"
    return figures.text_of(value)


def _as_text(content: Any) -> str:
    text = figures.text_of(content)
    if isinstance(content, dict | list) and len(text) > _INLINE:
        return json.dumps(content, ensure_ascii=False, indent=2)
    return text


def _seconds_between(started_at: str, at: Any) -> float:
    try:
        passed = datetime.fromisoformat(str(at)) - datetime.fromisoformat(started_at)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, passed.total_seconds())
