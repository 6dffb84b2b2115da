"""Entities of a row in the tables of a database: inserted before the first turn, compared after the last."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from evalve.conversations.references import Unknown
from evalve.conversations.rows import rows_of
from evalve.errors import DatasetError
from evalve.jsontext import to_json
from evalve.options import suggestion

_CATALOG = """
    SELECT n.nspname, c.relname, pg_catalog.pg_table_is_visible(c.oid), a.attname,
        coalesce(a.attnum = ANY (x.conkey), false),
        CASE WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN coalesce(
            pg_catalog.pg_get_serial_sequence(pg_catalog.format('%I.%I', n.nspname, c.relname), a.attname),
            (SELECT pg_catalog.format('%I.%I', sn.nspname, s.relname) FROM pg_catalog.pg_attrdef d
                JOIN pg_catalog.pg_depend p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                    AND p.refclassid = 'pg_class'::regclass
                JOIN pg_catalog.pg_class s ON s.oid = p.refobjid AND s.relkind = 'S'
                JOIN pg_catalog.pg_namespace sn ON sn.oid = s.relnamespace
                WHERE d.adrelid = c.oid AND d.adnum = a.attnum LIMIT 1)) END
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_constraint x ON x.conrelid = c.oid AND x.contype = 'p'
    WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384 AND c.relpersistence <> 't' AND NOT c.relispartition
    ORDER BY 3 DESC, 1, 2, a.attnum"""
_FOREIGN_KEY_VIOLATION = "23503"


@dataclass(slots=True)
class Table:
    """What of a table matters here."""

    name: str
    """With its schema, where that must be said: `stock.warehouses`."""
    sql: str
    is_visible: bool = True
    """Whether SQL finds it without its schema."""
    columns: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """The columns of its primary key."""
    sequences: dict[str, str] = field(default_factory=dict)
    """Column → the sequence that gives out its numbers."""
    keeps_rows: bool = False
    """Whether a row that is there already stays as conversations before this one have left it."""

    @property
    def key(self) -> str | None:
        """Where the primary key is one column."""
        return self.keys[0] if len(self.keys) == 1 else None


Tables = dict[str, Table]


async def tables_in(db: Any, *, commits: bool) -> Tables:
    """As they are now; `commits` where the agent connects by itself."""
    tables: dict[str, Table] = {}
    async with _connection(db, commits=commits) as connection:
        cursor = await connection.execute(_CATALOG)
        rows = await cursor.fetchall()
    for schema, own, is_visible, column, is_key, sequence in rows:
        name = own if schema == "public" else f"{schema}.{own}"
        table = tables.setdefault(name, Table(name, f"{_quoted(schema)}.{_quoted(own)}", is_visible))
        table.columns.append(column)
        if is_key:
            table.keys.append(column)
        if sequence is not None:
            table.sequences[column] = sequence
    return tables


async def seed_database(db: Any, tables: Tables, seed: Mapping[str, Any], *, commits: bool) -> None:
    """Insert the rows of a conversation."""
    who = "initial_entities.seed_data"
    for table in tables.values():
        table.keeps_rows = getattr(db, "has_earlier", False)
    waiting = [
        (table, _row(table, key, row, f"{who}.{entity}"))
        for entity, rows in seed.items()
        for table in [table_of(entity, tables, who)]
        for key, row in rows_of(entity, rows, who)
    ]
    for table, row in waiting:
        _check_columns(table, row, who)
    while waiting:
        waiting = await _inserted(db, waiting, commits=commits)


async def _inserted(
    db: Any, waiting: list[tuple[Table, dict[str, Any]]], *, commits: bool
) -> list[tuple[Table, dict[str, Any]]]:
    """Insert what can be; what is left refers to rows that have come after it."""
    with suppress(_RefersToNothing):
        await _insert_together(db, waiting, commits=commits)
        return []
    left: list[tuple[Table, dict[str, Any]]] = []
    for table, row in waiting:
        try:
            await _insert_together(db, [(table, row)], commits=commits)
        except _RefersToNothing as problem:
            left.append((table, row))
            if len(left) == len(waiting):
                raise DatasetError(str(problem)) from None
    return left


async def expected_rows(
    db: Any, before: Tables, state: Mapping[str, Any], *, commits: bool
) -> dict[str, list[Any]]:
    """The expected state by table, as `db.diff` takes it.

    Tables are those that were there `before` the first turn: one that the agent has dropped is a difference,
    and no mistake of the row. Where that does not do, those that it has made are looked at too.
    """
    try:
        return _expected(before, state)
    except DatasetError:
        there = before | await tables_in(db, commits=commits)
    return _expected(there, state, takes_others=commits)


def _expected(
    tables: Tables, state: Mapping[str, Any], *, takes_others: bool = False
) -> dict[str, list[Any]]:
    """`takes_others`: what is not there is for an agent to make, who works by itself, and is a difference."""
    who = "final_expected_state"
    found: dict[str, list[Any]] = {}
    for entity, rows in state.items():
        try:
            table = table_of(entity, tables, who)
        except DatasetError:
            if not takes_others:
                raise
            table = Table(entity, "")
        of = found.setdefault(table.name, [])
        for key, row in rows_of(entity, rows, who):
            own = {name: value for name, value in row.items() if not isinstance(value, Unknown)}
            is_keyed = not isinstance(key, Unknown) and not (takes_others and table.key is None)
            of.append(_row(table, key if is_keyed else None, own, f"{who}.{entity}"))
            if not takes_others:
                _check_columns(table, of[-1], who)
    return found


def table_of(entity: str, tables: Tables, who: str) -> Table:
    """The table of that name, or of its plural: `Company` is `companies`. Case does not count.

    The name of a schema is left out where one table is called so, or one of them is found without it.
    """
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", entity).lower()
    plurals = [f"{snake[:-1]}ies"] if snake.endswith("y") else []
    for name in (entity.lower(), snake, f"{snake}s", f"{snake}es", *plurals):
        for found in _by_name(name, tables):
            return found
    there = f"there is: {', '.join(tables)}" if tables else "the database has no tables"
    raise DatasetError(
        f"{who}: no table is called {entity!r}, or like its plural{suggestion(snake, tables)} ({there})"
    )


def _by_name(name: str, tables: Tables) -> list[Table]:
    whole = [table for known, table in tables.items() if known.lower() == name]
    alike = [table for known, table in tables.items() if known.lower().rpartition(".")[2] == name]
    visible = [table for table in alike if table.is_visible]
    return visible or whole or (alike if len(alike) == 1 else [])


def _row(table: Table, key: Any, row: Mapping[str, Any], who: str) -> dict[str, Any]:
    if key is None:
        return dict(row)
    if table.key is None:
        raise DatasetError(
            f"{who} has rows by id, and the table {table.name} has no primary key of one column: give a list "
            "of rows"
        )
    return {table.key: key, **row}


def _check_columns(table: Table, row: Mapping[str, Any], who: str) -> None:
    for column in row:
        if column not in table.columns:
            hint = suggestion(str(column), table.columns) or f" (there is: {', '.join(table.columns)})"
            raise DatasetError(f"{who}: the table {table.name} has no column {column!r}{hint}")


class _RefersToNothing(Exception):
    """A foreign key whose row is not there, yet."""


async def _insert_together(
    db: Any, rows: Sequence[tuple[Table, Mapping[str, Any]]], *, commits: bool
) -> None:
    """In one savepoint, at whose end the server checks what it has deferred."""
    table, row = rows[-1]
    try:
        async with _connection(db, commits=commits) as connection:
            for table, row in rows:
                await _insert(connection, table, row)
    except Exception as error:
        sqlstate = getattr(error, "sqlstate", None)
        if sqlstate is None:  # not what the server says of the row
            raise
        problem = f"initial_entities.seed_data: {to_json(row)} cannot be inserted into {table.name}: {error}"
        kind = _RefersToNothing if sqlstate == _FOREIGN_KEY_VIOLATION else DatasetError
        raise kind(problem) from error


async def _insert(connection: Any, table: Table, row: Mapping[str, Any]) -> None:
    columns, keys = ", ".join(map(_quoted, row)), ", ".join(map(_quoted, table.keys))
    keeps = f" ON CONFLICT ({keys}) DO NOTHING" if table.keeps_rows and keys else ""
    await connection.execute(
        # the server reads every kind of value from JSON, as it does its own
        f"INSERT INTO {table.sql} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns}"
        f" FROM pg_catalog.jsonb_populate_record(NULL::{table.sql}, %s::jsonb){keeps}",
        (to_json(row),),
    )
    for column, sequence in table.sequences.items():
        if column in row:
            await connection.execute(  # or a number that it gives would be taken
                f"SELECT pg_catalog.setval(%s::regclass, max({_quoted(column)})) FROM {table.sql}"
                f" HAVING max({_quoted(column)}) >= (SELECT last_value FROM {sequence})",
                (sequence,),
            )


@asynccontextmanager
async def _connection(db: Any, *, commits: bool) -> AsyncIterator[Any]:
    if commits:
        async with db.connect() as connection:
            yield connection
    else:
        async with db.savepoint() as connection:
            yield connection


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
