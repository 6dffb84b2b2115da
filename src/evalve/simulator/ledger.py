"""What a provider counts of one key's use of a pool of models, and what it says of it: pure, in any time.

The server keeps one for each key and pool; in virtual time the same object serves without HTTP:

    ledger = Ledger(Limits(requests_per_minute=2400, depth_s=1), headers="minute", retry_after="exact")
    ruling = ledger.admit({"requests": 1}, now_s=0.25)
    ruling.is_served, ruling.retry_after_s, ruling.stated["requests"].remaining
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from evalve.simulator.buckets import Cost, Counting, Shortage, take
from evalve.simulator.habits import (
    SCALES_S,
    Headers,
    RefuseAtRandom,
    RetryAfter,
    Statement,
    counting_for,
    is_kind,
    retry_after_s,
)
from evalve.simulator.limits import DIMENSIONS, Dimension, Limits, one_of


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of a request: served, or refused with what a client is told.

    `wait_s` is when it would be served if nobody else came, `retry_after_s` what the refusal says (None:
    nothing), `dimension` the limit that is short (None where it was refused at random), `stated` what the
    headers say, by dimension.
    """

    is_served: bool
    stated: Mapping[Dimension, Statement]
    wait_s: float = 0.0
    retry_after_s: float | None = None
    dimension: str | None = None


class Ledger:
    """The limits of one key for one pool of models. Time is handed in and nothing here waits.

    `foreign_share` is what other users take of every limit; `seed` is of refusals at random, where the caller
    hands in no luck of its own.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        headers: Headers = "window",
        retry_after: RetryAfter = "whole",
        refuse_at_random: RefuseAtRandom | None = None,
        foreign_share: float = 0.0,
        seed: int = 0,
        now_s: float = 0.0,
    ) -> None:
        one_of("retry_after", retry_after, get_args(RetryAfter))
        self.limits = Limits()
        self.counted: dict[str, Counting] = {}
        self._told: dict[str, Counting] = {}
        self._retry_after = retry_after
        self._luck = random.Random(seed)
        self._opened_s = now_s
        self.adopt(
            limits or Limits(),
            headers=headers,
            refuse_at_random=refuse_at_random,
            foreign_share=foreign_share,
            now_s=now_s,
        )

    def adopt(
        self,
        limits: Limits,
        *,
        headers: Headers = "window",
        refuse_at_random: RefuseAtRandom | None = None,
        foreign_share: float = 0.0,
        now_s: float,
    ) -> None:
        """These limits and habits from now on; what was used stays used."""
        one_of("headers", headers, get_args(Headers))
        self.limits, self._headers, self._at_random = limits, headers, refuse_at_random
        scale_s = SCALES_S.get(headers)
        for dimension in DIMENSIONS:
            if limits.per_minute(dimension) is None:
                self.counted.pop(dimension, None)
                self._told.pop(dimension, None)
                continue
            depth_s = limits.depth_of(dimension)
            self._resize(self.counted, dimension, depth_s, foreign_share, now_s)
            if scale_s is None or scale_s == depth_s:
                self._told.pop(dimension, None)
            else:
                self._resize(self._told, dimension, scale_s, foreign_share, now_s)

    def _resize(
        self, countings: dict[str, Counting], dimension: Dimension, over_s: float, share: float, now_s: float
    ) -> None:
        before, limits = countings.get(dimension), self.limits
        if before is not None and is_kind(before, limits.window):
            rate_per_s = (limits.per_minute(dimension) or 0.0) / 60.0
            before.resize(rate_per_s=rate_per_s, depth=rate_per_s * over_s, now_s=now_s, foreign_share=share)
            return
        now = counting_for(limits, dimension, over_s=over_s, foreign_share=share, now_s=now_s)
        if before is not None:
            before.refresh(now_s)
            now.charge(max(0.0, now.level - before.level))
        countings[dimension] = now

    def admit(self, costs: Mapping[Dimension, float], now_s: float) -> Ruling:
        """Charge the request in every dimension, or in none and refuse it; correct it later with `charge`."""
        if self.refuses_at_random(now_s) and self._at_random is not None:
            return self._refused(self._at_random.wait_s, None, now_s)
        shortage = self.take({name: Cost(cost, cost) for name, cost in costs.items()}, now_s)
        if shortage is None:
            return Ruling(True, self.statements(now_s))
        return self._refused(shortage.wait_s, shortage.dimension, now_s)

    def _refused(self, wait_s: float, dimension: str | None, now_s: float) -> Ruling:
        told_s = retry_after_s(self._retry_after, wait_s, epoch_s=now_s)
        return Ruling(False, self.statements(now_s), wait_s, told_s, dimension)

    def refuses_at_random(self, now_s: float, luck: float | None = None) -> bool:
        """Whether a request meets a refusal that is not about limits; `luck` is from 0 to below 1."""
        at_random = self._at_random
        if at_random is None:
            return False
        if luck is None:
            luck = self._luck.random()
        lasts = at_random.for_s is None or now_s < self._opened_s + at_random.for_s
        return lasts and luck < at_random.share

    def take(
        self, costs: Mapping[str, Cost], now_s: float, *, refusals_count: bool = False
    ) -> Shortage | None:
        """Charge every dimension, or none and say which one is short; see `buckets.take`."""
        shortage = take(self.counted, costs, now_s=now_s, refusals_count=refusals_count)
        for dimension, told in self._told.items():
            told.refresh(now_s)
            if shortage is None and dimension in costs:
                told.charge(costs[dimension].charge)
            elif shortage is not None and refusals_count and dimension == "requests":
                told.charge_refusal()
        return shortage

    def charge(self, dimension: str, amount: float, now_s: float) -> None:
        """Correct what was charged: more, or with a negative amount less."""
        for counting in self.countings([dimension]):
            counting.refresh(now_s)
            counting.charge(amount)

    def charge_refusal(self, now_s: float) -> None:
        """A refused request counts as a request."""
        for counting in self.countings(["requests"]):
            counting.refresh(now_s)
            counting.charge_refusal()

    def countings(self, dimensions: Iterable[str]) -> list[Counting]:
        """All that a use of these dimensions must reach."""
        return [both[name] for name in dimensions for both in (self.counted, self._told) if name in both]

    def statements(self, now_s: float) -> dict[Dimension, Statement]:
        """What headers say at this instant."""
        if self._headers == "none":
            return {}
        stated: dict[Dimension, Statement] = {}
        scale_s = SCALES_S.get(self._headers, self.limits.window_s)
        for dimension in DIMENSIONS:
            counting = self._told.get(dimension) or self.counted.get(dimension)
            if counting is not None:
                counting.refresh(now_s)
                remaining = max(0.0, counting.level)
                limit = counting.rate_per_s * scale_s
                stated[dimension] = Statement(limit, remaining, counting.full_in_s(), scale_s)
        return stated
