"""`evalve batch`: the batches of this machine, how far they are, and until when they can be fetched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from evalve.show.tables import Column, table, visible

_COLUMNS = (
    Column("batch"),
    Column("provider's id", optional=True),
    Column("state"),
    Column("requests", "right"),
    Column("for", flexible=True),
    Column("created"),
    Column("expires"),
    Column("cost USD", "right", optional=True),
)


@dataclass(frozen=True, slots=True)
class BatchNow:
    """One batch, with its instants as dates."""

    id: str
    provider_id: str
    provider: str
    state: str
    status: str
    """In the provider's own word."""
    requests: int
    name: str
    counts: Mapping[str, int] = field(default_factory=dict)
    created_at: datetime | None = None
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    expires_at: datetime | None = None
    """What is not done then expires."""
    kept_until_at: datetime | None = None
    """Until then its results can be fetched."""
    cost_usd: float | None = None
    told: str = ""
    held_by: str = ""
    """The process that looks after it."""


def instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def batches_json(batches: Sequence[BatchNow]) -> str:
    return json.dumps([plain(batch) for batch in batches], indent=2)


def batch_json(batch: BatchNow) -> str:
    return json.dumps(plain(batch), indent=2)


def plain(batch: BatchNow) -> dict[str, object]:
    return {
        name: value.isoformat(timespec="seconds") if isinstance(value, datetime) else value
        for name, value in asdict(batch).items()
    }


def batches_lines(batches: Sequence[BatchNow], *, width: int) -> list[str]:
    if not batches:
        return ["no batches; `evalve run FILE --batch` sends the calls of an evaluation as one"]
    rows = [
        (
            batch.id,
            batch.provider_id,
            batch.state,
            f"{batch.requests:,}",
            batch.name,
            _date(batch.created_at),
            _date(batch.expires_at) if batch.state != "collected" else "",
            "" if batch.cost_usd is None else f"{batch.cost_usd:.4f}",
        )
        for batch in batches
    ]
    return table(_COLUMNS, rows, width=width)


def batch_lines(batch: BatchNow) -> list[str]:
    """Everything about one."""
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(batch.counts.items()))
    facts = (
        ("state", f"{batch.state}{f' ({batch.status})' if batch.status else ''}"),
        ("provider", f"{batch.provider} {batch.provider_id}"),
        ("requests", f"{batch.requests:,}{f': {counted}' if counted else ''}"),
        ("for", batch.name),
        ("created", _date(batch.created_at)),
        ("submitted", _date(batch.submitted_at)),
        ("ended", _date(batch.ended_at)),
        ("expires", "" if batch.ended_at is not None else _date(batch.expires_at)),
        ("results kept until", _date(batch.kept_until_at)),
        ("cost", "" if batch.cost_usd is None else f"{batch.cost_usd:.4f} USD, at batch price"),
        ("waits for", batch.told),
        ("looked after by", batch.held_by),
    )
    wide = max(len(name) for name, _ in facts)
    return [batch.id, *(f"  {name:{wide}}  {visible(text)}" for name, text in facts if text.strip())]


def _date(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M}"
