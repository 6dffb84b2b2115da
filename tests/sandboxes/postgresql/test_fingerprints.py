"""Two states side by side: what differs from run to run does not count, and everything else is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import SampleContext
from evalve.sandboxes.postgresql.differing import Row, differing
from evalve.sandboxes.postgresql.fingerprints import Fingerprint
from evalve.sandboxes.postgresql.lender import postgres
from postgres_server import Admin

SCHEMA = """\
CREATE TABLE clients (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, budget numeric(10, 2), tags jsonb,
    created_at timestamptz DEFAULT now(), seen timestamptz
);
CREATE TABLE notes (id serial PRIMARY KEY, client_id uuid REFERENCES clients (id), body text);
CREATE TABLE countries (code text PRIMARY KEY, name text);
CREATE TABLE people (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, boss int REFERENCES people (id)
);
CREATE TABLE "order" (ref uuid UNIQUE DEFAULT gen_random_uuid(), token uuid DEFAULT gen_random_uuid());
CREATE TABLE "Order Details" ("of order" uuid REFERENCES "order" (ref), note text);
"""
ACME = "INSERT INTO clients (name, budget) VALUES ('Acme', 10)"
GLOBEX = "INSERT INTO clients (name, budget) VALUES ('Globex', 20)"


def note(body: str, client: str) -> str:
    return f"INSERT INTO notes (client_id, body) SELECT id, '{body}' FROM clients WHERE name = '{client}'"


class Compare:
    """Runs two scripts from one state."""

    def __init__(self, db: Any) -> None:
        self._db = db

    async def state(self, *statements: str) -> Fingerprint:
        found: list[Fingerprint] = []
        with pytest.raises(_Undone):
            async with self._db.savepoint() as connection:
                for statement in statements:
                    await connection.execute(statement)
                found.append(await self._db.fingerprint())
                raise _Undone
        return found[0]

    async def diff(self, expected: list[str], found: list[str]) -> str:
        return (await self.state(*found)).diff(await self.state(*expected))


class _Undone(Exception):
    pass


@pytest.fixture
async def compare(
    admin: Admin, tmp_path: Path, context: Callable[[], SampleContext]
) -> AsyncIterator[Compare]:
    (tmp_path / "schema.sql").write_text(SCHEMA)
    lender = postgres(tmp_path / "schema.sql", size=1, volatile=["clients.seen"])
    async with lender.lend(context()) as db:
        yield Compare(db)
    lender.close()


async def test_generated_ids_times_and_the_order_of_rows_do_not_count(compare: Compare) -> None:
    one = [ACME, GLOBEX, note("hello", "Acme"), note("bye", "Globex")]
    other = [GLOBEX, note("bye", "Globex"), ACME, note("hello", "Acme"), "UPDATE clients SET seen = now()"]
    assert (await compare.state(*one)).diff(await compare.state(*other[:-1])) == ""
    first, second = await compare.state(*one), await compare.state(*other[:-1])
    assert first.state == second.state
    assert await compare.diff(one, other) == (
        "clients: name 'Acme': seen is '(set)' instead of nothing\n"
        "clients: name 'Globex': seen is '(set)' instead of nothing"
    )


async def test_other_random_ids_do_not_count_and_names_need_no_quotes(compare: Compare) -> None:
    ordered = [
        'INSERT INTO "order" DEFAULT VALUES',
        """INSERT INTO "Order Details" SELECT ref, 'hello' FROM "order\"""",
    ]
    state = await compare.state(*ordered)
    assert state.state == (await compare.state(*ordered)).state
    assert state.diff({"order": [{}], "Order Details": [{"note": "hello"}]}) == ""


async def test_numbers_count_by_value(compare: Compare) -> None:
    one = "INSERT INTO clients (name, tags) VALUES ('Acme', '{\"a\": 1.50}')"
    assert await compare.diff([one], [one.replace("1.50", "1.5")]) == ""


async def test_a_row_that_belongs_to_another_one_is_told(compare: Compare) -> None:
    assert await compare.diff(
        [ACME, GLOBEX, note("hello", "Acme")], [ACME, GLOBEX, note("hello", "Globex")]
    ) == ("notes: body 'hello': client_id is clients 'Globex' instead of clients 'Acme'")


async def test_missing_changed_and_additional_rows_are_told_each_in_a_line(compare: Compare) -> None:
    expected = [ACME, GLOBEX, note("hello", "Acme")]
    found = [
        ACME,
        GLOBEX,
        "UPDATE clients SET budget = 11 WHERE name = 'Acme'",
        "INSERT INTO countries VALUES ('ch')",
    ]
    assert await compare.diff(expected, found) == (
        "clients: name 'Acme': budget is 11 instead of 10\n"
        "countries: too many: code 'ch'\n"
        "notes: missing: client_id clients 'Acme', body 'hello'"
    )


async def test_a_change_to_a_row_is_told_there_and_not_where_it_is_referred_to_by_name_alone(
    compare: Compare,
) -> None:
    found = [ACME, note("hello", "Acme"), "UPDATE clients SET budget = 11"]
    told = await compare.diff([ACME, note("hello", "Acme")], found)
    assert told == "clients: name 'Acme': budget is 11 instead of 10"


async def test_natural_keys_are_values(compare: Compare) -> None:
    assert await compare.diff(
        ["INSERT INTO countries VALUES ('ch', 'x')"], ["INSERT INTO countries VALUES ('at', 'x')"]
    ) == ("countries: name 'x': code is 'at' instead of 'ch'")


async def test_rows_that_differ_in_what_refers_to_them_alone_are_told(compare: Compare) -> None:
    people = ["INSERT INTO people (name) VALUES ('a'), ('a')"]
    same_boss = "INSERT INTO people (name, boss) SELECT 'b', min(id) FROM people; "
    other_boss = "INSERT INTO people (name, boss) SELECT 'b', max(id) FROM people WHERE name = 'a'"
    assert await compare.diff([*people, same_boss, same_boss], [*people, same_boss, other_boss]) == (
        "rows refer to each other in another way"
    )
    assert await compare.diff([*people, same_boss], [*people, other_boss]) == ""


async def test_tables_that_came_or_went_are_told(compare: Compare) -> None:
    assert await compare.diff([], ["DROP TABLE countries; CREATE TABLE planets (id int)"]) == (
        "countries: the table is not there\nplanets: the table should not be there"
    )


async def test_an_expected_state_may_name_some_tables_and_columns_only(compare: Compare) -> None:
    found = await compare.state(ACME, GLOBEX, note("hello", "Acme"))
    assert found.diff({"clients": [{"name": "Globex", "budget": 20.0}, {"name": "Acme"}]}) == ""
    assert found.diff({"clients": [{"name": "Acme", "budget": 10}], "quotes": []}) == (
        "clients: too many: name 'Globex', budget 20, created_at '(set)'\nquotes: the table is not there"
    )
    assert found.diff({"clients": [{"name": "Acme", "budget": 12}, {"name": "Globex"}]}) == (
        "clients: name 'Acme': budget is 10 instead of 12"
    )


async def test_a_row_of_which_little_is_expected_does_not_take_the_place_of_another(compare: Compare) -> None:
    found = await compare.state(ACME, GLOBEX, "UPDATE clients SET budget = 5")
    assert found.diff({"clients": [{"budget": 5}, {"budget": 5, "name": "Acme"}]}) == ""
    assert found.diff({"clients": [{"budget": 5}, {"budget": 5, "name": "Globex"}]}) == ""


async def test_a_mapping_may_name_ids_as_they_are(compare: Compare) -> None:
    which = "00000000-0000-0000-0000-000000000001"
    found = await compare.state(f"INSERT INTO clients (id, name) VALUES ('{which}', 'Acme')")
    assert found.diff({"clients": [{"id": which, "name": "Acme"}]}) == ""


async def test_numbers_of_a_sequence_count_for_the_fingerprint_and_not_for_the_state(
    compare: Compare,
) -> None:
    before = await compare.state()
    after = await compare.state("SELECT nextval('notes_id_seq')")
    assert after != before
    assert after.state == before.state
    assert after.diff(before) == ""


@pytest.mark.parametrize(
    ("said", "found", "is_meant"),
    [
        ("2026-01-01T10:00:00Z", "2026-01-01T11:00:00+01:00", True),
        ("2026-01-01 10:00", "2026-01-01T10:00:00+00:00", True),
        ("2026-01-01", "2026-01-01T00:00:00", True),
        (datetime(2026, 1, 1, 10, tzinfo=UTC), "2026-01-01T10:00:00+00:00", True),
        (date(2026, 1, 1), "2026-01-01", True),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00+01:00", False),
        ("2026-01-01", "2026-01-01T10:00:00", False),
        (["10", 2], [Decimal("10.00"), Decimal("2")], True),
        ("10", "10.00", False),
        ("ten", 10, False),
        ("1", True, False),
        (None, 0, False),
    ],
)
def test_times_and_numbers_may_be_written_in_several_ways(said: Any, found: Any, is_meant: bool) -> None:
    there = {"visits": [Row({}, {"at": found}, {}, {})]}
    assert (differing({"visits": [{"at": said}]}, there, is_whole=False) == "") is is_meant
