"""A template: the database that all others are copies of, built once for a schema and its base rows."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path

import psycopg

from evalve.errors import DeclarationError
from evalve.sandboxes.postgresql.checksums import Parts, checksum
from evalve.sandboxes.postgresql.dropping import drop_all
from evalve.sandboxes.postgresql.servers import Connection, one, run
from evalve.sandboxes.postgresql.steps import drive, quoted
from evalve.sandboxes.postgresql.tenancy import OF_BUILDERS, OF_TEMPLATES, Tenancy, signed

_LAYOUT = 3
"""Another number where templates are built in another way."""
_COPY = re.compile(r"^\s*COPY\s.+\sFROM\s+STDIN\b", re.IGNORECASE | re.MULTILINE)
_OF_SERVER = re.compile(
    r"^\s*CREATE\s+(?:DATABASE|ROLE|USER(?!\s+MAPPING)|GROUP|TABLESPACE)\b", re.IGNORECASE | re.MULTILINE
)
"""What would stay on the server when every copy has been dropped."""
_EXTENSION = re.compile(r"extension \"(?P<name>[^\"]+)\" is not available")
_FOR_PSQL = re.compile(r"^\\(?!restrict|unrestrict).*$", re.MULTILINE)
_RESTRICTING = re.compile(r"^\\(?:un)?restrict.*$", re.MULTILINE)
_NOT_SENT = "cannot be sent to a server; write INSERT, as pg_dump --inserts --no-owner --no-privileges does"
_HAND_OVER = """
DO $evalve$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT format('SCHEMA %I', n.nspname) AS what FROM pg_catalog.pg_namespace n
        WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_depend d WHERE d.objid = n.oid AND d.deptype = 'e')
        UNION ALL
        SELECT format('%s %I.%I', CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                WHEN 'S' THEN 'SEQUENCE' WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END, n.nspname, c.relname)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid >= 16384 AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname !~ '^pg_'
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
            WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid
            AND (d.deptype = 'e' OR c.relkind = 'S' AND d.deptype IN ('a', 'i')))
        UNION ALL
        SELECT format('ROUTINE %s', p.oid::regprocedure) FROM pg_catalog.pg_proc p
        WHERE p.oid >= 16384 AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
            WHERE d.classid = 'pg_catalog.pg_proc'::regclass AND d.objid = p.oid
            AND d.deptype = 'e')
        UNION ALL
        SELECT format('TYPE %s', t.oid::regtype) FROM pg_catalog.pg_type t
        LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
        WHERE t.oid >= 16384 AND t.typtype IN ('e', 'd', 'r', 'c') AND (t.typrelid = 0 OR c.relkind = 'c')
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_type'::regclass
            AND d.objid = t.oid AND d.deptype = 'e')
    LOOP
        EXECUTE format('ALTER %s OWNER TO {owner}', one.what);
    END LOOP;
END
$evalve$"""
"""So that an agent may do with the tables what their owner may: that is part of what is evaluated."""


_BUILDING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Script:
    """One file of SQL."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Template:
    """A complete one."""

    name: str
    parts: Parts
    """What every copy of it must be made of."""
    search_path: str = ""
    """That the scripts have set, for schemas beside `public`; empty where they have not."""


def read_script(path: Path) -> Script:
    """A file as it is sent to the server; what only `psql` understands is refused where it stands."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path} cannot be read: {error}") from error
    for pattern, problem in (
        (_COPY, f"COPY … FROM stdin {_NOT_SENT}"),
        (_FOR_PSQL, f"a command of psql {_NOT_SENT}"),
        (_OF_SERVER, "databases and roles belong to the server: write what is to be in the database, alone"),
    ):
        if found := pattern.search(text):
            raise DeclarationError(f"{path}:{_line_of(text, found)}: {problem}")
    return Script(str(path), _RESTRICTING.sub("", text))


def _line_of(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1


def digest_of(scripts: tuple[Script, ...]) -> str:
    """Tells one state from another."""
    digest = hashlib.blake2b(digest_size=8)
    for script in scripts:
        digest.update(len(script.text).to_bytes(8, "big") + script.text.encode())
    return digest.hexdigest()


def built_template(tenancy: Tenancy, scripts: tuple[Script, ...]) -> Template:
    """The template of these scripts, built if nobody has. It stays for as long as the tenancy."""
    with _BUILDING:  # lenders of one process share a session, and a session's locks keep no thread of it out
        return _built_by_one(tenancy, scripts)


def _built_by_one(tenancy: Tenancy, scripts: tuple[Script, ...]) -> Template:
    keeper = tenancy.keeper
    made_of = f"{_LAYOUT} {tenancy.version} {keeper.info.user} {digest_of(scripts)}"
    which = hashlib.blake2b(made_of.encode(), digest_size=4).hexdigest()
    name, number = f"evalve_t_{which}", signed(which)
    run(keeper, "SELECT pg_advisory_lock_shared(%s, %s)", (OF_TEMPLATES, number))  # nobody may drop it
    try:
        run(keeper, "SELECT pg_advisory_lock(%s, %s)", (OF_BUILDERS, number))
        try:
            template = _complete(keeper, name)
            if template is None:
                drop_all(keeper, [name])
                template = _built(tenancy, keeper, name, scripts)
        finally:
            run(keeper, "SELECT pg_advisory_unlock(%s, %s)", (OF_BUILDERS, number))
    except BaseException:
        run(keeper, "SELECT pg_advisory_unlock_shared(%s, %s)", (OF_TEMPLATES, number))
        raise
    return template


def _complete(keeper: Connection, name: str) -> Template | None:
    """As it was built, if whoever built it came to the end."""
    found = run(
        keeper,
        "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s AND datistemplate",
        (name,),
    ).fetchone()
    return Template(name, **json.loads(found[0])) if found is not None and found[0] else None


def _built(tenancy: Tenancy, keeper: Connection, name: str, scripts: tuple[Script, ...]) -> Template:
    run(keeper, f'CREATE ROLE "{name}" NOLOGIN')
    if not tenancy.is_superuser:
        run(keeper, f'GRANT "{name}" TO CURRENT_USER')
    run(keeper, f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")
    run(keeper, f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC')
    run(keeper, f'GRANT CREATE ON DATABASE "{name}" TO "{name}"')
    try:
        building = tenancy.server.connect(name, application=f"evalve {tenancy.run}")
        try:
            for script in scripts:
                _execute(building, script)
            (search_path,) = one(building, "SELECT current_setting('search_path')")
            run(building, "RESET ALL")
            if search_path in ("", '""', *one(building, "SELECT current_setting('search_path')")):
                search_path = ""  # a dump empties it
            run(building, _HAND_OVER.replace("{owner}", f'"{name}"'))
            run(building, "ANALYZE")
            run(building, "SET search_path = pg_catalog")
            parts = drive(building, checksum())
        finally:
            building.close()
        # who connects first writes down what PostgreSQL knows of its catalogs: copies have that with them
        tenancy.server.connect(name, application=f"evalve {tenancy.run}").close()
    except BaseException:
        drop_all(keeper, [name])
        raise
    run(
        keeper,
        f'COMMENT ON DATABASE "{name}" IS {quoted(json.dumps({"parts": parts, "search_path": search_path}))}',
    )
    run(keeper, f'ALTER DATABASE "{name}" IS_TEMPLATE true ALLOW_CONNECTIONS false')  # last: it is complete
    return Template(name, parts, search_path)


def _execute(connection: Connection, script: Script) -> None:
    try:
        run(connection, script.text)
    except psycopg.Error as error:
        at = error.diag.statement_position
        line = f":{script.text.count(chr(10), 0, int(at) - 1) + 1}" if at else ""
        said = error.diag.message_primary or " ".join(str(error).split())
        hint = f" ({error.diag.message_detail})" if error.diag.message_detail else ""
        if missing := _EXTENSION.search(said):
            hint = (
                "; gen_random_uuid() needs no extension, so leave the line out if that is all; or install "
                f"{missing['name']} at a server of yours and name it with url="
            )
        raise DeclarationError(f"{script.name}{line}: {said}{hint}") from None
