"""Limits that are stated in other ways than the provider's own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalve.gate.dialects.anthropic import AnthropicDialect
from evalve.gate.dialects.finding import DIALECTS
from evalve.gate.dialects.stated_limits import stated_limits
from evalve.gate.messages import Dialect, Reply, Stated

DATE = "Mon, 16 Nov 2026 12:00:00 GMT"  # 1794830400


def those(*names: str) -> list[Dialect]:
    return [dialect for dialect in DIALECTS if dialect.name in names]


@pytest.mark.parametrize(
    ("headers", "requests"),
    [
        # plain
        ({"x-ratelimit-limit": "100", "x-ratelimit-remaining": "60"}, Stated(100, 60)),
        (
            {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "60", "x-ratelimit-reset": "24"},
            Stated(100, 60, 0.0, 24.0),
        ),
        (
            {"x-ratelimit-limit": "100", "x-ratelimit-remaining": "60", "x-ratelimit-reset": "1m30s"},
            Stated(100, 60, 0.0, 90.0),
        ),
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-reset": "1794830430", "date": DATE},
            Stated(20, None, 0.0, 30.0, is_dated=True),
        ),
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-reset": "1794830430500", "date": DATE},
            Stated(20, None, 0.0, 30.5, is_dated=True),
        ),
        (
            {"x-ratelimit-limit": "20", "x-ratelimit-reset": "2026-11-16T12:00:05Z", "date": DATE},
            Stated(20, None, 0.0, 5.0, is_dated=True),
        ),
        ({"x-ratelimit-limit": "20", "x-ratelimit-reset": "1794830430"}, Stated(20)),
        ({"x-rate-limit-limit": "7", "x-rate-limit-remaining": "2"}, Stated(7, 2)),
        ({"x-ratelimit-limit": "100, 80", "x-ratelimit-remaining": "60,50"}, Stated(80, 50)),
        ({"x-ratelimit-limit-second": "5", "x-ratelimit-remaining-second": "4"}, Stated(300, 4)),
        ({"x-ratelimit-limit-minute": "90", "x-ratelimit-remaining-minute": "4"}, Stated(90, 4)),
        # drafts of the IETF, the oldest first
        (
            {"ratelimit-limit": "100", "ratelimit-remaining": "50", "ratelimit-reset": "50"},
            Stated(100, 50, 0, 50),
        ),
        (
            {"ratelimit-limit": "100, 100;w=10", "ratelimit-remaining": "50", "ratelimit-reset": "5"},
            Stated(600, 50),
        ),
        (
            {"ratelimit-limit": "10", "ratelimit-remaining": "9", "ratelimit-policy": "10;w=1, 1000;w=3600"},
            Stated(600, 9),
        ),
        ({"ratelimit": "limit=100, remaining=50, reset=5"}, Stated(100, 50, 0, 5)),
        ({"ratelimit": "limit=100,remaining=50,reset=5", "ratelimit-policy": "100;w=10"}, Stated(600, 50)),
        ({"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=30'}, Stated(200, 50)),
        (
            {
                "ratelimit": '"burst";r=3;t=1, "day";r=900;t=50000',
                "ratelimit-policy": '"burst";q=5;w=1, "day";q=1000;w=86400',
            },
            Stated(300, 3),
        ),
    ],
)
def test_limits_of_requests_are_read(headers: dict[str, str], requests: Stated) -> None:
    assert stated_limits(headers) == {"requests": requests}


@pytest.mark.parametrize(
    ("headers", "stated"),
    [
        (
            {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-remaining-req-minute": "59"},
            {"requests": Stated(60, 59)},
        ),
        (
            {"x-ratelimit-limit-tokens-minute": "500000", "x-ratelimit-remaining-tokens-minute": "1"},
            {"tokens": Stated(500000, 1)},
        ),
        (
            {"x-ratelimitbysize-limit-minute": "500000", "x-ratelimitbysize-remaining-minute": "7"},
            {"tokens": Stated(500000, 7)},
        ),
        (
            {"x-ratelimit-limit-tokens-prompt": "60000", "x-ratelimit-limit-tokens-generated": "900"},
            {"input_tokens": Stated(60000), "output_tokens": Stated(900)},
        ),
        (
            {"x-ratelimit-limit-requests": "10", "x-ratelimit-limit": "999"},
            {"requests": Stated(10)},
        ),
    ],
)
def test_other_names_are_known(headers: dict[str, str], stated: dict[str, Stated]) -> None:
    assert stated_limits(headers) == stated


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-limit": "many"},
        {"x-ratelimit-limit": "-1", "x-ratelimit-remaining": "-1"},
        {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "4999", "x-ratelimit-reset": "3000"},
        {"ratelimit": '"day";r=9;t=5', "ratelimit-policy": '"day";q=10;w=86400'},
        {"ratelimit": '"size";r=9;t=5', "ratelimit-policy": '"size";q=10;w=60;qu="content-bytes"'},
        {"ratelimit": '"nameless";r=9;t=5'},
        {"ratelimit": ';;,"', "ratelimit-policy": "=;w=, 5;w=x"},
    ],
)
def test_what_makes_no_sense_or_is_for_a_day_says_nothing(headers: dict[str, str]) -> None:
    assert stated_limits(headers) == {}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.name)
def test_every_dialect_reads_what_a_proxy_states(dialect: Dialect) -> None:
    assert dialect.stated({"ratelimit-limit": "30", "ratelimit-remaining": "29"}) == {
        "requests": Stated(30, 29)
    }


def test_a_providers_own_headers_hold_over_all_others() -> None:
    headers: dict[str, Any] = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "x-ratelimit-limit-requests": "1000",
    }

    assert AnthropicDialect().stated(headers) == {"requests": Stated(50, 49)}


@pytest.mark.parametrize("dialect", those("anthropic", "openai", "bedrock"))
@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("name", ["ThrottlingException", "TooManyRequestsException"])
def test_a_refusal_of_amazons_is_one_whatever_its_status(dialect: Dialect, status: int, name: str) -> None:
    reply = Reply(status, {"x-amzn-errortype": name}, b'{"message": "Too many requests"}')

    problem = dialect.problem(reply)

    assert problem is not None
    assert problem.kind == "rate_limit"


@pytest.mark.parametrize("dialect", those("anthropic", "openai", "gemini", "vertex"))
def test_googles_delay_is_obeyed_in_whatever_format_it_comes(dialect: Dialect) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}]
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no", "details": details}

    problem = dialect.problem(Reply(429, {}, json.dumps({"error": error}).encode()))

    assert problem is not None
    assert problem.kind == "rate_limit"
    assert problem.retry_after_s == 7.5
