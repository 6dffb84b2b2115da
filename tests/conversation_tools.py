"""Tools of a small CRM, and rows of conversations with it."""

from __future__ import annotations

import asyncio
from typing import Any

from evalve.conversations import ToolError, tool
from evalve.records import Result


@tool
async def create_client(connection: Any, name: str, company: str | None = None) -> dict[str, Any]:
    """Create a client."""
    cursor = await connection.execute(
        "INSERT INTO clients (name, company) VALUES (%s, %s) RETURNING id, name", (name, company)
    )
    id, name = await cursor.fetchone()
    return {"client_id": id, "name": name}


@tool
async def search_clients(connection: Any, name: str) -> list[dict[str, Any]]:
    """Find clients by a part of the name."""
    cursor = await connection.execute("SELECT id, name FROM clients WHERE name ILIKE %s", (f"%{name}%",))
    return [{"client_id": id, "name": name} for id, name in await cursor.fetchall()]


@tool
async def create_quote(connection: Any, client_id: int, amount: float) -> dict[str, Any]:
    """Create a quote."""
    cursor = await connection.execute(
        "INSERT INTO quotes (client_id, amount) VALUES (%s, %s) RETURNING id", (client_id, amount)
    )
    (id,) = await cursor.fetchone()
    if amount <= 0:
        raise ValueError("the amount must be above 0")
    return {"quote_id": id}


@tool
async def breaks(connection: Any, how: str) -> None:
    """Go wrong in one of several ways."""
    await connection.execute("INSERT INTO clients (name) VALUES ('half done')")
    if how == "refuses":
        raise ToolError("not today")
    if how == "crashes":
        {}["nothing"]  # type: ignore[index]
    if how == "sleeps":
        await connection.execute("SELECT pg_sleep(60)")
    if how == "dies":
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    if how == "hangs":
        await asyncio.Event().wait()
    await connection.execute("SELECT * FROM nowhere")


@tool
def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


TOOLS = [create_client, search_clients, create_quote, breaks, add]


def row(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation in which the user says what each turn has as `says`."""
    told = [{"user_utterance": turn.pop("says", "Go on."), **turn} for turn in map(dict, turns)]
    return {"conversation_id": "c", "turns": told, **more}


def values(result: Result, name: str) -> list[Any]:
    return [score.value for score in result.scores if score.name == name]


def why(result: Result, name: str) -> list[Any]:
    return [score.metadata.get("reason") for score in result.scores if score.name == name]
