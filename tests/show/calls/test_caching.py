"""What `evalve cache` says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evalve.show.calls.caching import (
    cleared_line,
    clearing_question,
    stats_json,
    stats_lines,
    verified_json,
    verified_lines,
)


@dataclass(frozen=True)
class Share:
    provider: str
    model: str
    entries: int
    size_bytes: int


@dataclass(frozen=True)
class Stats:
    path: str = "/cache/responses.db"
    entries: int = 0
    size_bytes: int = 0
    file_bytes: int = 0
    hits: int = 0
    oldest_at: str | None = None
    newest_at: str | None = None
    models: Sequence[Share] = ()


@dataclass(frozen=True)
class Cleared:
    path: str
    entries: int
    size_bytes: int


@dataclass(frozen=True)
class Verified:
    path: str
    checked: int
    corrupt: Sequence[str] = ()
    file_damage: str | None = None


STATS = Stats(
    entries=1202,
    size_bytes=2_400_000,
    file_bytes=3_000_000,
    hits=1,
    oldest_at="2026-01-01T10:00:00",
    newest_at="2026-01-02T10:00:00",
    models=(Share("anthropic", "claude", 1200, 2_399_000), Share("", "", 2, 1000)),
)


def test_stats_say_what_is_kept_of_which_model() -> None:
    lines = stats_lines(STATS)

    assert lines[0] == "/cache/responses.db"
    assert lines[1] == "  1202 answers, 2.4 MB (3.0 MB on disk), 1 hit so far"
    assert lines[2].startswith("  from 2026-01-0")
    assert lines[4:] == [
        "  model             answers    size",
        "  ────────────────  ───────  ──────",
        "  anthropic/claude     1200  2.4 MB",
        "  –                       2  1.0 kB",
    ]


def test_stats_of_nothing() -> None:
    assert stats_lines(Stats()) == ["/cache/responses.db: nothing is kept here yet"]


def test_stats_as_json_have_every_figure() -> None:
    figures = json.loads(stats_json(STATS))

    assert figures["entries"] == 1202
    assert figures["models"][0] == {
        "provider": "anthropic",
        "model": "claude",
        "entries": 1200,
        "size_bytes": 2_399_000,
    }
    assert set(figures) == {*Stats.__dataclass_fields__}


def test_before_clearing_a_person_is_told_what_would_go() -> None:
    everything = clearing_question("/c")
    some = clearing_question("/c", model="claude", older_than="7d", experiment="first")

    assert everything == "Remove all kept answers from /c? They have to be paid for again. [y/N] "
    assert some.startswith("Remove the answers of claude made by experiment 'first' older than 7d from /c?")


def test_what_was_cleared() -> None:
    assert cleared_line(Cleared("/c", 1, 500)) == "/c: removed 1 answer, 500 B"
    assert cleared_line(Cleared("/c", 0, 0)) == "/c: nothing to remove"


def test_what_was_verified() -> None:
    assert verified_lines(Verified("/c", 7)) == ["/c: 7 answers checked, all of them whole"]
    assert verified_lines(Verified("/c", 70, tuple(f"key{n}" for n in range(12)), "malformed")) == [
        "/c: 70 answers checked, 12 damaged and removed; they will be asked for again",
        *(f"  key{n}" for n in range(10)),
        "  … and 2 more",
        "  the file itself is damaged: malformed; it is moved aside and begun anew",
    ]


def test_a_check_as_json_names_what_was_damaged() -> None:
    assert json.loads(verified_json(Verified("/x", 3, ("ab",)))) == {
        "path": "/x",
        "checked": 3,
        "corrupt": ["ab"],
        "file_damage": None,
    }
