"""The trace of a sample as lines."""

from __future__ import annotations

import json
from typing import Any

from evalve.show.sample.timeline import timeline

STARTED_AT = "2026-11-03T14:02:00+00:00"


def event(kind: str, **data: Any) -> dict[str, Any]:
    """Half a second after the start."""
    return {"kind": kind, "at": "2026-11-03T14:02:00.500+00:00", **data}


def call(*messages: tuple[str, str], answer: Any = None, **said: Any) -> dict[str, Any]:
    request = {
        "model": "claude-x",
        "max_tokens": 10,
        "messages": [{"role": role, "content": content} for role, content in messages],
    }
    return event(
        "call",
        **{
            "provider": "anthropic",
            "model": "claude-x",
            "endpoint": "/v1/messages",
            "request": json.dumps(request),
            "answer": json.dumps({"content": [{"type": "text", "text": answer}]}) if answer else None,
            "status": 200,
            "problem": None,
            "cached": False,
            "streamed": False,
            "tries": 1,
            "wall_s": 0.42,
            "usage": {"input_tokens": 1200, "cache_read_tokens": 34, "output_tokens": 5},
            "cost_usd": 0.00123,
            **said,
        },
    )


def shown(*events: dict[str, Any], full: bool = False) -> list[str]:
    return list(timeline(events, started_at=STARTED_AT, full=full))


def test_a_call_shows_what_it_came_to_then_what_was_asked_and_answered() -> None:
    assert shown(call(("user", "2 + 2?"), answer="four\nof course")) == [
        "+0.50 s  call  anthropic/claude-x · 200 · 1,234 + 5 tokens · 0.0012 USD · 0.42 s",
        "    user: 2 + 2?",
        "    with: max_tokens=10",
        "    answer:",
        "      four",
        "      of course",
    ]


def test_a_call_that_went_wrong_shows_why() -> None:
    lines = shown(
        call(status=None, problem="no connection", tries=3, usage=None, cost_usd=None, cached=True),
    )

    assert lines[0] == "+0.50 s  call  anthropic/claude-x · no connection · cached · 3 tries · 0.42 s"


def test_what_the_call_before_had_said_is_not_shown_again_unless_in_full() -> None:
    first = call(("user", "2 + 2?"), answer="four")
    second = call(("user", "2 + 2?"), ("assistant", "four"), ("user", "sure?"), answer="yes")

    assert shown(first, second)[5:] == [
        "    … 1 message as in the call before",
        "    assistant: four",
        "    user: sure?",
        "    answer: yes",
    ]
    assert shown(first, second, full=True)[5:] == [
        "    user: 2 + 2?",
        "    assistant: four",
        "    user: sure?",
        "    with: max_tokens=10",
        "    answer: yes",
    ]


def test_of_tools_only_their_names_are_shown() -> None:
    request = {"tools": [{"name": "search", "input_schema": {}}, {"name": "open", "input_schema": {}}]}

    assert shown(call(request=json.dumps(request)))[1] == "    with: tools=[search, open]"


def test_notes_turns_and_tool_calls_are_lines_of_their_own() -> None:
    lines = shown(
        event("note", text="looked it up"),
        event("turn", role="user", content="and now?"),
        event("turn", role="user", content="one\ntwo"),
        event("tool_call", name="search", arguments={"q": "x"}, result="found"),
    )

    assert lines == [
        "+0.50 s  note  looked it up",
        "+0.50 s  turn  user: and now?",
        "+0.50 s  turn  user:",
        "    one",
        "    two",
        "+0.50 s  tool_call  search",
        '    arguments: {"q": "x"}',
        "    result: found",
    ]


def test_files_show_size_and_hash_or_why_they_were_not_kept() -> None:
    lines = shown(
        event("file", name="plan.md", size_bytes=12_345, hash="0123456789abcdef"),
        event("file", name="core", problem="not kept: 20,000,000 bytes are more than 10 MB (/tmp/core)"),
    )

    assert lines == [
        "+0.50 s  file  plan.md · 12.3 kB · 0123456789ab",
        "+0.50 s  file  core · not kept: 20,000,000 bytes are more than 10 MB (/tmp/core)",
    ]


def test_an_event_of_ones_own_kind_shows_all_that_it_has() -> None:
    assert shown(event("plan", steps=["a", "b"], reason="why not")) == [
        "+0.50 s  plan",
        '    steps: ["a", "b"]',
        "    reason: why not",
    ]


def test_an_event_of_ones_own_that_is_named_like_ours_is_shown_like_any_other() -> None:
    assert shown(event("call", to="home"), event("file", path="x")) == [
        "+0.50 s  call",
        "    to: home",
        "+0.50 s  file",
        "    path: x",
    ]


def test_long_texts_are_shortened_unless_in_full() -> None:
    long = event("note", text="a" * 1000)
    many = event("note", text="\n".join(f"line {number}" for number in range(12)))

    assert shown(long)[1:] == ["    " + "a" * 800, "    … 200 more characters: --full shows all"]
    assert shown(many)[-2:] == ["    line 9", "    … 16 more characters: --full shows all"]
    assert shown(long, full=True) == ["+0.50 s  note  " + "a" * 1000]
    assert shown(many, full=True)[-1] == "    line 11"


def test_what_a_model_said_cannot_drive_the_terminal() -> None:
    lines = shown(
        event("note", text="\x1b[31mred"),
        event("\x1b[2J", **{"\x1b": "\x1b"}),
        event("turn", role="\x1b", content="\u202e"),
        event("file", name="\x1b", hash="\x1b", size_bytes=1),
        call(("\x1b", "\x1b"), answer="\x1b", model="\x1b", problem="\x1b"),
    )

    assert "\x1b" not in "".join(lines)
    assert "\u202e" not in "".join(lines)


def test_events_that_were_left_out_are_told() -> None:
    text = "3 more events were left out: a trace has at most 256 kB"

    assert shown(event("left_out", events=3, text=text)) == [f"+0.50 s  left_out  {text}"]
