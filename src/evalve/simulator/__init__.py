"""A provider that behaves like one, for tests, benchmarks and demos: limits, headers, latency, faults.

It knows nothing of evalve's gate and its dialects, so that it can bear witness to what they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalve.simulator.asks import Ask
from evalve.simulator.batches.settings import Batches
from evalve.simulator.behaviour import Behaviour, PromptCache, Ramp, SpendCap
from evalve.simulator.draws import Latency, OutputLength
from evalve.simulator.faults import Faults
from evalve.simulator.habits import RefuseAtRandom, Statement
from evalve.simulator.ledger import Ledger, Ruling
from evalve.simulator.limits import Limits
from evalve.simulator.scripts import Answer, ToolCall, Turns
from evalve.simulator.stats import Stats

if TYPE_CHECKING:
    from evalve.simulator.reading import read_behaviour
    from evalve.simulator.server import Simulator

_LATE = {"Simulator": "server", "read_behaviour": "reading"}
"""A web server and YAML, which the arithmetic alone does not need."""

__all__ = [
    "Answer",
    "Ask",
    "Batches",
    "Behaviour",
    "Faults",
    "Latency",
    "Ledger",
    "Limits",
    "OutputLength",
    "PromptCache",
    "Ramp",
    "RefuseAtRandom",
    "Ruling",
    "Simulator",
    "SpendCap",
    "Statement",
    "Stats",
    "ToolCall",
    "Turns",
    "read_behaviour",
]


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
