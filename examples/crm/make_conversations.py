"""Writes seed.sql and conversations.jsonl: `python make_conversations.py [--seed 7]`.

Each conversation is played in making/model.py while it is written: that says which calls are refused, what
the answers are, and which rows there are in the end.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from making.story import Story
from making.workflows import WORKFLOWS
from making.world import CLIENT_NAMES, as_sql, base

LENGTHS = {"simple": (1, 1, 2, 2, 2, 3, 3, 3), "medium": (4, 4, 5, 5, 6, 6), "complex": (7, 8, 9, 10)}
"""How many turns the conversations of each workflow have."""


def conversations(seed: int) -> list[dict[str, Any]]:
    kinds = [
        (workflow, complexity, turns)
        for complexity, lengths in LENGTHS.items()
        for turns in lengths
        for workflow in WORKFLOWS
    ]
    chance = random.Random(seed)
    names = chance.sample(CLIENT_NAMES, len(kinds))
    chance.shuffle(kinds)
    return [
        conversation(number, name, *kind, seed=seed)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)
    ]


def conversation(
    number: int, name: str, workflow: str, complexity: str, turns: int, *, seed: int
) -> dict[str, Any]:
    story = Story(number, name, random.Random(f"{seed}/{number}"))
    telling = WORKFLOWS[workflow](story)
    while len(story.turns) < turns and next(telling, "over") != "over":
        pass
    failures = [turn["turn_id"] for turn in story.turns if turn.get("expect_success") is False]
    row = {
        "conversation_id": f"{workflow}-{complexity}-{number:03}",
        "workflow_category": workflow,
        "complexity_level": complexity,
        "initial_entities": {"seed_data": story.seeds},
        "turns": story.turns,
        "contains_failure": bool(failures),
        "failure_turn": failures[0] if failures else None,
        "success_criteria": _criteria(workflow, complexity, number),
    }
    if row["success_criteria"] != "all_turns":
        row["final_expected_state"] = story.state()
    return row


def _criteria(workflow: str, complexity: str, number: int) -> str:
    if workflow == "reporting" and number % 3 == 0:
        return "all_turns"
    return "final_state" if complexity == "simple" and number % 5 == 0 else "both"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    said = parser.parse_args()
    rows = conversations(said.seed)
    (said.folder / "seed.sql").write_text(as_sql(base()), encoding="utf-8")
    with (said.folder / "conversations.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    kinds = Counter(row["complexity_level"] for row in rows)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(f"wrote {len(rows)} conversations ({told}) with {sum(len(row['turns']) for row in rows)} turns")


if __name__ == "__main__":
    main()
