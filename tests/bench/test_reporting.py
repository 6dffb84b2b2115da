"""How the benchmarks' figures are shown."""

from __future__ import annotations

import json

from bench.measuring import Figure
from bench.reporting import Report, as_json, figures_from_text, figures_to_text, table


def test_the_table_says_what_was_measured_against_which_target() -> None:
    reports = [
        Report("quick", [Figure("ratio", 3.5, "×", 4.0), Figure("per sample", 123.4, "µs")], took_s=1.0),
        Report("slow", [Figure("start", 2.345, "s", 2.0, note="cold")], took_s=1.0),
    ]

    assert table(reports).splitlines() == [
        "benchmark  what        measured    target",
        "quick      ratio         3.50 ×  ≤ 4.00 ×  ok",
        "           per sample    123 µs         –",
        "slow       start         2.35 s  ≤ 2.00 s  MISSED (cold)",
    ]


def test_a_broken_benchmark_is_bad_and_says_why() -> None:
    broken = Report("memory", [], took_s=1.0, error="MemoryError")

    assert broken.is_bad
    assert table([broken]).splitlines()[1] == "memory     MemoryError         –       –  BROKEN"


def test_one_missed_target_makes_a_report_bad() -> None:
    assert Report("x", [Figure("a", 1.0, target=2.0), Figure("b", 3.0, target=2.0)], took_s=1.0).is_bad


def test_figures_survive_the_way_out_of_their_process() -> None:
    figures = [Figure("ratio", 3.5, "×", 4.0, note="median"), Figure("told", 1.0, "s")]

    assert figures_from_text(figures_to_text(figures)) == figures


def test_the_json_tells_programs_what_was_missed() -> None:
    (report,) = json.loads(as_json([Report("slow", [Figure("start", 2.5, "s", 2.0)], took_s=1.26)]))

    assert report == {
        "name": "slow",
        "took_s": 1.3,
        "error": "",
        "figures": [
            {
                "what": "start",
                "measured": 2.5,
                "unit": "s",
                "target": 2.0,
                "note": "",
                "at_least": False,
                "is_missed": True,
            }
        ],
    }


def test_a_figure_may_have_a_least_value() -> None:
    enough, short = (Figure("coverage", measured, "", 0.9, at_least=True) for measured in (0.95, 0.89))

    assert (enough.is_missed, short.is_missed) == (False, True)
    assert table([Report("statistics", [short], 1.0)]).splitlines()[-1].split() == [
        "statistics",
        "coverage",
        "0.89",
        "≥",
        "0.90",
        "MISSED",
    ]
