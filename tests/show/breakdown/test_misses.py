"""Misses by kind, counted over all samples, in the text and for machines."""

from __future__ import annotations

import json
from typing import Any

from evalve.show.breakdown.counting import Breakdown
from evalve.show.experiment import show_json, show_text
from evalve.show.result import EvaluationResult
from evalve.show.samples import Choice
from evalve.storage import open_store
from recorded import failed, record


def sample(sample_id: str, **counts: dict[str, int]) -> dict[str, Any]:
    scores = [
        {"name": name, "value": False, "metrics": ["accuracy"], "metadata": {"miss_counts": of_kind}}
        for name, of_kind in counts.items()
    ]
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, "scores": scores}


SAMPLES = (
    sample("a", tool_call_match={"missing": 1, "wrong value": 2}, tool_selection={"missing": 1}),
    sample("b", tool_call_match={"wrong value": 1}),
    failed("c"),
)


def test_a_table_has_a_line_for_each_kind_and_a_column_for_each_evaluator() -> None:
    store = open_store("memory://")
    record(store, "calls", *SAMPLES)
    lines = list(show_text(store, "calls", evaluation=None, choice=Choice(), width=80))
    start = next(place for place, line in enumerate(lines) if line.startswith("  miss"))
    assert lines[start : start + 4] == [
        "  miss         tool_call_match  tool_selection",
        "  ───────────  ───────────────  ──────────────",
        "  wrong value                3               –",
        "  missing                    1               1",
    ]
    plain = json.loads("".join(show_json(store, "calls", evaluation=None, choice=Choice())))
    assert plain["evaluations"][0]["misses"] == {
        "tool_call_match": {"wrong value": 3, "missing": 1},
        "tool_selection": {"missing": 1},
    }
    store.close()


def test_a_notebook_shows_them_too() -> None:
    store = open_store("memory://")
    record(store, "calls", *SAMPLES)
    (info,) = store.evaluations("calls")
    text = EvaluationResult(store, info, [], {})._repr_html_()
    assert "<th>miss</th><th>tool_call_match</th><th>tool_selection</th>" in text
    assert "<td>wrong value</td><td>3</td><td>–</td>" in text
    store.close()


def test_nothing_is_said_where_nobody_counts_misses() -> None:
    store = open_store("memory://")
    record(store, "plain", sample("a"))
    text = "\n".join(show_text(store, "plain", evaluation=None, choice=Choice(), width=80))
    assert "miss " not in text
    store.close()


def test_foreign_metadata_of_that_name_breaks_nothing() -> None:
    store = open_store("memory://")
    bad = {"name": "own", "value": 1, "metrics": [], "metadata": {"miss_counts": ["x"]}}
    evaluation = record(store, "own", {"sample_id": "a", "repeat": 0, "wall_s": 0.1, "scores": [bad]})
    assert Breakdown(lambda: store.observations(evaluation)).read_all().misses == {}
    store.close()
