"""The state of a database as people mean it: rows without what differs from run to run.

Generated ids are replaced by names that follow from what the rows say and refer to, so that two runs that did
the same have the same fingerprint. Columns that hold the time of a change only say whether they are set.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from evalve.sandboxes.postgresql.checksums import numbers_of
from evalve.sandboxes.postgresql.differing import Label, Row, Words, differing
from evalve.sandboxes.postgresql.steps import Steps, quoted, unquoted

SET = "(set)"
"""What stands for a volatile value."""
_READ = "pg_temp.evalve_read"
_ROUNDS = 8
_VOLATILE_NAME = re.compile(r"(?:^|_)(?:created|updated|modified|changed)(?:_(?:at|on|date|time|ts))?$")
_VOLATILE_DEFAULT = re.compile(
    r"now\(\)|current_timestamp|current_date|localtimestamp|clock_timestamp|_timestamp\(\)", re.IGNORECASE
)
_GENERATED = re.compile(r"nextval\(|gen_random_uuid|uuid_generate|uuidv\d|uuid_v\d", re.IGNORECASE)
_COLUMNS = """
    SELECT format('%I.%I', n.nspname, c.relname), a.attname, format_type(a.atttypid, a.atttypmod),
        coalesce(pg_get_expr(d.adbin, d.adrelid), ''), a.attidentity::text,
        (SELECT min(x.contype::text) FROM pg_constraint x WHERE x.conrelid = c.oid
            AND x.contype IN ('p', 'u') AND x.conkey = ARRAY[a.attnum]),
        (SELECT ARRAY[format('%I.%I', fn.nspname, fc.relname), fa.attname::text] FROM pg_constraint x
            JOIN pg_class fc ON fc.oid = x.confrelid JOIN pg_namespace fn ON fn.oid = fc.relnamespace
            JOIN pg_attribute fa ON fa.attrelid = x.confrelid AND fa.attnum = x.confkey[1]
            WHERE x.conrelid = c.oid AND x.contype = 'f' AND x.conkey = ARRAY[a.attnum] LIMIT 1)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't' AND c.oid >= 16384
    ORDER BY 1, a.attnum"""
_SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences ORDER BY 1"


@dataclass(frozen=True, slots=True)
class Column:
    """What of a column matters here."""

    name: str
    kind: str
    is_volatile: bool
    is_id: bool
    refers_to: tuple[str, str] | None


Columns = Mapping[str, list[Column]]
Rows = Mapping[str, list[dict[str, Any]]]
Id = tuple[str, str, Any]
"""Table, column and value of an id."""
References = dict[tuple[str, str], tuple[str, str] | None]


@dataclass(frozen=True)
class Fingerprint:
    """Of one database at one moment. Equal where the states are."""

    digest: str
    """Of everything: rows, columns, sequences."""
    state: str = field(repr=False, compare=False)
    """Of the rows and columns alone: a call that was undone has used up numbers of a sequence."""
    tables: Mapping[str, Sequence[Row]] = field(repr=False, compare=False)
    """By name; `public.` and quotes are left out."""
    sequences: Mapping[str, str] = field(repr=False, compare=False)
    """The last number of each, and whether it was taken: `7, true`."""

    def __str__(self) -> str:
        return self.digest

    def diff(self, expected: Fingerprint | Mapping[str, Any]) -> str:
        """How this state differs from the expected one, for people; empty where it does not.

        Of a mapping, tables and columns that it does not name may be anything.
        """
        if isinstance(expected, Fingerprint):
            told = differing(expected.tables, self.tables, is_whole=True)
            is_moved = not told and expected.state != self.state
            return "rows refer to each other in another way" if is_moved else told
        return differing(expected, self.tables, is_whole=False)


def fingerprint_as(role: str, volatile: Sequence[str] = ()) -> Steps[Fingerprint]:
    """Read it as an administrator who runs nothing with more rights than the role has.

    What a row is as JSON may be told by a cast of the agent's own. In a function that runs with the rights of
    its owner, nobody can become the administrator again."""
    yield (
        f'BEGIN; SET LOCAL row_security = off; SET LOCAL ROLE "{role}"; CREATE FUNCTION {_READ}(asked text)'
        " RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER"
        " AS 'BEGIN RETURN QUERY EXECUTE asked; END'; RESET ROLE"
    )
    found = yield from fingerprint(volatile, lambda asked: f"SELECT {_READ}({quoted(asked)})")
    yield "ROLLBACK"
    return found


def fingerprint(
    volatile: Sequence[str] = (), reading: Callable[[str], str] = lambda asked: asked
) -> Steps[Fingerprint]:
    """Read it. `volatile` names more columns to mask, as in `seen_on` or `notes.seen_on`."""
    columns = _columns((yield _COLUMNS), volatile)
    rows: dict[str, list[dict[str, Any]]] = {}
    for table in columns:
        found = yield reading(f"SELECT to_jsonb(t)::text FROM {table} t")
        rows[table] = [json.loads(text, parse_float=Decimal) for (text,) in found]
    numbers = yield from numbers_of([name for (name,) in (yield _SEQUENCES)])
    sequences = {_short(name): value for name, value in numbers.items()}
    tables = _canonical(columns, rows)
    kinds = {table: [(one.name, one.kind) for one in of] for table, of in columns.items()}
    state = _digest([tables, kinds])
    return Fingerprint(
        _digest([state, sequences]), state, {_short(name): of for name, of in tables.items()}, sequences
    )


def _columns(rows: Sequence[Sequence[Any]], volatile: Sequence[str]) -> dict[str, list[Column]]:
    found: dict[str, list[Column]] = {}
    for table, name, kind, default, identity, key, refers_to in rows:
        in_time = kind.startswith(("timestamp", "date", "time"))
        is_generated = bool(identity) or bool(_GENERATED.search(default))
        is_random = kind == "uuid" and is_generated
        is_id = (key == "p" and (kind == "uuid" or is_generated)) or (key == "u" and is_random)
        is_volatile = (
            (is_random and not is_id)
            or (in_time and bool(_VOLATILE_DEFAULT.search(default) or _VOLATILE_NAME.search(name)))
            or name in volatile
            or f"{_short(table)}.{name}" in volatile
        )
        target = None if refers_to is None else (refers_to[0], refers_to[1])
        found.setdefault(table, []).append(Column(name, kind, is_volatile, is_id, target))
    return found


def _canonical(columns: Columns, rows: Rows) -> dict[str, list[Row]]:
    """Rows in an order that does not depend on ids, and ids named by it."""
    refers = _references(columns)
    labels = _labels(columns, rows, refers)
    ordered = {
        table: sorted(of, key=partial(_label, table, columns[table], refers, labels))
        for table, of in rows.items()
    }
    names: dict[Id, str] = {}
    by_id: dict[Id, tuple[str, dict[str, Any]]] = {}
    for table, of in ordered.items():
        keys = [one for one in columns[table] if one.is_id]
        for number, row in enumerate(of, 1):
            for one in keys:
                by_id[table, one.name, row[one.name]] = table, row
                if one.refers_to is None:
                    names[table, one.name, row[one.name]] = f"{_short(table)}#{number}"
    seen = _Described(columns, refers, by_id)
    return {
        table: [_row(table, row, columns[table], refers, names, seen) for row in of]
        for table, of in ordered.items()
    }


def _references(columns: Columns) -> References:
    """Column → the id that stands in it, its own or another table's; `None` for what is no id."""
    ids = {(table, one.name): one.refers_to for table, of in columns.items() for one in of if one.is_id}
    refers: References = {}
    for table, of in columns.items():
        for one in of:
            target = one.refers_to if one.refers_to in ids else ((table, one.name) if one.is_id else None)
            while target is not None and ids.get(target) in ids:  # the key of one table is that of another
                target = ids[target]
            refers[table, one.name] = target
    return refers


def _labels(columns: Columns, rows: Rows, refers: References) -> dict[Id, str]:
    """Of every id: what its row says, what that refers to, what refers to it; refined until it is stable."""
    labels: dict[Id, str] = {}
    kinds = 0
    for _ in range(_ROUNDS):
        met: dict[Id, list[str]] = {}
        for table, of in rows.items():
            for row in of:
                own = _label(table, columns[table], refers, labels, row)
                for one in columns[table]:
                    target = refers[table, one.name]
                    if target is not None and row[one.name] is not None:
                        met.setdefault((*target, row[one.name]), []).append(f"{table}.{one.name} {own}")
        labels = {which: _digest(sorted(said)) for which, said in met.items()}
        if len(set(labels.values())) == kinds:
            break
        kinds = len(set(labels.values()))
    return labels


def _label(
    table: str,
    columns: Sequence[Column],
    refers: References,
    labels: Mapping[Id, str],
    row: Mapping[str, Any],
) -> str:
    said = []
    for one in columns:
        target, value = refers[table, one.name], _masked(one, row)
        said.append(value if target is None or value is None else labels.get((*target, value), ""))
    return _digest(said)


def _row(
    table: str,
    row: Mapping[str, Any],
    columns: Sequence[Column],
    refers: References,
    names: Mapping[Id, str],
    seen: _Described,
) -> Row:
    values, compared, shown = {}, {}, {}
    label = ""
    for one in columns:
        target, value = refers[table, one.name], _masked(one, row)
        values[one.name] = compared[one.name] = shown[one.name] = value
        if target is None or value is None:
            continue
        values[one.name] = names.get((*target, value), value)
        if target == (table, one.name):  # its own id says nothing
            del compared[one.name], shown[one.name]
            label = seen.label((*target, value))
        else:
            compared[one.name] = Label(seen.label((*target, value)))
            shown[one.name] = Words(seen.words((*target, value)))
    return Row(values, dict(row), compared, shown, label)


def _masked(column: Column, row: Mapping[str, Any]) -> Any:
    value = row[column.name]
    return SET if column.is_volatile and value is not None else value


class _Described:
    """Rows by what they say and refer to, not by what refers to them: in another state, that may differ."""

    def __init__(
        self, columns: Columns, refers: References, by_id: dict[Id, tuple[str, dict[str, Any]]]
    ) -> None:
        self._columns = columns
        self._refers = refers
        self._by_id = by_id
        self._labels: dict[Id, str] = {}

    def label(self, which: Id) -> str:
        if which not in self._labels:
            self._labels[which] = ""  # rows that refer to each other in a circle
            table, row = self._by_id.get(which, ("", {}))
            said = []
            for one in self._columns.get(table, ()):
                target, value = self._refers[table, one.name], _masked(one, row)
                if target is not None and value is not None:
                    is_own = (*target, value) == which
                    said.append("" if is_own else self.label((*target, value)))
                else:
                    said.append(value)
            self._labels[which] = _digest([table, said])
        return self._labels[which]

    def words(self, which: Id) -> str:
        """`clients 'Acme'`: the table, and the first text in the row."""
        table, row = self._by_id.get(which, (which[0], {}))
        texts = (
            row[one.name]
            for one in self._columns.get(table, ())
            if row
            and isinstance(row[one.name], str)
            and self._refers[table, one.name] is None
            and not one.is_volatile
        )
        return f"{_short(table)} {next(texts, which[2])!r}"


def _digest(said: Any) -> str:
    return hashlib.blake2b(
        json.dumps(said, sort_keys=True, default=_plain).encode(), digest_size=12
    ).hexdigest()


def _plain(value: Any) -> Any:
    """Numbers by value: 1.50 is 1.5."""
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, Row):
        return value.values
    raise TypeError(f"{type(value).__name__} does not come from a database")


def _short(name: str) -> str:
    return unquoted(name).removeprefix("public.")
