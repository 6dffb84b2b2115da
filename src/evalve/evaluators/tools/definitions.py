"""Definitions of tools, in the shape of any provider: name, description and the schema of the arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evalve.errors import OptionError
from evalve.jsontext import as_text

Shape = Literal["anthropic", "openai", "gemini", "mcp", "plain"]


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it."""

    name: Any
    schema: Any
    description: Any = None
    shape: Shape = "plain"
    strict: bool = False
    """Whether the provider binds the arguments to the schema."""
    misspelt: str = ""
    """Of a tool without a schema, the key of what looks like one."""


def definitions(tools: Any) -> list[ToolDefinition]:
    """From a list of tools, or a mapping of them by name; `OptionError` for what cannot be a tool.

    Tools that the provider runs itself (`web_search_20250305` …) have no schema and are left out.
    """
    if isinstance(tools, Mapping):
        named = all(isinstance(tool, Mapping) for tool in tools.values()) and "name" not in tools
        if named and not {"functionDeclarations", "function_declarations"} & set(tools):
            return [_of_schema(name, tool) for name, tool in tools.items()]
        tools = [tools]
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise OptionError(
            f"tools= needs a list of tools, each with name, description and schema;"
            f" got {as_text(tools)[:200]}"
        )
    return [found for tool in tools for found in _in(tool)]


def provided_names(tools: Any) -> list[str]:
    """Tools without a schema that are offered all the same: the provider's own, and those for text."""
    listed = [tools] if isinstance(tools, Mapping) else tools
    return [
        tool["name"]
        for tool in (listed if isinstance(listed, Sequence) else ())
        if isinstance(tool, Mapping)
        and tool.get("type", "function") != "function"
        and isinstance(tool.get("name"), str)
        and "input_schema" not in tool
    ]


def _of_schema(name: str, tool: Mapping[str, Any]) -> ToolDefinition:
    """`{"search": {"type": "object", …}}`: the schema by the tool's name; or the tool itself."""
    found = list(_in({"name": name, **tool})) if {"input_schema", "parameters"} & tool.keys() else []
    return found[0] if found else ToolDefinition(name, tool, tool.get("description"))


def _in(tool: Any) -> Iterator[ToolDefinition]:
    if not isinstance(tool, Mapping):
        dump = getattr(tool, "model_dump", None)
        if not callable(dump):
            raise OptionError(
                f"tools=: a tool is a mapping with a name and a schema; got {as_text(tool)[:200]}"
            )
        tool = dump(exclude_none=True)
    for key in ("functionDeclarations", "function_declarations"):
        if key in tool:
            for one in tool[key] or ():
                schema = next(
                    (one[name] for name in ("parametersJsonSchema", "parameters_json_schema") if name in one),
                    one.get("parameters"),
                )
                yield ToolDefinition(one.get("name"), schema, one.get("description"), "gemini")
            return
    kind = tool.get("type", "function")
    if kind not in ("function", "custom"):
        return
    if isinstance(function := tool.get("function"), Mapping):
        yield _openai(function, strict=bool(function.get("strict")))
    elif "input_schema" in tool:
        yield ToolDefinition(
            tool.get("name"),
            tool["input_schema"],
            tool.get("description"),
            "anthropic",
            bool(tool.get("strict")),
        )
    elif "inputSchema" in tool:
        yield ToolDefinition(tool.get("name"), tool["inputSchema"], tool.get("description"), "mcp")
    elif tool.get("type") == "function":
        yield _openai(tool, strict=bool(tool.get("strict")))
    elif tool.get("type") != "custom":
        schema, misspelt = tool.get("parameters"), _misspelt(tool)
        yield ToolDefinition(tool.get("name"), schema, tool.get("description"), misspelt=misspelt)


def _openai(function: Mapping[str, Any], *, strict: bool) -> ToolDefinition:
    schema, misspelt = function.get("parameters"), _misspelt(function)
    return ToolDefinition(
        function.get("name"), schema, function.get("description"), "openai", strict, misspelt
    )


def _misspelt(tool: Mapping[str, Any]) -> str:
    if tool.get("parameters") is not None:
        return ""
    looks = (
        str(key)
        for key, one in tool.items()
        if isinstance(one, Mapping) and {"type", "properties"} & one.keys()
    )
    return next((key for key in looks if key != "cache_control"), "")


def referred_to(schema: Any, reference: str) -> Any:
    """What `#/$defs/Filter` is in the schema; `None` where it is not there."""
    found = schema
    for name in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
