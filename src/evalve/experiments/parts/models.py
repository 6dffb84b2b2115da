"""Who is asked: a `models:` entry, or a model's own name, as what an experiment needs of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.file.document import Document, Place
from evalve.experiments.file.keys import AGENT_MODEL, PAIR_MODEL, table_of_model
from evalve.experiments.file.resolving import Entry, entry_of
from evalve.experiments.file.variables import expanded
from evalve.gate.doors.naming import PROVIDERS, target_of
from evalve.options import suggestion

_NEVER_RECORDED = frozenset({"api_key", "headers", "description"})
_COMPATIBLE = "openai-compatible"


@dataclass(frozen=True, slots=True)
class Asked:
    """A model or an agent, by the name that a person gave it."""

    name: str
    entry: Entry
    student: Asked | None = None
    teacher: Asked | None = None

    @property
    def is_agent(self) -> bool:
        return "agent" in self.entry.values

    @property
    def is_program(self) -> bool:
        """Whether it is an agent that runs in a process of its own."""
        return self.is_agent and self.entry.get("agent") != "python"

    @property
    def is_pair(self) -> bool:
        """Whether it is a student with a teacher."""
        return self.student is not None

    @property
    def members(self) -> list[Asked]:
        """Itself, or a student and its teacher."""
        return [self] if self.student is None or self.teacher is None else [self.student, self.teacher]

    @property
    def calls_past_us(self) -> bool:
        """Whether it is an agent with a login of its own; a command may well call no model at all."""
        is_off = self.entry.get("gateway", True) in (False, "off")
        return self.is_agent and is_off and self.entry.get("agent") not in ("command", "python")

    @property
    def mode(self) -> str:
        return "agent" if self.is_agent else "model"

    @property
    def full_name(self) -> str | None:
        """The model as `evalve.model` names it; `None` where only the agent knows."""
        model = self.entry.get("model")
        if self.is_agent or model is None:
            return None if model is None else str(model)
        provider = str(model).partition("/")[0]
        if "base_url" in self.entry.values and provider not in PROVIDERS:
            return f"{_COMPATIBLE}/{model}"
        return str(model)

    def callable_name(self, environ: Mapping[str, str]) -> str | None:
        """As `--model` takes it, with the address; `None` where only the agent knows its model."""
        name = self.full_name
        if name is None:
            return None
        try:
            if "base_url" in self.entry.values and not self.is_agent:
                address = expanded(self.entry.get("base_url"), environ, where="base_url")
                name = f"{_COMPATIBLE}/{name.removeprefix(f'{_COMPATIBLE}/')}@{address!s}"
            target_of(name, environ=environ)
        except OptionError:
            return None
        return str(name)

    def recorded(self) -> str:
        """What of it belongs to an evaluation; another key is no other evaluation."""
        plain = {key: value for key, value in self.entry.values.items() if key not in _NEVER_RECORDED}
        for role, member in (("student", self.student), ("teacher", self.teacher)):
            if member is not None:
                plain[role] = json.loads(member.recorded())
        return json.dumps(plain, indent=1, sort_keys=True, default=str)

    def expanded(self, environ: Mapping[str, str]) -> dict[str, Any]:
        return {
            key: expanded(value, environ, where=f"{self.entry.where(key)}: models.{self.name}: {key}")
            for key, value in self.entry.values.items()
        }


def missing_key(asked: Asked, environ: Mapping[str, str]) -> str | None:
    """What to set before an API model can be asked, in words; an unset `${VARIABLE}` is told elsewhere."""
    name = asked.full_name
    if asked.is_agent or name is None:
        return None
    with suppress(OptionError):
        said = asked.expanded(environ)
        key, address = said.get("api_key"), said.get("base_url")
        target = target_of(name, environ=environ, api_key=key, base_url=address)
        if target.lacks_key:
            return f"{name} needs an API key: set {target.provider.key_variable}"
    return None


def asked_named(document: Document, name: str, *, where: Place | str, who: str) -> Asked:
    """The entry of that name, else the model that is named so itself."""
    known = {str(key): key for key in document.section("models")}
    if name in known:
        entry = entry_of(document, "models", known[name])
        _check(entry)
        if table_of_model(entry.values) is PAIR_MODEL:
            return Asked(
                name, entry, _member(document, entry, "student"), _member(document, entry, "teacher")
            )
        return Asked(name, entry)
    if name.partition("/")[0] in PROVIDERS:
        if "/" not in name and name != "local":
            raise OptionError(f"{where}: {who}: {name!r} lacks the name of a model, as in {name}/MODEL")
        place = where if isinstance(where, Place) else document.place()
        return Asked(name, Entry("models", name, place, {"model": name}))
    hint = suggestion(name, known) or (f" (there is: {', '.join(known)})" if known else "")
    remedy = "; add it under `models:`, or name a model as in openai/gpt-5-mini" if not hint else ""
    raise OptionError(f"{where}: {who}: there is no model {name!r}{hint}{remedy}")


def _member(document: Document, entry: Entry, role: str) -> Asked:
    """The student or the teacher of a pair: a model that is asked directly."""
    name, where = str(entry.get(role)), entry.where(role)
    if name == entry.name:
        raise OptionError(f"{where}: models.{entry.name}: its {role} is {name!r} itself; name an API model")
    found = asked_named(document, name, where=where, who=f"models.{entry.name}: {role}")
    if found.is_agent or found.is_pair:
        kind = "an agent" if found.is_agent else "a pair itself"
        raise OptionError(f"{where}: models.{entry.name}: the {role} {name!r} is {kind}; name an API model")
    return found


def _check(entry: Entry) -> None:
    table = table_of_model(entry.values)
    for required in table.required:
        if required not in entry.values:
            raise OptionError(f"{entry.place}: models.{entry.name} lacks `{required}:`")
    for key in entry.values:
        if key not in table.by_name:
            kind = "agents" if table is AGENT_MODEL else "pairs" if table is PAIR_MODEL else "API models"
            raise OptionError(f"{entry.where(key)}: models.{entry.name}: {key} is not for {kind}")


def open_model(asked: Asked, environ: Mapping[str, str]) -> tuple[Any, dict[str, Any]]:
    """The model, and the arguments of every call to it."""
    from evalve import gating  # with the gate, which a plan or a check does without

    said = asked.expanded(environ)
    name = asked.full_name
    assert name is not None
    model = gating.model(
        name, api_key=said.get("api_key"), base_url=said.get("base_url"), headers=said.get("headers")
    )
    arguments: dict[str, Any] = {}
    if "max_output_tokens" in said:
        arguments["max_tokens"] = said["max_output_tokens"]
    for key in ("temperature", "options"):
        if key in said:
            arguments[key] = said[key]
    return model, arguments
