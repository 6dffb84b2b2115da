"""A provider that behaves like one, for tests, benchmarks and demos: limits, headers, latency, faults.

It knows nothing of evalve's gate and its dialects, so that it can bear witness to what they do.
"""

from __future__ import annotations

from evalve.simulator.answers import Answer, ToolCall
from evalve.simulator.asks import Ask
from evalve.simulator.behaviour import Behaviour, Limits, PromptCache, Ramp, SpendCap
from evalve.simulator.draws import Latency, OutputLength
from evalve.simulator.faults import Faults
from evalve.simulator.reading import read_behaviour
from evalve.simulator.server import Simulator
from evalve.simulator.stats import Stats

__all__ = [
    "Answer",
    "Ask",
    "Behaviour",
    "Faults",
    "Latency",
    "Limits",
    "OutputLength",
    "PromptCache",
    "Ramp",
    "Simulator",
    "SpendCap",
    "Stats",
    "ToolCall",
    "read_behaviour",
]
