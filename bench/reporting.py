"""Figures as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from bench.measuring import Figure

_HEAD = ("benchmark", "what", "measured", "target", "")


@dataclass(frozen=True, slots=True)
class Report:
    """What one benchmark came to; `error` is set where it broke."""

    name: str
    figures: Sequence[Figure]
    took_s: float
    error: str = ""

    @property
    def is_bad(self) -> bool:
        return bool(self.error) or any(figure.is_missed for figure in self.figures)


def table(reports: Iterable[Report]) -> str:
    rows = [row for report in reports for row in _rows(report)]
    widths = [max(len(row[column]) for row in (_HEAD, *rows)) for column in range(4)]
    return "\n".join(_line(row, widths) for row in (_HEAD, *rows))


def as_json(reports: Iterable[Report]) -> str:
    plain = [
        {
            "name": report.name,
            "took_s": round(report.took_s, 1),
            "error": report.error,
            "figures": [{**asdict(figure), "is_missed": figure.is_missed} for figure in report.figures],
        }
        for report in reports
    ]
    return json.dumps(plain, indent=2, ensure_ascii=False)


def figures_to_text(figures: Iterable[Figure]) -> str:
    return json.dumps([asdict(figure) for figure in figures])


def figures_from_text(text: str) -> list[Figure]:
    return [Figure(**plain) for plain in json.loads(text)]


def _rows(report: Report) -> list[tuple[str, ...]]:
    if report.error:
        return [(report.name, report.error, "–", "–", "BROKEN")]
    rows: list[tuple[str, ...]] = []
    for number, figure in enumerate(report.figures):
        verdict = "" if figure.target is None else "MISSED" if figure.is_missed else "ok"
        note = f"({figure.note})" if figure.note else ""
        rows.append(
            (
                report.name if number == 0 else "",
                figure.what,
                _value(figure.measured, figure.unit),
                _target(figure),
                f"{verdict} {note}".strip(),
            )
        )
    return rows


def _target(figure: Figure) -> str:
    if figure.target is None:
        return "–"
    return f"{'≥' if figure.at_least else '≤'} {_value(figure.target, figure.unit)}"


def _value(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, what, measured, target, verdict = row
    cells = (
        name.ljust(widths[0]),
        what.ljust(widths[1]),
        measured.rjust(widths[2]),
        target.rjust(widths[3]),
        verdict,
    )
    return "  ".join(cells).rstrip()
