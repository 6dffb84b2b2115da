"""What a person may say about an agent, checked: the same names in Python and in `evalve.yaml`."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from evalve.agents.confinement import ASKED
from evalve.agents.filling import PLACEHOLDERS, unknown_placeholders
from evalve.agents.readers import FORMATS
from evalve.errors import OptionError

_TEXTS = ("model", "program", "field", "pattern")
_SECONDS = ("timeout_s", "startup_s", "silence_s", "grace_s")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All of them; which agent takes which is said in `docs/agents.md`."""

    model: str | None = None
    program: str | None = None
    """A path to use in place of the program that the adapter calls by name."""
    command: tuple[str, ...] = ()
    answer: str = "last_line"
    field: str = "answer"
    pattern: str = ""
    arguments: tuple[str, ...] = ()
    function: Callable[..., Any] | str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    readable: tuple[str, ...] = ()
    confine: str = "off"
    gateway: bool = True
    timeout_s: float | None = None
    startup_s: float | None = None
    silence_s: float | None = None
    grace_s: float | None = None
    memory_limit_mb: float | None = None


def read_settings(said: Mapping[str, Any], *, whose: str) -> AgentSettings:
    """Raises `OptionError` with what is wrong, of which agent, and what may be said."""
    known = [one.name for one in fields(AgentSettings)]
    for name in said:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise OptionError(f"{whose}: there is no setting {name!r}; {hint}")
    given = {name: value for name, value in said.items() if value is not None}
    checked: dict[str, Any] = {}
    for name, value in given.items():
        try:
            checked[name] = _checked(name, value)
        except ValueError as error:
            raise OptionError(f"{whose}: {name} {error}; got {value!r}") from None
    settings = AgentSettings(**checked)
    _check_together(settings, whose)
    return settings


def _checked(name: str, value: Any) -> Any:
    if name in _TEXTS:
        return _text(value)
    if name in _SECONDS or name == "memory_limit_mb":
        return _positive(value)
    if name in ("command", "arguments", "readable"):
        return _texts(value)
    if name == "environment":
        return _variables(value)
    if name == "confine":
        return _confine(value)
    if name == "gateway":
        return _switch(value)
    if name == "answer":
        if value not in FORMATS:
            raise ValueError(f"is one of {', '.join(FORMATS)}")
        return value
    if not callable(value) and not (isinstance(value, str) and ":" in value):
        raise ValueError("is an async function, or text such as package.module:function")
    return value


def _check_together(settings: AgentSettings, whose: str) -> None:
    for text in (*settings.command, *settings.arguments, *settings.environment.values()):
        for name in unknown_placeholders(text):
            raise OptionError(
                f"{whose}: {{{name}}} in {text!r} is not a placeholder; there are "
                f"{', '.join(f'{{{one}}}' for one in PLACEHOLDERS)}"
            )
    if settings.answer == "regex":
        try:
            re.compile(settings.pattern)
        except re.error as error:
            raise OptionError(
                f"{whose}: pattern {settings.pattern!r} is no regular expression: {error}"
            ) from None
        if not settings.pattern:
            raise OptionError(f"{whose}: answer: regex needs a pattern, as in pattern: 'FINAL: (.*)'")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is a text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple) or not value:
        raise ValueError("is a list of texts, as in [python3, agent.py]")
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in value):
        raise ValueError("is a list of texts")
    return tuple(map(str, value))


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("is a mapping of names to values")
    return {str(name): str(each) for name, each in value.items()}


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError("is a number above 0")
    return float(value)


def _confine(value: Any) -> str:
    value = {True: "auto", False: "off"}.get(value, value) if isinstance(value, bool) else value
    if value not in ASKED:
        raise ValueError(f"is one of {', '.join(ASKED)}")
    return str(value)


def _switch(value: Any) -> bool:
    if isinstance(value, str) and value in ("on", "off"):
        return value == "on"
    if not isinstance(value, bool):
        raise ValueError("is on or off")
    return value
