"""A server as its administrator reaches it: one that a person named, or the embedded one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from evalve.errors import DeclarationError, LenderError
from evalve.sandboxes.postgresql import embedded
from evalve.secrecy import discreet, secret, without_credentials

Connection = psycopg.Connection[Any]

CONNECTS_WITHIN_S = 10
_COMES_BACK_WITHIN_S, _ASKS_AGAIN_AFTER_S = 60.0, 0.5
_OURS = frozenset({"user", "password", "dbname", "passfile", "service", "application_name", "options"})
"""What of a person's address is about the person, and not about the server."""


class ServerAway(LenderError):
    """Nobody answers at its address."""


class Absence:
    """Of a server that was there: whoever administrates it restarts it within a while, and tells nobody."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def may_end(self, ended: threading.Condition, is_ended: Callable[[], bool]) -> bool:
        """After a pause: whether to try again. The condition's lock is held by whoever asks."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
            return True
        if now_s - self._since_s > _COMES_BACK_WITHIN_S:
            return False
        return not ended.wait_for(is_ended, timeout=_ASKS_AGAIN_AFTER_S)


class Server:
    """One server. Any thread may use it."""

    def __init__(self, url: str | None) -> None:
        self.is_embedded = url is None
        self._url = discreet(url)
        self._address = {} if url is None else parsed(url)
        self._lock = threading.Lock()
        self._embedded: embedded.Embedded | None = None

    @property
    def shown(self) -> str:
        """For messages: where it is, and no password."""
        if self._url is None:
            return "the embedded PostgreSQL"
        return f"PostgreSQL at {self._address.get('host', 'localhost')}:{self._address.get('port', 5432)}"

    def connect(self, database: str | None = None, *, application: str) -> Connection:
        """As administrator, every statement for itself; without `database`, to the one for administration."""
        there = self._joined()
        try:
            return self._connected(there, database, application)
        except psycopg.OperationalError as error:
            if there.embedded is None or there.embedded.lives:
                raise ServerAway(f"{self.shown} cannot be reached: {_text(error)}") from error
        self._leave(there.embedded)  # it has died: start another one
        try:
            return self._connected(self._joined(), database, application)
        except psycopg.OperationalError as error:
            raise ServerAway(f"{self.shown} cannot be reached: {_text(error)}") from error

    def dsn(self, role: str, password: str, database: str, application: str) -> str:
        """An address for whoever may use the database, in any language."""
        address = self._joined().address
        others = {name: str(value) for name, value in address.items() if name not in _OURS}
        host, port = others.pop("host", "localhost"), others.pop("port", "5432")
        if host.startswith("/"):
            others |= {"host": host, "port": port}
            place = ""
        else:
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        query = urlencode({**others, "application_name": application}, quote_via=quote)
        return f"postgresql://{role}:{password}@{place}/{database}?{query}"

    def close(self) -> None:
        with self._lock:
            there = self._embedded
        if there is not None:
            self._leave(there)

    def _connected(self, there: _Place, database: str | None, application: str) -> Connection:
        address = dict(there.address)
        address["dbname"] = database or address.get("dbname") or "postgres"
        address.setdefault("connect_timeout", CONNECTS_WITHIN_S)
        address["application_name"] = application
        return psycopg.connect(**address, autocommit=True, prepare_threshold=None)

    def _joined(self) -> _Place:
        if not self.is_embedded:
            return _Place(self._address, None)
        with self._lock:
            if self._embedded is None:
                self._embedded = embedded.join()
            there = self._embedded
        at = {"host": "127.0.0.1", "port": there.port, "user": "postgres", "password": secret(there.password)}
        return _Place(at, there)

    def _leave(self, there: embedded.Embedded) -> None:
        """Unless another thread has: then there is another one already."""
        with self._lock:
            if self._embedded is there:
                there.close()
                self._embedded = None


class _Place(NamedTuple):
    """Where the server is now."""

    address: dict[str, Any]
    embedded: embedded.Embedded | None


def parsed(url: str) -> dict[str, Any]:
    try:
        found = dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        raise DeclarationError(
            f"url={without_credentials(url)!r} is not an address of a PostgreSQL server, as in "
            f"postgresql://user:password@host:5432/postgres: {without_credentials(str(error)).strip()}"
        ) from None
    return {name: secret(value) if name == "password" else value for name, value in found.items()}


def beside(connection: Connection, database: str) -> Connection:
    """Another connection of the same user, to another database."""
    address: dict[str, Any] = {**connection.info.get_parameters(), "dbname": database}
    return psycopg.connect(
        **address, password=connection.info.password, autocommit=True, prepare_threshold=None
    )


def run(connection: Connection, statement: str, parameters: Any = None) -> psycopg.Cursor[Any]:
    """Execute SQL that is put together here, of names that evalve itself has made."""
    return connection.execute(statement, parameters)


def one(connection: Connection, statement: str, parameters: object = None) -> tuple[Any, ...]:
    """The one row of an answer."""
    row: tuple[Any, ...] | None = run(connection, statement, parameters).fetchone()
    assert row is not None
    return row


def closed(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.close()


def _text(error: psycopg.Error) -> str:
    return " ".join(str(error).split())
