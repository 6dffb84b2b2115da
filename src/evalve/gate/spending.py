"""What a call may cost, set aside from the budget before it goes."""

from __future__ import annotations

import logging

from evalve.gate.budget import Budget
from evalve.gate.estimates import Estimates
from evalve.gate.messages import Call, Usage
from evalve.gate.metering import Meter

_LOG = logging.getLogger(__name__)


class Spending:
    """The budget in the terms of calls: their most by `max_tokens`, else what answers so far came to."""

    def __init__(self, estimates: Estimates, meter: Meter) -> None:
        self.budget = Budget(meter.spent_usd)
        self._estimates = estimates
        self._meter = meter
        self._unpriced: set[str] = set()
        """Models of which it was told that their price is unknown."""

    async def reserve(self, call: Call, group: str) -> float:
        """What was set aside, in USD; `BudgetSpent` where there is too little left."""
        usd, is_bound = 0.0, False
        if self.budget.limit_usd is not None:
            most = self._estimates.at_most(call)
            is_bound = most is not None
            expected = most or self._estimates.expected(call, group)
            usage = Usage(round(expected.input_tokens), round(expected.output_tokens))
            usd = self._priced(call, usage)
        await self.budget.reserve(usd, is_bound=is_bound)
        return usd

    def _priced(self, call: Call, usage: Usage) -> float:
        usd = self._meter.price_usd(call, usage)
        if usd is None and call.model not in self._unpriced:
            self._unpriced.add(call.model)
            _LOG.warning("the budget does not hold for %s: its price is unknown", call.model)
        return usd or 0.0
