"""What the gate asks of the batch queue, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from evalve.gate.messages import Call, Dialect, Reply, Request

GATHERED = "its calls are gathered"
"""Why a run stops that is only to say what it asks for; it is replayed when the answers are there."""


@dataclass(slots=True)
class Gathered:
    """What runs ask for that have stopped, and will be replayed."""

    keys: set[str] = field(default_factory=set)
    waited_for: set[str] = field(default_factory=set)
    """Their batches, whatever has become of them since."""
    open: list[str] = field(default_factory=list)
    """Those of them that are not collected."""
    is_replay: bool = False
    """Whether the runs have stopped before: then what they ask for at a place is known."""
    changed: int = 0
    """Calls of a replay that ask for something else than before. They are in no batch."""


Found = Literal["", "uncounted", "counted"]
"""What is known of an answer in the cache: nothing, that it came for this sample, and that a run has counted
what it cost, although the sample has no record of it."""

Fate = Literal["answer", "failed", "cancelled", "again", "live"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a call: its answer is in the cache, or it failed, or it is to be sent again."""

    fate: Fate
    batch: str
    reply: Reply | None = None
    """Of one that failed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A call for a batch."""

    key: str
    """Its name in the cache."""
    request: Request
    call: Call
    dialect: Dialect
    attempt: str
    """Whose it is, and which of its calls: what a replayed sample must ask for again."""
    place: int
    name: str
