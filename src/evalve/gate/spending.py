"""What a call may cost, to be set aside from a budget before it goes."""

from __future__ import annotations

import logging

from evalve.gate.budget import NOTHING, Ahead
from evalve.gate.dialects.unknowns import CacheTime, Unknown, unknown_input, written_cache
from evalve.gate.estimates import Estimates
from evalve.gate.messages import Call, Usage
from evalve.gate.metering import Meter

_LOG = logging.getLogger(__name__)
MORE_THAN_SHOWN = 1.3
"""Of the largest input that such a call has had so far."""
_WHY: dict[Unknown, str] = {
    "": "they have no max_tokens",
    "attachments": "they have attachments",
    "context": "they refer to what the provider keeps, or use its tools",
}
_WHY_LONG = "their text may be longer than its price is known for"


class Spending:
    """A call in dollars: its most where its text and `max_tokens` bound it, else what answers came to."""

    def __init__(self, estimates: Estimates, meter: Meter) -> None:
        self._estimates = estimates
        self._meter = meter
        self._shown: dict[tuple[str, str, str], int] = {}
        """The largest input so far, of calls whose price nobody can know beforehand."""
        self._told: set[str] = set()
        """Models of which it was told that a budget does not hold for them."""

    def ahead(self, call: Call, group: str, body: bytes) -> Ahead:
        """What to set aside for the call; `group` is the evaluation that makes it."""
        unknown, cache = unknown_input(body), written_cache(body)
        most = self._estimates.at_most(call, group)
        why = _WHY[unknown]
        if most is not None and not unknown:
            most_usd = self._priced(call, cache, most.input_tokens, most.output_tokens)
            if most_usd is not None:
                return Ahead(most_usd)
            why = _WHY_LONG
        shown = self._shown.get((group, call.model, unknown))
        expected = self._estimates.expected(call, group)
        input_tokens = max(expected.input_tokens, (shown or 0) * MORE_THAN_SHOWN)
        output_tokens = expected.output_tokens if most is None else most.output_tokens
        usd = self._priced(call, cache, input_tokens, output_tokens)
        if usd is None:
            self._tell(call, f"the budget does not hold for {call.model}: {self._unpriced(call)}")
            return NOTHING
        if usd:
            self._tell(
                call,
                f"the budget may be exceeded by calls to {call.model} that are under way: nobody can know"
                f" what they cost, for {why}. The first goes alone, and for the others what"
                " answers came to is set aside",
            )
        return Ahead(usd, is_bound=False, goes_alone=usd > 0 and shown is None, kind=unknown)

    def note(self, call: Call, group: str, ahead: Ahead, usage: Usage) -> None:
        """An answer shows what such calls take."""
        if not ahead.is_bound:
            name = (group, call.model, ahead.kind)
            self._shown[name] = max(self._shown.get(name, 0), usage.total_input_tokens)

    def _priced(
        self, call: Call, cache: CacheTime, input_tokens: float, output_tokens: float
    ) -> float | None:
        """`None` where the price is unknown, also because the input is longer than it is known for."""
        read, output = round(input_tokens), round(output_tokens)
        usage = Usage(read, output)
        if cache:
            usage = Usage(0, output, 0, read, long_cache_write_tokens=read if cache == "1h" else 0)
        return self._meter.price_usd(call, usage)

    def _unpriced(self, call: Call) -> str:
        is_known = self._meter.price_usd(call, Usage(1, 1)) is not None
        return "calls as long as these have no known price" if is_known else "its price is unknown"

    def _tell(self, call: Call, text: str) -> None:
        if call.model not in self._told:
            self._told.add(call.model)
            _LOG.warning("%s", text)
