"""What the evaluations and fixtures of one pytest process may spend together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from evalve import wiring
from evalve.gate.accounts import Account
from evalve.gate.budget import SharedBudget
from evalve.options import Options


class Spending:
    """One budget for the whole run: what one evaluation or fixture has used, the next does not have."""

    def __init__(self) -> None:
        self.purse = wiring.Purse()
        self._fixtures: Account | None = None

    def share_among(self, workers: int, said: wiring.Settings) -> wiring.Settings:
        """Together the workers of xdist may spend what one process might."""
        limit_usd = said.options_for_any().budget_usd
        if limit_usd is None:
            return said
        self.purse.shares = workers
        return replace(said, said=replace(said.said, budget_usd=limit_usd / workers))

    def count_fixtures(self, account: Account) -> None:
        """Calls that are made between runs."""
        self._fixtures = account
        self.purse.spent_by_fixtures_usd = account.budget.used_usd

    def within_budget(self, options: Options, for_all_usd: float | None) -> Options:
        """A budget for the whole run is what the evaluations and fixtures before have left of it."""
        if for_all_usd is None:
            return options
        used_usd = self.purse.spent_usd + self.purse.spent_by_fixtures_usd()
        return replace(options, budget_usd=max(0.0, for_all_usd - used_usd))

    @contextmanager
    def together(self, asked: Sequence[Options]) -> Iterator[SharedBudget | None]:
        """One budget for evaluations beside each other: the smallest that one of them has."""
        limits_usd = [options.budget_usd for options in asked if options.budget_usd is not None]
        budget = SharedBudget(min(limits_usd)) if limits_usd else None
        with self.leaving_the_rest_to_fixtures():
            try:
                yield budget
            finally:
                self.purse.spent_usd += budget.used_usd() if budget is not None else 0.0

    @contextmanager
    def leaving_the_rest_to_fixtures(self) -> Iterator[None]:
        """What an evaluation spends in the block, the fixtures of those that follow no longer have."""
        before_usd = self.purse.spent_usd
        try:
            yield
        finally:
            if self._fixtures is not None and self._fixtures.budget.limit_usd is not None:
                self._fixtures.budget.limit_usd -= self.purse.spent_usd - before_usd
