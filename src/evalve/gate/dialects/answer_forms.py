"""What has the form of an answer, by endpoint, whole or streamed, and where a stream begins to be one.

A 200 that is whole but has another form is nothing that anybody could read: it is asked for once more and
never kept. Where no form is known (embeddings, say), any JSON is an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evalve.gate.dialects.answer_parts import body_text, broken, read_json, safe_text
from evalve.gate.messages import Call, Problem, Reply


def misfit(call: Call | None, reply: Reply, parsed: Any) -> Problem | None:
    """What is wrong with the form of an answer that came at once."""
    form = _form_of(call)
    return None if call is None or form is None or form.is_whole(parsed) else _misfit(call, form, reply)


def misfit_of_stream(call: Call | None, reply: Reply, events: Iterable[Any]) -> Problem | None:
    """The same of a stream that has its end. Its events may be given the last first, and lazily."""
    form = _form_of(call)
    if call is None:
        return None
    if form is None:
        return no_answer(call.provider, "is a stream that nobody asked for", reply)
    fits = call.streams and any(form.is_essential(event) for event in events)
    return None if fits else _misfit(call, form, reply)


def unreadable(who: str, call: Call | None, reply: Reply) -> Problem:
    """What is wrong with a body that is no JSON: it broke off, or is something else, such as a page."""
    if _is_too_deep(reply.body):
        said = f"{who} answered {reply.status}, but its JSON is nested too deeply to be read"
        return Problem("unreadable", said, status=reply.status)
    start = reply.body.lstrip()[:1]
    if start in (b"", b"{", b"["):
        return broken(reply, f"its {len(reply.body)} bytes are not whole JSON")
    form = _form_of(call)
    return no_answer(who, "does not have the form of " + form.name if form else "is no JSON", reply)


def begins(call: Call, data: bytes) -> bool:
    """Whether an event has a piece of the answer in it; one that cannot be read is not held back."""
    form = _form_of(call)
    if data.strip() == b"[DONE]":
        return False
    try:
        event = read_json(data)
    except (ValueError, RecursionError):
        return True
    return not isinstance(event, dict) or form is None or not form.is_prelude(event)


def ends(data: bytes) -> bool:
    """Whether nothing of an answer follows an event: it is the last, or an error."""
    if data.strip() == b"[DONE]":
        return True
    if not any(
        mark in data for mark in _END_MARKS
    ):  # most events are pieces, and need not be parsed for this
        return False
    try:
        event = read_json(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and bool(event.get("type") in _ENDS or event.get("error"))


_ENDS = ("message_stop", "response.completed", "response.incomplete", "response.failed", "error")
_END_MARKS = tuple(name.encode() for name in _ENDS)


def _form_of(call: Call | None) -> _Form | None:
    return _FORMS.get(call.endpoint) if call is not None else None


def _misfit(call: Call, form: _Form, reply: Reply) -> Problem:
    return no_answer(call.provider, f"does not have the form of {form.name}", reply)


def _is_too_deep(body: bytes) -> bool:
    """It would be so in every repeat."""
    try:
        read_json(body)
    except RecursionError:
        return True
    except ValueError:
        pass
    return False


def no_answer(who: str, why: str, reply: Reply) -> Problem:
    """For a 2xx that nobody could read as an answer."""
    said = f"{who} answered {reply.status}, but what came {why}: {body_text(reply.body)}"
    return Problem("no_answer", safe_text(said), status=reply.status)


@dataclass(frozen=True, slots=True)
class _Form:
    name: str
    is_whole: Callable[[Any], bool]
    is_essential: Callable[[Any], bool]
    """An event without which a stream says nothing."""
    is_prelude: Callable[[Mapping[str, Any]], bool]
    """An event before the first piece of the answer, or an error in its place."""


# -- Anthropic's Messages


def is_message(parsed: Any) -> bool:
    """It may be without any block."""
    content = parsed.get("content") if isinstance(parsed, dict) else None
    return isinstance(content, list) and all(_is_block(block) for block in content)


def _is_block(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return isinstance(block.get("text"), str)
    if kind == "tool_use":
        return isinstance(block.get("name"), str) and "input" in block
    return isinstance(kind, str)


def _frames_message(event: Any) -> bool:
    return isinstance(event, dict) and event.get("type") in ("message_start", "message_delta")


def _precedes_blocks(event: Mapping[str, Any]) -> bool:
    return event.get("type") in ("message_start", "content_block_start", "ping", "error")


# -- OpenAI's Chat Completions, Completions and Responses


def _is_chat_completion(parsed: Any) -> bool:
    """Its message may be empty, or all tool calls."""
    message = _first_choice(parsed).get("message")
    if not isinstance(message, dict) or not _is_content(message.get("content")):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(_is_tool_call(call) for call in calls)


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) for part in content)
    return content is None or isinstance(content, str)


def _is_tool_call(call: Any) -> bool:
    function = call.get("function", {"name": ""}) if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _is_completion(parsed: Any) -> bool:
    return isinstance(_first_choice(parsed).get("text"), str)


def _has_choice(event: Any) -> bool:
    return bool(_first_choice(event))


def _first_choice(parsed: Any) -> Mapping[str, Any]:
    choices = parsed.get("choices") if isinstance(parsed, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _precedes_text(event: Mapping[str, Any]) -> bool:
    """The first chunk may have but a role in it; some, and errors, have no choices."""
    choices = event.get("choices")
    return not isinstance(choices, list) or not any(_has_piece(choice) for choice in choices)


def _has_piece(choice: Any) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("text"):
        return isinstance(choice, dict)
    delta = choice.get("delta")
    return isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")


def _is_response(parsed: Any) -> bool:
    return isinstance(parsed, dict) and isinstance(parsed.get("output"), list)


def _has_response(event: Any) -> bool:
    return isinstance(event, dict) and _is_response(event.get("response"))


_BEFORE_OUTPUT = frozenset(
    {
        "error",
        "response.content_part.added",
        "response.created",
        "response.failed",
        "response.in_progress",
        "response.output_item.added",
        "response.queued",
    }
)


def _precedes_output(event: Mapping[str, Any]) -> bool:
    return event.get("type") in _BEFORE_OUTPUT


_FORMS = {
    "messages": _Form("a message", is_message, _frames_message, _precedes_blocks),
    "chat/completions": _Form("a chat completion", _is_chat_completion, _has_choice, _precedes_text),
    "completions": _Form("a completion", _is_completion, _has_choice, _precedes_text),
    "responses": _Form("a response", _is_response, _has_response, _precedes_output),
}
