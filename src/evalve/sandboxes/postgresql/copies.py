"""A copy: one database with a role of its own, made from a template, walled in, dropped."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from evalve.errors import LenderError
from evalve.sandboxes.postgresql.checksums import Parts, checksum, differences
from evalve.sandboxes.postgresql.dropping import drop_all
from evalve.sandboxes.postgresql.room import OURS
from evalve.sandboxes.postgresql.servers import Connection, run
from evalve.sandboxes.postgresql.sessions import KeptConnection, abandon
from evalve.sandboxes.postgresql.steps import drive, ending_connections_of
from evalve.sandboxes.postgresql.templates import Template
from evalve.sandboxes.postgresql.tenancy import LOOKERS, MAKERS, Tenancy

_LOG = logging.getLogger(__name__)

PASSWORDS_BEGIN = "pgpw_"
"""How traces know a password that a program has printed (`secrecy`)."""
_ELSEWHERE = "evalve-its-own-database-only"
"""A library that is not there: a role that must load it cannot connect."""
_PREPARED = "SELECT 1 FROM pg_prepared_xacts WHERE database = %s"
_CONNECTED = "SELECT 1 FROM pg_stat_activity WHERE usename = %s"
_ITERATIONS = 4096
"""Of SCRAM; some clients refuse fewer."""


@dataclass(frozen=True, slots=True)
class Walls:
    """What a role may take of the server."""

    connections: int = 5
    statement_timeout_s: float = 30.0
    lock_timeout_s: float = 10.0
    idle_in_transaction_timeout_s: float = 600.0


@dataclass(slots=True)
class Copy:
    """A database that is there."""

    name: str
    generation: int
    parts: Parts
    """What it is made of, and must be made of again."""
    settings: str
    """Of its role, as they were made."""
    password: str = field(repr=False, default="")
    kept: KeptConnection | None = field(repr=False, default=None)
    """Evalve's own connection to it, where nobody else has had one."""


def make_copy(tenancy: Tenancy, template: Template, walls: Walls) -> Copy:
    """A copy of the template, behind its walls."""
    name, generation, password = tenancy.next_name(), tenancy.generation, new_password()
    with tenancy.admin() as admin:
        try:
            run(
                admin,
                f'CREATE ROLE "{name}" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION '
                f"CONNECTION LIMIT {walls.connections} PASSWORD '{_verifier(password)}' "
                f'IN ROLE "{template.name}"',
            )
            if not tenancy.is_superuser:
                run(admin, f'GRANT "{name}" TO CURRENT_USER')
            strategy = " STRATEGY file_copy" if tenancy.server.is_embedded else ""
            # nobody but a superuser may connect until the walls are up
            run(admin, f'CREATE DATABASE "{name}" TEMPLATE "{template.name}" CONNECTION LIMIT 0{strategy}')
            if template.search_path:
                run(admin, f'ALTER DATABASE "{name}" SET search_path = {template.search_path}')
            run(admin, "; ".join(_wall_statements(name, walls, tenancy)))
            copy = Copy(name, generation, template.parts, _settings(admin, name), password)
        except BaseException:
            drop_quietly(tenancy, name)
            raise
    return copy


def wrong_with(tenancy: Tenancy, copy: Copy) -> list[str]:
    """How its content differs from the template's, in words."""
    with tenancy.admin() as admin:
        if _settings(admin, copy.name) != copy.settings:
            return ["settings of its role differ"]
    with tenancy.inside(copy.name) as connection:
        return differences(copy.parts, drive(connection, checksum()))


def is_shut_and_unchanged(tenancy: Tenancy, copy: Copy) -> bool:
    """Whether nobody who had it is in it any more, nor can be, and nothing in it has changed.

    The password is renewed first: an agent's program that is still there may connect again and again.
    """
    copy.password = new_password()
    with tenancy.admin() as admin:
        run(admin, f"ALTER ROLE \"{copy.name}\" PASSWORD '{_verifier(copy.password)}'")
        drive(admin, ending_connections_of(copy.name))
        if run(admin, _PREPARED, (copy.name,)).fetchone():
            return False  # it holds locks, without a connection
    if wrong_with(tenancy, copy):
        return False
    with tenancy.admin() as admin:  # some may have been about to get in while the password was renewed
        return not run(admin, _CONNECTED, (copy.name,)).fetchone()


def shut(tenancy: Tenancy, copy: Copy) -> None:
    """Nobody gets in any more, and whoever is in it is sent away, without waiting for that."""
    with tenancy.admin() as admin:
        run(admin, f'ALTER ROLE "{copy.name}" NOLOGIN')
        run(admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (copy.name,))


def drop_copy(tenancy: Tenancy, copy: Copy) -> None:
    disconnect(copy)
    _drop(tenancy, copy.name)


def disconnect(copy: Copy) -> None:
    """Evalve itself."""
    if copy.kept is not None:
        abandon(copy.kept)
        copy.kept = None


def _drop(tenancy: Tenancy, name: str) -> None:
    with tenancy.admin() as admin:
        drop_all(admin, [name])


def drop_quietly(tenancy: Tenancy, name: str) -> None:
    """On a connection of its own: the one that failed may be of no use."""
    with suppress(psycopg.Error, LenderError):
        _drop(tenancy, name)


def say_what_is_open(tenancy: Tenancy, copy: Copy) -> None:
    """Databases beside its own that its role may connect to: only a superuser can prevent it.

    Those of evalve are left out. Whoever makes one walls it in next, and may be about to.
    """
    if tenancy.is_superuser:
        return
    with tenancy.admin() as admin:
        rows = run(
            admin,
            "SELECT datname FROM pg_database WHERE datallowconn"
            " AND has_database_privilege(%s, oid, 'CONNECT') ORDER BY 1",
            (copy.name,),
        ).fetchall()
    if names := ", ".join(name for (name,) in rows if not OURS.match(name)):
        _LOG.warning(
            "whoever is lent a database at %s may connect to %s too, as everybody may; to prevent it: "
            "REVOKE CONNECT ON DATABASE %s FROM PUBLIC, or name a superuser in url=",
            tenancy.server.shown,
            names,
            names,
        )


def new_password() -> str:
    return PASSWORDS_BEGIN + secrets.token_hex(16)


def _wall_statements(name: str, walls: Walls, tenancy: Tenancy) -> list[str]:
    comment = tenancy.comment().replace("'", "''")
    statements = [
        f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC',
        f'GRANT CONNECT, TEMPORARY, CREATE ON DATABASE "{name}" TO "{name}"',
        f"COMMENT ON DATABASE \"{name}\" IS '{comment}'",
        f'ALTER DATABASE "{name}" SET statement_timeout = {_ms(walls.statement_timeout_s)}',
        f'ALTER DATABASE "{name}" SET lock_timeout = {_ms(walls.lock_timeout_s)}',
        f'ALTER DATABASE "{name}" SET idle_in_transaction_session_timeout = '
        f"{_ms(walls.idle_in_transaction_timeout_s)}",
        # the role has its own limit; who is not a superuser needs some to look into the database
        f'ALTER DATABASE "{name}" CONNECTION LIMIT {walls.connections + MAKERS + LOOKERS}',
    ]
    if tenancy.is_superuser:  # a wall that needs no change to anybody else's database
        statements += [
            f"ALTER ROLE \"{name}\" SET session_preload_libraries = '{_ELSEWHERE}'",
            f'ALTER ROLE "{name}" IN DATABASE "{name}" SET session_preload_libraries = plpgsql',
        ]
    return statements


def _settings(admin: Connection, name: str) -> str:
    rows = run(
        admin,
        "SELECT s.setdatabase, s.setconfig FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole"
        " WHERE r.rolname = %s ORDER BY 1",
        (name,),
    )
    return str(rows.fetchall())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _verifier(password: str) -> str:
    """What the server keeps of a password: it is never sent, so that no server's log can have it."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client).digest()
    salt64, stored64, server64 = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{salt64}${stored64}:{server64}"
