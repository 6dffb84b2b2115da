"""The embedded server that tests share, as its administrator asks it."""

from __future__ import annotations

from typing import Any

import psycopg


class Admin:
    """The server of the tests, asked by its administrator."""

    def __init__(self, port: int, password: str) -> None:
        self.url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"

    def ask(self, statement: str, *parameters: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def databases(self, run: str = "") -> list[str]:
        return [
            name
            for (name,) in self.ask("SELECT datname FROM pg_database WHERE datname LIKE %s", f"evalve_{run}%")
        ]
