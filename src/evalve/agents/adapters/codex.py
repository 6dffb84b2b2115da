"""Codex CLI: `codex exec --json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalve.agents.readers import count, json_object
from evalve.agents.spec import AgentSpec, Event, Fault, Reading, Usage
from evalve.agents.verdict import of_error


class CodexReader:
    """Items become turns and tool calls. Its usage is that of the whole thread, so the last one counts."""

    def __init__(self) -> None:
        self._answer = ""
        self._turns = 0
        self._usage: Usage | None = None
        self._has_ended = False
        self._error = ""

    def line(self, text: str) -> Iterable[Event]:
        event = json_object(text)
        if event is None:
            return
        match event.get("type"):
            case "turn.completed":
                self._has_ended, self._error = True, ""
                self._usage = _usage(event.get("usage")) or self._usage
            case "turn.failed":
                self._has_ended = True
                self._error = _message(event.get("error"))
            case "error":
                self._error = _message(event)
            case "item.completed":
                item = event.get("item")
                if isinstance(item, dict):
                    yield from self._item(item)

    def _item(self, item: dict[str, Any]) -> Iterable[Event]:
        match item.get("type") or item.get("item_type"):
            case "agent_message" | "assistant_message":
                self._answer = str(item.get("text") or "")
                self._turns += 1
                yield Event("turn", {"role": "assistant", "content": self._answer})
            case "command_execution":
                self._turns += 1
                yield Event(
                    "tool_call",
                    {
                        "name": "shell",
                        "arguments": {"command": item.get("command")},
                        "result": item.get("aggregated_output"),
                        "exit_code": item.get("exit_code"),
                    },
                )
            case "mcp_tool_call":
                self._turns += 1
                called = {"name": item.get("tool") or "mcp_tool_call", "arguments": item.get("arguments")}
                rest = {key: item[key] for key in ("server", "result", "error") if item.get(key) is not None}
                yield Event("tool_call", {**called, **rest})
            case "file_change" | "web_search" as kind:
                self._turns += 1
                rest = {key: value for key, value in item.items() if key not in ("id", "type", "item_type")}
                yield Event("tool_call", {"name": kind, "arguments": rest})

    def reading(self) -> Reading:
        fault = None
        if self._error:
            fault = Fault(of_error(self._error), f"its turn failed: {self._error}")
        return Reading(
            answer=self._answer,
            has_ended=self._has_ended,
            turns=self._turns,
            usage=self._usage,
            fault=fault,
        )


def _usage(said: Any) -> Usage | None:
    if not isinstance(said, dict):
        return None
    cached = count(said.get("cached_input_tokens"))
    return Usage(
        input_tokens=max(0, count(said.get("input_tokens")) - cached),
        output_tokens=count(said.get("output_tokens")),
        cache_read_tokens=cached,
        cache_write_tokens=count(said.get("cache_write_input_tokens")),
    )


def _message(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("message") or error)
    return str(error or "without a reason")


_PROVIDER = """\
model_provider = "evalve"

[model_providers.evalve]
name = "evalve"
base_url = "{base_url}/v1"
env_key = "CODEX_API_KEY"
wire_api = "responses"
supports_websockets = false
"""

SPEC = AgentSpec(
    name="codex",
    command=(
        "codex",
        "exec",
        "--json",
        "--skip-git-repo-check",
        "--ephemeral",
        "--color",
        "never",
        ("-m", "{model}"),
        "-C",
        "{workspace}",
        "--dangerously-bypass-approvals-and-sandbox",
        "{arguments}",
        "--",
        "{prompt}",
    ),
    reader=CodexReader,
    keys=("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_BASE_URL"),
    home_variable="CODEX_HOME",
    home_folder=".codex",
    gateway_environment={"CODEX_API_KEY": "{token}"},
    gateway_files={"config.toml": _PROVIDER},
    upstream="openai",
    version_command=("codex", "--version"),
    recommended_concurrency=5,
    startup_s=180.0,
    install="npm install -g @openai/codex",
)
