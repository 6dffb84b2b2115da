"""What one agent of an experiment will take: its calls, by role, and its time."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evalve.experiments.file.configuration import Configuration
from evalve.experiments.parts.models import Asked
from evalve.gate.planning import Plan, plan
from evalve.planning.durations import AgentTime
from evalve.planning.experiments import Outlook, outlook_lines, outlook_plain
from evalve.planning.providers import Provider, limits_known, with_batches, work_of
from evalve.planning.subjects import (
    OpenStore,
    Subject,
    Timed,
    refuse_nothing,
    subjects_of_outlook,
)
from evalve.secrecy import Environment
from evalve.show.plans import HERE, figures_text, plan_json, plan_notes


@dataclass(frozen=True, slots=True)
class Part:
    """The calls of one agent to one model: a pair makes those of a student and of a teacher."""

    model: str | None
    planned: Plan | None
    """`None` where none of the recorded samples called a model."""
    scope: str = ""
    """Whose limits hold them back."""

    @classmethod
    def of(
        cls,
        asked: Asked,
        subjects: Sequence[Subject],
        timed: Timed | None,
        said: argparse.Namespace,
        configuration: Configuration,
    ) -> Part:
        environ = Environment(os.environ)
        model = asked.callable_name(environ)
        if timed is not None and not timed.made_calls and said.calls_per_sample is None:
            return cls(model, None)
        provider = Provider.of(model, configuration, environ)
        works = [work_of(subject, said, provider) for subject in subjects]
        is_anyones = model is None and said.tier is None  # only the agent knows whom it calls
        planned = plan(works, {} if is_anyones else limits_known(provider, said.tier, environ))
        if not asked.is_agent:  # whose own program asks, and waits for no batch
            planned = with_batches(planned, provider, said)
        return cls(model, planned, "" if is_anyones else provider.call.scope)

    @property
    def limited_s(self) -> dict[str, float]:
        """How long its calls take by the limits that hold here, or else by those of the only tier."""
        scopes = () if self.planned is None else self.planned.scopes
        known = [scope for scope in scopes if scope.name == HERE] or (scopes if len(scopes) == 1 else ())
        return {self.scope: known[0].duration_s} if known and known[0].binding else {}


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """What one agent of an experiment will take."""

    outlook: Outlook
    parts: tuple[Part, ...]
    sample_s: float | None
    source: str

    @classmethod
    def of(
        cls,
        outlook: Outlook,
        said: argparse.Namespace,
        configuration: Configuration,
        open_store: OpenStore,
    ) -> AgentPlan:
        parts: list[Part] = []
        timed: Timed | None = None
        for role, asked in zip(outlook.roles, outlook.asked.members, strict=True):
            subjects, timed = subjects_of_outlook(outlook, said, open_store, role)
            refuse_nothing(subjects)
            parts.append(Part.of(asked, subjects, timed, said, configuration))
        if timed is not None:
            return cls(outlook, tuple(parts), timed.sample_s, timed.source)
        return cls(outlook, tuple(parts), _by_latency(parts), "calls × latency")

    @property
    def calls(self) -> int:
        return sum(part.planned.calls for part in self.parts if part.planned is not None)

    @property
    def time(self) -> AgentTime:
        own_s = self.outlook.duration_s(self.sample_s)
        limited: dict[str, float] = {}
        for part in self.parts:
            for scope, limited_s in part.limited_s.items():
                limited[scope] = limited.get(scope, 0.0) + limited_s
        alone_s = None if own_s is None else max(own_s, *limited.values(), 0.0)
        return AgentTime(self.outlook.asked.name, alone_s, limited)

    def lines(self, width: int) -> Iterator[str]:
        for place, part in enumerate(self.parts):
            yield from [""] if place else []
            if part.planned is None:
                yield "calls     0: none of the recorded samples called a model through evalve"
            else:
                yield from figures_text(part.planned, width=width)
        yield from outlook_lines(self.outlook, self.sample_s, self.source)

    def notes(self) -> Iterator[str]:
        """To be told once, however many agents they are true of."""
        for part in self.parts:
            if part.planned is not None:
                yield from plan_notes(part.planned, part.model)

    def plain(self) -> dict[str, Any]:
        own = [
            {"calls": 0} if part.planned is None else json.loads(plan_json(part.planned, model=part.model))
            for part in self.parts
        ]
        outlook = {**outlook_plain(self.outlook, self.sample_s), "alone_s": self.time.alone_s}
        if len(own) == 1:
            return {**own[0], **outlook}
        roles = dict(zip(self.outlook.roles, own, strict=True))
        return {"calls": sum(part["calls"] for part in own), "roles": roles, **outlook}


def _by_latency(parts: Sequence[Part]) -> float | None:
    """How long a sample takes whose calls follow each other."""
    plans = [part.planned for part in parts if part.planned is not None]
    if not plans or any(one.one_by_one_s is None for one in plans):
        return None
    return sum((one.one_by_one_s or 0.0) / max(1, one.attempts) for one in plans)
