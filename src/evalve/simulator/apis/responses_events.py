"""A response of OpenAI's Responses API as the events of a stream, numbered in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evalve.simulator.apis.wire import Events, encoded, pieces_of
from evalve.simulator.tokens import BYTES_PER_TOKEN


def events_of(empty: Mapping[str, Any], whole: Mapping[str, Any], chunk_tokens: int) -> Events:
    """From a response that has said nothing yet to the whole one."""
    opening = [
        {"type": "response.created", "response": empty},
        {"type": "response.in_progress", "response": empty},
    ]
    inner = [
        event
        for index, item in enumerate(whole["output"])
        for event in _item_events(index, item, chunk_tokens * BYTES_PER_TOKEN)
    ]
    numbered = [
        named_event({**event, "sequence_number": number})
        for number, event in enumerate(
            [*opening, *inner, {"type": f"response.{whole['status']}", "response": whole}]
        )
    ]
    return Events(b"".join(numbered[:2]), numbered[2:-1], numbered[-1])


def named_event(data: Mapping[str, Any]) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + encoded(data) + b"\n\n"


def _item_events(index: int, item: Mapping[str, Any], characters: int) -> Iterator[dict[str, Any]]:
    begun = {**item, **_EMPTY[item["type"]]}
    if "status" in item:
        begun["status"] = "in_progress"
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        yield from _text_events(place, item["content"][0], characters)
    elif item["type"] == "reasoning":
        yield from _summary_events(place, item["summary"][0], characters)
    else:
        yield from _call_events(place, item, characters)
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


_EMPTY: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "custom_tool_call": {"input": ""},
}


def _text_events(
    place: Mapping[str, Any], content: Mapping[str, Any], characters: int
) -> Iterator[dict[str, Any]]:
    place = {**place, "content_index": 0}
    yield {"type": "response.content_part.added", **place, "part": {**content, "text": ""}}
    for piece in pieces_of(content["text"], characters):
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **place, "text": content["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": content}


def _summary_events(
    place: Mapping[str, Any], summary: Mapping[str, Any], characters: int
) -> Iterator[dict[str, Any]]:
    place = {**place, "summary_index": 0}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {**summary, "text": ""}}
    for piece in pieces_of(summary["text"], characters):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": summary["text"]}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": summary}


def _call_events(
    place: Mapping[str, Any], call: Mapping[str, Any], characters: int
) -> Iterator[dict[str, Any]]:
    is_custom = call["type"] == "custom_tool_call"
    kind, what = (
        ("custom_tool_call_input", "input") if is_custom else ("function_call_arguments", "arguments")
    )
    for piece in pieces_of(call[what], characters):
        yield {"type": f"response.{kind}.delta", **place, "delta": piece}
    named = {} if is_custom else {"name": call["name"]}
    yield {"type": f"response.{kind}.done", **place, **named, what: call[what]}
