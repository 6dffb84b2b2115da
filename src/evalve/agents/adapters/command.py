"""Any command: its arguments and how its output is read are the person's."""

from __future__ import annotations

from evalve.agents.readers import reader_of
from evalve.agents.settings import AgentSettings
from evalve.agents.spec import AgentSpec
from evalve.errors import OptionError

_GATEWAY = {
    "ANTHROPIC_BASE_URL": "{gateway}/anthropic",
    "ANTHROPIC_API_KEY": "{token}",
    "OPENAI_BASE_URL": "{gateway}/openai/v1",
    "OPENAI_API_KEY": "{token}",
    "GOOGLE_GEMINI_BASE_URL": "{gateway}/gemini",
    "GEMINI_API_KEY": "{token}",
}


def spec_of(settings: AgentSettings) -> AgentSpec:
    """Without the gateway it is given no key: what it needs is set in `environment`."""
    if not settings.command:
        raise OptionError(
            "agent 'command' needs its command, as in command: [python3, '{project}/agent.py', '{prompt}']"
        )
    return AgentSpec(
        name="command",
        command=(*settings.command, *(() if "{arguments}" in settings.command else ("{arguments}",))),
        reader=reader_of(settings.answer, field=settings.field, pattern=settings.pattern),
        gateway_environment=_GATEWAY,
        recommended_concurrency=10,
    )
