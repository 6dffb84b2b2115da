"""What evalve lends to attempts: a directory, a client that nobody else has meanwhile, a database."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalve.sandboxes.postgresql.lender import postgres as postgres

_NEEDS = frozenset({"psycopg", "psycopg_binary"})


def __getattr__(name: str) -> Any:
    """Loaded when it is first used: its driver is an optional package."""
    if name != "postgres":
        raise AttributeError(f"module 'evalve.sandboxes' has no attribute {name!r}")
    try:
        return importlib.import_module("evalve.sandboxes.postgresql.lender").postgres
    except ModuleNotFoundError as error:
        if error.name not in _NEEDS:
            raise
        raise ImportError(
            "evalve.sandboxes.postgres needs a driver and PostgreSQL's binaries: "
            "pip install 'evalve[postgres]'"
        ) from None
