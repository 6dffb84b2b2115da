"""Definitions of tools: names, descriptions, schemas, and what each provider takes."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.evaluators import ToolCall, tool_schema_valid, valid_tool_schemas

PROPERTIES: dict[str, Any] = {
    "query": {"type": "string", "description": "what to look for"},
    "limit": {"type": "integer", "description": "how many", "default": 10},
}
SCHEMA: dict[str, Any] = {"type": "object", "properties": PROPERTIES, "required": ["query"]}


def tool(shape: str = "anthropic", name: Any = "search", description: Any = "Search.", **schema: Any) -> Any:
    whole = {**SCHEMA, **schema}
    if shape == "anthropic":
        return {"name": name, "description": description, "input_schema": whole}
    if shape == "openai":
        function = {"name": name, "description": description, "parameters": whole}
        return {"type": "function", "function": function}
    return {"functionDeclarations": [{"name": name, "description": description, "parameters": whole}]}


def problems(*tools: Any, provider: Any = None) -> list[str]:
    score = valid_tool_schemas(list(tools), provider)
    found: list[str] = score.metadata.get("problems", [])
    assert score.value is (not found)
    return found


def test_a_tool_without_arguments_still_has_a_schema_for_anthropic() -> None:
    plain = {"name": "now", "description": "The time."}
    assert problems(plain, provider="openai") == []
    assert problems(plain, provider="anthropic") == [
        "now: anthropic needs an input_schema, also of a tool without arguments"
    ]


@pytest.mark.parametrize("shape", ["anthropic", "openai", "gemini"])
def test_sound_tools_have_no_problems(shape: str) -> None:
    assert problems(tool(shape)) == []
    assert problems(tool(shape), provider=["anthropic", "openai", "gemini"]) == []


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (tool(name="get weather"), "get weather: names for anthropic are 1 to 64 letters, digits, _ and -"),
        (tool(name="x" * 65), f"{'x' * 65}: names for anthropic are 1 to 64 letters, digits, _ and -"),
        (tool(name=""), "tool 1: it has no name; got ''"),
        (tool(description=" "), "search: it has no description, which is what a model chooses by"),
        (tool(type="string"), """search: the type of its schema is "object"; got 'string'"""),
        (
            tool(required=["qeury"]),
            "search: 'qeury' is required and not among the properties; did you mean 'query'?",
        ),
        (
            {"name": "f", "description": "d", "input_schema": {"type": "object", "required": ["a"]}},
            "f: 'a' is required and not among the properties",
        ),
        (
            tool(properties={"query": {"description": "q", "enum": []}}),
            "search: properties.query: its enum has no values",
        ),
        (
            tool(properties={"query": {"description": "q", "$ref": "#/$defs/Query"}}),
            "search: properties.query: it refers to #/$defs/Query, which is not there",
        ),
        (
            tool(properties={"query": {"description": "q", "pattern": "("}}),
            "search: properties.query: its pattern is not a regular expression: missing ), unterminated"
            " subpattern at position 0",
        ),
        (
            tool(properties={**PROPERTIES, "ids": {"type": "array", "description": "ids"}}),
            "search: properties.ids: an array does not say what its items are",
        ),
        (
            tool(properties={**PROPERTIES, "q": {"type": "string"}}),
            "search: properties.q: it has no description",
        ),
        (
            tool(properties={**PROPERTIES, "u": {"enum": ["C", "F"], "default": "K", "description": "unit"}}),
            "search: properties.u: the default 'K' is none of the enum",
        ),
        (
            tool(properties={**PROPERTIES, "n": {"type": "int", "description": "n"}}),
            "search: properties.n.type: not a JSON Schema: 'int' is not valid under any of the given schemas",
        ),
        (
            tool(properties={**PROPERTIES, "$top": {"type": "integer", "description": "n"}}),
            "search: anthropic does not take the argument name '$top'",
        ),
        (tool(anyOf=[{"required": ["query"]}]), "search: anthropic takes no anyOf at the top of a schema"),
        (tool("openai", name="a.b"), "a.b: names for openai are 1 to 64 letters, digits, _ and -"),
        (
            tool("openai", description="x" * 1025),
            "search: openai takes descriptions of at most 1024 characters; this has 1025",
        ),
        (
            tool("gemini", name="1st"),
            "1st: names for gemini are a letter or _, then up to 63 letters, digits, _, . and -",
        ),
        (
            tool("gemini", additionalProperties=False),
            "search: gemini does not know the keyword additionalProperties",
        ),
        (
            tool("gemini", properties={**PROPERTIES, "a-b": {"type": "string", "description": "x"}}),
            "search: gemini does not take the argument name 'a-b'",
        ),
    ],
)
def test_each_problem_is_told_with_its_place(given: Any, found: str) -> None:
    assert problems(given) == [found]


def test_a_nested_requirement_is_looked_at_too() -> None:
    inner = {"type": "object", "description": "where", "properties": {"a": {}}, "required": ["b"]}
    assert problems(tool(properties={"query": PROPERTIES["query"], "where": inner})) == [
        "search: properties.where: 'b' is required and not among the properties"
    ]


def test_strict_tools_of_openai_require_everything() -> None:
    strict = tool("openai")
    strict["function"]["strict"] = True
    assert problems(strict) == [
        "search: strict needs additionalProperties: false in every object",
        "search: strict needs every argument to be required; limit may be null",
    ]


def test_strict_tools_of_openai_have_bounds() -> None:
    deep: dict[str, Any] = {"type": "string", "enum": list(map(str, range(1001)))}
    for _ in range(10):
        inner = {"x": {**deep, "description": "deeper"}}
        deep = {"type": "object", "properties": inner, "required": ["x"], "additionalProperties": False}
    function = {"name": "t", "description": "Deep.", "parameters": deep, "strict": True}
    assert problems({"type": "function", "function": function}) == [
        "t: strict takes at most 1000 values of enums; these are 1001"
    ]
    deeper = {**deep, "properties": {"x": {**deep, "description": "one more"}}}
    assert problems({"type": "function", "function": {**function, "parameters": deeper}})[0] == (
        "t: strict takes at most 10 levels of nesting; these are 11"
    )


def test_two_tools_of_one_name_and_too_many_tools() -> None:
    assert problems(tool(), tool()) == ["search: 2 tools have this name"]
    many = [tool("openai", name=f"t{n}") for n in range(129)]
    assert problems(*many) == ["tools: openai takes at most 128 tools; these are 129"]
    assert problems(*many, provider="anthropic") == []


def test_a_function_without_parameters_is_sound_where_the_provider_says_so() -> None:
    assert problems({"type": "function", "function": {"name": "now", "description": "The time."}}) == []
    assert problems({"name": "now", "description": "The time.", "input_schema": None}) == [
        "now: its schema is an object of JSON Schema; got None"
    ]


def test_the_reason_is_short_and_the_problems_are_all() -> None:
    score = valid_tool_schemas([tool(name=f"no {n}") for n in range(8)])
    assert score.metadata["reason"].endswith("; and 3 more")
    assert len(score.metadata["problems"]) == 8


def test_no_tools_and_unknown_providers() -> None:
    assert problems() == ["tools: there is none"]
    with pytest.raises(OptionError, match="did you mean 'openai'"):
        valid_tool_schemas([tool()], "opnai")


def test_tools_that_the_provider_runs_itself_are_left_out() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert problems(tool(), search) == problems(search) == []
    assert tool_schema_valid([ToolCall("web_search", {"query": "cats"})], [tool(), search]).value == 1.0
    assert tool_schema_valid([ToolCall("web_fetch", {})], [tool(), search]).value == 0.0


def test_a_schema_under_a_misspelt_key_is_no_tool_without_arguments() -> None:
    found = problems({"name": "now", "description": "The time.", "input_shema": {"type": "object"}})
    assert found == ["now: it has no schema, but 'input_shema'; did you mean 'input_schema'?"]


def test_a_default_is_of_the_type_that_it_stands_beside() -> None:
    limit = {"type": ["integer", "null"], "default": "five", "description": "how many"}
    found = problems(tool(properties={"query": {"type": "string", "description": "what"}, "limit": limit}))
    assert found == ["search: properties.limit: the default 'five' is not of type ['integer', 'null']"]
