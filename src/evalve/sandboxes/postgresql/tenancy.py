"""This process on one server: its run, whose advisory lock says that it lives, and what dead ones have left.

Databases and roles of a run are named `evalve_RUN_NUMBER`, and a template `evalve_t_HASH`. One connection
holds the locks. They end with it, however the process ends.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from evalve.clock import utc_text
from evalve.errors import LenderError, OptionError
from evalve.processes import here, host_of
from evalve.sandboxes.postgresql.dropping import drop_all
from evalve.sandboxes.postgresql.room import OURS, Room, room_on
from evalve.sandboxes.postgresql.servers import Connection, Server, closed, one, run

_LOG = logging.getLogger(__name__)

OF_RUNS, OF_TEMPLATES, OF_BUILDERS = 0x65766C01, 0x65766C02, 0x65766C03
"""What the locks are about: the first of their two numbers."""
MAKERS = 2
"""How many databases are made or dropped at once."""
LOOKERS = 2
"""How many fingerprints are read at once, beside what samples read over connections of their own."""
OWN_CONNECTIONS = 1 + 2 * MAKERS + LOOKERS
"""The one that holds the locks; and two for each maker, one to administrate, one to look into a database."""
SUPPORTED_FROM = 14
"""The first version that waits for connections which it ends."""
_LOOK_MS = 120_000
_LOCK_MS = 1000
"""How long whoever looks into a database waits for an agent that has locked a table."""


class Tenancy:
    """Any thread may use it. Closed, it has left nothing on the server, or says what."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.run = os.urandom(4).hex()
        self.generation = 0
        """Counts how often the server was lost: what was made before is not there any more."""
        self.makers = ThreadPoolExecutor(MAKERS, thread_name_prefix="evalve-postgres")
        self.in_use: set[str] = set()
        """Names of the databases that somebody answers for."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._keeper: Connection | None = None
        self._is_closed = False
        self._idle: list[Connection] = []
        self._reserved = 0
        self._looking = threading.BoundedSemaphore(LOOKERS)
        self._numbers = 0
        self.is_superuser = False
        self.version = 0

    def open(self) -> None:
        """Connect, hold the run's lock, remove what dead runs have left. Does nothing where that is done."""
        with self._lock:
            if self._keeper is not None:
                return
            if self._is_closed:
                raise LenderError(f"{self.server.shown} has been left, and everything on it was dropped")
            keeper = self.server.connect(application=f"evalve {self.run}")
            self.version = keeper.info.server_version
            if self.version < SUPPORTED_FROM * 10_000:
                closed(keeper)
                raise OptionError(
                    f"{self.server.shown} has version {self.version // 10_000}; "
                    f"{SUPPORTED_FROM} or newer is needed"
                )
            (self.is_superuser, may_make) = one(
                keeper,
                "SELECT rolsuper, rolsuper OR (rolcreatedb AND rolcreaterole) FROM pg_roles"
                " WHERE rolname = current_user",
            )
            if not may_make:
                user = keeper.info.user
                closed(keeper)
                raise OptionError(
                    f"the user {user!r} may not make databases and roles at {self.server.shown}: "
                    f'ALTER ROLE "{user}" CREATEDB CREATEROLE allows it'
                )
            run(keeper, "SET idle_session_timeout = 0")
            run(keeper, "SELECT pg_advisory_lock(%s, %s)", (OF_RUNS, signed(self.run)))
            self._keeper = keeper
            self.reserve(0)  # told again, where the server was lost
            drop_all(keeper, self._names_of(keeper, self.run))  # of before the server was lost
            self._remove_orphans(keeper)

    @property
    def keeper(self) -> Connection:
        with self._lock:
            if self._keeper is None:
                self.open()
            assert self._keeper is not None
            return self._keeper

    def next_name(self) -> str:
        with self._lock:
            self._numbers += 1
            return f"evalve_{self.run}_{self._numbers}"

    def comment(self) -> str:
        return json.dumps(
            {"run": self.run, "host": host_of(here()), "pid": self._pid, "since": utc_text(time.time())}
        )

    @contextmanager
    def admin(self) -> Iterator[Connection]:
        """A connection for a while, to the database for administration."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None or connection.closed:
            connection = self.server.connect(application=f"evalve {self.run}")
        try:
            yield connection
        except BaseException:
            closed(connection)
            raise
        with self._lock:
            self._idle.append(connection)

    @contextmanager
    def inside(self, database: str) -> Iterator[Connection]:
        """The same to another database; nothing that an agent has made there takes part in what is asked."""
        connection = self.server.connect(database, application=f"evalve {self.run}")
        try:
            run(
                connection,
                f"SET search_path = pg_catalog; SET statement_timeout = 0; SET lock_timeout = {_LOCK_MS}",
            )
            yield connection
        finally:
            closed(connection)

    @contextmanager
    def look(self, database: str) -> Iterator[Connection]:
        """The same for whoever reads a fingerprint; others wait. An agent's functions may take part in it."""
        with self._looking, self.inside(database) as connection:
            run(connection, f"SET statement_timeout = {_LOOK_MS}")
            yield connection

    # -- whether the server is still the one that it was

    def is_lost(self, generation: int) -> bool:
        """Whether what was made in that generation is gone; asks the server."""
        with self._lock:
            if generation != self.generation:
                return True
            if self._keeper is None:
                return False
            try:
                run(self._keeper, "SELECT 1")
                return False
            except psycopg.Error as error:
                _LOG.warning("%s was lost: %s; databases are made anew", self.server.shown, _brief(error))
                self._forget()
                return True

    def _forget(self) -> None:
        self.generation += 1
        if self._keeper is not None:
            closed(self._keeper)
        self._keeper = None
        while self._idle:
            closed(self._idle.pop())

    # -- connections

    def reserve(self, connections: int) -> None:
        """Told to others by the name of the connection that holds the lock."""
        with self._lock:
            self._reserved += connections
            name = (
                f"evalve {self.run} reserves {self._reserved}" if self._reserved > 0 else f"evalve {self.run}"
            )
            if self._keeper is not None:
                run(self._keeper, "SELECT set_config('application_name', %s, false)", (name,))

    def room(self) -> Room:
        """How many connections there are for this run."""
        return room_on(self.keeper, self.run, self._reserved)

    # -- what is left

    def left_in_words(self, unreserved: int) -> str:
        """Databases of this run that nobody uses now, and connections to them: what the server says."""
        if self._is_closed:
            return "dropped when the server was left"
        self.is_lost(self.generation)  # then it is connected to anew
        try:
            self.reserve(-unreserved)
            databases, connections = self._left()
            return f"{databases} databases, {connections} connections left"
        except (psycopg.Error, LenderError) as error:
            return f"nobody knows what is left: {_brief(error)}; the next run drops it"

    def _left(self) -> tuple[int, int]:
        keeper, ours, used = self.keeper, f"evalve_{self.run}_%", list(self.in_use)
        counted = "SELECT count(*) FROM {view} WHERE {column} LIKE %s AND NOT {column} = ANY (%s)"
        (databases,) = one(keeper, counted.format(view="pg_database", column="datname"), (ours, used))
        (connections,) = one(keeper, counted.format(view="pg_stat_activity", column="usename"), (ours, used))
        return int(databases), int(connections)

    def close(self) -> None:
        """Drop what is left of the run, and the templates that nobody else uses."""
        if os.getpid() != self._pid:
            return  # a forked child: it is the parent's
        self.makers.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._is_closed = True
            if self._keeper is not None:
                self._leave_clean(self._keeper)
            self._forget()
            self.server.close()

    def _leave_clean(self, keeper: Connection) -> None:
        try:
            drop_all(keeper, self._names_of(keeper, self.run))
            run(keeper, "SELECT pg_advisory_unlock_all()")
            self._remove_orphans(keeper)
        except (psycopg.Error, LenderError) as error:
            _LOG.warning("%s could not be left clean: %s", self.server.shown, _brief(error))

    def _names_of(self, connection: Connection, of_run: str) -> list[str]:
        return [name for name, _, which in _all_ours(connection) if which == of_run]

    def _remove_orphans(self, keeper: Connection) -> None:
        """Databases whose lock nobody holds, in whatever database the locks are."""
        found = _all_ours(keeper)
        for kind, which in sorted({(kind, which) for _, kind, which in found}):  # copies before templates
            if which == self.run or self._is_held(keeper, kind, which):
                continue
            if not one(keeper, "SELECT pg_try_advisory_lock(%s, %s)", (kind, signed(which)))[0]:
                continue
            names = [name for name, *of in found if of == [kind, which]]
            try:
                drop_all(keeper, names)
                _LOG.info("dropped %s, which nobody uses any more", ", ".join(names))
            except psycopg.Error as error:  # another user's, for one: whoever may drop it will
                _LOG.info("%s could not be dropped: %s", ", ".join(names), _brief(error))
            finally:
                run(keeper, "SELECT pg_advisory_unlock(%s, %s)", (kind, signed(which)))

    def _is_held(self, keeper: Connection, kind: int, which: str) -> bool:
        return bool(
            one(
                keeper,
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
                " AND classid = %s::bigint AND objid = %s::bigint",
                (kind, int(which, 16)),
            )[0]
        )


def signed(hex8: str) -> int:
    """The number of a lock, as PostgreSQL takes it."""
    number = int(hex8, 16)
    return number - (1 << 32) if number >= 1 << 31 else number


def _all_ours(connection: Connection) -> list[tuple[str, int, str]]:
    """Every database and role that evalve has made: its name, and the lock that says whether it is in use."""
    rows = run(
        connection,
        "SELECT datname FROM pg_database WHERE datname LIKE 'evalve\\_%' UNION"
        " SELECT rolname FROM pg_roles WHERE rolname LIKE 'evalve\\_%'",
    )
    matches = [match for match in (OURS.match(name) for (name,) in rows) if match is not None]
    return [
        (match[0], OF_RUNS if match["run"] else OF_TEMPLATES, match["run"] or match["template"])
        for match in matches
    ]


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())
