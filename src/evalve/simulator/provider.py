"""Whom the provider admits: spend cap, concurrency, ramp and buckets, decided at once for one request."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from evalve.simulator.accounts import Account, InputUsage
from evalve.simulator.asks import Ask
from evalve.simulator.behaviour import Behaviour
from evalve.simulator.buckets import Cost, Production, Shortage
from evalve.simulator.ledger import Ledger
from evalve.simulator.limits import Limits

RefusalKind = Literal["rate_limit", "concurrency", "ramp", "spend", "too_large", "random"]
_TOKEN_COUNT = {"count_tokens": Cost(1, 1)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not admitted, and when it would be; without `wait_s`, nobody can say or never."""

    kind: RefusalKind
    dimension: str | None = None
    wait_s: float | None = None
    limit: float = 0.0
    window_s: float = 60.0
    used: float = 0.0
    requested: float = 0.0


class Admission:
    """A request that was let in: holds its place, and charges its output, until it is released."""

    __slots__ = ("_costs", "_prefixes", "_production", "_provider", "account", "ask", "input", "ordinal")

    def __init__(
        self,
        provider: Provider,
        account: Account,
        ask: Ask,
        *,
        usage: InputUsage,
        costs: Mapping[str, Cost],
        prefixes: Mapping[bytes, float],
        ordinal: int,
    ) -> None:
        self._provider = provider
        self._costs = costs
        self._prefixes = prefixes
        self._production: Production | None = None
        self.account = account
        self.ask = ask
        self.input = usage
        self.ordinal = ordinal

    def start_output(self, *, tokens: int, duration_s: float, now_s: float) -> None:
        """The first token is there; so many will follow within this time."""
        behaviour = self._provider.behaviour
        self.account.keep_prefixes(self._prefixes, now_s)
        live = self.ask.api == "anthropic" and behaviour.output_charging == "produced"
        dimensions = ("output_tokens", "tokens") if live else ()
        countings = self.account.ledger.countings(dimensions)
        self._production = Production(countings, tokens=tokens, duration_s=duration_s, now_s=now_s)

    def end_output(self, *, now_s: float, produced: int | None = None) -> int:
        """The answer is complete or broken off; without a figure, what its pace gives until now."""
        if self._production is None:
            return 0
        produced = self._production.end(now_s=now_s, produced=produced)
        self._production = None
        self._provider.count_spending(self.input, produced)
        self._settle(produced, now_s)
        return produced

    def give_tokens_back(self, now_s: float) -> None:
        """The server failed before it worked: the request counts, its tokens do not."""
        for dimension, cost in self._costs.items():
            if dimension != "requests":
                self.account.ledger.charge(dimension, -cost.charge, now_s)

    def _settle(self, produced: int, now_s: float) -> None:
        """Correct a charge that was made by the maximum when the request came."""
        behaviour = self._provider.behaviour
        by_maximum: dict[str, float] = {}
        if self.ask.api == "openai":
            if behaviour.openai_settles:
                by_maximum["tokens"] = self.input.fresh_tokens + produced
        elif behaviour.output_charging == "max_tokens":
            by_maximum = {"output_tokens": produced, "tokens": self.input.charged_tokens + produced}
        for dimension, actual in by_maximum.items():
            if dimension in self._costs:
                self.account.ledger.charge(dimension, actual - self._costs[dimension].charge, now_s)

    def release(self) -> None:
        self.account.in_flight -= 1
        self._provider.in_flight -= 1


class Provider:
    """All accounts under one behaviour. Time is handed in; nothing here waits."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.in_flight = 0
        self._admitted = 0
        self._spent_usd = 0.0
        self._accounts: dict[tuple[str, str, str], Account] = {}

    def adopt(self, behaviour: Behaviour, *, now_s: float) -> None:
        """Behave so from now on; what was used stays used."""
        self.behaviour = behaviour
        for (_, _, pool), account in self._accounts.items():
            limits = behaviour.models.get(pool, behaviour.limits)
            account.ledger.adopt(
                limits,
                headers=behaviour.headers,
                refuse_at_random=behaviour.refuse_at_random,
                foreign_share=behaviour.other_traffic,
                now_s=now_s,
            )

    def account(self, ask: Ask, key_hash: str, now_s: float) -> Account:
        pool, limits = self._pool_of(ask.model)
        name = (ask.api, key_hash, pool)
        account = self._accounts.get(name)
        if account is None:
            ledger = Ledger(
                limits,
                headers=self.behaviour.headers,
                refuse_at_random=self.behaviour.refuse_at_random,
                foreign_share=self.behaviour.other_traffic,
                now_s=now_s,
            )
            account = self._accounts[name] = Account(ledger, now_s)
        return account

    def admit(
        self, ask: Ask, key_hash: str, now_s: float, *, luck: float | None = None
    ) -> Admission | Refusal:
        """Let the request in and charge it, or say why not; a refusal uses up nothing, but see `take`.

        `luck`, from 0 to below 1, decides whether it is refused at random; without, the account draws it.
        """
        account = self.account(ask, key_hash, now_s)
        usage, prefixes = account.input_usage(ask, self.behaviour.prompt_cache, now_s)
        costs = costs_of(ask, usage, self.behaviour) if account.ledger.counted else {}
        refusal = self._refusal(ask, account, costs, now_s, luck)
        if refusal is not None:
            return refusal
        account.count_for_ramp()
        account.in_flight += 1
        self.in_flight += 1
        self._admitted += 1
        return Admission(
            self, account, ask, usage=usage, costs=costs, prefixes=prefixes, ordinal=self._admitted - 1
        )

    def admit_count(self, ask: Ask, key_hash: str, now_s: float) -> Refusal | None:
        """Let a request to count tokens in, which has its own limit."""
        account = self.account(ask, key_hash, now_s)
        shortage = account.ledger.take(_TOKEN_COUNT, now_s)
        return None if shortage is None else _rate_refusal(shortage, account, _TOKEN_COUNT)

    def count_spending(self, usage: InputUsage, output_tokens: int) -> None:
        cap = self.behaviour.spend_cap
        if cap is not None:
            self._spent_usd += usage.charged_tokens * cap.input_usd_per_million / 1e6
            self._spent_usd += output_tokens * cap.output_usd_per_million / 1e6

    def _refusal(
        self, ask: Ask, account: Account, costs: Mapping[str, Cost], now_s: float, luck: float | None
    ) -> Refusal | None:
        at_random, openai = self.behaviour.refuse_at_random, ask.api == "openai"
        refusal = self._refusal_before_buckets(ask, account, costs, now_s)
        if refusal is None and at_random is not None and account.ledger.refuses_at_random(now_s, luck):
            refusal = Refusal("random", wait_s=at_random.wait_s)
        if refusal is None:
            shortage = account.ledger.take(costs, now_s, refusals_count=openai)
            return None if shortage is None else _rate_refusal(shortage, account, costs)
        if openai:
            account.ledger.charge_refusal(now_s)
        return refusal

    def _refusal_before_buckets(
        self, ask: Ask, account: Account, costs: Mapping[str, Cost], now_s: float
    ) -> Refusal | None:
        cap, ramp, limits = self.behaviour.spend_cap, self.behaviour.ramp, account.ledger.limits
        if cap is not None and (
            (cap.calls is not None and self._admitted >= cap.calls)
            or (cap.usd is not None and self._spent_usd >= cap.usd)
        ):
            return Refusal("spend")
        if limits.concurrency is not None and account.in_flight >= limits.concurrency:
            return Refusal("concurrency", limit=limits.concurrency)
        if ask.api == "openai" and limits.tokens_per_minute is not None:
            requested = costs["tokens"].need
            if requested > limits.tokens_per_minute:  # OpenAI never serves it, however long one waits
                limit = limits.tokens_per_minute
                return Refusal("too_large", "tokens", limit=limit, requested=requested)
        if ramp is not None:
            wait_s = account.ramp_wait_s(ramp, now_s)
            if wait_s is not None:
                return Refusal("ramp", wait_s=wait_s)
        return None

    def _pool_of(self, model: str) -> tuple[str, Limits]:
        for pattern, limits in self.behaviour.models.items():
            if fnmatch.fnmatchcase(model, pattern):
                return pattern, limits
        return model, self.behaviour.limits


def costs_of(ask: Ask, usage: InputUsage, behaviour: Behaviour) -> Mapping[str, Cost]:
    """What must be there for the request to start, and what it is charged then, by dimension."""
    if ask.api == "openai":
        reserved = (ask.max_tokens or 0) * ask.choices
        estimate = usage.fresh_tokens
        tokens = estimate + reserved if behaviour.openai_charging == "sum" else max(estimate, reserved)
        return {"requests": Cost(1, 1), "tokens": Cost(tokens, tokens)}
    entering = usage.charged_tokens
    if behaviour.output_charging == "max_tokens":
        output = Cost(ask.max_tokens or 0, ask.max_tokens or 0)
    else:
        output = Cost(1, 0)  # any room at all lets it start; it is charged as it is produced
    return {
        "requests": Cost(1, 1),
        "input_tokens": Cost(entering, entering),
        "output_tokens": output,
        "tokens": Cost(entering + output.need, entering + output.charge),
    }


def _rate_refusal(shortage: Shortage, account: Account, costs: Mapping[str, Cost]) -> Refusal:
    counted, window_s = account.ledger.counted[shortage.dimension], account.ledger.limits.window_s
    return Refusal(
        "rate_limit",
        shortage.dimension,
        shortage.wait_s,
        limit=counted.rate_per_s * window_s,
        window_s=window_s,
        used=counted.depth - shortage.level,
        requested=costs[shortage.dimension].need,
    )
