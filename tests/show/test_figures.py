"""How the calls of a run are told in a line."""

from __future__ import annotations

from evalve.show import figures

MADE = {"requests": 4, "retries": 1, "input_tokens": 30, "output_tokens": 8, "cost_usd": 0.5}


def test_calls_that_passed_ungated_are_counted_at_the_end() -> None:
    assert figures.calls({**MADE, "ungated": 2}) == (
        "3 calls; 30 + 8 tokens; 0.5000 USD; 1 retries; 2 calls passed ungated"
    )


def test_where_all_calls_passed_ungated_nothing_else_is_told() -> None:
    assert figures.calls({"requests": 0, "ungated": 1}) == "1 call passed ungated"
