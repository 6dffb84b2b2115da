"""Arguments against the JSON Schema of their tool, in every provider's shape, with paths."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from evalve.errors import DeclarationError, OptionError
from evalve.evaluators import ToolCall, tool_schema_valid, valid_tool_schemas

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "filters": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"op": {"enum": ["=", "<"]}, "value": {}},
                "required": ["op"],
            },
        },
    },
    "required": ["query"],
}
SHAPES: dict[str, Any] = {
    "anthropic": [{"name": "search", "input_schema": SCHEMA}],
    "openai chat": [{"type": "function", "function": {"name": "search", "parameters": SCHEMA}}],
    "openai responses": [{"type": "function", "name": "search", "parameters": SCHEMA}],
    "gemini": [{"functionDeclarations": [{"name": "search", "parameters": SCHEMA}]}],
    "mcp": [{"name": "search", "inputSchema": SCHEMA}],
    "plain": [{"name": "search", "parameters": SCHEMA}],
    "by name": {"search": SCHEMA},
}


@pytest.mark.parametrize("tools", SHAPES.values(), ids=SHAPES)
def test_tools_of_every_shape(tools: Any) -> None:
    assert tool_schema_valid([ToolCall("search", {"query": "a"})], tools).value == 1.0
    score = tool_schema_valid([ToolCall("search", {"query": 5})], tools)
    assert score.value == 0.0
    assert score.metadata["reason"] == "wrong type: search: query: 5 is not of type string"


@pytest.mark.parametrize(
    ("arguments", "kind", "path"),
    [
        ({}, "missing argument", "query"),
        ({"query": "a", "lmit": 1}, "unexpected argument", "lmit"),
        ({"query": "a", "limit": "5"}, "wrong type", "limit"),
        ({"query": "a", "limit": True}, "wrong type", "limit"),
        ({"query": "a", "limit": 0}, "wrong value", "limit"),
        ({"query": "a", "filters": [{"op": "="}, {"op": ">"}]}, "wrong value", "filters[1].op"),
        ({"query": "a", "filters": [{}]}, "missing argument", "filters[0].op"),
        ({"query": "a", "filters": [{"op": "=", "x": 1}]}, "unexpected argument", "filters[0].x"),
        ({"query": "a", "filters": {}}, "wrong type", "filters"),
    ],
)
def test_each_miss_has_its_kind_and_its_path(arguments: Any, kind: str, path: str) -> None:
    score = tool_schema_valid([ToolCall("search", arguments)], SHAPES["anthropic"])
    assert score.metadata["miss_counts"] == {kind: 1}
    assert score.metadata["misses"][0]["path"] == path
    assert path in score.metadata["reason"]


def test_two_absent_arguments_are_two_misses() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}
    score = tool_schema_valid([ToolCall("t", {})], {"t": schema})
    assert sorted(miss["path"] for miss in score.metadata["misses"]) == ["a", "b"]


def test_a_tool_that_does_not_exist_is_invalid() -> None:
    score = tool_schema_valid([ToolCall("serach", {"query": "a"})], SHAPES["anthropic"])
    assert score.value == 0.0
    assert score.metadata["reason"] == "wrong tool: there is no tool 'serach'; did you mean 'search'?"


def test_bad_json_is_invalid_and_its_own_kind() -> None:
    score = tool_schema_valid([{"name": "search", "arguments": "{"}], SHAPES["anthropic"])
    assert score.metadata["miss_counts"] == {"bad JSON": 1}


def test_no_call_is_valid() -> None:
    assert tool_schema_valid([], SHAPES["anthropic"]).value == 1.0


def test_objects_that_say_so_take_further_members_and_composed_ones_too() -> None:
    open_schema = {**SCHEMA, "additionalProperties": True}
    assert tool_schema_valid([ToolCall("t", {"query": "a", "x": 1})], {"t": open_schema}).value == 1.0
    composed = {"type": "object", "allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}}
    assert tool_schema_valid([ToolCall("t", {"a": 1, "b": 2})], {"t": composed}).value == 1.0


def test_types_in_capitals_as_gemini_writes_them() -> None:
    schema = {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}
    tools = [{"functionDeclarations": [{"name": "t", "parameters": schema}]}]
    assert tool_schema_valid([ToolCall("t", {"n": 1})], tools).value == 1.0
    assert tool_schema_valid([ToolCall("t", {"n": "1"})], tools).value == 0.0


def test_a_property_that_is_called_properties_is_no_schema_keyword() -> None:
    schema = {"type": "object", "properties": {"properties": {"type": "object"}, "enum": {"type": "string"}}}
    call = ToolCall("t", {"properties": {"any": 1}, "enum": "x"})
    assert tool_schema_valid([call], {"t": schema}).value == 1.0


def test_definitions_inside_a_schema_are_followed_and_nothing_is_fetched() -> None:
    schema = {
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/place"}},
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    score = tool_schema_valid([ToolCall("t", {"where": {"city": 5}})], {"t": schema})
    assert score.metadata["misses"][0]["path"] == "where.city"
    with serving_nothing() as (url, asked):
        elsewhere = {"type": "object", "properties": {"where": {"$ref": f"{url}/place.json"}}}
        with pytest.raises(OptionError, match=r"it refers to .*place\.json', which is not in it"):
            tool_schema_valid([ToolCall("t", {"where": {}})], {"t": elsewhere})
    assert asked == []


@contextmanager
def serving_nothing() -> Iterator[tuple[str, list[str]]]:
    """A server, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    schema = {**SCHEMA, "title": "not seen before"}
    install = re.escape('pip install "evalve[json-schema]"')
    with pytest.raises(DeclarationError, match=install):
        tool_schema_valid([ToolCall("t", {})], {"t": schema})
    with pytest.raises(DeclarationError, match=install):
        valid_tool_schemas({"t": schema})


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("search", "tools= needs a list of tools"),
        ([{"nam": "t"}], "tool 1 has no name"),
        ([5], "a tool is a mapping with a name and a schema"),
        ({"t": {"type": "objekt"}}, "the schema of t is not a JSON Schema"),
    ],
)
def test_tools_that_are_none_are_refused(tools: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        tool_schema_valid([ToolCall("t", {})], tools)
