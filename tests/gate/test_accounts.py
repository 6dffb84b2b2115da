"""Whose a call is: each run keeps to its own cache mode and budget, and counts its own calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from test_exchange import FakeSender, World, a_request, ok

from evalve.contracts import SAMPLE, CallLog, SampleContext, in_role, split_roles
from evalve.gate.accounts import Account, Accounts
from evalve.gate.messages import Reply, SendError
from evalve.gating import Calls
from evalve.options import Options
from evalve.testing import run_in_virtual_time
from fake_surroundings import FakeSurroundings


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_in_virtual_time(test(*arguments, **named))

    return run


@contextmanager
def in_sample_of(account: Account, surroundings: FakeSurroundings | None = None) -> Iterator[SampleContext]:
    context = SampleContext(
        "exp", "eval_a", "s1", 0, 1, CallLog(), surroundings=surroundings, account=account
    )
    token = SAMPLE.set(context)
    try:
        yield context
    finally:
        SAMPLE.reset(token)


async def asked(world: World, account: Account, prompt: str, sender: FakeSender) -> Reply:
    with in_sample_of(account):
        return await world.gate.exchange(a_request(prompt), sender)


@virtually
async def test_runs_beside_each_other_use_the_cache_each_in_its_own_mode(world: World) -> None:
    sender = FakeSender()
    off, on, refreshing = Account("off"), Account("on"), Account("refresh")
    await asked(world, on, "one", sender)

    replies = await asyncio.gather(
        asked(world, off, "one", sender),
        asked(world, on, "one", sender),
        asked(world, refreshing, "one", sender),
    )

    assert [reply.cached for reply in replies] == [False, True, False]
    assert len(sender.sent_at_s) == 3


@virtually
async def test_each_run_counts_its_own_calls(world: World) -> None:
    one, two = Account("on"), Account("on")

    await asyncio.gather(
        asked(world, one, "a", FakeSender()),
        asked(world, one, "b", FakeSender()),
        asked(world, two, "c", FakeSender()),
    )
    await asked(world, two, "a", FakeSender())

    assert [(each.totals()["requests"], each.totals()["cached"]) for each in (one, two)] == [(2, 0), (1, 1)]
    assert world.account.totals()["requests"] == 0
    assert one.spent_usd() == pytest.approx(0.1)


@virtually
async def test_calls_of_a_pair_are_counted_together_and_apart_and_paid_for_once(world: World) -> None:
    account = Account("on")
    with in_sample_of(account) as context:
        for role, prompt in [("student", "a"), ("teacher", "b"), ("judge", "c")]:
            with in_role(role):
                await world.gate.exchange(a_request(prompt), FakeSender())
    with in_sample_of(account), in_role("student"):
        await world.gate.exchange(a_request("a"), FakeSender())

    made = split_roles(account.totals())
    assert {role: (one["requests"], one["cached"]) for role, one in made.items()} == {
        "": (2, 1),
        "student": (1, 1),
        "teacher": (1, 0),
        "judge": (1, 0),
    }
    for name in ("input_tokens", "output_tokens", "cost_usd"):
        assert made[""][name] == made["student"][name] + made["teacher"][name]
    assert account.spent_usd() == made[""]["cost_usd"] + made["judge"]["cost_usd"] > 0
    assert (context.calls.requests, context.calls.roles["teacher"].requests) == (2, 1)


@virtually
async def test_a_spent_budget_stops_its_own_run_only(world: World) -> None:
    poor, rich = Account("off", budget_usd=0.5), Account("off", budget_usd=100.0)
    stopped, going_on = FakeSurroundings(), FakeSurroundings()

    with in_sample_of(poor, stopped), pytest.raises(SendError, match=r"budget of 0\.5 USD"):
        await world.gate.exchange(a_request("one"), FakeSender())  # may cost a dollar
    with in_sample_of(rich, going_on):
        reply = await world.gate.exchange(a_request("one"), FakeSender())

    assert (len(stopped.reasons), len(going_on.reasons), reply.status) == (1, 0, 200)


@virtually
async def test_what_one_run_has_under_way_takes_nothing_of_another_runs_budget(world: World) -> None:
    first, second = Account("off", budget_usd=1.2), Account("off", budget_usd=1.2)
    sender = FakeSender([ok()], takes_s=1.0)

    await asyncio.gather(asked(world, first, "one", sender), asked(world, second, "two", sender))

    assert sender.sent_at_s == [0.0, 0.0]


def test_calls_without_a_sample_belong_to_the_one_run_that_is_under_way() -> None:
    accounts, one, two = Accounts(), Account("on"), Account("on")
    found = [accounts.of_no_sample()]
    with accounts.open(one):
        found.append(accounts.of_no_sample())
        with accounts.open(two):
            found.append(accounts.of_no_sample())
        found.append(accounts.of_no_sample())
    found.append(accounts.of_no_sample())

    assert found == [None, one, None, one, None]


def test_calls_between_runs_belong_to_what_is_around_them() -> None:
    accounts, around, run = Accounts(), Account("read"), Account("on")

    with accounts.around(around):
        found = [accounts.of_no_sample()]
        with accounts.open(run):
            found.append(accounts.of_no_sample())
        found.append(accounts.of_no_sample())
    found.append(accounts.of_no_sample())

    assert found == [around, run, around, None]


def test_what_was_spent_is_told_by_role() -> None:
    calls = Calls(Options())
    sample = SampleContext("exp", "eval", "s1", 0, 1)
    for role, cost_usd in [("student", 0.11), ("teacher", 0.2), ("judge", 0.03)]:
        sample.role = role
        for log in calls.account.logs(sample):
            log.cost_usd += cost_usd

    assert calls.spent() == "0.340 USD (student 0.110, teacher 0.200, judge 0.030)"
