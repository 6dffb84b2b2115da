"""Durations, dates and counts as providers write them."""

from __future__ import annotations

import pytest

from evalve.gate.dialects.headers import count, go_duration_s, retry_after_s, seconds_until

DATE = "Sun, 15 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12ms", 0.012),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1m30.5s", 90.5),
        ("1h2m3s", 3723.0),
        ("250us", 0.00025),
        (" 2s ", 2.0),
        ("0", None),
        ("-1", None),
        ("-1s", None),
        ("", None),
        ("soon", None),
        ("1s later", None),
    ],
)
def test_a_go_duration_needs_its_units(text: str, seconds: float | None) -> None:
    assert go_duration_s(text) == (pytest.approx(seconds) if seconds is not None else None)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 11:00:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Sun, 15 Nov 2026 12:00:30 GMT"}, None),
        ({"retry-after": "5, 30"}, 30.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "2026-11-15T12:00:30Z", "date": DATE}, 30.0),
        ({"retry-after": "1794744030", "date": DATE}, 30.0),
        ({"retry-after": "1794744030"}, 1794744030.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow", "date": DATE}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


@pytest.mark.parametrize(
    ("reset", "date", "seconds"),
    [
        ("2026-11-15T12:00:20Z", DATE, 20.0),
        ("2026-11-15T13:00:20+01:00", DATE, 20.0),
        ("2026-11-15T12:00:20.5Z", DATE, 20.5),
        ("2026-11-15T11:59:00Z", DATE, 0.0),
        ("2026-11-15T12:00:20Z", "yesterday", None),
        ("1763208020", DATE, None),
        ("", DATE, None),
    ],
)
def test_a_reset_is_counted_from_the_answers_own_date(reset: str, date: str, seconds: float | None) -> None:
    assert seconds_until({"reset": reset, "date": date}, "reset") == seconds


def test_without_a_date_a_reset_says_nothing_since_our_clock_may_be_wrong() -> None:
    assert seconds_until({"reset": "2026-11-15T12:00:20Z"}, "reset") is None


@pytest.mark.parametrize(
    ("text", "value"), [("50", 50.0), ("0", 0.0), ("-1", None), ("many", None), ("inf", None), ("nan", None)]
)
def test_a_count_that_makes_no_sense_is_ignored(text: str, value: float | None) -> None:
    assert count({"limit": text}, "limit") == value
