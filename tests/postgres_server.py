"""A server for the tests of one process, as its administrator asks it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from evalve.sandboxes.postgresql import embedded


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


_JOIN = embedded.join


def joining(place: Path) -> Callable[..., embedded.Embedded]:
    """In place of `embedded.join`: whoever does not say where joins the server there."""
    return lambda asked=None: _JOIN(asked or place)


@contextmanager
def private_place() -> Iterator[Path]:
    """Where a server can be that nobody else joins: its account may pass, wherever tests run."""
    around = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    around.chmod(0o711)
    yield around / "server"
    shutil.rmtree(around, ignore_errors=True)


@contextmanager
def private_server() -> Iterator[tuple[Path, Admin]]:
    """Other tests run beside these on the same machine, and count their own databases."""
    with private_place() as place:
        server = _JOIN(place)
        yield place, Admin(server.port, server.password)
        server.close()
