"""Counts what calls cost: for the run that they belong to, and for the sample that made them."""

from __future__ import annotations

from collections.abc import Callable

from evalve.contracts import SampleContext
from evalve.gate.accounts import Account
from evalve.gate.messages import Call, Problem, Usage

Price = Callable[[str, Usage], float | None]


class Meter:
    """Writes in the account of a run, and in the log of a sample where there is one."""

    def __init__(self, price: Price) -> None:
        self._price = price

    def sent(self, account: Account, sample: SampleContext | None, waited_s: float) -> None:
        with account.lock:
            for log in account.logs(sample):
                log.requests += 1
                log.waited_s += waited_s

    def unsent(self, account: Account, sample: SampleContext | None) -> None:
        """What was admitted did not go out."""
        with account.lock:
            for log in account.logs(sample):
                log.requests -= 1

    def used(
        self,
        account: Account,
        sample: SampleContext | None,
        call: Call,
        usage: Usage,
        *,
        price_share: float = 1.0,
    ) -> float | None:
        """What it cost, where that is known; `price_share` is of the usual price."""
        cost_usd = self.price_usd(call, usage)
        if cost_usd is not None:
            cost_usd *= price_share
        with account.lock:
            for log in account.logs(sample):
                log.input_tokens += usage.input_tokens
                log.output_tokens += usage.output_tokens
                log.cache_read_tokens += usage.cache_read_tokens
                log.cache_write_tokens += usage.cache_write_tokens
                if cost_usd is None:
                    log.unpriced += 1
                else:
                    log.cost_usd += cost_usd
        return cost_usd

    def used_unknown(self, account: Account, sample: SampleContext | None) -> None:
        """An answer that does not say what it took, such as a stream of OpenAI's that was not asked to."""
        with account.lock:
            for log in account.logs(sample):
                log.unpriced += 1

    def ungated(self, account: Account, sample: SampleContext | None) -> None:
        """A call went past the gate."""
        with account.lock:
            for log in account.logs(sample):
                log.ungated += 1

    def price_usd(self, call: Call, usage: Usage) -> float | None:
        """`None` where the price is unknown."""
        return self._price(call.model, usage)

    def hit(self, account: Account, sample: SampleContext | None) -> None:
        with account.lock:
            for log in account.logs(sample):
                log.cached += 1

    def problem(self, account: Account, sample: SampleContext | None, problem: Problem) -> None:
        if problem.kind == "rate_limit":
            with account.lock:
                for log in account.logs(sample):
                    log.refusals += 1

    def retry(self, account: Account, sample: SampleContext | None, waited_s: float) -> None:
        with account.lock:
            for log in account.logs(sample):
                log.retries += 1
                log.waited_s += waited_s
