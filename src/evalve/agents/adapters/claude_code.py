"""Claude Code: `claude -p`, read as stream-json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalve.agents.readers import cost_of, count, json_object
from evalve.agents.spec import AgentSpec, Ending, Event, Fault, Reading, Usage
from evalve.agents.verdict import of_error, of_status


class ClaudeReader:
    """Messages become turns and tool calls; the result event says how it ended."""

    def __init__(self) -> None:
        self._result: dict[str, Any] | None = None
        self._model: str | None = None
        self._calls: dict[str, Event] = {}

    def line(self, text: str) -> Iterable[Event]:
        event = json_object(text)
        if event is None:
            return
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._model = event.get("model")
            case "assistant" | "user":
                yield from self._message(event.get("message"))
            case "result":
                self._result = event

    def _message(self, message: Any) -> Iterable[Event]:
        content = message.get("content") if isinstance(message, dict) else None
        blocks = content if isinstance(content, list) else []
        for block in (each for each in blocks if isinstance(each, dict)):
            match block.get("type"):
                case "text":
                    yield Event(
                        "turn", {"role": message.get("role", "assistant"), "content": block.get("text")}
                    )
                case "tool_use":
                    arguments = {"name": block.get("name"), "arguments": block.get("input")}
                    self._calls[str(block.get("id"))] = Event("tool_call", arguments)
                case "tool_result":
                    call = self._calls.pop(str(block.get("tool_use_id")), Event("tool_call", {"name": "?"}))
                    failed = {"is_error": True} if block.get("is_error") else {}
                    yield Event("tool_call", {**call.data, "result": block.get("content"), **failed})

    def reading(self) -> Reading:
        result = self._result
        if result is None:
            return Reading(has_ended=False, model=self._model)
        return Reading(
            answer=str(result.get("result") or ""),
            turns=count(result.get("num_turns")),
            usage=_usage(result.get("usage")),
            cost_usd=cost_of(result.get("total_cost_usd")),
            model=self._model,
            fault=_fault(result),
        )


def _usage(said: Any) -> Usage | None:
    if not isinstance(said, dict):
        return None
    return Usage(
        input_tokens=count(said.get("input_tokens")),
        output_tokens=count(said.get("output_tokens")),
        cache_read_tokens=count(said.get("cache_read_input_tokens")),
        cache_write_tokens=count(said.get("cache_creation_input_tokens")),
    )


def _fault(result: dict[str, Any]) -> Fault | None:
    """An API error comes as a `success` whose text is the error, with `is_error` beside it."""
    text = str(result.get("result") or "; ".join(map(str, result.get("errors") or ())) or "no text")
    status = result.get("api_error_status")
    if isinstance(status, int):
        return Fault(of_status(status), f"API error {status}: {text}")
    subtype = result.get("subtype")
    if subtype not in (None, "success"):
        return Fault(
            "agent", f"it stopped with {subtype} after {count(result.get('num_turns'))} turns: {text}"
        )
    if result.get("is_error") or text.startswith("API Error"):
        return Fault(of_error(text), f"it reports an error: {text}")
    return None


def _verdict(reading: Reading, ending: Ending, stderr: str) -> Fault | None:
    if reading.has_ended and reading.turns == 0:
        return Fault("agent", "it ended without a single turn")
    return None


SPEC = AgentSpec(
    name="claude-code",
    command=(
        "claude",
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        ("--model", "{model}"),
        "--permission-mode",
        "bypassPermissions",
        "--strict-mcp-config",
        "{arguments}",
        "--",
        "{prompt}",
    ),
    reader=ClaudeReader,
    verdict=_verdict,
    environment={
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # or it refuses to work without asking where the user is root
    },
    allowed=(
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_SUBAGENT_MODEL",
        "MAX_THINKING_TOKENS",
    ),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
    home_variable="CLAUDE_CONFIG_DIR",
    home_folder=".claude",
    gateway_environment={"ANTHROPIC_BASE_URL": "{base_url}", "ANTHROPIC_API_KEY": "{token}"},
    upstream="anthropic",
    version_command=("claude", "--version"),
    recommended_concurrency=5,
    startup_s=180.0,
    grace_s=10.0,
    install="npm install -g @anthropic-ai/claude-code",
)
