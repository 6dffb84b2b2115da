"""What a call may cost, to be set aside from a budget before it goes."""

from __future__ import annotations

import logging

from evalve.gate.estimates import Estimates
from evalve.gate.messages import Call, Usage
from evalve.gate.metering import Meter

_LOG = logging.getLogger(__name__)


class Spending:
    """A call in dollars: its most by `max_tokens`, else what answers so far came to."""

    def __init__(self, estimates: Estimates, meter: Meter) -> None:
        self._estimates = estimates
        self._meter = meter
        self._unpriced: set[str] = set()
        """Models of which it was told that their price is unknown."""

    def ahead_usd(self, call: Call, group: str) -> tuple[float, bool]:
        """What it may cost, and whether it cannot cost more."""
        most = self._estimates.at_most(call)
        expected = most or self._estimates.expected(call, group)
        usage = Usage(round(expected.input_tokens), round(expected.output_tokens))
        return self._priced(call, usage), most is not None

    def _priced(self, call: Call, usage: Usage) -> float:
        usd = self._meter.price_usd(call, usage)
        if usd is None and call.model not in self._unpriced:
            self._unpriced.add(call.model)
            _LOG.warning("the budget does not hold for %s: its price is unknown", call.model)
        return usd or 0.0
