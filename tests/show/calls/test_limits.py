"""What `evalve limits` says."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from evalve.show.calls.limits import (
    STATED,
    HolderNow,
    LimitNow,
    ScopeNow,
    forgotten_line,
    limits_json,
    limits_lines,
)
from evalve.show.tables import width_of

SCOPE = ScopeNow(
    scope="api.anthropic.com/1a2b3c4d5e6f/claude-haiku-4-5",
    host="api.anthropic.com",
    key_hash="1a2b3c4d5e6f",
    pool="claude-haiku-4-5",
    limits=[
        LimitNow("requests", 2000, "EVALVE_LIMITS_ANTHROPIC_RPM", burst=33.3, level=16.7, in_flight=3),
        LimitNow("input_tokens", 2_000_000, STATED, burst=33_333, level=30_000, in_flight=12_345),
    ],
    in_flight=3,
    concurrency=40,
    holders=[HolderNow("process 71 (pytest eval_a.py)", 3, {"requests": 3, "input_tokens": 12_345})],
)


def shown(scope: ScopeNow, *, width: int | None = 80) -> list[str]:
    return limits_lines([scope], path="/state/limits.db", width=width)


def test_a_scope_shows_limits_levels_sources_and_who_holds_what() -> None:
    assert shown(SCOPE) == [
        "api.anthropic.com · key 1a2b3c4d5e6f · claude-haiku-4-5",
        "  limit         per minute  burst  free now  in flight",
        "  ────────────  ──────────  ─────  ────────  ─────────",
        "  requests           2,000     33        17          3",
        "  input tokens   2,000,000  33.3k       30k      12.3k",
        "  source of requests: configured by EVALVE_LIMITS_ANTHROPIC_RPM",
        "  source of input tokens: response headers",
        "  in flight: 3 calls of at most 40",
        "    process 71 (pytest eval_a.py): 3 calls",
    ]


def test_several_scopes_stand_apart() -> None:
    lines = limits_lines([SCOPE, replace(SCOPE, key_hash="none")], path="/x")

    assert lines[9:11] == ["", "api.anthropic.com · no key · claude-haiku-4-5"]


def test_nothing_yet_is_one_line() -> None:
    assert limits_lines([], path="/state/limits.db") == [
        "no limits yet: they appear with the first call to a model (/state/limits.db)"
    ]


def test_a_pause_says_until_when_and_why() -> None:
    paused = replace(
        SCOPE,
        paused_until_at=datetime(2026, 1, 2, 10, 30, 12, tzinfo=UTC),
        paused_for_s=12.0,
        paused_by="refused",
    )
    until = f"{datetime(2026, 1, 2, 10, 30, 12, tzinfo=UTC).astimezone():%H:%M:%S}"

    assert f"  paused until {until} (in 12.0 s) by a 429" in shown(paused)
    assert f"  paused until {until} (in 12.0 s) by a 429 (concurrency)" in shown(
        replace(paused, paused_by="concurrency")
    )


def test_an_empty_bucket_says_when_the_next_call_may_start() -> None:
    empty = LimitNow("output_tokens", 600, STATED, burst=10, level=-25, next_in_s=3.5)

    lines = shown(replace(SCOPE, limits=[empty]))

    assert lines[3] == "  output tokens         600     10       -25          0"
    assert lines[4:6] == ["  source: response headers", "  output tokens: next in 3.50 s"]


def test_use_by_others_has_a_column_only_where_there_is_some() -> None:
    little = LimitNow("requests", 1000, STATED, burst=20, level=20, others_per_minute=9)
    much = LimitNow("tokens", 30_000, STATED, burst=500, level=500, others_per_minute=9000)

    assert "others" not in "".join(shown(replace(SCOPE, limits=[little])))
    assert shown(replace(SCOPE, limits=[little, much]))[1:5] == [
        "  limit     per minute  burst  free now  in flight  by others",
        "  ────────  ──────────  ─────  ────────  ─────────  ─────────",
        "  requests       1,000     20        20          0          –",
        "  tokens        30,000    500       500          0      9,000",
    ]


def test_after_a_refusal_for_speeding_up_the_share_is_shown() -> None:
    assert "  63% of the rates, growing again after a refusal for speeding up" in shown(
        replace(SCOPE, ramp_share=0.63)
    )


def test_a_limit_whose_level_is_not_known_yet() -> None:
    lines = shown(replace(SCOPE, limits=[LimitNow("requests", 50, STATED)], holders=[], in_flight=0))

    assert lines[3] == "  requests          50      –         –          0"


@pytest.mark.parametrize(
    ("unlimited", "said"),
    [
        (True, "  no limits: none is configured, and the answers state none"),
        (False, "  no limits yet: none is configured, and no answer has come"),
    ],
)
def test_a_scope_without_limits_says_why(unlimited: bool, said: str) -> None:
    assert shown(replace(SCOPE, limits=[], unlimited=unlimited))[1] == said


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0.04, "0"),
        (-0.04, "0"),
        (1.5, "1.5"),
        (9999, "9,999"),
        (10_000, "10k"),
        (999_960, "1M"),
        (2.5e6, "2.5M"),
    ],
)
def test_amounts_are_short(amount: float, said: str) -> None:
    limit = LimitNow("requests", 1, STATED, in_flight=amount)

    assert shown(replace(SCOPE, limits=[limit]))[3].split()[-1] == said


def test_eighty_columns_are_enough_however_long_a_command_is() -> None:
    holder = HolderNow(f"process 71 (python {'x' * 200})", 1234, {"input_tokens": 9e9, "output_tokens": 9e9})
    most = LimitNow("output_tokens", 9e9, STATED, burst=9e9, level=-9e9, in_flight=9e9, others_per_minute=9e8)

    assert max(map(width_of, shown(replace(SCOPE, limits=[most], holders=[holder])))) <= 80


def test_foreign_text_cannot_drive_the_terminal() -> None:
    scope = replace(SCOPE, pool="a\x1b[2J", holders=[HolderNow("b\x1b[2J", 1)])

    assert "\x1b" not in "".join(shown(scope))
    assert forgotten_line("a\x1b", 2) == (
        "forgot a\\x1b: its limits are learnt anew; 2 calls in flight not disturbed"
    )


def test_json_has_every_figure() -> None:
    paused = replace(SCOPE, paused_until_at=datetime(2026, 1, 2, tzinfo=UTC), paused_for_s=1.0)

    told = json.loads(limits_json([paused], path="/state/limits.db"))

    assert told["path"] == "/state/limits.db"
    [scope] = told["scopes"]
    assert scope["limits"][1] == {
        "dimension": "input_tokens",
        "per_minute": 2_000_000,
        "source": "response headers",
        "burst": 33_333,
        "level": 30_000,
        "in_flight": 12_345,
        "others_per_minute": 0.0,
        "next_in_s": 0.0,
        "full_share": 0.9,
    }
    assert scope["paused_until_at"] == "2026-01-02T00:00:00+00:00"
    assert scope["holders"] == [
        {
            "who": "process 71 (pytest eval_a.py)",
            "in_flight": 3,
            "booked": {"requests": 3, "input_tokens": 12_345},
        }
    ]
