"""Numbers as people read them: values, intervals, durations, shares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from evalve.contracts import ABOUT, AgentTotals, split_roles
from evalve.records import Record, failed_in_words


def value(number: float | int | None) -> str:
    """Three decimals near one, fewer above; whole numbers stay whole, nothing is a dash."""
    if number is None:
        return "–"
    if isinstance(number, bool | int):
        return str(number)
    size = abs(number)
    if 0 < size < 0.001 or size >= 1e7:
        return f"{number:.3g}"
    return _not_whole(number, 3 if size < 10 else 2 if size < 100 else 1)


def short_value(number: float) -> str:
    """A share with two decimals, for tables with many of them."""
    return _not_whole(number, 2) if abs(number) < 10 else value(number)


def _not_whole(number: float, decimals: int) -> str:
    """With more decimals where what is not quite 1 would read as 1, as 0.9996 of all samples are not all."""
    text = f"{number:.{decimals}f}"
    while abs(number) != 1 and abs(float(text)) == 1 and decimals < 7:
        decimals += 1
        text = f"{number:.{decimals}f}"
    return text


def interval(low: float | None, high: float | None) -> str:
    """`[0.53, 0.98]`, with more decimals where the ends would look the same, or nothing."""
    if low is None or high is None:
        return ""
    if 0 < max(abs(low), abs(high)) < 0.001:
        return f"[{low:.3g}, {high:.3g}]"
    decimals = 2 if max(abs(low), abs(high)) < 100 else 1
    while decimals < 4 and low != high and f"{low:.{decimals}f}" == f"{high:.{decimals}f}":
        decimals += 1
    return f"[{_unsigned_zero(low, decimals)}, {_unsigned_zero(high, decimals)}]"


def interval_of_difference(low: float, high: float) -> str:
    """With more digits where an end that is not zero would read as zero: its side is what counts."""
    size = max(abs(low), abs(high))
    low, high = (0.0 if abs(end) < 1e-12 * size else end for end in (low, high))  # what sums leave of zero
    for decimals in (2, 3, 4):
        ends = [_unsigned_zero(end, decimals) for end in (low, high)]
        if all(end == 0 or float(text) for end, text in zip((low, high), ends, strict=True)):
            return interval(low, high) if decimals == 2 else f"[{ends[0]}, {ends[1]}]"
    return f"[{low:.3g}, {high:.3g}]"


def with_interval(number: float | None, low: float | None, high: float | None) -> str:
    return f"{value(number)} {interval(low, high)}".rstrip()


def signed(number: float | None) -> str:
    """A difference: `+0.120`, `-0.040`, `0.000`."""
    if number is None:
        return "–"
    text = value(abs(float(number)))
    if float(text) == 0:
        return text
    return ("+" if number > 0 else "-") + text


def duration(seconds: float) -> str:
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def percent(part: int, whole: int | None) -> str:
    """`92.5%`, or nothing where the whole is not known; only all is `100%`."""
    if not whole:
        return ""
    share = 100 * part / whole
    return f"{min(share, 99.9) if part < whole else share:.1f}".removesuffix(".0") + "%"


def out_of(part: int, whole: int | None) -> str:
    return f"{part}/{'?' if whole is None else whole}"


def failed_and_skipped(failed: int, failures: Mapping[str, int], skipped: int) -> list[str]:
    """`3 failed (2 provider, 1 timeout)` and `1 skipped`, where there are any."""
    parts = [failed_in_words(failed, failures)] if failed else []
    return [*parts, f"{skipped} skipped"] if skipped else parts


def left_out(count: int) -> str:
    return f"{plural(count, 'recorded sample')} {'is' if count == 1 else 'are'} no longer in the dataset"


def rows_changed(count: int) -> str:
    if count == 1:
        return "1 row has changed since it was recorded and runs again"
    return f"{count} rows have changed since they were recorded and run again"


def first_rows(samples: int | None, rows: int | None) -> str:
    """`the first 2 of 4 rows`; nothing where all rows were asked for."""
    if samples is None or (rows is not None and samples >= rows):
        return ""
    return (
        f"the first {samples} of {rows} rows" if rows is not None else f"the first {plural(samples, 'row')}"
    )


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def tries(record: Record) -> str:
    """`9 tries in 3 runs`: how often the sample was begun, whoever began it."""
    text = "1 try" if record.tries == 1 else f"{record.tries} tries"
    runs = len({one.run for one in record.history})
    return f"{text} in {runs} runs" if runs > 1 else text


def size(count_bytes: float) -> str:
    """Bytes as `12.3 MB`."""
    amount, unit = float(count_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def when(instant_at: str | None) -> str:
    """A stored instant to the minute, in local time; what is no instant is shown as it is."""
    if not instant_at:
        return "–"
    try:
        moment = datetime.fromisoformat(instant_at)
    except ValueError:
        return instant_at
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def text_of(content: Any) -> str:
    """A stored prompt, response or row as text: strings as they are, the rest as JSON."""
    if content is None:
        return ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def score_text(content: Any) -> str:
    """A score's value: a number as a number, a truth value as such, the rest as JSON."""
    if content is None:
        return "unscored"
    if isinstance(content, float):
        return value(content)
    return str(content) if isinstance(content, bool | int) else text_of(content)


def _unsigned_zero(number: float, decimals: int) -> str:
    text = f"{number:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def calls(made: Mapping[str, float]) -> str:
    """`120 calls, 40 of them cached; 12,345 + 3,210 tokens; 0.12 USD; 3 retries`."""
    cached = int(made.get("cached", 0))
    asked = int(made.get("requests", 0)) - int(made.get("retries", 0)) + cached
    ungated = int(made.get("ungated", 0))
    passed = [f"{plural(ungated, 'call')} passed ungated"] if ungated else []
    if passed and not asked:
        return passed[0]
    parts = [plural(asked, "call") + (f", {cached} of them cached" if cached else "")]
    parts.append(f"{tokens(made)} tokens")
    parts.append(cost(made))
    for name, word in (("retries", "retries"), ("refusals", "refused")):
        if made.get(name):
            parts.append(f"{int(made[name])} {word}")
    if made.get("waited_s", 0) >= 1:
        parts.append(f"waited {duration(made['waited_s'])} in all")
    return "; ".join(parts + passed)


def calls_by_role(made: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """Who made calls, and what they came to: `calls` for the sample's own, else the role's name.

    The parts of the sample's own calls come right after them, indented; what has no role is `others`.
    """
    by_role = split_roles(made)
    own = by_role.pop("")
    if any(own.values()):
        yield "calls", calls(own)
    parts = {role: figures for role, figures in by_role.items() if role not in ABOUT}
    rest = {name: own[name] - sum(part.get(name, 0) for part in parts.values()) for name in own}
    if parts and (rest.get("requests") or rest.get("cached")):
        parts["others"] = rest
    for role, figures in parts.items():
        if any(figures.values()):
            yield f"  {role}", calls(figures)
    for role, figures in by_role.items():
        if role in ABOUT and any(figures.values()):
            yield role, calls(figures)


def tokens(made: Mapping[str, float]) -> str:
    """`12,345 + 3,210`: read and written."""
    tokens_in = sum(made.get(name, 0) for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))
    return f"{int(tokens_in):,} + {int(made.get('output_tokens', 0)):,}"


def cost(made: Mapping[str, float]) -> str:
    known = f"{made.get('cost_usd', 0.0):.4f} USD"
    if not made.get("unpriced"):
        return known
    return "price unknown" if not made.get("cost_usd") else f"{known} and some of unknown price"


def agent(run: Mapping[str, Any]) -> str:
    """`codex 0.166.0 · exit code 0 · 5 turns · ran 12.3 s after 0.20 s · 4.1 s CPU · 410.0 MB · landlock`."""
    parts = [" ".join(str(run[name]) for name in ("agent", "version", "model") if run.get(name))]
    if run.get("exit_code") is not None:
        parts.append(f"exit code {run['exit_code']}")
    if run.get("turns") is not None:
        parts.append(plural(run["turns"], "turn"))
    parts.append(f"ran {duration(run.get('ran_s', 0.0))} after {duration(run.get('waited_s', 0.0))}")
    parts.append(f"{duration(run.get('cpu_s', 0.0))} CPU")
    parts.append(f"{size(run.get('peak_memory_bytes', 0))} at most")
    parts.append(f"{size(run.get('output_bytes', 0))} of output")
    if isinstance(usage := run.get("usage"), Mapping):
        tokens_in = sum(count for name, count in usage.items() if name not in ("output_tokens", "requests"))
        parts.append(f"{tokens_in:,} + {usage.get('output_tokens', 0):,} tokens")
    if run.get("cost_usd") is not None:
        parts.append(f"{run['cost_usd']:.4f} USD")
    if run.get("survivors"):
        parts.append(f"{run['survivors']} left behind and ended")
    parts.append(f"confinement: {run.get('confinement', 'none')}")
    return " · ".join(parts)


def agents(totals: AgentTotals) -> str:
    """`10 runs; ran 8.42 s each after 0.31 s; 12.3 s CPU; 410.0 MB at most; confinement: landlock`."""
    parts = [
        plural(totals.runs, "run"),
        f"ran {duration(totals.ran_s / totals.runs)} each after {duration(totals.waited_s / totals.runs)}",
        f"{duration(totals.cpu_s)} CPU",
        f"{size(totals.peak_memory_bytes)} at most",
        f"{size(totals.output_bytes)} of output",
    ]
    if totals.survivors:
        parts.append(f"{totals.survivors} left behind and ended")
    levels = totals.confinement
    named = ", ".join(level if len(levels) == 1 else f"{count} {level}" for level, count in levels.items())
    return "; ".join([*parts, f"confinement: {named}"])
