"""In which order the agents of an experiment run: all at once, so many at a time, or in phases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.file.document import Document
from evalve.experiments.file.resolving import Entry
from evalve.options import suggestion


@dataclass(frozen=True, slots=True)
class Order:
    """Phases one after another; in each, at most so many agents at a time."""

    phases: tuple[tuple[str, ...], ...]
    at_once: int | None = None
    """`None` for all of a phase."""

    @classmethod
    def of(cls, entry: Entry, document: Document, agents: Sequence[str]) -> Order:
        """What the experiment says, for the agents that are asked; those that no phase names come last."""
        said = [phase if isinstance(phase, list) else [phase] for phase in entry.get("phases", [])]
        named = [name for phase in said for name in phase]
        known = {*agents, *map(str, document.section("models")), *entry.names("models")}
        where = f"{entry.where('phases')}: experiments.{entry.name}: phases"
        for name in named:
            if name not in known:
                hint = suggestion(name, known) or f" (there is: {', '.join(agents)})"
                raise OptionError(f"{where}: the experiment asks no model {name!r}{hint}")
            if named.count(name) > 1:
                raise OptionError(f"{where}: {name!r} is in two phases")
        rest = [name for name in agents if name not in named]
        phases = [[name for name in agents if name in phase] for phase in [*said, rest]]
        return cls(tuple(tuple(phase) for phase in phases if phase), entry.get("models_at_once"))


async def in_order(order: Order, run: Callable[[str], Awaitable[None]], tell: Callable[[str], None]) -> None:
    """Run all agents; `tell` hears of each phase, where there are several."""
    for number, phase in enumerate(order.phases, 1):
        if len(order.phases) > 1:
            tell(f"phase {number} of {len(order.phases)}: {', '.join(phase)}")
        slots = asyncio.Semaphore(order.at_once or len(phase))

        async def run_one(agent: str, slots: asyncio.Semaphore = slots) -> None:
            async with slots:
                await run(agent)

        await asyncio.gather(*map(run_one, phase))


def phases_in_text(text: str) -> list[list[str]]:
    """`a,b;c` as a list of lists."""
    return [names for part in text.split(";") if (names := _names(part.split(",")))]


def _names(words: Iterable[Any]) -> list[str]:
    return [str(word).strip() for word in words if str(word).strip()]
