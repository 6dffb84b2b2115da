"""What goes wrong with an admitted request: by probability, or by a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from evalve.errors import OptionError
from evalve.options import suggestion
from evalve.simulator.draws import Draw, at_least_zero, share

Fault = Literal[
    "error", "overloaded", "reset", "hang", "truncated", "slow_stream", "cut_stream", "error_event"
]
"""In order: 500; 529 (OpenAI: 503); connection reset before the answer; no answer; half of a body; long gaps
between events; a stream that ends in the middle; an error event in the middle of a stream."""

FAULTS: tuple[Fault, ...] = get_args(Fault)
_ONLY_IN_STREAMS = {"slow_stream", "cut_stream", "error_event"}


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities by kind, and a schedule: its first entry is for the first admitted request, and so on.

    A scheduled None is a request that goes well; after the schedule's end, probabilities decide. `error` and
    `overloaded` use up a request and no tokens, all others the input and the output produced until then.
    """

    probabilities: Mapping[Fault, float] = field(default_factory=dict)
    schedule: tuple[Fault | None, ...] = ()
    hang_s: float = 600.0
    slow_stream_s: float = 1.0

    def __post_init__(self) -> None:
        for kind, probability in self.probabilities.items():
            _known(kind)
            share(f"faults.probabilities.{kind}", probability)
        share("the sum of faults.probabilities", round(sum(self.probabilities.values()), 9))
        for scheduled in self.schedule:
            if scheduled is not None:
                _known(scheduled)
        at_least_zero("faults.hang_s", self.hang_s)
        at_least_zero("faults.slow_stream_s", self.slow_stream_s)

    def fault_of(self, *, ordinal: int, stream: bool, draw: Draw) -> Fault | None:
        """The fault of the request admitted as number `ordinal`, counted from 0."""
        if ordinal < len(self.schedule):
            return _fitting(self.schedule[ordinal], stream=stream)
        if not self.probabilities:
            return None
        number = draw.of("fault").random()
        for kind in FAULTS:
            number -= self.probabilities.get(kind, 0.0)
            if number < 0:
                return _fitting(kind, stream=stream)
        return None


def _fitting(kind: Fault | None, *, stream: bool) -> Fault | None:
    """An answer that is no stream cannot have a stream's faults; half a stream is a cut stream."""
    if stream:
        return "cut_stream" if kind == "truncated" else kind
    return None if kind in _ONLY_IN_STREAMS else kind


def _known(kind: str) -> None:
    if kind not in FAULTS:
        known = ", ".join(FAULTS)
        raise OptionError(f"there is no fault {kind!r}{suggestion(kind, FAULTS)} (known: {known})")
