"""What an experiment of the file will take of this machine: how many at once, how long, how much memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.answering import files_for
from evalve.experiments.declared import Declared
from evalve.experiments.parts.models import Asked
from evalve.experiments.parts.rows import Source
from evalve.options import Options
from evalve.planning.durations import work_off
from evalve.planning.workload import Workload, workload_of
from evalve.show.figures import duration

_MOST_ROWS = 200
"""How many rows are looked at to tell how large contexts are."""
_MODELS_AT_ONCE = 10
AUTO_STARTS_AT = 5


@dataclass(frozen=True, slots=True)
class Share:
    """One evaluation of an experiment, before it runs."""

    label: str
    key: str
    samples: int | None
    """`None` where only reading tells."""
    context_bytes: float
    """Of the texts that a sample is given, in the mean."""
    largest_bytes: int
    copied_bytes: float = 0.0
    """Of files that are copied into its workspace without being read."""
    workload: Workload | None = None
    """What its rows ask for; `None` where only fetching them tells."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a model or an agent has ahead of it."""

    asked: Asked
    shares: list[Share]
    window: int
    """How many of each share may run at once."""
    is_auto: bool
    repeat: int

    @property
    def at_once(self) -> int:
        """How many run at once in all: evaluations run beside each other, each with a window of its own."""
        return sum(map(self._at_once, self.shares))

    def _at_once(self, share: Share) -> int:
        return self.window if share.samples is None else min(self.window, share.samples * self.repeat)

    def memory_bytes(self) -> float:
        """Of all contexts that are there at a time."""
        return sum(self._at_once(share) * share.context_bytes for share in self.shares)

    def copied_bytes(self) -> float:
        """Of the files in all workspaces that are there at a time."""
        return sum(self._at_once(share) * share.copied_bytes for share in self.shares)

    def duration_s(self, sample_s: float | None) -> float | None:
        """In rounds of as many as run at once; lanes one beside the other, the longest first."""
        counts = [share.samples for share in self.shares]
        if sample_s is None or not counts or any(count is None for count in counts):
            return None
        return max(self._share_s(share, sample_s) for share in self.shares)

    def _share_s(self, share: Share, sample_s: float) -> float:
        rounds_s = math.ceil((share.samples or 0) * self.repeat / self.window) * sample_s
        work = share.workload
        if work is None or not work.lanes:
            return rounds_s
        turn_s = sample_s * work.rows / work.turns
        lanes = [turns * turn_s for turns in work.lanes for _ in range(self.repeat)]
        return max(work_off(lanes, self.window), sum(lanes) / self.window)

    @property
    def in_lanes(self) -> bool:
        return any(share.workload is not None and share.workload.lanes for share in self.shares)

    @property
    def roles(self) -> list[str]:
        """Who calls models: the agent itself, or a student and its teacher."""
        return ["student", "teacher"] if self.asked.is_pair else [""]

    def calls_per_sample(self, role: str) -> float | None:
        """As the rows tell; `None` where they cannot, or where a program of its own calls."""
        works = [share.workload for share in self.shares]
        known = [work for work in works if work is not None and work.rows]
        if self.asked.is_agent or len(known) < len(works) or not known:
            return None
        return sum(work.calls[role] * work.rows for work in known) / sum(work.rows for work in known)


def outlooks(declared: Declared, options: Options, environ: Mapping[str, str]) -> list[Outlook]:
    """One for each model, in the order of the file."""
    found = []
    for asked in declared.asked:
        asked_for = options.max_concurrency
        window = asked_for if isinstance(asked_for, int) else _recommended(declared, asked, environ)
        shares = [_share(declared, asked, source, options.samples) for source in declared.sources]
        found.append(Outlook(asked, shares, window, asked_for == "auto", options.repeat or 1))
    return found


def _recommended(declared: Declared, asked: Asked, environ: Mapping[str, str]) -> int:
    if not asked.is_agent:
        return _MODELS_AT_ONCE
    from evalve.experiments.parts.agents import open_agent

    try:
        return int(open_agent(asked, environ, folder=declared.folder).recommended_concurrency)
    except OptionError:
        return AUTO_STARTS_AT  # a variable that is not set is told when it runs


def _share(declared: Declared, asked: Asked, source: Source, limit: int | None) -> Share:
    name = f"{source.name}[{asked.name}]"
    sizes = list(islice(_sizes(declared, source), min(_MOST_ROWS, limit or _MOST_ROWS)))
    texts, copied = [text for text, _ in sizes], [copy for _, copy in sizes]
    return Share(
        label=name,
        key=f"{declared.entry.place.path.name}::{name}",
        samples=source.count(limit),
        context_bytes=sum(texts) / len(texts) if texts else 0.0,
        largest_bytes=max(texts, default=0),
        copied_bytes=sum(copied) / len(copied) if copied else 0.0,
        workload=workload_of(declared, asked, source, limit),
    )


def _sizes(declared: Declared, source: Source) -> Iterator[tuple[int, int]]:
    """Of each row: its texts, and the files that are copied; without files, what is put into the prompt."""
    columns = declared.columns(source)
    for row in islice(source.open(), _MOST_ROWS):
        values = {column: row.get(column) for column in columns}
        if not declared.files:
            yield sum(len(str(value).encode()) for value in values.values()), 0
            continue
        try:
            files = files_for(declared.files, values, declared.entry.folder("files"))
        except Exception:  # a path that is not there is told by its sample
            continue
        paths = [content for content in files.values() if isinstance(content, Path)]
        texts = [str(content) for content in files.values() if not isinstance(content, Path)]
        yield sum(len(text.encode()) for text in texts), sum(map(_size, paths))


def _size(content: Path) -> int:
    if content.is_dir():
        return sum(path.stat().st_size for path in content.rglob("*") if path.is_file())
    return content.stat().st_size


def outlook_lines(outlook: Outlook, sample_s: float | None, source: str) -> Iterator[str]:
    """`5 at once × 1.2 MB of context …`, and how long it takes."""
    count = sum((share.samples or 0) * outlook.repeat for share in outlook.shares)
    samples = "1 sample" if count == 1 else f"{count} samples"
    takes_s = outlook.duration_s(sample_s)
    at_once = f"{outlook.at_once} at once{' to begin with (auto)' if outlook.is_auto else ''}"
    yield from _work_lines(outlook)
    if takes_s is None:
        yield f"duration  not known, nothing is recorded yet: {samples}, {at_once}; run some of them"
    else:
        each = duration(sample_s or 0.0)
        yield f"duration  about {duration(takes_s)}: {samples}, {at_once}, {each} each ({source})"
    mean = in_bytes(outlook.memory_bytes() / max(outlook.at_once, 1))
    largest = in_bytes(max((share.largest_bytes for share in outlook.shares), default=0))
    on_top = "; the agents' programs come on top" if outlook.asked.is_agent else ""
    yield (
        f"memory    {outlook.at_once} at once × {mean} of context = {in_bytes(outlook.memory_bytes())}"
        f" (largest context {largest}){on_top}"
    )
    if copied := outlook.copied_bytes():
        each = in_bytes(copied / max(outlook.at_once, 1))
        at_once = f"{outlook.at_once} at once"
        yield f"disk      {at_once} × {each} of files = {in_bytes(copied)}, copied without being read"


def _work_lines(outlook: Outlook) -> Iterator[str]:
    works = [share.workload for share in outlook.shares if share.workload is not None]
    turns, rows = sum(work.turns for work in works), sum(work.rows for work in works)
    if turns > rows:
        steps = sum(work.steps for work in works)
        yield f"turns     {turns} in {rows} conversations, about {steps / turns:.1f} answers each"
    lanes = [lane for work in works for lane in work.lanes]
    if lanes:
        unit = "turns" if turns > rows else "samples"
        yield f"lanes     {len(lanes)}, the longest with {max(lanes)} {unit}, which follow each other"


def outlook_plain(outlook: Outlook, sample_s: float | None) -> dict[str, Any]:
    return {
        "model": outlook.asked.name,
        "evaluations": [
            {"name": share.label, "samples": share.samples, "context_bytes": round(share.context_bytes)}
            for share in outlook.shares
        ],
        "concurrency": outlook.at_once,
        "duration_s": outlook.duration_s(sample_s),
        "memory_bytes": round(outlook.memory_bytes()),
        "copied_bytes": round(outlook.copied_bytes()),
        "turns": sum(share.workload.turns for share in outlook.shares if share.workload is not None),
        "lanes": [lane for share in outlook.shares if share.workload for lane in share.workload.lanes],
    }


def in_bytes(size_bytes: float) -> str:
    if size_bytes < 1_000:
        return f"{size_bytes:.0f} B"
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:,.1f} kB"
