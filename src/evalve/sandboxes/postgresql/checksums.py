"""Whether a database is what its template was: an exact proof of every row, sequence and object in it.

A copy has the pages of its template, and every change to a row makes a new version of it, with another place
or another transaction. So versions are compared, of tables and of PostgreSQL's catalogs, and nothing has to
be read of what is in them. Even a table that was emptied and filled again with the same rows is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from evalve.sandboxes.postgresql.steps import Steps, quoted

Parts = Mapping[str, str]
"""What a database is made of, in names, and a digest of each."""
_CATALOGS = {
    # Whatever is made or dropped leaves a trace in pg_depend, and whatever is altered in one of the others.
    # Objects with lower ids are PostgreSQL's own, which only a superuser can change.
    "pg_class": "oid >= 16384",
    "pg_attribute": "attrelid >= 16384",
    "pg_attrdef": "true",
    "pg_constraint": "oid >= 16384",
    "pg_default_acl": "true",
    "pg_depend": "objid >= 16384",
    "pg_description": "objoid >= 16384 OR objoid = 2200",
    "pg_enum": "true",
    "pg_namespace": "true",
    "pg_policy": "true",
    "pg_proc": "oid >= 16384",
    "pg_rewrite": "oid >= 16384",
    "pg_sequence": "true",
    "pg_trigger": "true",
    "pg_type": "oid >= 16384",
    "pg_largeobject_metadata": "true",
}
_RARELY_ALTERED = (
    *("pg_cast", "pg_collation", "pg_conversion", "pg_extension", "pg_foreign_server", "pg_operator"),
    *("pg_publication", "pg_statistic_ext", "pg_ts_config", "pg_ts_dict"),
)
"""Objects that can be renamed, or that depend on nothing: only these catalogs tell. Whoever cannot commit
cannot change them, so they are not read after a rollback."""
_OTHER_OBJECTS = "other objects"
_INDEXES = ("pg_catalog.pg_index", "indexrelid >= 16384")
_LARGE_OBJECTS = ("pg_catalog.pg_largeobject_metadata", "true")
_TABLES = """
    SELECT format('%I.%I', n.nspname, c.relname), c.relkind = 'S' FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'm', 'S') AND c.relpersistence <> 't' AND c.oid >= 16384 ORDER BY 1"""


def checksum() -> Steps[dict[str, str]]:
    """Of the database that is asked."""
    found = yield _TABLES
    parts = yield from _versions_of([name for name, is_sequence in found if not is_sequence])
    rare = [_LARGE_OBJECTS, _INDEXES, *((f"pg_catalog.{name}", "oid >= 16384") for name in _RARELY_ALTERED)]
    rows = yield " UNION ALL ".join(_versions(*one) for one in enumerate(rare))
    versions = [told for _, told in sorted(rows)]
    if versions[0] != "0 0":  # what is in them, which only superusers may read
        versions += [told for _, told in (yield _versions(0, ("pg_catalog.pg_largeobject", "true")))]
    parts[_OTHER_OBJECTS] = _digest(versions)
    numbers = yield from numbers_of([name for name, is_sequence in found if is_sequence])
    return parts | {f"sequence {name}": value for name, value in numbers.items()}


def numbers_of(sequences: list[str]) -> Steps[dict[str, str]]:
    """Last number of each and whether it was taken, as `setval` takes them.

    The view `pg_sequences` does not tell a number that was set but not taken.
    """
    asked = [
        f"SELECT {quoted(name)}, last_value || ', ' || CASE WHEN is_called THEN 'true' ELSE 'false' END"
        f" FROM {name}"
        for name in sequences
    ]
    rows = (yield " UNION ALL ".join(asked)) if asked else []
    return dict(sorted((str(name), str(value)) for name, value in rows))


def reset_and_check(expected: Parts) -> Steps[list[str]]:
    """After a rollback: give sequences their numbers back, and tell what is not as it was."""
    sequences = {name: value for name, value in expected.items() if name.startswith("sequence ")}
    numbers = [
        f"pg_catalog.setval({quoted(name.removeprefix('sequence '))}, {to})" for name, to in sequences.items()
    ]
    names = [name.removeprefix("table ") for name in expected if name.startswith("table ")]
    found = yield from _versions_of(names, before=f"SELECT {', '.join(numbers)}; " if numbers else "")
    not_read = {_OTHER_OBJECTS: expected[_OTHER_OBJECTS]}
    return differences(expected, found | sequences | not_read)


def _versions_of(tables: list[str], before: str = "") -> Steps[dict[str, str]]:
    catalogs = [(f"pg_catalog.{name}", which) for name, which in _CATALOGS.items()]
    selects = [_versions(*one) for one in enumerate([*catalogs, *((name, "true") for name in tables)])]
    rows = yield (
        f"BEGIN; {before}SET LOCAL row_security = off; "  # what is not seen is an error, and not left out
        f"{' UNION ALL '.join(selects)}; COMMIT"
    )
    told = [versions for _, versions in sorted(rows)]
    of_catalogs, of_tables = told[: len(catalogs)], told[len(catalogs) :]
    parts = {"objects": _digest(of_catalogs)}
    parts |= {f"table {name}": versions for name, versions in zip(tables, of_tables, strict=True)}
    return parts


def differences(expected: Parts, found: Parts) -> list[str]:
    """In words, for people."""
    if any(expected[part] != found[part] for part in ("objects", _OTHER_OBJECTS)):
        return ["tables, functions or other objects differ"]
    told = []
    for part in sorted(expected.keys() | found.keys()):
        if part not in found:
            told.append(f"{part} is gone")
        elif part not in expected:
            told.append(f"{part} is new")
        elif expected[part] != found[part]:
            told.append(f"{part} differs")
    return told


def _versions(number: int, which: tuple[str, str]) -> str:
    """How many rows of a table there are, and a sum over place and transaction of each."""
    table, condition = which
    return (
        f"SELECT {number}, count(*) || ' ' || coalesce(sum(hashtidextended(ctid, xmin::text::bigint)), 0)"
        f" FROM ONLY {table} WHERE {condition}"
    )


def _digest(versions: Iterable[str]) -> str:
    return hashlib.blake2b(" ".join(versions).encode(), digest_size=16).hexdigest()
