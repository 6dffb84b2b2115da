"""Numbers, durations and instants in response headers; whatever makes no sense reads as `None`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache

_GO_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_GO_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_EPOCH_FROM_S = 1e9
"""A number of seconds from here on is an instant; a thousand times as much, one in milliseconds."""
_GO_DURATION = re.compile(rf"(?:{_GO_PART.pattern})+")


def count(headers: Mapping[str, str], name: str) -> float | None:
    """A finite number, 0 or more: servers that do not know send -1. Of a header sent twice, the lower."""
    numbers = _numbers(headers.get(name))
    return min(numbers) if numbers else None


def _numbers(text: str | None) -> list[float]:
    """All that a header says; nothing where one of them makes no sense."""
    if text is None:
        return []
    try:
        values = [float(text)] if "," not in text else [float(each) for each in text.split(",")]
    except ValueError:
        return []
    return values if all(0 <= value < math.inf for value in values) else []


@lru_cache(maxsize=1024)
def go_duration_s(text: str) -> float | None:
    """`6m0s`, `1m30.5s`, `12ms`. Without a unit it is no duration: Azure sends 0 and -1 for unknown."""
    text = text.strip()
    if not _GO_DURATION.fullmatch(text):
        return None
    return sum(float(part[1]) * _GO_UNITS_S[part[2]] for part in _GO_PART.finditer(text))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks to wait: milliseconds, seconds, or a date by its own clock."""
    milliseconds = count(headers, "retry-after-ms")
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after", "")
    seconds = _numbers(text)
    if seconds:
        longest = max(seconds)  # of a header sent twice
        instant = _until(longest, headers) if longest >= _EPOCH_FROM_S else None
        return longest if instant is None else instant
    span_s = go_duration_s(text)
    return span_s if span_s is not None else _until(_http_date(text) or _rfc3339(text), headers)


def reset_s(headers: Mapping[str, str], name: str) -> float | None:
    """How long until a limit is whole again: a duration, seconds, or an instant of whichever kind.

    Nothing and less is said by servers that do not know.
    """
    text = headers.get(name, "").strip()
    if not text:
        return None
    span_s = go_duration_s(text)
    if span_s is not None:
        return span_s
    numbers = _numbers(text)
    if not numbers:
        return _until(_http_date(text) or _rfc3339(text), headers)
    number = max(numbers)
    if number >= _EPOCH_FROM_S:
        return _until(number if number < _EPOCH_FROM_S * 1000 else number / 1000, headers)
    return number or None


def is_instant(headers: Mapping[str, str], name: str) -> bool:
    """Whether `reset_s` reads an instant there, not a time."""
    text = headers.get(name, "").strip()
    if not text or go_duration_s(text) is not None:
        return False
    return max(_numbers(text), default=_EPOCH_FROM_S) >= _EPOCH_FROM_S


def _until(instant_s: float | None, headers: Mapping[str, str]) -> float | None:
    """From the `Date` of the answer: both by the provider's clock, so that skew cancels."""
    now_s = _http_date(headers.get("date"))
    return None if instant_s is None or now_s is None else max(0.0, instant_s - now_s)


def seconds_until(headers: Mapping[str, str], name: str) -> float | None:
    """From the `Date` of the answer to an RFC 3339 instant: both by the provider's clock, so skew cancels."""
    return _until(_rfc3339(headers.get(name)), headers)


@lru_cache(maxsize=64)  # answers within one second carry the same date, and parsing it takes 10 µs
def _http_date(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return _utc(parsedate_to_datetime(text)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


@lru_cache(maxsize=1024)
def _rfc3339(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return _utc(datetime.fromisoformat(text)).timestamp()
    except (ValueError, OverflowError):
        return None


def _utc(instant: datetime) -> datetime:
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
