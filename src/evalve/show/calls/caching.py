"""`evalve cache`: what the response cache holds, and what was done to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from evalve.show import figures
from evalve.show.tables import Column, table

_LISTED = 10


class ModelLike(Protocol):
    """What the cache has of one model."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class StatsLike(Protocol):
    """What the cache has."""

    @property
    def path(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def oldest_at(self) -> str | None: ...
    @property
    def newest_at(self) -> str | None: ...
    @property
    def models(self) -> Sequence[ModelLike]: ...


class ClearedLike(Protocol):
    """What has been removed."""

    @property
    def path(self) -> str: ...
    @property
    def entries(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class VerifiedLike(Protocol):
    """What a check of every entry has found."""

    @property
    def path(self) -> str: ...
    @property
    def checked(self) -> int: ...
    @property
    def corrupt(self) -> Sequence[str]: ...
    @property
    def file_damage(self) -> str | None: ...


def stats_lines(stats: StatsLike, *, width: int | None = None) -> list[str]:
    if not stats.entries:
        return [f"{stats.path}: nothing is kept here yet"]
    oldest, newest = figures.when(stats.oldest_at), figures.when(stats.newest_at)
    return [
        stats.path,
        f"  {_entries(stats.entries)}, {figures.size(stats.size_bytes)}"
        f" ({figures.size(stats.file_bytes)} on disk), {figures.plural(stats.hits, 'hit')} so far",
        f"  from {oldest} to {newest}" if oldest != newest else f"  from {oldest}",
        "",
        *table(
            [
                Column("model"),
                Column("answers", align="right"),
                Column("size", align="right"),
            ],
            [[_model(share), str(share.entries), figures.size(share.size_bytes)] for share in stats.models],
            width=width,
            indent="  ",
        ),
    ]


def stats_json(stats: StatsLike) -> str:
    return json.dumps(
        {
            "path": stats.path,
            "entries": stats.entries,
            "size_bytes": stats.size_bytes,
            "file_bytes": stats.file_bytes,
            "hits": stats.hits,
            "oldest_at": stats.oldest_at,
            "newest_at": stats.newest_at,
            "models": [
                {
                    "provider": share.provider,
                    "model": share.model,
                    "entries": share.entries,
                    "size_bytes": share.size_bytes,
                }
                for share in stats.models
            ],
        },
        indent=2,
    )


def clearing_question(
    path: str, *, model: str | None = None, older_than: str | None = None, experiment: str | None = None
) -> str:
    """What a person is asked before anything is removed."""
    of = f" of {model}" if model is not None else ""
    by = f" made by experiment {experiment!r}" if experiment is not None else ""
    age = f" older than {older_than}" if older_than is not None else ""
    which = f"the answers{of}{by}{age}" if of or by or age else "all kept answers"
    return f"Remove {which} from {path}? They have to be paid for again. [y/N] "


def cleared_line(cleared: ClearedLike) -> str:
    if not cleared.entries:
        return f"{cleared.path}: nothing to remove"
    return f"{cleared.path}: removed {_entries(cleared.entries)}, {figures.size(cleared.size_bytes)}"


def verified_lines(verified: VerifiedLike) -> list[str]:
    found = "all of them whole"
    if verified.corrupt:
        found = f"{len(verified.corrupt)} damaged and removed; they will be asked for again"
    lines = [f"{verified.path}: {_entries(verified.checked)} checked, {found}"]
    lines += [f"  {key}" for key in verified.corrupt[:_LISTED]]
    if len(verified.corrupt) > _LISTED:
        lines.append(f"  … and {len(verified.corrupt) - _LISTED} more")
    if verified.file_damage is not None:
        lines.append(
            f"  the file itself is damaged: {verified.file_damage}; it is moved aside and begun anew"
        )
    return lines


def verified_json(verified: VerifiedLike) -> str:
    return json.dumps(
        {
            "path": verified.path,
            "checked": verified.checked,
            "corrupt": list(verified.corrupt),
            "file_damage": verified.file_damage,
        },
        indent=2,
    )


def _entries(count: int) -> str:
    return figures.plural(count, "answer")


def _model(share: ModelLike) -> str:
    return f"{share.provider}/{share.model}" if share.provider else share.model or "–"
