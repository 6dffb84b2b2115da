"""Tools: functions that an agent may call, and how one call is run in the sandbox."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from evalve.callers import at_caller
from evalve.conversations.parameters import CONNECTION, annotations_of, definition_of, read_value
from evalve.errors import DeclarationError, EvalveError, LenderError, OptionError, ToolError
from evalve.evaluators.tools.definitions import ToolDefinition, definitions
from evalve.evaluators.tools.schemas import invalid_calls
from evalve.jsontext import as_plain
from evalve.options import suggestion
from evalve.records import ToolCall
from evalve.tracing import trace

_ATTRIBUTE = "__evalve_tool__"
_WRITTEN = (
    # what pg_stat_xact_user_tables shows, without its joins; and files, of which TRUNCATE makes new ones
    "SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)"
    " + pg_stat_get_xact_tuples_deleted(oid)), 0)::bigint"
    ", coalesce(sum(relfilenode::bigint), 0)::bigint"
    " FROM pg_catalog.pg_class WHERE oid >= 16384 AND relkind = 'r' AND relpersistence <> 't'"
)
_MOST_TOLD = 2000

F = TypeVar("F", bound=Callable[..., Any])


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str | None = None, definition: Mapping[str, Any] | None = None) -> Callable[[F], F]: ...
def tool(
    function: Any = None, /, *, name: str | None = None, definition: Mapping[str, Any] | None = None
) -> Any:
    """Declare a function as a tool; it stays the function that it is.

    What a model is told of it comes from its signature, annotations and docstring, or from `definition=`, in
    the shape of any provider. A parameter `connection` is psycopg's async connection, inside a savepoint: a
    tool that raises is undone, and the agent is told the message.
    """
    __tracebackhide__ = True
    if function is None:
        return lambda inner: _declared(inner, name, definition)
    return _declared(function, name, definition)


def _declared(function: Any, name: str | None, definition: Mapping[str, Any] | None) -> Any:
    __tracebackhide__ = True
    try:
        setattr(function, _ATTRIBUTE, _tool(function, name, definition))
    except DeclarationError as error:
        raise at_caller(error) from error.__cause__
    return function


@dataclass(frozen=True, slots=True)
class Tool:
    """A function with what a model is told of it."""

    name: str
    definition: Mapping[str, Any]
    function: Callable[..., Any]
    annotations: Mapping[str, Any]
    takes_connection: bool


def _tool(function: Any, name: str | None, definition: Mapping[str, Any] | None) -> Tool:
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        raise DeclarationError(f"a tool is a function; got {function!r}")
    takes_connection = CONNECTION in inspect.signature(function).parameters
    if takes_connection and not inspect.iscoroutinefunction(function):
        raise DeclarationError(
            f"tool {function.__name__!r} takes a connection, which is async: write it with `async def`"
        )
    if definition is None:
        definition = definition_of(function, name=name)
        annotations = annotations_of(function)
    else:
        annotations = {}  # it said itself what it takes
    try:
        (read,) = definitions([definition])
    except (OptionError, ValueError):
        read = ToolDefinition(None, None)
    if not isinstance(read.name, str):
        raise DeclarationError(
            f"tool {function.__name__!r}: its definition needs a name and the schema of its arguments, as in "
            '{"name": …, "description": …, "parameters": {…}}'
        )
    return Tool(read.name, definition, function, annotations, takes_connection)


def tools_of(functions: Iterable[Any]) -> list[Tool]:
    """The tools that functions are; plain ones too. `OptionError` where two have one name."""
    found: dict[str, Tool] = {}
    for function in functions:
        made = getattr(function, _ATTRIBUTE, None) or _tool(function, None, None)
        if made.name in found:
            raise OptionError(f"tools=: two tools are called {made.name!r}; names must be unique")
        found[made.name] = made
    return list(found.values())


def is_tool(value: Any) -> bool:
    """Whether it was declared with `@tool`."""
    return isinstance(getattr(value, _ATTRIBUTE, None), Tool)


@dataclass(slots=True)
class MadeCall:
    """A call of a tool, and what came of it."""

    name: str
    arguments: Any
    result: Any = None
    error: str | None = None
    wrote: bool = False
    """Whether it changed rows of the database."""

    def to_plain(self) -> dict[str, Any]:
        came = {"result": self.result} if self.error is None else {"error": self.error}
        return {
            "name": self.name,
            "arguments": self.arguments,
            **came,
            **({"wrote": True} if self.wrote else {}),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> MadeCall:
        names = ("name", "arguments", "result", "error", "wrote")
        return cls(**{name: plain[name] for name in names if name in plain})


class Toolbox:
    """The tools of one conversation, and the database that they work on."""

    def __init__(self, functions: Iterable[Any], db: Any = None) -> None:
        self._tools = {one.name: one for one in tools_of(functions)}
        self._db = db
        self._written: tuple[int, int] | None = None
        """What is changed in the transaction so far, as the server counts them; `None` where unknown."""
        self.definitions: Sequence[Mapping[str, Any]] = [one.definition for one in self._tools.values()]
        self.schemas = definitions(self.definitions)
        if db is None and (needy := [one.name for one in self._tools.values() if one.takes_connection]):
            raise OptionError(
                f"the tool {needy[0]!r} takes a connection, and there is no database: say db=, or "
                "`sandbox: postgres` in an experiment"
            )

    async def run(self, call: ToolCall) -> MadeCall:
        """Run a call. What goes wrong in it is told to the agent; what concerns the sample is raised."""
        made = MadeCall(call.name, as_plain(call.arguments))
        try:
            made.error = self._refusal(call)
            if made.error is None:
                made.result = as_plain(await self._called(self._tools[call.name], call.arguments, made))
        except Exception as error:  # the boundary of one tool call
            made.error = self._told(call.name, error)
        came = {"result": made.result} if made.error is None else {"error": made.error}
        trace("tool_call", name=made.name, arguments=made.arguments, **came)
        return made

    def _refusal(self, call: ToolCall) -> str | None:
        """Why a call is not run at all."""
        if call.name not in self._tools:
            hint = suggestion(call.name, self._tools) or f"; there is: {', '.join(self._tools) or 'none'}"
            return f"there is no tool {call.name!r}{hint}"
        wrong = [miss for _, misses in invalid_calls([call], self.schemas) for miss in misses]
        return "; ".join(miss.reason for miss in wrong) or None

    async def _called(self, tool: Tool, arguments: Mapping[str, Any], made: MadeCall) -> Any:
        given = {name: _read(tool, name, value) for name, value in arguments.items()}
        if not tool.takes_connection:
            if inspect.iscoroutinefunction(tool.function):
                return await tool.function(**given)
            return await asyncio.to_thread(tool.function, **given)
        async with self._connection(made) as connection:
            return await tool.function(**given, **{CONNECTION: connection})

    @asynccontextmanager
    async def _connection(self, made: MadeCall) -> AsyncIterator[Any]:
        connection: Any = None
        try:
            async with self._db.savepoint() as connection:
                before = self._written if self._written is not None else await _written(connection)
                self._written = None
                yield connection
                self._written = await _written(connection)
                made.wrote = self._written != before
        except Exception as error:
            # what the conversation did so far is gone with it, whoever ended it
            if _is_of_database(error) and (connection is None or connection.closed):
                raise LenderError(
                    f"the connection to the database was lost at {made.name}: {error}"
                ) from error
            raise

    def _told(self, name: str, error: Exception) -> str:
        """What the agent is told of an error; what is not the tool's own is raised again."""
        if isinstance(error, EvalveError) and not isinstance(error, ToolError):
            raise error
        said = str(error).strip()[:_MOST_TOLD]
        if isinstance(error, ToolError | ValueError) or _is_of_database(error):
            return said or type(error).__name__
        trace("note", text=f"the tool {name} crashed:\n{''.join(traceback.format_exception(error))}")
        return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _read(tool: Tool, name: str, value: Any) -> Any:
    try:
        return read_value(tool.annotations.get(name), value)
    except ValueError as error:
        raise ToolError(f"{tool.name}: {name}: {error}") from error


async def _written(connection: Any) -> tuple[int, int]:
    """Counted by the server, what savepoints have undone included: only a difference says something."""
    from psycopg.rows import tuple_row  # an optional package, which whoever has a connection has

    cursor = await connection.cursor(row_factory=tuple_row).execute(_WRITTEN)
    rows, files = await cursor.fetchone()
    return int(rows), int(files)


def _is_of_database(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] == "psycopg" for kind in type(error).__mro__)
