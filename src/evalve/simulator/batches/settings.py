"""How simulated batches behave: how long they take, what goes wrong, where a client may be killed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from evalve.errors import OptionError
from evalve.simulator.draws import above_zero, at_least_zero, share
from evalve.simulator.limits import one_of

CrashPoint = Literal[
    "before_file", "after_file", "before_create", "after_create", "status", "before_results", "half_results"
]
"""Where an answer can be withheld: before and after an uploaded file and a batch are taken in, when it is
looked at, before its results and in the middle of them."""
CRASH_POINTS: tuple[CrashPoint, ...] = get_args(CrashPoint)


@dataclass(frozen=True, slots=True)
class Batches:
    """Every batch ends `delay_s` after it was created, or `expires_after_s` with what is not done expired.

    `errored`, `expired` and `missing` are shares of the requests. `queue_limit` is how many requests may be
    in batches that have not ended, `largest` how many in one. At `crash_point` the first answer is withheld
    until its client has gone; `GET /_simulator/stats` counts that it came so far.
    """

    delay_s: float = 1.0
    errored: float = 0.0
    expired: float = 0.0
    missing: float = 0.0
    expires_after_s: float = 86_400.0
    queue_limit: int | None = None
    largest: int | None = None
    in_order: bool = False
    crash_point: CrashPoint | None = None

    def __post_init__(self) -> None:
        at_least_zero("batches.delay_s", self.delay_s)
        above_zero("batches.expires_after_s", self.expires_after_s)
        for name in ("errored", "expired", "missing"):
            share(f"batches.{name}", getattr(self, name))
        if self.errored + self.expired + self.missing > 1:
            raise OptionError("batches.errored, expired and missing are more than 1 together")
        above_zero("batches.queue_limit", self.queue_limit)
        above_zero("batches.largest", self.largest)
        if self.crash_point is not None:
            one_of("batches.crash_point", self.crash_point, CRASH_POINTS)
