"""`--temperature` and `--max-output-tokens`: said once, for all models that an experiment asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.declared import Declared
from evalve.experiments.file.document import parsed_text
from evalve.experiments.file.keys import API_MODEL
from evalve.experiments.file.resolving import over
from evalve.experiments.parts.models import Asked


def read_model_key(name: str, text: str) -> Any:
    key, value = API_MODEL.by_name[name], parsed_text(text)
    if not key.kind.accepts(value):
        raise OptionError(f"--{name.replace('_', '-')}: needs {key.kind.words}; got {text!r}")
    return value


def with_model_keys(declared: Declared, said: Mapping[str, Any]) -> tuple[Declared, list[str]]:
    """The experiment with these in place of what the entries of its models say, and what to tell of it.

    The judge stays as it is. An agent calls its model by itself, so that nothing can be said for it.
    """
    if not said:
        return declared, []
    agents = [asked.name for asked in declared.asked if asked.is_agent]
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in said)
    notes = (
        [f"{', '.join(agents)}: {flags} says nothing to an agent, which calls its model itself"]
        if agents
        else []
    )
    return replace(declared, asked=[_with_keys(asked, said) for asked in declared.asked]), notes


def _with_keys(asked: Asked, said: Mapping[str, Any]) -> Asked:
    if asked.is_agent:
        return asked
    parts = {one.name: getattr(asked, one.name) for one in fields(asked)}
    members: dict[str, Any] = {
        name: _with_keys(part, said) for name, part in parts.items() if isinstance(part, Asked)
    }
    if members:  # a student and its teacher
        return replace(asked, **members)
    return replace(asked, entry=over(asked.entry, said))
