"""Writes 24 long annual reports and a question about each: `python make_documents.py [--seed 7]`."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

NAMES = [
    *("Alder", "Ash", "Aspen", "Beech", "Birch", "Cedar", "Cherry", "Chestnut"),
    *("Cypress", "Ebony", "Elm", "Fir", "Hazel", "Hickory", "Juniper", "Larch"),
    *("Laurel", "Linden", "Maple", "Oak", "Pine", "Poplar", "Rowan", "Willow"),
]
YEARS = range(2019, 2025)
MEASURES = ("operating revenue", "gross profit", "research expense", "net interest", "free cash flow")
FILLER = (
    "The board considered the matter at length and took note of the report of the auditors.",
    "Management estimates are based on historical experience and on other factors.",
    "No single customer accounts for more than a tenth of what the group sells.",
    "Leases of less than twelve months are recognised over their term.",
    "The group is exposed to currency risk in the ordinary course of its business.",
    "Subsequent events were evaluated up to the date of this report.",
)


def report(name: str, chance: random.Random, lines: int) -> tuple[list[str], dict[tuple[str, int], str]]:
    """The lines of a report, and every figure that is hidden in it."""
    text = [f"{chance.choice(FILLER)} ({chance.randrange(10_000)})" for _ in range(lines)]
    figures = {}
    places = iter(sorted(chance.sample(range(10, lines), len(MEASURES) * len(YEARS))))
    for measure in MEASURES:
        for year in YEARS:
            figures[measure, year] = f"{chance.uniform(10, 900):.1f}"
            text[next(places)] = (
                f"The {measure} of {name} in {year} amounted to {figures[measure, year]} million."
            )
    return [f"# Annual report of {name}", "", *text], figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--lines", type=int, default=4_000, help="of each report (300 kB)")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    said = parser.parse_args()
    chance = random.Random(said.seed)
    (said.folder / "documents").mkdir(parents=True, exist_ok=True)
    rows = []
    for name in NAMES:
        lines, figures = report(name, chance, said.lines)
        (said.folder / "documents" / f"{name.lower()}.md").write_text("\n".join(lines) + "\n")
        measure, year = chance.choice(MEASURES), chance.choice(list(YEARS))
        rows.append(
            {
                "id": name.lower(),
                "question": f"What was the {measure} of {name} in {year}, in million?",
                "document": f"{name.lower()}.md",
                "answer": figures[measure, year],
            }
        )
    with (said.folder / "documents.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"wrote {len(rows)} documents and {said.folder / 'documents.jsonl'}")


if __name__ == "__main__":
    main()
