"""An experiment as Markdown: tables that stay tables, whatever samples say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.exports.markdown import show_markdown
from evalve.storage import open_store
from recorded import done, failed, record


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def scored(sample_id: str, **counts: int) -> dict[str, Any]:
    """A sample with its misses by kind."""
    metadata = {"reason": "; ".join(counts), "miss_counts": dict(counts)} if counts else {}
    score = {"name": "match", "value": not counts, "metrics": ["accuracy"], "metadata": metadata}
    return {"sample_id": sample_id, "repeat": 0, "wall_s": 0.5, "scores": [score]}


def test_evaluations_stand_below_each_other_and_their_misses_are_summed(store: Store) -> None:
    record(store, "x", scored("a"), scored("b", extra=1), name="eval_one")
    record(store, "x", scored("c", extra=1, missing=1), failed("d", "OSError"), name="eval_two")

    lines = list(show_markdown(store, "x", evaluation=None))

    assert lines[0] == "## x"
    assert lines[4:] == [
        "| evaluation | samples | match.accuracy |",
        "| --- | --- | --- |",
        "| eval_one | 2/2 done (100%) | 0.500 [0.09, 0.91] |",
        "| eval_two | 1/2 done (50%), 1 failed (code) | 0.000 [0.00, 0.79] |",
        "",
        "| miss | match |",
        "| --- | --- |",
        "| extra | 2 |",
        "| missing | 1 |",
        "",
        "### Wrong: 2",
        "",
        "| evaluation | sample | why |",
        "| --- | --- | --- |",
        "| eval_one | b | extra |",
        "| eval_two | c | extra; missing |",
        "",
        "### Broken: 1",
        "",
        "| evaluation | sample | why |",
        "| --- | --- | --- |",
        "| eval_two | d | code: OSError: no |",
    ]


def test_what_samples_say_breaks_no_table_and_is_not_rendered(store: Store) -> None:
    text = "a | b\n# c `d` *e* <img src=x> [here](http://127.0.0.1)"
    record(store, "x", failed("a|b", "ValueError", text))

    row = list(show_markdown(store, "x", evaluation=None))[-1]

    said = "a \\| b \\# c \\`d\\` \\*e\\* \\<img src=x> [here]\\(http://127.0.0.1)"
    assert row == f"| eval_math | a\\|b | code: ValueError: {said} |"


def test_the_first_samples_are_shown_and_the_others_counted(store: Store) -> None:
    record(store, "x", *(done(f"s{number}", exact_match=False) for number in range(25)))

    shown = list(show_markdown(store, "x", evaluation=None))
    few = list(show_markdown(store, "x", evaluation="eval_math", limit=2))

    assert "### Wrong: 25" in shown
    assert shown[-1] == "… and 5 more"
    assert few[-1] == "… and 23 more"


def test_an_unknown_experiment_is_told(store: Store) -> None:
    with pytest.raises(NotFound, match="y"):
        list(show_markdown(store, "y", evaluation=None))
