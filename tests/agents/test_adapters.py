"""What the real programs print, shortened, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from evalve.agents.adapters import claude_code, codex, gemini_cli
from evalve.agents.spec import AgentSpec, Ending, Event, Fault, Reading, Usage
from evalve.agents.verdict import fault_of
from evalve.evaluators.tools import tool_calls

WELL = Ending(exit_code=0)


def read(spec: AgentSpec, lines: Iterable[dict[str, Any] | str]) -> tuple[Reading, list[Event]]:
    reader = spec.reader()
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    events = [event for text in texts for event in reader.line(text)]
    return reader.reading(), events


def judged(
    spec: AgentSpec, lines: Iterable[dict[str, Any] | str], ending: Ending = WELL, stderr: str = ""
) -> Fault | None:
    return fault_of(spec, read(spec, lines)[0], ending, stderr, limits_s={})


RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "num_turns": 2,
    "result": "144",
    "total_cost_usd": 0.0123,
    "usage": {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
    },
    "api_error_status": None,
}
CLAUDE: list[dict[str, Any] | str] = [
    {"type": "system", "subtype": "init", "model": "claude-sonnet-5", "tools": ["Read"]},
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "/w/context.md"}}
            ],
        },
    },
    {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "12 × 12"}],
        },
    },
    {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "144"}]}},
]


def test_claude_code_is_read_with_usage_cost_and_turns() -> None:
    reading, events = read(claude_code.SPEC, [*CLAUDE, RESULT])
    assert reading == Reading(
        answer="144",
        turns=2,
        usage=Usage(input_tokens=10, output_tokens=5, cache_read_tokens=100, cache_write_tokens=20),
        cost_usd=0.0123,
        model="claude-sonnet-5",
    )
    called = {"name": "Read", "arguments": {"file_path": "/w/context.md"}, "result": "12 × 12"}
    assert events == [Event("tool_call", called), Event("turn", {"role": "assistant", "content": "144"})]


@pytest.mark.parametrize(
    ("changed", "ending", "failure_class"),
    [
        ({}, WELL, None),
        ({"is_error": True, "result": "API Error: 529 overloaded"}, WELL, "provider"),
        ({"result": "API Error: Request rejected (429) rate limit"}, WELL, "provider"),
        ({"is_error": True, "api_error_status": 429, "result": "slow down"}, WELL, "provider"),
        ({"is_error": True, "api_error_status": 500}, WELL, "provider"),
        ({"is_error": True, "api_error_status": 401, "result": "invalid key"}, WELL, "code"),
        ({"is_error": True, "result": "Invalid API key · Please run /login"}, Ending(exit_code=1), "code"),
        ({"is_error": True, "result": "it went wrong"}, WELL, "agent"),
        ({"subtype": "error_max_turns", "result": None}, Ending(exit_code=1), "agent"),
        ({"subtype": "error_during_execution"}, WELL, "agent"),
        ({"num_turns": 0}, WELL, "agent"),
        ({"result": ""}, WELL, "agent"),
        ({"result": " \n"}, WELL, "agent"),
        ({}, Ending(exit_code=1), "agent"),
        ({}, Ending(exit_code=143, by="total"), "timeout"),
        ({}, Ending(exit_code=143, by="startup"), "timeout"),
        ({}, Ending(exit_code=143, by="silence"), "timeout"),
        ({}, Ending(exit_code=-9), "infrastructure"),
        ({}, Ending(exit_code=-11), "agent"),
        ({}, Ending(exit_code=-9, by="memory"), "agent"),
    ],
)
def test_claude_code_has_an_answer_only_where_every_sign_is_good(
    changed: dict[str, Any], ending: Ending, failure_class: str | None
) -> None:
    fault = judged(claude_code.SPEC, [*CLAUDE, {**RESULT, **changed}], ending)
    assert (None if fault is None else fault.failure_class) == failure_class


def test_claude_code_without_its_result_event_has_not_ended() -> None:
    fault = judged(claude_code.SPEC, CLAUDE)
    assert fault == Fault("agent", "claude-code ended without its last event")


CODEX: list[dict[str, Any] | str] = [
    "Reading additional input from stdin...",
    {"type": "thread.started", "thread_id": "x"},
    {"type": "turn.started"},
    {"type": "item.started", "item": {"id": "1", "type": "command_execution", "command": "cat context.md"}},
    {
        "type": "item.completed",
        "item": {
            "id": "1",
            "type": "command_execution",
            "command": "cat context.md",
            "aggregated_output": "12 × 12",
            "exit_code": 0,
            "status": "completed",
        },
    },
    {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "144"}},
]
CODEX_END = {
    "type": "turn.completed",
    "usage": {"input_tokens": 110, "cached_input_tokens": 100, "output_tokens": 5},
}


def test_codex_is_read_with_the_usage_of_its_thread() -> None:
    early = {"type": "turn.completed", "usage": {"input_tokens": 50, "output_tokens": 1}}
    reading, events = read(codex.SPEC, [*CODEX, early, CODEX_END])
    assert reading == Reading(
        answer="144", turns=2, usage=Usage(input_tokens=10, output_tokens=5, cache_read_tokens=100)
    )
    assert [event.kind for event in events] == ["tool_call", "turn"]
    assert judged(codex.SPEC, [*CODEX, CODEX_END]) is None


@pytest.mark.parametrize(
    ("spec", "name"), [(claude_code.SPEC, "CLAUDE"), (codex.SPEC, "CODEX"), (gemini_cli.SPEC, "GEMINI")]
)
def test_evaluators_read_the_same_calls_from_a_transcript(spec: AgentSpec, name: str) -> None:
    lines = globals()[name]
    _, events = read(spec, lines)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    in_trace = [(one.data["name"], one.data["arguments"]) for one in events if one.kind == "tool_call"]
    assert [(call.name, call.arguments) for call in tool_calls(text)] == in_trace
    assert in_trace


def test_codex_calls_tools_of_mcp_by_their_names_and_arguments() -> None:
    item: dict[str, Any] = {
        "id": "3",
        "type": "mcp_tool_call",
        "server": "web",
        "tool": "search",
        "arguments": {"query": "cats"},
        "result": {"content": []},
        "error": None,
        "status": "completed",
    }
    _, events = read(codex.SPEC, [{"type": "item.completed", "item": item}])
    assert [event.data for event in events] == [
        {
            "name": "search",
            "arguments": {"query": "cats"},
            "server": "web",
            "result": {"content": []},
        }
    ]


@pytest.mark.parametrize(
    ("end", "failure_class"),
    [
        (
            {"type": "turn.failed", "error": {"message": "exceeded retry limit, last status: 429 Too Many"}},
            "provider",
        ),
        (
            {"type": "turn.failed", "error": {"message": "unexpected status 503 Service Unavailable"}},
            "provider",
        ),
        (
            {"type": "turn.failed", "error": {"message": "unexpected status 401 Unauthorized: wrong key"}},
            "code",
        ),
        ({"type": "turn.failed", "error": {"message": "Quota exceeded. Check your plan."}}, "provider"),
        ({"type": "turn.failed", "error": {"message": "the tool broke"}}, "agent"),
        ({"type": "error", "message": "stream error"}, "agent"),
    ],
)
def test_codex_says_that_its_turn_failed(end: dict[str, Any], failure_class: str) -> None:
    fault = judged(codex.SPEC, [*CODEX, end], Ending(exit_code=1))
    assert fault is not None
    assert fault.failure_class == failure_class


def test_codex_went_on_after_an_error_that_it_retried() -> None:
    retried = {"type": "error", "message": "Reconnecting... 1/5 (429)"}
    assert judged(codex.SPEC, [retried, *CODEX, CODEX_END]) is None


GEMINI: list[dict[str, Any] | str] = [
    "Loaded cached credentials.",
    {"type": "init", "session_id": "x", "model": "gemini-3-pro"},
    {"type": "message", "role": "user", "content": "What?"},
    {"type": "message", "role": "assistant", "content": "I look.", "delta": True},
    {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {"path": "context.md"}},
    {"type": "tool_result", "tool_id": "1", "status": "success", "output": "12 × 12"},
    {"type": "message", "role": "assistant", "content": "14", "delta": True},
    {"type": "message", "role": "assistant", "content": "4", "delta": True},
]
GEMINI_END = {
    "type": "result",
    "status": "success",
    "stats": {"input_tokens": 110, "cached": 100, "output_tokens": 5, "tool_calls": 1},
}


def test_gemini_answers_with_what_it_says_last() -> None:
    reading, events = read(gemini_cli.SPEC, [*GEMINI, GEMINI_END])
    assert reading == Reading(
        answer="144",
        turns=3,
        usage=Usage(input_tokens=10, output_tokens=5, cache_read_tokens=100),
        model="gemini-3-pro",
    )
    assert [event.kind for event in events] == ["turn", "tool_call", "turn"]
    assert judged(gemini_cli.SPEC, [*GEMINI, GEMINI_END]) is None


@pytest.mark.parametrize(
    ("lines", "exit_code", "failure_class"),
    [
        ([], 41, "code"),
        ([], 55, "code"),
        (GEMINI, 53, "agent"),
        (GEMINI, 0, "agent"),
        ([*GEMINI, {"type": "error", "severity": "error", "message": "quota exceeded"}], 1, "provider"),
        (
            [*GEMINI, {**GEMINI_END, "status": "error", "error": {"message": "503 Service Unavailable"}}],
            0,
            "provider",
        ),
    ],
)
def test_gemini_fails_as_its_exit_code_and_events_say(
    lines: list[dict[str, Any] | str], exit_code: int, failure_class: str
) -> None:
    fault = judged(gemini_cli.SPEC, lines, Ending(exit_code=exit_code))
    assert fault is not None
    assert fault.failure_class == failure_class


def test_gemini_was_refused_for_its_key() -> None:
    said = '[API Error: {"error":{"code":400,"message":"API key not valid."}}]'
    fault = judged(gemini_cli.SPEC, [{**GEMINI_END, "status": "error", "error": {"message": said}}])
    assert fault == Fault("code", f"gemini-cli: it reports an error: {said}")


def test_each_carries_the_concurrency_that_is_recommended_for_it() -> None:
    specs = (claude_code.SPEC, codex.SPEC, gemini_cli.SPEC)
    assert [spec.recommended_concurrency for spec in specs] == [5, 5, 10]
