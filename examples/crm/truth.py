"""What an evaluation of the simulated agents must find: `python truth.py [--json]`.

Two figures for each agent. `expected` is the success rate of an agent that errs so often, over this dataset:
for a conversation of n turns (1 - rate)^n; where only the final state counts, the probability of all
combinations of errors that leave it right. `drawn` is the share of conversations that succeed with the errors
that were drawn: an evaluation must report exactly that, with an interval that has `expected` in it. Both come
from making/model.py, which knows nothing of tools.py, PostgreSQL or evalve.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from making.model import ENTITIES, Crm, Refused
from making.story import REFERENCE
from making.world import base
from simulated.slips import RATES, REPAIRED, calls_of, is_noticed, kinds_of, slip

CLAUDE, GPT, MINI = RATES
AGENTS = {
    "claude": (CLAUDE, None),
    "gpt4.1": (GPT, None),
    "gpt4.1-mini": (MINI, None),
    "atlas": (MINI, CLAUDE),
}
"""Each agent's model, and its teacher."""

Row = dict[str, Any]


class Unknown(Exception):
    """A reference to what no call has returned."""


@dataclass(frozen=True)
class Played:
    """A conversation as an agent went through it."""

    errors: list[str | None]
    """The error that was made in each turn, and not repaired."""
    turns: list[bool]
    is_state_right: bool
    criteria: str

    @property
    def success(self) -> bool:
        return (self.criteria == "final_state" or all(self.turns)) and (
            self.criteria == "all_turns" or self.is_state_right
        )


def truth(agent: str, rows: Sequence[Row]) -> dict[str, Any]:
    """Both rates of an agent, and what comes of each conversation."""
    played = {row["conversation_id"]: drawn(agent, row) for row in rows}
    return {
        "expected": sum(probability(agent, row) for row in rows) / len(rows),
        "drawn": sum(one.success for one in played.values()) / len(rows),
        "conversations": {
            which: {"errors": one.errors, "turns": one.turns, "success": one.success}
            for which, one in played.items()
        },
    }


def drawn(agent: str, row: Row) -> Played:
    """With the errors that this agent makes in this conversation."""
    model, teacher = AGENTS[agent]
    which = row["conversation_id"]
    errors = [slip(model, which, turn) for turn in row["turns"]]
    if teacher is not None:
        errors = [
            None if is_noticed(teacher, which, turn) else error
            for turn, error in zip(row["turns"], errors, strict=True)
        ]
    return play(row, errors)


def probability(agent: str, row: Row) -> float:
    """That a conversation succeeds."""
    model, teacher = AGENTS[agent]
    rate = RATES[model] * (1.0 if teacher is None else 1.0 - REPAIRED)
    if row["success_criteria"] != "final_state":
        return float((1.0 - rate) ** len(row["turns"]))
    possible = [
        [(None, 1.0 - rate), *((kind, rate / len(kinds)) for kind in kinds)]
        for kinds in map(kinds_of, row["turns"])
    ]
    return sum(
        prod(share for _, share in errors)
        for errors in product(*possible)
        if play(row, [kind for kind, _ in errors]).success
    )


def play(row: Row, errors: Sequence[str | None]) -> Played:
    crm = base()
    for entity, rows in row["initial_entities"]["seed_data"].items():
        for which, values in rows.items():
            crm.put(ENTITIES[entity], which, **values)
    results: dict[int, Any] = {}
    right = []
    for turn, error in zip(row["turns"], errors, strict=True):
        is_as_expected = _play_turn(crm, turn, error, results)
        right.append(error is None and is_as_expected)
    expected = row.get("final_expected_state")
    is_state_right = expected is None or _is_state(crm, expected, results)
    return Played(list(errors), right, is_state_right, row["success_criteria"])


def _play_turn(crm: Crm, turn: Row, error: str | None, results: dict[int, Any]) -> bool:
    """Make the calls, keep what the expected tool returned; whether all came out as expected."""
    try:
        calls = [(name, resolved(given, results)) for name, given in calls_of(turn, error)]
    except Unknown:
        return False  # nobody calls a tool with an id that he does not have
    should_succeed = turn.get("expect_success", True)
    is_as_expected = True
    for name, arguments in calls:
        try:
            result = crm.call(name, arguments)
            is_as_expected = is_as_expected and should_succeed
            if name == turn.get("expected_tool"):
                results[turn["turn_id"]] = result
        except Refused as refused:
            is_expected = not should_succeed and turn["expected_error_substring"] in str(refused)
            is_as_expected = is_as_expected and is_expected
    return is_as_expected


def _is_state(crm: Crm, expected: dict[str, list[Row]], results: dict[int, Any]) -> bool:
    for table, rows in expected.items():
        found = [{"id": which, **row} for which, row in crm.tables[table].items()]
        for row in rows:
            try:
                wanted = resolved(row, results)
            except Unknown:
                return False
            same = next((one for one in found if wanted.items() <= one.items()), None)
            if same is None:
                return False
            found.remove(same)
        if found:
            return False
    return True


def resolved(value: Any, results: dict[int, Any]) -> Any:
    """With what turns returned in place of references to them; raises `Unknown`."""
    if isinstance(value, dict):
        return {name: resolved(inner, results) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(resolved(inner, results) for inner in value)
    return REFERENCE.sub(lambda found: _field(found, results), value) if isinstance(value, str) else value


def _field(found: Any, results: dict[int, Any]) -> str:
    result = results.get(int(found[1]))
    result = result[0] if isinstance(result, list) and result else result
    if not isinstance(result, dict) or found[2] not in result:
        raise Unknown(found[0])
    return str(result[found[2]])


def read(folder: Path) -> list[Row]:
    with (folder / "conversations.jsonl").open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", type=int, help="the first so many conversations")
    said = parser.parse_args()
    rows = read(Path(__file__).parent)[: said.samples]
    told = {agent: truth(agent, rows) for agent in AGENTS}
    if said.json:
        print(json.dumps(told))
        return
    print(f"success over {len(rows)} conversations")
    for agent, one in told.items():
        print(f"  {agent:12} expected {one['expected']:.3f}  drawn {one['drawn']:.3f}")


if __name__ == "__main__":
    main()
