"""A running evaluation's numbers as one line of text: what a terminal shows, and what a log gets."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from dataclasses import dataclass, field

from evalve.contracts import WAITS_FOR_BATCH, WAITS_FOR_LIMITS, Tally
from evalve.records import failed_in_words
from evalve.show.figures import failed_and_skipped

NARROWEST_NAME = 8
BAR_WIDTHS = (20, 10, 5)
ROOM_FOR_CLASSES = 100
"""In a narrower line the classes of failures would stand where the rate and those in flight do."""
PACE_WINDOW_S = 10.0
PACE_COMPLETIONS = 10

RED, YELLOW, CYAN, FAINT, PLAIN = "31", "33", "36", "2", ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process takes of the machine."""

    cpu_percent: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Style:
    """What the terminal can show."""

    unicode: bool = True
    colour: bool = False


@dataclass(slots=True)
class Pace:
    """Attempts ended per second over the last ten seconds, or over the last ten attempts if that is longer.

    The second half is for agents: where an attempt takes minutes, ten seconds say nothing.
    """

    started_s: float
    points: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.points.append((self.started_s, 0))

    def rate_per_s(self, ended: int, now_s: float) -> float | None:
        """The rate now; `None` before the first attempt has ended. Remembers what it was told."""
        if ended != self.points[-1][1]:
            self.points.append((now_s, ended))
        while len(self.points) > 1 and self._reaches_far_enough(self.points[1], ended, now_s):
            self.points.popleft()
        since_s, before = self.points[0]
        return (ended - before) / (now_s - since_s) if ended > before and now_s > since_s else None

    def _reaches_far_enough(self, point: tuple[float, int], ended: int, now_s: float) -> bool:
        return now_s - point[0] >= PACE_WINDOW_S and ended - point[1] >= PACE_COMPLETIONS


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the line: where it stands, how soon it gets its room, and its texts, longest first."""

    place: int
    rank: int
    texts: tuple[str, ...]
    colour: str = PLAIN


def status_line(
    tally: Tally,
    *,
    now_s: float,
    width: int,
    rate_per_s: float | None,
    usage: Usage | None = None,
    style: Style = Style(),  # noqa: B008  # frozen, so one may serve all calls
) -> str:
    """The line for a terminal, at most `width` columns wide: what matters least is left out first."""
    name = legible(tally.evaluation, style)
    counts = _counts(tally, percent="{:.0f}%")
    name = shortened(name, max(NARROWEST_NAME, min(width // 3, width - 2 - len(counts))), style)
    parts = [
        _Part(0, 0, (name,)),
        _Part(2, 0, (counts,)),
        *_bar_part(tally, style),
        *(_stopping_parts(tally) if tally.stopping else _moving_parts(tally, now_s, rate_per_s)),
        *_trouble_parts(tally, style, with_classes=width >= ROOM_FOR_CLASSES),
    ]
    if usage is not None:
        cpu, memory = f"cpu {usage.cpu_percent:.0f}%", f"{usage.memory_bytes / 1e6:.0f}"
        parts.append(_Part(8, 6, (f"{cpu} mem {memory} MB", f"{cpu} {memory}MB"), FAINT))
    return _fitted(parts, width, style)


def plain_line(tally: Tally, *, now_s: float, rate_per_s: float | None) -> str:
    """The line for a log while the evaluation runs."""
    parts = [_counts(tally, percent="({:.0f}%)")]
    if rate_per_s is not None:
        parts.append(_rate(rate_per_s))
    parts += failed_and_skipped(tally.failed, tally.failures, tally.skipped_now)
    parts.append(f"{tally.in_flight} in flight")
    if tally.decided:
        parts.append(f"at most {tally.limit} since {tally.decided}")
    if waiting := _waiting(tally):
        parts.append(f"waiting: {waiting}")
    if spent := tally.spent():
        parts.append(spent)
    eta_s = _eta_s(tally, rate_per_s)
    if tally.stopping:
        parts.append("stopping")
    elif eta_s is not None:
        parts.append(f"ETA {duration(eta_s)}")
    else:
        parts.append(f"{duration(now_s - tally.started_s)} so far")
    return f"evalve {legible(tally.evaluation, Style())}: {', '.join(parts)}"


def last_line(tally: Tally, *, now_s: float) -> str:
    """The line for a log once the evaluation has ended."""
    elapsed_s = now_s - tally.started_s
    parts = [_counts(tally, percent="({:.0f}%)")]
    if ended_now(tally) and elapsed_s > 0:
        parts.append(_rate(ended_now(tally) / elapsed_s))
    parts += failed_and_skipped(tally.failed, tally.failures, tally.skipped_now)
    parts.append(f"{'stopped after' if tally.stopping else 'took'} {duration(elapsed_s)}")
    return f"evalve {legible(tally.evaluation, Style())}: {', '.join(parts)}"


def ended_now(tally: Tally) -> int:
    """Attempts that this run brought to an end: done, failed and skipped are counted apart."""
    return tally.done + tally.failed + tally.skipped_now


def fraction(tally: Tally) -> float | None:
    """How much has ended, earlier runs included; `None` while the total is unknown."""
    if tally.total is None:
        return None
    return min(1.0, (tally.skipped + ended_now(tally)) / tally.total) if tally.total else 1.0


def duration(seconds: float) -> str:
    """`0:15`, `1:02:03`, `2d 3h`."""
    whole = max(0, round(seconds))
    if whole >= 86_400:
        return f"{whole // 86_400}d {whole % 86_400 // 3600}h"
    minutes, left = divmod(whole, 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02}:{left:02}"
    return f"{minutes}:{left:02}"


def columns(text: str) -> int:
    """How many columns a text takes: Chinese and its like take two each, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def shortened(text: str, width: int, style: Style) -> str:
    """The text, or as much of its beginning as fits with a sign that more was there."""
    if columns(text) <= width:
        return text
    sign = "…" if style.unicode else "~"
    kept, used = "", len(sign)
    for character in text:
        used += _columns_of(character)
        if used > width:
            break
        kept += character
    return kept + sign if width > 0 else ""


def legible(text: str, style: Style = Style()) -> str:  # noqa: B008  # frozen, so one may serve all calls
    """One line, without what a terminal would obey."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)
    return text if style.unicode else text.encode("ascii", "replace").decode("ascii")


def _counts(tally: Tally, percent: str) -> str:
    count = tally.skipped + ended_now(tally)
    share = fraction(tally)
    if share is None:
        return f"{count} done"
    # 999 of 1000 is not 100 %
    whole = 100 if share >= 1 else min(99, int(share * 100 + 1e-9))
    return f"{count}/{tally.total} {percent.format(whole)}"


def _bar_part(tally: Tally, style: Style) -> list[_Part]:
    share = fraction(tally)
    if share is None:
        return []
    return [_Part(1, 7, tuple(_bar(share, width, style) for width in BAR_WIDTHS), CYAN)]


def _bar(share: float, width: int, style: Style) -> str:
    halves = int(share * width * 2 + 1e-9)
    if style.unicode:
        return ("━" * (halves // 2) + "╸" * (halves % 2)).ljust(width, "─")
    return ("#" * (halves // 2)).ljust(width, "-")


def _moving_parts(tally: Tally, now_s: float, rate_per_s: float | None) -> list[_Part]:
    eta_s = _eta_s(tally, rate_per_s)
    time = duration(now_s - tally.started_s) if eta_s is None else f"ETA {duration(eta_s)}"
    in_flight = f"{tally.in_flight} in flight"
    # of how many is worth its room where that changes
    texts = (f"{tally.in_flight} of {tally.limit} in flight", in_flight) if tally.decided else (in_flight,)
    parts = [_Part(4, 2, (time,)), _Part(5, 4, texts)]
    if rate_per_s is not None:
        parts.append(_Part(3, 5, (_rate(rate_per_s),)))
    return parts


def _stopping_parts(tally: Tally) -> list[_Part]:
    brief = f"stopping, {tally.in_flight} in flight"
    full = f"stopping, waiting for {tally.in_flight} in flight (Ctrl-C again to cancel)"
    return [_Part(3, 1, (full, brief, "stopping"), YELLOW)]


def _trouble_parts(tally: Tally, style: Style, *, with_classes: bool) -> list[_Part]:
    parts = []
    if tally.failed:
        by_class = failed_in_words(tally.failed, tally.failures if with_classes else {})
        parts.append(_Part(6, 1, (by_class, f"{tally.failed} failed"), RED))
    if tally.skipped_now:
        parts.append(_Part(6, 5, (f"{tally.skipped_now} skipped",)))
    if waiting := _waiting(tally):
        parts.append(_Part(7, 3, (f"waiting: {legible(waiting, style)}",), YELLOW))
    if spent := tally.spent():
        parts.append(_Part(7, 6, (spent, spent.partition(" (")[0])))  # by role where there is room
    return parts


def _waiting(tally: Tally) -> str:
    # `list` first: the runner's thread changes the dict while this one reads
    waiting = {reason: count for reason, count in list(tally.waiting.items()) if count > 0}
    if WAITS_FOR_BATCH in waiting and (batches := tally.held_by()):
        del waiting[WAITS_FOR_BATCH]
        return ", ".join([batches, *(f"{reason} {count}" for reason, count in waiting.items())])
    held_by = tally.held_by() if WAITS_FOR_LIMITS in waiting else ""
    return ", ".join(
        f"{count} for {held_by}" if held_by and reason == WAITS_FOR_LIMITS else f"{reason} {count}"
        for reason, count in waiting.items()
    )


def _eta_s(tally: Tally, rate_per_s: float | None) -> float | None:
    if tally.total is None or not rate_per_s:
        return None
    return max(0, tally.total - tally.skipped - ended_now(tally)) / rate_per_s


def _rate(per_s: float) -> str:
    for unit, seconds in (("s", 1), ("min", 60)):
        if per_s * seconds >= 1:
            return (
                f"{per_s * seconds:.1f}/{unit}" if per_s * seconds < 1000 else f"{per_s * seconds:.0f}/{unit}"
            )
    return f"{per_s * 3600:.1f}/h"


def _fitted(parts: list[_Part], width: int, style: Style) -> str:
    """Give room in order of rank, then set in order of place."""
    chosen: list[tuple[int, str, str]] = []
    left = width
    for part in sorted(parts, key=lambda part: part.rank):
        for text in part.texts:
            needed = columns(text) + (2 if chosen else 0)
            if needed <= left:
                chosen.append((part.place, text, part.colour))
                left -= needed
                break
    if not chosen:
        return shortened(parts[0].texts[0], width, style)
    chosen.sort(key=lambda piece: piece[0])
    return "  ".join(f"\x1b[{c}m{text}\x1b[0m" if c and style.colour else text for _, text, c in chosen)
