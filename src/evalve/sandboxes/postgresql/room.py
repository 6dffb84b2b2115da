"""How many connections a server has, and whose they are.

What a run of evalve may use is in the name of the connection that holds its lock, for other runs to read.
"""

from __future__ import annotations

import re

from evalve.sandboxes.postgresql.servers import Connection, one, run

OURS = re.compile(r"^evalve_(?:(?P<run>[0-9a-f]{8})_\d+|t_(?P<template>[0-9a-f]{8}))$")
"""Names of databases and roles that evalve makes."""
_OUR_APPLICATION = re.compile(r"^evalve (?P<run>[0-9a-f]{8})\b")
_RESERVES = re.compile(_OUR_APPLICATION.pattern + r" reserves (?P<number>\d+)$")


def room_on(keeper: Connection, of_run: str, own: int) -> Room:
    """For a run to which so many are promised already."""
    (most,) = one(keeper, "SELECT current_setting('max_connections')::int")
    (reserved,) = one(
        keeper,
        "SELECT coalesce(sum(setting::int), 0) FROM pg_settings WHERE name IN"
        " ('superuser_reserved_connections', 'reserved_connections')",
    )
    seen = run(
        keeper,
        "SELECT coalesce(application_name, ''), coalesce(datname, '') FROM pg_stat_activity"
        " WHERE backend_type = 'client backend'",
    ).fetchall()
    runs = {told["run"]: int(told["number"]) for told in (_RESERVES.match(name) for name, _ in seen) if told}
    others = sum(1 for name, database in seen if _run_of(name, database) not in {of_run, *runs})
    promised = sum(number for which, number in runs.items() if which != of_run)
    return Room(int(most), int(reserved), others, promised, own)


class Room:
    """A server's connections, and whose they are."""

    def __init__(self, most: int, reserved: int, others: int, promised: int, own: int) -> None:
        self.free = most - reserved - others - promised - own
        self.words = (
            f"max_connections is {most}; {reserved} are kept for superusers, {others} are in use by others"
            + (f", {promised} are promised to other runs of evalve" if promised else "")
            + (f", {own} to other evaluations of this one" if own else "")
        )


def _run_of(application: str, database: str) -> str | None:
    """Whose a connection is: evalve's own are known by their name, those of agents by where they are."""
    found = OURS.match(database) or _OUR_APPLICATION.match(application)
    return None if found is None else found["run"]
