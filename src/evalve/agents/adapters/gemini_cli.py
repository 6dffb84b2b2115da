"""Gemini CLI: `gemini --prompt`, read as stream-json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evalve.agents.readers import count, json_object
from evalve.agents.spec import AgentSpec, Ending, Event, Fault, Reading, Usage
from evalve.agents.verdict import of_error

_EXITS = {
    41: "it could not authenticate (exit code 41): set GEMINI_API_KEY, or use the gateway",
    42: "it did not understand its arguments (exit code 42)",
    44: "its sandbox failed (exit code 44)",
    52: "its settings are wrong (exit code 52)",
    53: "it reached its turn limit (exit code 53)",
    55: "it does not trust the workspace (exit code 55)",
}
_OURS = (41, 42, 52, 55)
"""What is configured wrongly, whatever the sample."""


class GeminiReader:
    """Pieces of a message are put together; what is said after the last tool call is the answer."""

    def __init__(self) -> None:
        self._model: str | None = None
        self._said = ""
        self._answer = ""
        self._turns = 0
        self._calls: dict[str, dict[str, Any]] = {}
        self._result: dict[str, Any] | None = None
        self._error = ""

    def line(self, text: str) -> Iterable[Event]:
        event = json_object(text)
        if event is None:
            return
        match event.get("type"):
            case "init":
                self._model = event.get("model")
            case "message" if event.get("role") == "assistant":
                content = str(event.get("content") or "")
                self._said = self._said + content if event.get("delta") else content
            case "tool_use":
                yield from self._spoken()
                called = {"name": event.get("tool_name"), "arguments": event.get("parameters")}
                self._calls[str(event.get("tool_id"))] = called
            case "tool_result":
                called = self._calls.pop(str(event.get("tool_id")), {"name": "?"})
                result = event.get("output") if "output" in event else event.get("error")
                yield Event("tool_call", {**called, "result": result, "status": event.get("status")})
                self._turns += 1
            case "error" if event.get("severity") != "warning":
                self._error = str(event.get("message"))
            case "result":
                yield from self._spoken()
                self._result = event

    def _spoken(self) -> Iterable[Event]:
        if self._said.strip():
            self._answer = self._said
            self._turns += 1
            yield Event("turn", {"role": "assistant", "content": self._said})
        self._said = ""

    def reading(self) -> Reading:
        result = self._result
        if result is None:
            fault = _fault(self._error) if self._error else None
            return Reading(answer=self._said or self._answer, has_ended=False, model=self._model, fault=fault)
        stats = result.get("stats")
        error = result.get("error")
        failed = result.get("status") not in (None, "success")
        said = error.get("message") if isinstance(error, dict) else error
        return Reading(
            answer=self._answer.strip(),
            turns=self._turns,
            usage=_usage(stats) if isinstance(stats, dict) else None,
            model=self._model,
            fault=_fault(str(said or self._error or result.get("status"))) if failed else None,
        )


def _fault(message: str) -> Fault:
    return Fault(of_error(message), f"it reports an error: {message}")


def _usage(stats: dict[str, Any]) -> Usage:
    cached = count(stats.get("cached"))
    return Usage(
        input_tokens=max(0, count(stats.get("input_tokens")) - cached),
        output_tokens=count(stats.get("output_tokens")),
        cache_read_tokens=cached,
    )


def _verdict(reading: Reading, ending: Ending, stderr: str) -> Fault | None:
    """Its exit codes say more than its output does."""
    said = _EXITS.get(ending.exit_code or 0)
    if said is None:
        return None
    return Fault("code" if ending.exit_code in _OURS else "agent", said)


SPEC = AgentSpec(
    name="gemini-cli",
    command=(
        "gemini",
        "--output-format",
        "stream-json",
        ("-m", "{model}"),
        "--approval-mode",
        "yolo",
        "--skip-trust",
        "{arguments}",
        "--prompt={prompt}",
    ),
    reader=GeminiReader,
    verdict=_verdict,
    environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
    allowed=("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"),
    home_variable="GEMINI_CLI_HOME",
    home_files={
        ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}, '
        '"privacy": {"usageStatisticsEnabled": false}, "general": {"disableAutoUpdate": true}}\n'
    },
    gateway_environment={"GOOGLE_GEMINI_BASE_URL": "{base_url}", "GEMINI_API_KEY": "{token}"},
    upstream="gemini",
    version_command=("gemini", "--version"),
    recommended_concurrency=10,
    startup_s=180.0,
    install="npm install -g @google/gemini-cli",
)
