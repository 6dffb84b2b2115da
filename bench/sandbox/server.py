"""A server that a person has started, to be named by its address: it may be stopped, and comes back there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from evalve.sandboxes.postgresql import embedded, keeper

_PASSWORD = "of-the-person"


class PersonsServer:
    """Of the binaries of the embedded one. It ends with the thread that has started it."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        account = embedded._account()
        install = embedded._reachable(embedded._installed(), folder, account)
        self._cluster = keeper._Cluster(folder, install, account, max_connections=100)
        self._settings = settings
        self._cluster.make(_PASSWORD)
        self.port = keeper._free_port()
        self.url = f"postgresql://postgres:{_PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        usual = keeper._SETTINGS.copy()
        keeper._SETTINGS.update(self._settings)
        try:
            said = self._cluster._started(self.port)
        finally:
            keeper._SETTINGS.clear()
            keeper._SETTINGS.update(usual)
        if said:
            raise RuntimeError(said)

    def stop(self) -> None:
        self._cluster.stop()
        server = self._cluster._server
        if server is not None and server.stderr is not None:
            server.stderr.close()

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def left(self) -> int:
        """Databases, roles and connections that evalve has made and not removed, after a moment."""
        for _ in range(100):
            if not (left := self._left()):
                break
            self.ask("SELECT pg_sleep(0.02)")  # a connection that was closed is seen a little longer
        return left

    def _left(self) -> int:
        [(left,)] = self.ask(
            "SELECT (SELECT count(*) FROM pg_database WHERE datname LIKE 'evalve%')"
            " + (SELECT count(*) FROM pg_roles WHERE rolname LIKE 'evalve%')"
            " + (SELECT count(*) FROM pg_prepared_xacts)"
            " + (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'evalve%')"
        )
        return int(left)


@contextmanager
def persons_server(**settings: str) -> Iterator[PersonsServer]:
    """In memory where there is such a folder; nothing of it stays."""
    around = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    around.chmod(0o711)  # its account must pass
    folder = around / "server"
    folder.mkdir(mode=0o711)
    try:
        server = PersonsServer(folder, settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(around, ignore_errors=True)
