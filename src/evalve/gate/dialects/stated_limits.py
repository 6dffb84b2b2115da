"""Limits in response headers, as most servers and proxies state them, whatever format they speak.

Three families: OpenAI's (`x-ratelimit-limit-requests` and its many kin), the plain one (`x-ratelimit-limit`),
and the IETF's drafts (`ratelimit-limit`, then `ratelimit: limit=…`, then `ratelimit: "name";r=…` with its
policy). A limit for longer than two minutes is left out: calls are paced by the minute, and a day's would be
spread over the day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from evalve.gate.dialects.headers import count, is_instant, reset_s
from evalve.gate.messages import Dimension, Stated

_MINUTE_S = 60.0
_LONGEST_S = 120.0
_MINUTES_A_DAY = 1440
_NAMES: tuple[tuple[Dimension, tuple[str, ...]], ...] = (
    ("requests", ("requests", "req-minute")),
    ("tokens", ("tokens", "tokens-minute")),
    ("input_tokens", ("input-tokens", "tokens-prompt")),
    ("output_tokens", ("output-tokens", "tokens-generated")),
)
_PLAIN = ("ratelimit-", "x-ratelimit-", "x-rate-limit-")
_BY_UNIT: tuple[tuple[Dimension, str, str, float], ...] = (
    ("requests", "x-ratelimit-limit-second", "x-ratelimit-remaining-second", 1.0),
    ("requests", "x-ratelimit-limit-minute", "x-ratelimit-remaining-minute", _MINUTE_S),
    ("tokens", "x-ratelimitbysize-limit-minute", "x-ratelimitbysize-remaining-minute", _MINUTE_S),
    ("tokens", "x-tokenlimit-limit", "x-tokenlimit-remaining", _MINUTE_S),
)
"""Kong's, Mistral's and Together's, and how many seconds they are for."""
_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|[^;,]*)((?:;[^,]*)?)(?:,|$)""")
_PARAMETER = re.compile(r';\s*([a-z]+)\s*=\s*("[^"]*"|[^;\s]+)')


def names_a_limit(headers: Mapping[str, str]) -> bool:
    """Whether any header can be about a limit; most answers have none, and are read no further."""
    return any("limit" in name for name in headers)


def stated_limits(headers: Mapping[str, str]) -> dict[Dimension, Stated]:
    """What the headers say, by dimension; empty where they say nothing."""
    if not names_a_limit(headers):
        return {}
    stated = {
        dimension: said
        for dimension, names in _NAMES
        if (said := next((one for name in names if (one := _named(headers, name)) is not None), None))
    }
    by_project = _named(headers, "project-tokens")
    if by_project is not None:
        stated["tokens"] = _tighter(stated.get("tokens"), by_project)
    for dimension, limit, remaining, period_s in _BY_UNIT:
        if dimension not in stated and (one := _for_a_period(headers, limit, remaining, period_s)):
            stated[dimension] = one
    if "requests" not in stated and (plain := _of_drafts(headers) or _plain(headers)) is not None:
        stated["requests"] = plain
    return stated


# -- OpenAI's


def _named(headers: Mapping[str, str], name: str) -> Stated | None:
    limit = count(headers, f"x-ratelimit-limit-{name}") or None
    remaining = count(headers, f"x-ratelimit-remaining-{name}")
    if limit is None and remaining is None:
        return None
    return _until_reset(limit, remaining, headers, f"x-ratelimit-reset-{name}")


def _until_reset(
    limit: float | None, remaining: float | None, headers: Mapping[str, str], name: str
) -> Stated | None:
    return _by_the_minute(limit, remaining, reset_s(headers, name), is_dated=is_instant(headers, name))


def _by_the_minute(
    limit: float | None, remaining: float | None, full_in_s: float | None, *, is_dated: bool = False
) -> Stated | None:
    """Some models state their limit per day under the same names."""
    if full_in_s is not None and full_in_s > _LONGEST_S:
        return None
    if limit and remaining and full_in_s:
        refilled_a_day = (limit - remaining) / full_in_s * 60 * _MINUTES_A_DAY
        if 0.9 < refilled_a_day / limit < 1.1:
            return None
    return Stated(limit, remaining, 0.0, full_in_s, is_dated and full_in_s is not None)


def _tighter(one: Stated | None, other: Stated) -> Stated:
    if one is None:
        return other
    return min(one, other, key=lambda said: (said.remaining or 0.0, said.per_minute or 0.0))


# -- plain ones


def _for_a_period(
    headers: Mapping[str, str], limit_name: str, remaining_name: str, period_s: float
) -> Stated | None:
    limit = count(headers, limit_name)
    return _in_a_window(limit, count(headers, remaining_name), period_s) if limit else None


def _in_a_window(limit: float, remaining: float | None, window_s: float) -> Stated | None:
    """The time is known, so that nothing need be concluded from when it ends."""
    return Stated(limit * _MINUTE_S / window_s, remaining) if 0 < window_s <= _LONGEST_S else None


def _plain(headers: Mapping[str, str]) -> Stated | None:
    for prefix in _PLAIN:
        said = headers.get(f"{prefix}limit")
        if said is None:
            continue
        remaining = count(headers, f"{prefix}remaining")
        windows = _windows(said) or _windows(headers.get("ratelimit-policy", ""))
        limit = count({"limit": _without_parameters(said)}, "limit")
        if limit in windows:
            return _in_a_window(limit, remaining, windows[limit])
        if limit:
            return _until_reset(limit, remaining, headers, f"{prefix}reset")
    return None


# -- the later drafts


def _of_drafts(headers: Mapping[str, str]) -> Stated | None:
    said = headers.get("ratelimit")
    if said is None:
        return None
    policy = headers.get("ratelimit-policy", "")
    if "limit=" in said.replace(" ", ""):
        return _of_draft_7(said, policy)
    quotas = dict(_items(policy))
    found: Stated | None = None
    for name, parameters in _items(said):
        about = quotas.get(name, {})
        remaining, quota, window_s = (
            _number(each) for each in (parameters.get("r"), about.get("q"), about.get("w"))
        )
        if quota and window_s and about.get("qu", '"requests"').strip('"') == "requests":
            one = _in_a_window(quota, remaining, window_s)
            found = found if one is None else _tighter(found, one)
    return found


def _of_draft_7(said: str, policy: str) -> Stated | None:
    """`limit=100, remaining=50, reset=5`, with a policy such as `100;w=60`."""
    values = dict(part.strip().split("=", 1) for part in said.split(",") if "=" in part)
    limit, remaining, ends_in_s = (_number(values.get(name)) for name in ("limit", "remaining", "reset"))
    if not limit:
        return None
    windows = _windows(policy)
    if limit in windows:
        return _in_a_window(limit, remaining, windows[limit])
    return _by_the_minute(limit, remaining, ends_in_s or None)


def _windows(policy: str) -> dict[float, float]:
    """How many seconds each quota of `100;w=60, 5000;w=3600` is for."""
    read = [(_number(name), _number(parameters.get("w"))) for name, parameters in _items(policy)]
    return {quota: window_s for quota, window_s in read if quota and window_s}


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The items of a list, each with its parameters."""
    for item in _ITEM.finditer(text):
        if item[1].strip():
            yield item[1].strip(), dict(_PARAMETER.findall(item[2]))


def _without_parameters(text: str) -> str:
    return ", ".join(name for name, _ in _items(text))


def _number(text: str | None) -> float | None:
    return count({"": text}, "") if text is not None else None
