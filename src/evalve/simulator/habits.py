"""What a provider says of its limits: on which scale, and in a refusal when to come back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from email.utils import formatdate
from typing import Literal

from evalve.errors import OptionError
from evalve.simulator.buckets import Bucket, Counting
from evalve.simulator.draws import above_zero, at_least_zero, share
from evalve.simulator.limits import Dimension, Limits, Window
from evalve.simulator.windows import FixedWindow, SlidingWindow

Headers = Literal["window", "minute", "ten-seconds", "second", "none"]
"""`window`: the limit for `window_s`, and what is truly left. `minute`, `ten-seconds`, `second`: limit and
what is left as if the limit were counted over that time, whatever it is counted over. `none`: nothing."""
RetryAfter = Literal["whole", "exact", "ms", "date", "none"]
"""`retry-after` in whole seconds or exact, `retry-after-ms`, `retry-after` as an HTTP date, or nothing."""
SCALES_S: dict[Headers, float] = {"minute": 60.0, "ten-seconds": 10.0, "second": 1.0}
_KINDS: dict[Window, type[Bucket | FixedWindow | SlidingWindow]] = {
    "bucket": Bucket,
    "fixed": FixedWindow,
    "sliding": SlidingWindow,
}


@dataclass(frozen=True, slots=True)
class RefuseAtRandom:
    """Refuses this share of all requests, whatever is left of the limits; with `for_s` only for so long.

    The time counts from a key's first request to a pool of models. A refusal says to come back in `wait_s`.
    """

    share: float = 0.0
    for_s: float | None = None
    wait_s: float = 0.5

    def __post_init__(self) -> None:
        share("refuse_at_random.share", self.share)
        above_zero("refuse_at_random.for_s", self.for_s)
        at_least_zero("refuse_at_random.wait_s", self.wait_s)
        if self.share == 0:
            raise OptionError(
                "refuse_at_random.share is missing or 0; give the share of requests, such as 0.05"
            )


@dataclass(frozen=True, slots=True)
class Statement:
    """What headers say of one dimension: the limit of `scale_s`, what is left, when it is full again."""

    limit: float
    remaining: float
    full_in_s: float
    scale_s: float


def counting_for(
    limits: Limits, dimension: Dimension, *, over_s: float, foreign_share: float, now_s: float
) -> Counting:
    """A dimension counted as the limits say, over this time; full at first."""
    rate_per_s = (limits.per_minute(dimension) or 0.0) / 60.0
    kind = _KINDS[limits.window]
    return kind(rate_per_s=rate_per_s, depth=rate_per_s * over_s, now_s=now_s, foreign_share=foreign_share)


def is_kind(counting: Counting, window: Window) -> bool:
    return isinstance(counting, _KINDS[window])


def retry_after_s(kind: RetryAfter, wait_s: float, *, epoch_s: float) -> float | None:
    """How long a client waits that believes what it is told; None where nothing is said."""
    match kind:
        case "whole":
            return float(max(1, math.ceil(wait_s)))
        case "exact" | "ms":
            return _milliseconds(wait_s) / 1000
        case "date":
            return math.ceil(epoch_s + wait_s) - epoch_s
    return None


def retry_after_headers(kind: RetryAfter, wait_s: float, *, epoch_s: float) -> dict[str, str]:
    """What a refusal that is sent now carries."""
    match kind:
        case "whole":
            return {"retry-after": str(max(1, math.ceil(wait_s)))}
        case "exact":
            return {"retry-after": f"{_milliseconds(wait_s) / 1000:.3f}"}
        case "ms":
            return {"retry-after-ms": str(_milliseconds(wait_s))}
        case "date":
            return {"retry-after": formatdate(math.ceil(epoch_s + wait_s), usegmt=True)}
    return {}


def per_time(seconds: float) -> str:
    """`minute`, `second`, `10 seconds`: what follows on a limit's "per"."""
    return {60.0: "minute", 1.0: "second"}.get(seconds, f"{seconds:g} seconds")


def _milliseconds(wait_s: float) -> int:
    return max(1, math.ceil(wait_s * 1000 - 1e-6))
