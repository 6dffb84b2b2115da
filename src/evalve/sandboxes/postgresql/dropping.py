"""Databases and their roles are dropped, whoever is connected and whatever was prepared in them."""

from __future__ import annotations

import psycopg

from evalve.sandboxes.postgresql.servers import Connection, beside, one, run
from evalve.sandboxes.postgresql.steps import drive, ending_connections_of, quoted


def drop_all(connection: Connection, names: list[str]) -> None:
    """Databases and the roles of the same names, whoever is connected."""
    for name in names:
        (is_template,) = one(
            connection,
            "SELECT coalesce(bool_or(datistemplate), false) FROM pg_database WHERE datname = %s",
            (name,),
        )
        if is_template:
            run(connection, f'ALTER DATABASE "{name}" IS_TEMPLATE false')
        drop = f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'
        try:
            run(connection, drop)
        except psycopg.errors.ObjectInUse:  # by transactions that were prepared and never ended
            _roll_back_prepared(connection, name)
            run(connection, drop)
        run(connection, f'DROP ROLE IF EXISTS "{name}"')


def _roll_back_prepared(connection: Connection, database: str) -> None:
    """It has to be done in the same database, and by who prepared them."""
    drive(connection, ending_connections_of(database))
    with beside(connection, database) as there:
        prepared = run(there, "SELECT gid, owner FROM pg_prepared_xacts WHERE database = current_database()")
        for gid, owner in prepared.fetchall():
            run(there, f'SET ROLE "{owner}"')
            run(there, f"ROLLBACK PREPARED {quoted(gid)}")
