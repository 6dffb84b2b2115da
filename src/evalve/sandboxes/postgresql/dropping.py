"""Databases and their roles are dropped, whoever is connected and whatever was prepared in them."""

from __future__ import annotations

import psycopg

from evalve.sandboxes.postgresql.servers import Connection, beside, one, run
from evalve.sandboxes.postgresql.steps import drive, ending_connections_of, rolling_back_prepared


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
            drive(connection, ending_connections_of(name))
            with beside(connection, name) as there:
                drive(there, rolling_back_prepared())
            run(connection, drop)
        run(connection, f'DROP ROLE IF EXISTS "{name}"')
