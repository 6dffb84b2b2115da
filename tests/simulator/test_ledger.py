"""What a provider counts and says, in virtual time and without HTTP."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import pytest

from evalve.errors import OptionError
from evalve.simulator import Ledger, Limits, RefuseAtRandom, Statement
from evalve.simulator.habits import Headers, RetryAfter, retry_after_headers
from evalve.simulator.limits import Window


def limits(per_s: float = 40.0, *, window: Window = "bucket", window_s: float = 60.0) -> Limits:
    return Limits(requests_per_minute=60 * per_s, window=window, window_s=window_s)


def shallow(depth_s: float, window_s: float = 60.0) -> Limits:
    return Limits(requests_per_minute=2400, depth_s=depth_s, window_s=window_s)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("window", Statement(limit=2400, remaining=30, full_in_s=0.25, scale_s=60)),
        ("minute", Statement(limit=2400, remaining=2390, full_in_s=0.25, scale_s=60)),
        ("ten-seconds", Statement(limit=400, remaining=390, full_in_s=0.25, scale_s=10)),
        ("second", Statement(limit=40, remaining=30, full_in_s=0.25, scale_s=1)),
    ],
)
def test_ten_of_a_bucket_a_second_deep_as_headers_tell_it(headers: Headers, expected: Statement) -> None:
    ledger = Ledger(shallow(1.0), headers=headers)

    ruling = ledger.admit({"requests": 10}, now_s=5.0)

    assert (ruling.is_served, ruling.stated) == (True, {"requests": expected})


def test_headers_on_the_scale_of_a_minute_promise_what_a_shallow_bucket_does_not_hold() -> None:
    ledger = Ledger(shallow(0.25), headers="minute", retry_after="exact")

    rulings = [ledger.admit({"requests": 1}, now_s=0.0) for _ in range(11)]

    assert [ruling.is_served for ruling in rulings] == [True] * 10 + [False]
    refused = rulings[-1]
    assert refused.stated["requests"].remaining == 2390
    assert (refused.dimension, refused.wait_s, refused.retry_after_s) == ("requests", 0.025, 0.025)


def test_a_limit_a_second_is_stated_as_one() -> None:
    ledger = Ledger(limits(20.0, window_s=1.0))

    assert ledger.admit({"requests": 1}, 0.0).stated == {"requests": Statement(20, 19, 0.05, 1)}


@pytest.mark.parametrize(
    ("window", "full_in_s"), [("bucket", 0.25), ("fixed", 0.75), ("sliding", 1.0)], ids=get_args(Window)
)
def test_windows_say_when_they_are_full_again(window: Window, full_in_s: float) -> None:
    ledger = Ledger(limits(40.0, window=window, window_s=1.0))

    stated = ledger.admit({"requests": 10}, now_s=2.25).stated["requests"]

    assert (stated.limit, stated.remaining, stated.scale_s) == (40, 30, 1)
    assert stated.full_in_s == pytest.approx(full_in_s)


@pytest.mark.parametrize("window", get_args(Window))
def test_no_window_serves_more_than_its_rate_for_long(window: Window) -> None:
    ledger = Ledger(limits(40.0, window=window, window_s=1.0))

    served = sum(ledger.admit({"requests": 1}, now_s=n / 100).is_served for n in range(3000))

    assert 1199 <= served <= 1240


@pytest.mark.parametrize(
    ("kind", "told_s", "headers"),
    [
        ("whole", 3.0, {"retry-after": "3"}),
        ("exact", 2.25, {"retry-after": "2.250"}),
        ("ms", 2.25, {"retry-after-ms": "2250"}),
        ("date", 2.5, {"retry-after": "Thu, 01 Jan 1970 00:01:43 GMT"}),
        ("none", None, {}),
    ],
)
def test_a_refusal_says_when_to_come_back(
    kind: RetryAfter, told_s: float | None, headers: dict[str, str]
) -> None:
    ledger = Ledger(limits(4.0, window_s=2.5), retry_after=kind, now_s=100.0)
    ledger.admit({"requests": 9}, now_s=100.5)

    ruling = ledger.admit({"requests": 10}, now_s=100.5)

    assert (ruling.wait_s, ruling.retry_after_s) == (2.25, told_s)
    assert retry_after_headers(kind, ruling.wait_s, epoch_s=100.5) == headers


def test_no_header_states_anything_where_none_is_wanted() -> None:
    assert Ledger(shallow(1.0), headers="none").admit({"requests": 1}, 0.0).stated == {}


def test_tokens_are_charged_as_estimated_and_corrected_afterwards_in_what_is_told_too() -> None:
    ledger = Ledger(Limits(input_tokens_per_minute=6000, depth_s=1.0), headers="minute")
    assert ledger.admit({"requests": 1, "input_tokens": 80}, now_s=0.0).is_served
    assert not ledger.admit({"requests": 1, "input_tokens": 80}, now_s=0.0).is_served

    ledger.charge("input_tokens", -70, now_s=0.0)

    ruling = ledger.admit({"requests": 1, "input_tokens": 80}, now_s=0.0)
    assert ruling.is_served
    assert ruling.stated["input_tokens"].remaining == 5910


@pytest.mark.parametrize("share", [0.02, 0.05, 0.10])
def test_a_share_is_refused_at_random_with_limits_that_do_not_bind(share: float) -> None:
    ledger = Ledger(limits(1000.0), refuse_at_random=RefuseAtRandom(share), retry_after="exact", seed=3)

    rulings = [ledger.admit({"requests": 1}, now_s=n / 100) for n in range(5000)]

    refused = [ruling for ruling in rulings if not ruling.is_served]
    assert len(refused) / 5000 == pytest.approx(share, rel=0.2)
    assert {(ruling.dimension, ruling.retry_after_s) for ruling in refused} == {(None, 0.5)}
    assert all(ruling.stated["requests"].limit == 60_000 for ruling in refused)


def test_after_a_while_the_provider_is_well_again() -> None:
    ledger = Ledger(refuse_at_random=RefuseAtRandom(1.0, for_s=30.0), now_s=100.0)

    rulings = [ledger.admit({"requests": 1}, now_s) for now_s in (100.0, 129.9, 130.0)]

    assert [ruling.is_served for ruling in rulings] == [False, False, True]
    assert [ruling.stated for ruling in rulings] == [{}, {}, {}]


@pytest.mark.parametrize("before", get_args(Window))
@pytest.mark.parametrize("after", get_args(Window))
def test_what_was_used_stays_used_when_limits_are_counted_otherwise(before: Window, after: Window) -> None:
    ledger = Ledger(limits(10.0, window=before, window_s=1.0))
    ledger.admit({"requests": 8}, now_s=0.0)

    ledger.adopt(limits(10.0, window=after, window_s=1.0), now_s=0.0)

    assert [ledger.admit({"requests": 2}, now_s=0.0).is_served for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Limits(requests_per_minute=1, window="slidng"), "did you mean 'sliding'"),  # type: ignore[arg-type]
        (lambda: Limits(requests_per_minute=1, window="fixed", depth_s=1), "Set limits.window_s instead"),
        (lambda: Limits(window="fixed"), "nothing is limited: set limits.requests_per_minute"),
        (lambda: Limits(window_s=0), "limits.window_s is 0"),
        (lambda: Ledger(headers="minutes"), "did you mean 'minute'"),  # type: ignore[arg-type]
        (lambda: Ledger(retry_after="seconds"), "it is one of whole, exact, ms, date, none"),  # type: ignore[arg-type]
        (lambda: RefuseAtRandom(1.5), r"refuse_at_random\.share is 1\.5"),
        (lambda: RefuseAtRandom(for_s=3), r"refuse_at_random\.share is missing"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError, match=words):
        wrong()


def test_the_arithmetic_brings_no_web_server_along() -> None:
    code = "import sys; from evalve.simulator import Ledger; print({'aiohttp', 'yaml'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
