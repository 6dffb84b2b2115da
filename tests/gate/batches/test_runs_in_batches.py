"""Evaluations in batches against a real provider: the same code, half the price, nothing lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import pytest

import evalve
from evalve import Pool, Score, foreach
from evalve.batches.desk import desk
from evalve.simulator import Simulator

CLAUDE, GPT = "anthropic/claude-haiku-4-5", "openai/gpt-5-mini"
Started = Callable[..., Simulator]


def asking(samples: int = 30, *, model: str = CLAUDE, turns: int = 1, word: str = "say") -> Any:
    """An evaluation whose samples ask so often, each after its answer, for their own number."""

    @foreach("n", [(n,) for n in range(samples)])
    async def eval_it(n: int) -> Score:
        text = str(n)
        for turn in range(turns):
            text = (await evalve.model(model).generate(f"{word} {turn} {text}", max_tokens=20)).text
        return Score("right", text == str(n), [])

    return eval_it


def run(evaluation: Any, **options: Any) -> Any:
    asked = {"experiment": "e", "batch": True, "progress": "off", "max_concurrency": 4, **options}
    return evalve.run(evaluation, **asked)


def right(result: Any) -> int:
    return sum(bool(record.scores[0].value) for record in result if record.scores)


async def has_batches(simulator: Simulator) -> None:
    while not simulator.stats.batches:  # noqa: ASYNC110 (it runs on another thread)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_window_of_four_makes_one_batch_of_all_samples(provider: Started, model: str) -> None:
    simulator = provider()
    result = run(asking(model=model))
    assert (right(result), simulator.stats.batches, simulator.stats.batched) == (30, 1, 30)
    assert simulator.stats.requests == 0


def test_every_turn_is_a_round_of_its_own(provider: Started) -> None:
    simulator = provider()
    assert right(run(asking(turns=3))) == 30
    assert (simulator.stats.batches, simulator.stats.batched) == (3, 90)


def test_a_batch_costs_half_in_the_record_in_the_answer_and_in_the_list(provider: Started) -> None:
    provider()
    prices: list[float | None] = []

    @foreach("n", [(1,)])
    async def eval_it(n: int) -> bool:
        answer = await evalve.model(CLAUDE).generate("say hello", max_tokens=20)
        prices.append(answer.cost_usd)
        return True

    live = run(eval_it, experiment="live", batch=False, cache="off").report["calls"]["cost_usd"]
    batched = run(eval_it).report["calls"]["cost_usd"]
    assert batched == pytest.approx(live / 2) and prices == [live, pytest.approx(live / 2)]
    assert desk().store.batches()[0].cost_usd == pytest.approx(live / 2)


def test_waiting_for_a_batch_is_neither_working_time_nor_against_the_timeout(provider: Started) -> None:
    provider(delay_s=4.0)
    result = run(asking(5), timeout_s=3.0)
    assert right(result) == 5
    assert all(record.working_s < 3.0 for record in result)


def test_the_next_run_asks_nobody(provider: Started) -> None:
    simulator = provider()
    run(asking(), experiment="first")
    assert right(run(asking(), experiment="second")) == 30
    assert simulator.stats.batched == 30


def test_a_few_that_errored_expired_or_are_missing_are_sent_live(provider: Started) -> None:
    simulator = provider(errored=0.1, expired=0.1, missing=0.1)
    assert right(run(asking(30))) == 30
    lost = 30 - simulator.stats.batch_results["succeeded"]
    assert (simulator.stats.batches, simulator.stats.requests) == (1, lost) and lost > 0


def test_many_that_are_lost_go_in_another_batch_and_then_live(provider: Started) -> None:
    simulator = provider(errored=0.9)
    assert right(run(asking(60))) == 60
    assert simulator.stats.batches == 2 and simulator.stats.batched > 80
    assert simulator.stats.requests == 60 - simulator.stats.batch_results["succeeded"]


def test_what_a_batch_has_not_done_when_it_expires_is_sent_again(provider: Started) -> None:
    simulator = provider(delay_s=1.0, expires_after_s=0.5)
    assert right(run(asking(10))) == 10
    assert (simulator.stats.batch_results["expired"], simulator.stats.requests) == (5, 5)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_an_invalid_request_fails_as_it_would_live_and_is_not_sent_again(
    provider: Started, model: str
) -> None:
    simulator = provider()

    @foreach("n", [(1,), (2,)])
    async def eval_it(n: int) -> bool:
        tools = {"tools": 5} if n == 2 else {}
        await evalve.model(model).generate(f"say {n}", max_tokens=20, options=tools)
        return True

    result = run(eval_it)
    assert (result.done, result.failed_by_class) == (1, {"code": 1})
    assert "tools: must be a list" in next(str(record.failure) for record in result if record.failure)
    assert (simulator.stats.batched, simulator.stats.requests) == (2, 0)


def test_a_cancelled_batch_fails_its_samples_and_says_so(provider: Started) -> None:
    simulator = provider(delay_s=30.0)

    def cancel() -> None:
        while not simulator.stats.batches or desk().store.batches()[0].state != "submitted":
            time.sleep(0.02)
        asyncio.run(desk().cancelled(desk().store.batches()[0]))

    helper = threading.Thread(target=cancel)
    helper.start()
    result = run(asking(10))
    helper.join()
    assert result.failed_by_class == {"provider": 10}
    assert "cancelled with its batch msgbatch_sim" in str(next(iter(result)).failure)


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_a_full_queue_is_waited_for(provider: Started, model: str) -> None:
    simulator = provider(delay_s=0.3, queue_limit=12)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ANTHROPIC", "OPENAI"):
            patch.setenv(f"EVALVE_LIMITS_{name}_BATCH_SIZE", "10")
        assert right(run(asking(30, model=model))) == 30
    assert (simulator.stats.batched, simulator.stats.batches, simulator.stats.requests) == (30, 3, 0)


def test_a_batch_closes_some_seconds_after_the_last_call_while_a_sample_works(provider: Started) -> None:
    simulator = provider()

    @foreach("n", [(n,) for n in range(8)])
    async def eval_it(n: int) -> bool:
        if n == 0:
            await has_batches(simulator)
        return (await evalve.model(CLAUDE).generate(f"say {n}", max_tokens=20)).text == str(n)

    assert run(eval_it).done == 8
    assert (simulator.stats.batches, simulator.stats.batched) == (2, 8)


def test_clients_of_sdks_wait_for_batches_too(provider: Started) -> None:
    simulator = provider()

    @foreach("n", [(n,) for n in range(6)])
    async def eval_it(n: int) -> bool:
        async with anthropic.AsyncAnthropic(http_client=evalve.async_http_client(), timeout=0.05) as client:
            message = await client.messages.create(
                model="claude-haiku-4-5",
                max_tokens=20,
                messages=[{"role": "user", "content": f"say {n}"}],
            )
        return message.content[0].text == str(n)  # type: ignore[union-attr]

    result = run(eval_it)
    assert [record.scores[0].value for record in result] == [True] * 6
    assert (simulator.stats.batches, simulator.stats.batched, simulator.stats.requests) == (1, 6, 0)


def test_what_is_streamed_goes_live_and_is_told_of_once(
    provider: Started, capfd: pytest.CaptureFixture[str]
) -> None:
    simulator = provider()

    @foreach("n", [(1,), (2,)])
    async def eval_it(n: int) -> bool:
        async with evalve.model(CLAUDE).stream(f"say {n}", max_tokens=20) as stream:
            return "".join([piece.text async for piece in stream if hasattr(piece, "text")]) != ""

    assert run(eval_it, progress="plain").done == 2
    assert (simulator.stats.requests, simulator.stats.batched) == (2, 0)
    assert capfd.readouterr().err.count("cannot come in a batch") == 1


def test_a_sync_function_is_refused_with_the_remedy(provider: Started) -> None:
    provider()

    @foreach("n", [(1,)])
    def eval_it(n: int) -> bool:
        return True

    with pytest.raises(evalve.OptionError, match="write it as `async def`"):
        run(eval_it)


@pytest.mark.parametrize("cache", ["off", "refresh"])
def test_batches_need_the_cache(provider: Started, cache: str) -> None:
    provider()
    with pytest.raises(evalve.OptionError, match="--batch needs --cache on"):
        run(asking(1), cache=cache)


def test_samples_that_hold_a_place_of_a_pool_count_against_it_and_the_run_says_so(
    provider: Started, capfd: pytest.CaptureFixture[str]
) -> None:
    simulator = provider()
    pool = Pool(dict, size=3)

    @foreach("n", [(n,) for n in range(7)])
    async def eval_it(n: int, client: Any) -> bool:
        return (await evalve.model(CLAUDE).generate(f"say {n}", max_tokens=20)).text == str(n)

    assert run(eval_it, client=pool, progress="plain").done == 7
    assert simulator.stats.batches == 3
    assert "its samples keep client (3 at once) while they wait for a batch" in capfd.readouterr().err


async def test_a_replayed_sample_that_asks_for_something_else_is_reported(
    provider: Started, capfd: pytest.CaptureFixture[str]
) -> None:
    simulator = provider(delay_s=0.5)
    word = "before"

    @foreach("n", [(n,) for n in range(3)])
    async def eval_it(n: int) -> bool:
        return (await evalve.model(CLAUDE).generate(f"say {word} {n}", max_tokens=20)).text == str(n)

    running = asyncio.ensure_future(eval_it(experiment="e", batch=True, progress="off"))
    await has_batches(simulator)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    word = "after"
    result = await eval_it(experiment="e", batch=True, progress="plain", accept_changes=True)
    assert result.done == 3
    assert capfd.readouterr().err.count("non-deterministic") == 2  # the first, and how many in the end


def test_runs_of_one_process_share_a_batch(provider: Started) -> None:
    simulator = provider()

    async def both() -> list[Any]:
        one, two = asking(10, word="one"), asking(10, word="two")
        return list(
            await asyncio.gather(
                one(experiment="a", batch=True, progress="off"),
                two(experiment="b", batch=True, progress="off"),
            )
        )

    assert [right(result) for result in asyncio.run(both())] == [10, 10]
    assert (simulator.stats.batches, simulator.stats.batched) == (1, 20)


def test_a_budget_counts_half_prices(provider: Started) -> None:
    provider()
    price = run(asking(1), experiment="one").report["calls"]["cost_usd"]
    result = run(asking(20, word="tell"), budget_usd=100 * price)
    assert right(result) == 20


def test_no_file_has_the_key_in_it(provider: Started, tmp_path: Path) -> None:
    provider()
    run(asking(3))
    evalve.batches.submit([{"model": CLAUDE, "prompt": "say something"}])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "batches.db" for path in files)
    assert [path.name for path in files if b"sk-test-4711" in path.read_bytes()] == []
