"""`evalve batch …` as a person types it, and `--batch=auto`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import evalve
from evalve import foreach
from evalve.cli import main
from evalve.gate.limits.presets import BatchLimits, batch_limits_for, read_limits
from evalve.simulator import Simulator

Started = Callable[..., Simulator]
Captured = pytest.CaptureFixture[str]
CLAUDE = "anthropic/claude-haiku-4-5"


def submitted(count: int = 3, name: str = "mine") -> str:
    return evalve.batches.submit([{"model": CLAUDE, "prompt": f"say {n}"} for n in range(count)], name=name)


def said(capsys: Captured, *words: str) -> Any:
    assert main(["batch", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_batches_the_list_says_how_to_make_one(provider: Started, capsys: Captured) -> None:
    provider()
    assert main(["batch", "list"]) == 0
    assert "`evalve run FILE --batch`" in capsys.readouterr().out
    assert said(capsys, "list") == []


def test_a_batch_is_listed_waited_for_and_fetched(provider: Started, capsys: Captured) -> None:
    provider(delay_s=0.2)
    batch = submitted()
    listed = said(capsys, "list")[0]
    assert (listed["id"], listed["state"], listed["requests"], listed["name"]) == (
        batch,
        "submitted",
        3,
        "mine",
    )
    assert listed["expires_at"] and listed["kept_until_at"] and listed["provider_id"] == "msgbatch_sim000001"
    assert said(capsys, "wait")[0]["counts"] == {"succeeded": 3}
    assert said(capsys, "status", "latest")["state"] == "collected"
    assert main(["batch", "fetch", batch[:8], "--output", "-"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["response"]["content"][0]["text"] for line in lines] == ["0", "1", "2"]
    assert said(capsys, "wait") == []


def test_what_has_not_ended_cannot_be_fetched_yet(provider: Started, capsys: Captured) -> None:
    provider(delay_s=30)
    assert main(["batch", "fetch", submitted()]) == 1
    assert "has not ended yet (in_progress)" in capsys.readouterr().err


def test_a_cancelled_batch_gives_what_was_done(provider: Started, capsys: Captured) -> None:
    provider(delay_s=30)
    batch = submitted()
    assert main(["batch", "cancel", batch]) == 0
    assert f"`evalve batch fetch {batch}`" in capsys.readouterr().out
    assert said(capsys, "fetch", batch)["counts"] == {"canceled": 3}
    assert said(capsys, "status", batch)["state"] == "cancelled"
    assert main(["batch", "cancel", batch]) == 4
    assert "collected already" in capsys.readouterr().err


def test_mistakes_are_named(provider: Started, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    provider(delay_s=30)
    batch = submitted()
    assert main(["batch", "status", "evb_nothing"]) == 1
    assert "no batch 'evb_nothing'" in capsys.readouterr().err
    assert main(["batch", "cancle", batch]) == 4
    assert "did you mean 'cancel'" in capsys.readouterr().err
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another")
    assert main(["batch", "fetch", batch]) == 4
    assert "submitted with another key: set ANTHROPIC_API_KEY" in capsys.readouterr().err


def test_auto_says_which_way_and_why(provider: Started, capfd: Captured) -> None:
    simulator = provider()

    @foreach("n", range(3))
    async def eval_few(n: int) -> bool:
        return (await evalve.model(CLAUDE).generate(f"few {n}", max_tokens=9)).text == str(n)

    @foreach("n", range(120))
    async def eval_many(n: int) -> bool:
        return (await evalve.model(CLAUDE).generate(f"many {n}", max_tokens=9)).text == str(n)

    evalve.run(eval_few, experiment="few", batch="auto", progress="plain")
    assert "eval_few runs live: 3 calls are few" in capfd.readouterr().err
    evalve.run(eval_many, experiment="tight", batch="auto", deadline="10m", samples=101, progress="plain")
    assert "eval_many runs live: the deadline is in 10 min" in capfd.readouterr().err
    assert simulator.stats.batches == 0
    evalve.run(eval_many, experiment="many", batch="auto", deadline="1d", progress="plain")
    assert "save" in capfd.readouterr().err  # what 101 calls cost is known by now, and is next to nothing


def test_auto_takes_batches_where_nothing_speaks_against_them(provider: Started, capfd: Captured) -> None:
    simulator = provider()

    @foreach("n", range(120))
    async def eval_many(n: int) -> bool:
        return (await evalve.model(CLAUDE).generate(f"many {n}", max_tokens=9)).text == str(n)

    result = evalve.run(eval_many, experiment="many", batch="auto", deadline="2h", progress="plain")
    assert (result.done, simulator.stats.batches, simulator.stats.batched) == (120, 1, 120)
    assert "eval_many runs in batches: 120 calls; a batch takes mostly 60 min" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("limits", "environ", "expected"),
    [
        ({}, {}, BatchLimits()),
        ({"anthropic": {"tier": "1"}}, {}, BatchLimits(100_000, 100_000)),
        ({"anthropic": {"tier": "scale"}}, {}, BatchLimits(100_000, 500_000)),
        ({"anthropic": {"tier": "1", "batch_queue": 7}}, {}, BatchLimits(100_000, 7)),
        ({}, {"EVALVE_LIMITS_ANTHROPIC_BATCH_SIZE": "10"}, BatchLimits(10, None)),
    ],
)
def test_sizes_and_queues_are_those_of_the_tier_unless_they_are_said(
    limits: Any, environ: dict[str, str], expected: BatchLimits
) -> None:
    assert batch_limits_for("anthropic", read_limits(limits), environ) == expected


def test_a_configured_queue_is_waited_for_also_behind_a_batch_that_nobody_looks_at(
    provider: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator = provider(delay_s=0.5)
    monkeypatch.setenv("EVALVE_LIMITS_ANTHROPIC_BATCH_QUEUE", "4")
    submitted(3)
    evalve.batches.submit([{"model": CLAUDE, "prompt": f"tell {n}"} for n in range(3)])
    assert simulator.stats.batches == 2
    assert simulator.stats.batch_results["succeeded"] >= 3  # the first had ended before the second went out
