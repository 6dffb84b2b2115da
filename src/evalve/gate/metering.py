"""Counts what calls cost: for the sample that made them, and for the process as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from evalve.contracts import CallLog, SampleContext
from evalve.gate.messages import Call, Problem, Usage

Price = Callable[[str, Usage], float | None]


class Meter:
    """Totals come from here and not from summing samples: a call may belong to none."""

    def __init__(self, price: Price) -> None:
        self._price = price
        self._lock = threading.Lock()
        self._total = CallLog()

    def sent(self, sample: SampleContext | None, waited_s: float) -> None:
        for log in self._logs(sample):
            log.requests += 1
            log.waited_s += waited_s

    def unsent(self, sample: SampleContext | None) -> None:
        """What was admitted did not go out."""
        for log in self._logs(sample):
            log.requests -= 1

    def used(self, call: Call, usage: Usage, sample: SampleContext | None) -> None:
        cost_usd = self.price_usd(call, usage)
        for log in self._logs(sample):
            log.input_tokens += usage.input_tokens
            log.output_tokens += usage.output_tokens
            log.cache_read_tokens += usage.cache_read_tokens
            log.cache_write_tokens += usage.cache_write_tokens
            if cost_usd is None:
                log.unpriced += 1
            else:
                log.cost_usd += cost_usd

    def used_unknown(self, sample: SampleContext | None) -> None:
        """An answer that does not say what it took, such as a stream of OpenAI's that was not asked to."""
        for log in self._logs(sample):
            log.unpriced += 1

    def ungated(self, sample: SampleContext | None) -> None:
        """A call went past the gate."""
        for log in self._logs(sample):
            log.ungated += 1

    def price_usd(self, call: Call, usage: Usage) -> float | None:
        """`None` where the price is unknown."""
        return self._price(call.model, usage)

    def hit(self, sample: SampleContext | None) -> None:
        for log in self._logs(sample):
            log.cached += 1

    def problem(self, problem: Problem, sample: SampleContext | None) -> None:
        if problem.kind == "rate_limit":
            for log in self._logs(sample):
                log.refusals += 1

    def retry(self, waited_s: float, sample: SampleContext | None) -> None:
        for log in self._logs(sample):
            log.retries += 1
            log.waited_s += waited_s

    def totals(self) -> dict[str, Any]:
        with self._lock:
            plain = asdict(self._total)
        del plain["ordinals"]
        return plain

    def spent_usd(self) -> float:
        return self._total.cost_usd

    def _logs(self, sample: SampleContext | None) -> tuple[CallLog, ...]:
        return (self._total,) if sample is None else (self._total, sample.calls)
