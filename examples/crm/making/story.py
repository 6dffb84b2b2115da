"""One conversation while it is written: each turn is played in the model of the CRM."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from making.model import ENTITIES, Refused
from making.world import DEALS, FIRST_NAMES, LAST_NAMES, OWNERS, REMARKS, base

REFERENCE = re.compile(r"\{\{turn_(\d+)\.(\w+)\}\}")


Turns = Iterator[None]
"""Yields after each turn that has been told."""


class Story:
    """A client, the rows that it begins with, and the turns so far."""

    def __init__(self, number: int, name: str, chance: random.Random) -> None:
        self.number = number
        self.name = name
        self.chance = chance
        self.crm = base()
        self.seeds: dict[str, dict[str, dict[str, Any]]] = {}
        self.turns: list[dict[str, Any]] = []
        self.results: list[Any] = []
        self._made: dict[str, str] = {}
        """The id that the model gave to a new row → the reference that stands for it."""

    # -- what there is at the start

    def seed(self, entity: str, which: str, **values: Any) -> str:
        self.seeds.setdefault(entity, {})[which] = values
        self.crm.put(ENTITIES[entity], which, **values)
        return which

    def seed_client(self, **values: Any) -> str:
        mail = f"office@{self.name.lower().replace(' ', '-')}.example"
        given = {"name": self.name, "email": mail, "status": "active", "owner": self.pick(*OWNERS), **values}
        return self.seed("Client", f"CL-{100 + self.number}", **given)

    def seed_deal(self, client: str, *, place: int = 1, **values: Any) -> str:
        given = {
            "name": DEALS[(self.number + place) % len(DEALS)],
            "amount": self.amount(),
            "probability": 30,
        }
        given |= {"owner": self.pick(*OWNERS), "stage": "qualification", **values}
        return self.seed("Opportunity", f"OP-{100 * place + self.number}", client_id=client, **given)

    # -- turns

    def say(
        self,
        utterance: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        reply: str = "",
        answers: Sequence[Any] = (),
        judged: bool = False,
        refused: str = "",
    ) -> str:
        """A turn with one call. Returns what a later turn writes before the field: `{{turn_3.`."""
        turn: dict[str, Any] = {"expected_tool": tool, "expected_args": arguments}
        result: Any = None
        try:
            result = self.crm.call(tool, self.resolved(arguments))
        except Refused as error:
            assert refused and refused in str(error), f"{tool} {arguments}: {error}, not {refused!r}"
            turn |= {"expect_success": False, "expected_error_substring": refused}
        else:
            assert not refused, f"{tool} {arguments} is possible"
        return self._add(utterance, turn, result, reply, answers, judged)

    def say_several(self, utterance: str, *calls: tuple[str, dict[str, Any]]) -> None:
        """A turn with several calls, or with none."""
        for tool, arguments in calls:
            self.crm.call(tool, self.resolved(arguments))
        expected = [{"name": tool, "arguments": arguments} for tool, arguments in calls]
        self._add(utterance, {"expected_calls": expected}, None, "", (), False)

    def sum_up(self, utterance: str, text: str) -> None:
        """A turn whose reply a judge reads, whether something is looked up once more or not."""
        self._add(utterance, {}, None, text, (), True)

    def _add(
        self,
        utterance: str,
        turn: dict[str, Any],
        result: Any,
        reply: str,
        answers: Sequence[Any],
        judged: bool,
    ) -> str:
        number = len(self.turns) + 1
        if reply:
            response: dict[str, Any] = {"text": reply, "evaluation": "judge" if judged else "structured"}
            response |= {"requires_judge": True} if judged else {"answers": [list(answers)]}
            turn = {**turn, "expected_response": response}
        assert all(utterance != other["user_utterance"] for other in self.turns), utterance
        self.turns.append({"turn_id": number, "user_utterance": utterance, **turn})
        self.results.append(result)
        if isinstance(result, dict):
            made = [(field, value) for field, value in result.items() if str(value).startswith("made-")]
            for field, value in made:
                self._made.setdefault(value, f"{{{{turn_{number}.{field}}}}}")
        return f"{{{{turn_{number}."

    def resolved(self, value: Any) -> Any:
        """With what turns returned in place of references to them."""
        if isinstance(value, dict):
            return {name: self.resolved(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        result = self.results[int(found[1]) - 1]
        return (result[0] if isinstance(result, list) else result)[found[2]]

    def result(self, reference: str) -> Any:
        """What the turn of `{{turn_3.` returned."""
        return self.results[int(re.sub(r"\D", "", reference)) - 1]

    def state(self) -> dict[str, list[dict[str, Any]]]:
        """Every row that should be there in the end, by table; a new id that no turn returned may be any."""
        return {
            table: [self._named({"id": which, **row}) for which, row in rows.items()]
            for table, rows in self.crm.tables.items()
        }

    def _named(self, row: dict[str, Any]) -> dict[str, Any]:
        named = {column: self._made.get(str(value), value) for column, value in row.items()}
        return {column: value for column, value in named.items() if not str(value).startswith("made-")}

    # -- by chance, always the same

    def pick(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def amount(self) -> int:
        return self.chance.randrange(40, 900) * 250

    def day(self, year: int) -> str:
        return f"{year}-{self.chance.randrange(1, 13):02}-{self.chance.randrange(1, 29):02}"

    def person(self, place: int) -> dict[str, str]:
        """First and last name and e-mail; another one for each place."""
        first = FIRST_NAMES[(self.number + 3 * place) % len(FIRST_NAMES)]
        last = LAST_NAMES[(self.number // 2 + place) % len(LAST_NAMES)]
        mail = f"{first}.{last}@{self.name.lower().replace(' ', '-')}.example".lower()
        return {"first_name": first, "last_name": last, "email": mail}

    def remark(self, place: int) -> str:
        return REMARKS[(self.number + place) % len(REMARKS)]


def in_any_order(s: Story, *parts: Callable[[], Turns]) -> Turns:
    """Parts that do not depend on each other."""
    for part in s.chance.sample(parts, len(parts)):
        yield from part()
