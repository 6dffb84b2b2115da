"""What `evalve plan` says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evalve.show.plans import HERE, plan_json, plan_text


@dataclass(frozen=True)
class Work:
    label: str = "eval_tools"
    samples: int = 53
    repeat: int = 1
    attempts: int = 53
    calls: int = 106
    calls_per_sample: float = 2.0
    input_tokens: float | None = 600.0
    output_tokens: float | None = 200.0
    latency_s: float | None = 6.0
    cost_usd: float | None = 0.0048
    source: str = "20 records of first"

    def total(self, per_call: float | None) -> float | None:
        return None if per_call is None else per_call * self.calls


@dataclass(frozen=True)
class Scope:
    name: str = "tier 1"
    source: str = "anthropic tier 1"
    per_minute: Mapping[str, float] = field(default_factory=lambda: {"requests": 50.0})
    duration_s: float = 164.0
    binding: str = "output_tokens"
    used: Mapping[str, float] = field(default_factory=lambda: {"output_tokens": 0.969})
    calls_per_minute: float | None = 40.0
    calls_at_once: float | None = 4.0
    max_concurrency: int | None = 5
    throttle_s: float = 3.0


@dataclass(frozen=True)
class Planned:
    works: Sequence[Work] = (Work(),)
    samples: int = 53
    attempts: int = 53
    calls: int = 106
    input_tokens: float | None = 63_600.0
    output_tokens: float | None = 21_200.0
    cost_usd: float | None = 0.5088
    latency_s: float | None = 6.0
    one_by_one_s: float | None = 636.0
    scopes: Sequence[Scope] = (Scope(),)
    batch: Any = None
    choice: Any = None


MODEL = "anthropic/claude-sonnet-4-5"


def text(plan: Planned, model: str | None = MODEL) -> list[str]:
    return list(plan_text(plan, model=model, width=100))


def test_a_plan_says_what_is_spent_and_how_to_run_it() -> None:
    assert text(Planned()) == [
        "evaluation  samples  calls  input tokens  output tokens    cost  figures from",
        "──────────  ───────  ─────  ────────────  ─────────────  ──────  ───────────────────",
        "eval_tools       53    106        63,600         21,200  $0.509  20 records of first",
        "one call at a time, 6.00 s each: 10 min 36 s",
        "",
        "limits    duration  held by            calls/min  at once  concurrency  throttle",
        "──────  ──────────  ─────────────────  ─────────  ───────  ───────────  ────────",
        "tier 1  2 min 44 s  output tokens 97%         40      4.0            5       3 s",
        "",
        "at once: calls in flight that the limits can use, rate × latency. Any number of processes is",
        "safe (pytest -n), for they share one budget; what is more than this only waits.",
        "concurrency, throttle: what to say as --max-concurrency and --throttle, where a sample's calls",
        "follow each other. Nothing is taken to be answered from the cache.",
        "No limits of anthropic/claude-sonnet-4-5 are configured or learnt here yet: its first answer will"
        " state them.",
    ]


def test_limits_that_hold_here_are_named_with_their_source() -> None:
    here = Scope(name=HERE, source="evalve.yaml", per_minute={"requests": 50.0, "input_tokens": 30_000.0})
    lines = text(Planned(scopes=[here]))

    assert "here: 50 requests, 30,000 input tokens a minute (evalve.yaml)" in lines
    assert not any("configured or learnt" in line for line in lines)


def test_an_unknown_price_is_unknown_and_not_free() -> None:
    priced = Planned(works=[Work(cost_usd=0.0)], cost_usd=0.0)
    unpriced = Planned(works=[Work(cost_usd=None)], cost_usd=None)

    assert text(priced)[2].split()[5] == "$0.00"
    assert text(unpriced)[2].split()[5] == "unknown"


def test_unknown_tokens_make_durations_a_lower_bound_and_say_what_to_do() -> None:
    lines = text(
        Planned(works=[Work(input_tokens=None, output_tokens=None)], input_tokens=None, output_tokens=None)
    )

    assert any(line.startswith("tier 1  ≥ 2 min 44 s") for line in lines)
    assert any("run with --samples 5 first and plan again" in line for line in lines)


def test_an_unknown_latency_leaves_the_window_to_auto() -> None:
    scope = Scope(calls_at_once=None, max_concurrency=None, throttle_s=0.0)
    lines = text(Planned(latency_s=None, one_by_one_s=None, scopes=[scope]))

    row = next(line for line in lines if line.startswith("tier 1"))
    assert row.split()[-3:] == ["–", "auto", "0"]
    assert any("say --latency-s" in line for line in lines)
    assert not any("one call at a time" in line for line in lines)


def test_where_no_limit_holds_the_run_latency_does() -> None:
    lines = text(Planned(scopes=[Scope(binding="", used={}), Scope(name=HERE, binding="concurrency")]))

    rows = [line.split() for line in lines if line.startswith(("tier 1", "here  "))]
    assert rows[0][6] == "latency"
    assert rows[1][5] == "concurrency"


def test_several_evaluations_are_summed() -> None:
    other = replace(Work(), label="eval_other", repeat=3)
    lines = text(Planned(works=[Work(), other], attempts=212, calls=424, cost_usd=1234.5))

    assert lines[3].split()[:4] == ["eval_other", "53", "×", "3"]
    assert lines[4].split() == ["in", "all", "212", "424", "63,600", "21,200", "$1234.50"]


def test_without_a_model_the_plan_says_what_it_lacks() -> None:
    assert text(Planned(), None)[-2:] == [
        "No model was named: these are Anthropic's tiers. --model shows those of its provider, its",
        "price and the limits that hold here.",
    ]


def test_tokens_that_are_counted_together_are_called_so() -> None:
    openai = Scope(name=HERE, binding="tokens", used={"tokens": 0.97}, per_minute={"tokens": 500_000.0})
    lines = text(Planned(scopes=[openai]))

    assert "combined tokens 97%" in lines[7]
    assert lines[8] == "here: 500,000 combined tokens a minute (anthropic tier 1)"


def test_json_has_every_figure() -> None:
    said = json.loads(plan_json(Planned(), model=MODEL))

    assert said["model"] == MODEL
    assert (said["samples"], said["calls"], said["cost_usd"]) == (53, 106, 0.5088)
    assert said["evaluations"][0]["source"] == "20 records of first"
    assert said["limits"] == [
        {
            "name": "tier 1",
            "source": "anthropic tier 1",
            "per_minute": {"requests": 50.0},
            "duration_s": 164.0,
            "binding": "output_tokens",
            "used": {"output_tokens": 0.969},
            "calls_per_minute": 40.0,
            "calls_at_once": 4.0,
            "max_concurrency": 5,
            "throttle_s": 3.0,
        }
    ]


@dataclass(frozen=True)
class InBatches:
    rounds: int = 2
    batch_usd: float | None = 1.25
    typical_s: float = 7200.0
    longest_s: float = 172_800.0


@dataclass(frozen=True)
class Chosen:
    in_batches: bool = True
    reason: str = "5,000 calls"


def test_the_other_way_to_run_it_is_in_batches() -> None:
    planned = Planned(batch=InBatches(), choice=Chosen())
    lines = text(planned)
    assert (
        "--batch   1.2500 USD (half), 2 rounds of batches: mostly within 2 h 00 min, at most 48 h 00 min"
        in lines
    )
    assert "auto      in batches: 5,000 calls" in lines
    assert json.loads(plan_json(planned, model=None))["batch"] == {
        "rounds": 2,
        "cost_usd": 1.25,
        "typical_s": 7200.0,
        "longest_s": 172_800.0,
        "auto": "batch",
        "reason": "5,000 calls",
    }
