"""Whether a database is what its template was: an exact proof of every row, sequence and object in it.

A clone has the same object ids and files as its template, so catalogs are compared as they are. Even a table
that was emptied and filled again with the same rows is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from evalve.sandboxes.postgresql.steps import Steps, quoted

Parts = Mapping[str, str]
"""What a database is made of, in names, and a digest of each."""
_NEVER_USED = "unused"
"""Of a sequence from which nobody has taken a number."""

_FIRST_OF_USERS = 16384
"""Objects with lower ids are PostgreSQL's own, which only a superuser can change."""
_PUBLIC = 2200
_CATALOGS = {
    # without what PostgreSQL itself writes there: statistics, and when rows were last frozen
    "pg_class": (
        "oid",
        "oid, relname, relnamespace, reltype, relowner, relam, relfilenode, relkind, relnatts, relchecks,"
        " relhasrules, relhastriggers, relrowsecurity, relforcerowsecurity, relreplident, relispartition,"
        " relpersistence, relacl, reloptions, relpartbound",
    ),
    "pg_attribute": (
        "attrelid",
        "attrelid, attnum, attname, atttypid, atttypmod, attnotnull, atthasdef, attidentity, attgenerated,"
        " attisdropped, attacl, attcollation",
    ),
    "pg_attrdef": ("oid", "oid, adrelid, adnum, pg_get_expr(adbin, adrelid)"),
    "pg_constraint": ("oid", "oid, conname, conrelid, contype, convalidated, pg_get_constraintdef(oid)"),
    "pg_index": ("indexrelid", "indexrelid, indrelid, indisunique, indisvalid, pg_get_indexdef(indexrelid)"),
    "pg_trigger": ("oid", "oid, tgrelid, tgname, tgenabled, pg_get_triggerdef(oid)"),
    "pg_proc": ("oid", "oid, proname, proowner, proacl, prosrc, proconfig, prosecdef, provolatile"),
    "pg_type": ("oid", "oid, typname, typnamespace, typowner, typacl, typdefault, typnotnull"),
    "pg_enum": ("oid", "oid, enumtypid, enumsortorder, enumlabel"),
    "pg_rewrite": ("oid", "oid, rulename, ev_class, pg_get_ruledef(oid)"),
    "pg_policy": ("oid", "oid, polname, polrelid, polroles, polcmd"),
    "pg_namespace": ("oid", "oid, nspname, nspowner, nspacl"),
    "pg_extension": ("oid", "oid, extname, extversion"),
    "pg_event_trigger": ("oid", "oid, evtname, evtenabled"),
    "pg_cast": ("oid", "oid, castsource, casttarget, castfunc"),
    "pg_operator": ("oid", "oid, oprname, oprowner, oprcode"),
    "pg_collation": ("oid", "oid, collname, collowner"),
    "pg_statistic_ext": ("oid", "oid, stxname, stxrelid"),
    "pg_default_acl": ("oid", "oid, defaclrole, defaclobjtype, defaclacl"),
    "pg_description": ("objoid", "objoid, classoid, objsubid, description"),
    "pg_foreign_server": ("oid", "oid, srvname, srvoptions"),
    "pg_publication": ("oid", "oid, pubname"),
    "pg_largeobject_metadata": ("oid", "oid, lomowner, lomacl"),
}
_TABLES = f"""
    SELECT format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.oid >= {_FIRST_OF_USERS} ORDER BY 1"""
_SEQUENCES = """
    SELECT format('%I.%I', schemaname, sequencename), coalesce(last_value::text, 'unused'), start_value
    FROM pg_catalog.pg_sequences ORDER BY 1"""


def checksum(*, if_objects: str | None = None) -> Steps[dict[str, str]]:
    """Of the database that is asked.

    With `if_objects`, rows are read only where the objects are those: reading a table calls functions that
    whoever changed it may have put there.
    """
    parts = {"objects": (yield from _objects())}
    if if_objects not in (None, parts["objects"]):
        return parts
    parts["large objects"] = yield from _large_objects()
    names = [name for (name,) in (yield _TABLES)]
    if names:
        parts |= {f"table {name}": digest for name, digest in (yield _of_rows(names))}
    parts |= {f"sequence {name}": value for name, value, _ in (yield _SEQUENCES)}
    return parts


def differences(expected: Parts, found: Parts) -> list[str]:
    """In words, for people."""
    if expected["objects"] != found["objects"]:
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


def restore_sequences(expected: Parts) -> Steps[None]:
    """Rolling back does not give a sequence's numbers back: set those that have moved."""
    moved = []
    for name, value, start in (yield _SEQUENCES):
        was = expected.get(f"sequence {name}")
        if was is not None and was != value:
            to = f"{start}, false" if was == _NEVER_USED else f"{was}, true"
            moved.append(f"pg_catalog.setval({quoted(name)}::regclass, {to})")
    if moved:
        yield f"SELECT {', '.join(moved)}"


def _of_rows(tables: Iterable[str]) -> str:
    """Count and two sums of hashes, in whatever order rows are stored."""
    return " UNION ALL ".join(
        f"SELECT {quoted(name)}, count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 1)), 0)"
        f" || ' ' || coalesce(sum(hashtextextended(t::text, 2)), 0) FROM ONLY {name} t"
        for name in tables
    )


def _objects() -> Steps[str]:
    selects = [
        f"SELECT '{catalog}', coalesce(sum(hashtextextended(r::text, 1)), 0)::text FROM"
        f" (SELECT {columns} FROM pg_catalog.{catalog}"
        f" WHERE {oid} >= {_FIRST_OF_USERS} OR {oid} = {_PUBLIC}) r"
        for catalog, (oid, columns) in _CATALOGS.items()
    ]
    digest = hashlib.blake2b(digest_size=16)
    for catalog, total in sorted((yield " UNION ALL ".join(selects))):
        digest.update(f"{catalog} {total}\n".encode())
    return digest.hexdigest()


def _large_objects() -> Steps[str]:
    """Only a superuser may read them all; where there are none, there is nothing to read."""
    [(count,)] = yield "SELECT count(*) FROM pg_catalog.pg_largeobject_metadata"
    if not count:
        return "0"
    [(total,)] = yield (
        "SELECT sum(hashtextextended(encode(data, 'hex') || loid || ' ' || pageno, 1))::text"
        " FROM pg_catalog.pg_largeobject"
    )
    return f"{count} {total}"
