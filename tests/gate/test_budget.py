"""The budget: calls that may exceed it together wait for each other, and the last is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from evalve.gate.budget import Ahead, Budget, BudgetSpent, SharedBudget
from evalve.testing import run_in_virtual_time


class Account:
    """A budget, and what is spent of it."""

    def __init__(self, limit_usd: float | None) -> None:
        self.spent_usd = 0.0
        self.budget = Budget(lambda: self.spent_usd)
        self.budget.limit_usd = limit_usd

    async def call(self, *, expected_usd: float, cost_usd: float, is_bound: bool = False) -> float:
        """A call that takes a second; when it was let go."""
        ahead = Ahead(expected_usd, is_bound)
        await self.budget.reserve(lambda: ahead)
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        self.spent_usd += cost_usd
        self.budget.release(ahead)
        return began_s


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_in_virtual_time(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@virtually
async def test_without_a_budget_nobody_waits() -> None:
    account = Account(None)

    began = await asyncio.gather(*(account.call(expected_usd=100, cost_usd=100) for _ in range(5)))

    assert began == [0.0] * 5


@virtually
async def test_calls_that_fit_together_go_together() -> None:
    account = Account(1.0)

    began = await asyncio.gather(*(account.call(expected_usd=0.25, cost_usd=0.25) for _ in range(4)))

    assert began == [0.0] * 4


@virtually
async def test_a_call_that_may_not_fit_waits_for_those_under_way() -> None:
    account = Account(1.0)

    began = await asyncio.gather(*(account.call(expected_usd=0.6, cost_usd=0.1) for _ in range(3)))

    # each turns out to be cheap, and leaves room
    assert began == [0.0, 1.0, 2.0]


@virtually
async def test_a_call_that_does_not_fit_is_refused_when_nothing_is_under_way() -> None:
    account = Account(1.0)
    await account.call(expected_usd=0.6, cost_usd=0.6)

    with pytest.raises(BudgetSpent, match=r"budget of 1 USD is used up \(0\.6000 USD spent\)"):
        await account.call(expected_usd=0.6, cost_usd=0.6)


@virtually
async def test_a_first_call_goes_however_much_it_is_expected_to_cost() -> None:
    account = Account(0.01)

    assert await account.call(expected_usd=5.0, cost_usd=0.001) == 0.0


@virtually
async def test_a_spent_budget_refuses_at_once_also_what_costs_nothing() -> None:
    account = Account(1.0)
    account.spent_usd = 1.0

    with pytest.raises(BudgetSpent):
        await account.budget.reserve(lambda: Ahead(0.0, is_bound=False))


@virtually
async def test_one_who_waits_and_goes_away_leaves_the_others_waiting_rightly() -> None:
    account = Account(1.0)
    calls = [asyncio.create_task(account.call(expected_usd=0.6, cost_usd=0.1)) for _ in range(3)]
    await asyncio.sleep(0.5)

    calls[1].cancel()

    assert await calls[2] == 1.0


@virtually
async def test_a_call_whose_cost_is_bounded_never_exceeds_the_budget_not_even_the_first() -> None:
    account = Account(0.5)

    too_small = (
        r"the budget of 0\.5 USD is too small: a call may cost 0\.6000 USD; raise it, or lower max_tokens"
    )
    with pytest.raises(BudgetSpent, match=too_small):
        await account.call(expected_usd=0.6, cost_usd=0.001, is_bound=True)


@virtually
async def test_the_reason_comes_when_the_last_call_has_been_paid() -> None:
    account = Account(1.0)

    outcomes = await asyncio.gather(
        *(account.call(expected_usd=0.4, cost_usd=0.4, is_bound=True) for _ in range(4)),
        return_exceptions=True,
    )

    assert outcomes[:2] == [0.0, 0.0]
    assert {str(error)[:55] for error in outcomes[2:]} == {
        "the budget of 1 USD is used up (0.8000 USD spent): anot"
    }


@virtually
async def test_what_was_set_aside_for_an_answer_that_states_nothing_is_spent() -> None:
    account = Account(1.0)
    for _ in range(2):
        await account.budget.reserve(lambda: Ahead(0.4))
        account.budget.release(Ahead(0.4), is_unknown=True)

    with pytest.raises(BudgetSpent, match=r"0\.8000 USD spent, 0\.8000 USD of it at most, for calls"):
        await account.budget.reserve(lambda: Ahead(0.4))


@virtually
async def test_what_others_have_spent_of_it_is_named_with_what_a_person_set() -> None:
    budget = Budget(lambda: 0.3, 0.25, before_usd=0.75)

    with pytest.raises(BudgetSpent, match=r"budget of 1 USD is used up \(1\.0500 USD spent\)"):
        await budget.reserve(lambda: Ahead(0.1))


@virtually
async def test_a_call_whose_price_nobody_knows_goes_alone() -> None:
    account = Account(1.0)
    await account.budget.reserve(lambda: Ahead(0.1))
    pilot = asyncio.create_task(account.budget.reserve(lambda: Ahead(0.1, is_bound=False, goes_alone=True)))
    await asyncio.sleep(0)
    account.budget.release(Ahead(0.1))
    await pilot
    beside = asyncio.create_task(account.budget.reserve(lambda: Ahead(0.1)))
    await asyncio.sleep(1)

    assert not beside.done()
    account.budget.release(Ahead(0.1, is_bound=False, goes_alone=True))
    await beside


@virtually
async def test_a_call_whose_price_nobody_knows_goes_while_anything_is_left() -> None:
    account = Account(1.0)
    account.spent_usd = 0.9

    await account.budget.reserve(lambda: Ahead(0.5, is_bound=False, goes_alone=True))


@virtually
async def test_nobody_waits_for_a_call_that_is_not_read() -> None:
    account = Account(1.0)
    await account.budget.reserve(lambda: Ahead(0.6))
    waits = asyncio.create_task(account.budget.reserve(lambda: Ahead(0.6)))
    await asyncio.sleep(1)
    account.budget.stand_still(Ahead(0.6))

    with pytest.raises(BudgetSpent, match=r"0\.6000 USD set aside for streams that are open and not read"):
        await waits


@virtually
async def test_runs_beside_each_other_spend_one_amount() -> None:
    budget = SharedBudget(1.0)
    spent = {"a": 0.0, "b": 0.0}
    one, other = budget.joined_by(lambda: spent["a"]), budget.joined_by(lambda: spent["b"])

    await one.reserve(lambda: Ahead(0.6))
    spent["a"] += 0.6
    one.release(Ahead(0.6))

    with pytest.raises(BudgetSpent, match=r"the budget of 1 USD is used up \(0\.6000 USD spent\)"):
        await other.reserve(lambda: Ahead(0.5))
    await other.reserve(lambda: Ahead(0.4))
    assert one.used_usd() == other.used_usd() == 0.6
    assert (one.may_have_cost_usd(), other.may_have_cost_usd()) == (0.6, 0.4)


@virtually
async def test_what_a_run_may_have_cost_is_noted_before_each_call_goes() -> None:
    spent = [0.0]
    noted: list[float] = []
    share = SharedBudget(1.0).joined_by(lambda: spent[0])
    share.note = noted.append

    await share.reserve(lambda: Ahead(0.25))
    await share.reserve(lambda: Ahead(0.5))
    spent[0] = 0.125
    share.release(Ahead(0.25))
    share.release(Ahead(0.5), is_unknown=True)

    assert noted == [0.25, 0.75, 0.625, 0.625]


@virtually
async def test_what_is_set_aside_for_a_batch_is_not_noted_for_who_fetches_its_answers_counts_them() -> None:
    noted: list[float] = []
    share = SharedBudget(1.0).joined_by(lambda: 0.0)
    share.note = noted.append

    await share.reserve(lambda: Ahead(0.25, is_in_batch=True))
    await share.reserve(lambda: Ahead(0.5))

    assert noted == [0.0, 0.5]


@virtually
async def test_a_budget_tells_what_calls_of_earlier_runs_did_not_state() -> None:
    budget = SharedBudget(1.0, earlier_usd=0.75, earlier_unstated_usd=0.5).joined_by(lambda: 0.0)

    spent = r"0\.7500 USD spent, 0\.7500 USD of it by earlier runs, 0\.5000 USD of it at most, for calls that"
    with pytest.raises(BudgetSpent, match=spent):
        await budget.reserve(lambda: Ahead(0.5))
