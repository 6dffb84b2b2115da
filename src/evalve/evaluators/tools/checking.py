"""`valid_tool_schemas`: what is wrong with definitions of tools, before a model is asked with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalve import metrics
from evalve.errors import OptionError
from evalve.evaluators.declaring import evaluator
from evalve.evaluators.json_schemas import imported
from evalve.evaluators.tools.definitions import ToolDefinition, definitions, provided_names, referred_to
from evalve.evaluators.tools.schemas import standard_types
from evalve.jsontext import as_text
from evalve.options import suggestion
from evalve.records import Score

_ACCURACY = (metrics.accuracy,)
_MOST_IN_REASON = 5
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_LONGEST_PATH = 12


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """What a provider takes, as its documentation and its refusals say."""

    name: re.Pattern[str]
    name_in_words: str
    property: re.Pattern[str] | None = None
    most_tools: int | None = None
    longest_description: int | None = None
    keywords: frozenset[str] | None = None
    """The keywords of a schema that it knows; `None` for all of JSON Schema."""
    refused_at_top: frozenset[str] = frozenset()


_LETTERS = "1 to 64 letters, digits, _ and -"
_OF_OPENAPI = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems"),
        *("properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern"),
        *("example", "anyOf", "propertyOrdering", "default", "minimum", "maximum"),
    }
)
PROVIDERS: Mapping[str, ProviderRules] = {
    "anthropic": ProviderRules(
        re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        _LETTERS,
        property=re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
        refused_at_top=frozenset({"oneOf", "anyOf", "allOf"}),
    ),
    "openai": ProviderRules(
        re.compile(r"[a-zA-Z0-9_-]{1,64}"),
        _LETTERS,
        most_tools=128,
        longest_description=1024,
        refused_at_top=frozenset({"oneOf", "anyOf", "allOf", "enum", "not"}),
    ),
    "gemini": ProviderRules(
        re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"),
        "a letter or _, then up to 63 letters, digits, _, . and -",
        property=re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
        most_tools=128,
        keywords=_OF_OPENAPI,
    ),
}
_ANY = ProviderRules(re.compile(r"[a-zA-Z0-9_.:/-]{1,128}"), "1 to 128 letters, digits, _, ., :, / and -")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a tool."""

    tool: str
    path: str
    """Where in its schema; empty where it is about the tool."""
    text: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.path}: {self.text}" if self.path else f"{self.tool}: {self.text}"


@evaluator(name="valid_tool_schemas")
def valid_tool_schemas(tools: Any, provider: str | Sequence[str] | None = None) -> Score:
    """Whether definitions of tools are sound: names, descriptions, schemas, and what a provider takes.

    `provider` is `anthropic`, `openai`, `gemini`, or several of them; without it, each tool is held to the
    rules of the provider whose shape it has. What is wrong stands in `metadata["problems"]`.
    """
    problems = [str(problem) for problem in tool_problems(tools, provider)]
    if not problems:
        return Score("valid_tool_schemas", True, _ACCURACY)
    more = len(problems) - _MOST_IN_REASON
    reason = "; ".join([*problems[:_MOST_IN_REASON], *([f"and {more} more"] if more > 0 else [])])
    return Score("valid_tool_schemas", False, _ACCURACY, {"reason": reason, "problems": problems})


def tool_problems(tools: Any, provider: str | Sequence[str] | None = None) -> list[Problem]:
    """All that is wrong, tool by tool."""
    asked = [provider] if isinstance(provider, str) else provider
    for name in asked or ():
        if name not in PROVIDERS:
            hint = suggestion(str(name), PROVIDERS) or f" (there is: {', '.join(PROVIDERS)})"
            raise OptionError(f"provider={name!r} is not known{hint}")
    found = definitions(tools)
    if not found:
        return [] if provided_names(tools) else [Problem("tools", "", "there is none")]
    problems: list[Problem] = list(_of_all(found))
    for place, tool in enumerate(found):
        problems += _of_tool(tool, place, asked or [tool.shape])
    for name in asked or sorted({tool.shape for tool in found}):
        most = PROVIDERS[name].most_tools if name in PROVIDERS else None
        if most is not None and len(found) > most:
            problems.append(
                Problem("tools", "", f"{name} takes at most {most} tools; these are {len(found)}")
            )
    return list(dict.fromkeys(problems))


def _of_all(tools: Sequence[ToolDefinition]) -> Iterator[Problem]:
    counts = Counter(tool.name for tool in tools if isinstance(tool.name, str))
    for name, count in counts.items():
        if count > 1:
            yield Problem(name, "", f"{count} tools have this name")


def _of_tool(tool: ToolDefinition, place: int, providers: Sequence[str]) -> Iterator[Problem]:
    shown = tool.name if isinstance(tool.name, str) and tool.name else f"tool {place + 1}"
    if not isinstance(tool.name, str) or not tool.name:
        yield Problem(shown, "", f"it has no name; got {as_text(tool.name)}")
    if not isinstance(tool.description, str) or not tool.description.strip():
        yield Problem(shown, "", "it has no description, which is what a model chooses by")
    for provider in providers:
        yield from _of_provider(tool, shown, provider)
    if tool.misspelt:
        hint = suggestion(tool.misspelt, ("input_schema", "parameters"))
        yield Problem(shown, "", f"it has no schema, but {tool.misspelt!r}{hint}")
        return
    if tool.schema is None and tool.shape in ("openai", "gemini", "plain"):
        if "anthropic" in providers:
            yield Problem(shown, "", "anthropic needs an input_schema, also of a tool without arguments")
        return  # a function without parameters
    yield from _of_schema(tool, shown)


def _of_provider(tool: ToolDefinition, shown: str, provider: str) -> Iterator[Problem]:
    rules, whom = PROVIDERS.get(provider, _ANY), provider if provider in PROVIDERS else "tools"
    if isinstance(tool.name, str) and tool.name and not rules.name.fullmatch(tool.name):
        yield Problem(shown, "", f"names for {whom} are {rules.name_in_words}")
    longest = rules.longest_description
    if longest is not None and isinstance(tool.description, str) and len(tool.description) > longest:
        said = f"{provider} takes descriptions of at most {longest} characters"
        yield Problem(shown, "", f"{said}; this has {len(tool.description)}")
    if not isinstance(tool.schema, Mapping):
        return
    for keyword in sorted(rules.refused_at_top & tool.schema.keys()):
        yield Problem(shown, "", f"{provider} takes no {keyword} at the top of a schema")
    for path, schema in _inside(tool.schema):
        for keyword in sorted(schema.keys() - (rules.keywords or schema.keys())):
            yield Problem(shown, path, f"{provider} does not know the keyword {keyword}")
        for name in _members(schema):
            if rules.property is not None and not rules.property.fullmatch(name):
                yield Problem(shown, path, f"{provider} does not take the argument name {name!r}")
    if provider == "openai" and tool.strict:
        yield from _of_strict(tool.schema, shown)


def _of_strict(schema: Mapping[str, Any], shown: str) -> Iterator[Problem]:
    """What OpenAI asks of a schema that it is to bind the model to."""
    for path, one in _inside(schema):
        if one.get("type") != "object" and "properties" not in one:
            continue
        if one.get("additionalProperties") is not False:
            yield Problem(shown, path, "strict needs additionalProperties: false in every object")
        optional = [name for name in _members(one) if name not in (one.get("required") or ())]
        if optional:
            yield Problem(
                shown, path, f"strict needs every argument to be required; {', '.join(optional)} may be null"
            )
    inside = [one for _, one in _inside(schema)]
    sizes = {
        "levels of nesting": (_levels(schema), 10),
        "arguments in all": (sum(len(_members(one)) for one in inside), 5000),
        "values of enums": (
            sum(len(one["enum"]) for one in inside if isinstance(one.get("enum"), list)),
            1000,
        ),
    }
    for what, (count, most) in sizes.items():
        if count > most:
            yield Problem(shown, "", f"strict takes at most {most} {what}; these are {count}")


def _levels(schema: Any) -> int:
    """How deep objects and lists stand in each other."""
    if not isinstance(schema, Mapping):
        return 0
    inner = [schema.get("items"), *(schema.get("properties") or {}).values()]
    inner += [one for key in _SEVERAL for one in schema.get(key) or ()]
    is_level = schema.get("type") in ("object", "array") or "properties" in schema
    return is_level + max(map(_levels, inner), default=0)


def _of_schema(tool: ToolDefinition, shown: str) -> Iterator[Problem]:
    schema = standard_types(tool.schema)
    if not isinstance(schema, Mapping):
        yield Problem(shown, "", f"its schema is an object of JSON Schema; got {as_text(schema)[:100]}")
        return
    if schema.get("type") != "object":
        yield Problem(shown, "", f'the type of its schema is "object"; got {as_text(schema.get("type"))}')
    yield from _of_json_schema(schema, shown)
    for path, one in _inside(schema):
        yield from (Problem(shown, path, text) for text in _of_part(one, schema))
    for name, one in (schema.get("properties") or {}).items() if _members(schema) else ():
        if isinstance(one, Mapping) and not str(one.get("description") or "").strip() and "$ref" not in one:
            yield Problem(shown, f"properties.{name}", "it has no description")


def _of_part(one: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one schema of those in it, beyond what JSON Schema itself minds."""
    members, required = _members(one), one.get("required")
    lists_members = "properties" in one or (
        one.get("type") == "object" and not one.keys() & {"$ref", *_SEVERAL}
    )
    for name in required if isinstance(required, list) and lists_members else ():
        if name not in members:
            hint = suggestion(str(name), members)
            yield f"{name!r} is required and not among the properties{hint}"
    if one.get("type") == "array" and "items" not in one and "prefixItems" not in one:
        yield "an array does not say what its items are"
    allowed = one.get("enum")
    if isinstance(allowed, list) and not allowed:
        yield "its enum has no values"
    elif "default" in one and isinstance(allowed, list) and one["default"] not in allowed:
        yield f"the default {as_text(one['default'])} is none of the enum"
    elif "default" in one and not _is_of_type(one["default"], one):
        yield f"the default {as_text(one['default'])} is not of type {as_text(one['type'])}"
    reference = one.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/") and referred_to(whole, reference) is None:
        yield f"it refers to {reference}, which is not there"
    try:
        re.compile(one["pattern"] if isinstance(one.get("pattern"), str) else "")
    except re.error as error:
        yield f"its pattern is not a regular expression: {error}"


def _is_of_type(value: Any, schema: Mapping[str, Any]) -> bool:
    names = schema.get("type")
    asked = [names] if isinstance(names, str) else names
    if (
        not isinstance(asked, list)
        or not {*map(str, asked)} <= _TYPES
        or (value is None and schema.get("nullable"))
    ):
        return True  # said elsewhere
    validator = imported("valid_tool_schemas").Draft202012Validator
    return bool(validator({"type": asked}).is_valid(value))


def _of_json_schema(schema: Mapping[str, Any], shown: str) -> Iterator[Problem]:
    jsonschema = imported("valid_tool_schemas")
    kind: Callable[..., Any] = jsonschema.validators.validator_for(
        schema, default=jsonschema.Draft202012Validator
    )
    checker = jsonschema.validators.validator_for(kind.META_SCHEMA)(kind.META_SCHEMA)  # type: ignore[attr-defined]
    for error in sorted(checker.iter_errors(schema), key=lambda one: list(map(str, one.path))):
        path = ".".join(map(str, error.absolute_path))
        yield Problem(shown, path, f"not a JSON Schema: {error.message[:200]}")


def _members(schema: Mapping[str, Any]) -> list[str]:
    properties = schema.get("properties")
    return list(map(str, properties)) if isinstance(properties, Mapping) else []


_BY_NAME = ("properties", "$defs", "definitions", "patternProperties")
_ONE = ("items", "additionalProperties", "not")
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems")


def _inside(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schema and all that are in it, each with its path."""
    if not isinstance(schema, Mapping) or len(path) > 2 * _LONGEST_PATH:
        return
    yield ".".join(path), schema
    for key in _BY_NAME:
        if isinstance(schema.get(key), Mapping):
            for name, one in schema[key].items():
                yield from _inside(one, (*path, key, str(name)))
    for key in _ONE:
        yield from _inside(schema.get(key), (*path, key))
    for key in _SEVERAL:
        if isinstance(schema.get(key), list):
            for place, one in enumerate(schema[key]):
                yield from _inside(one, (*path, f"{key}[{place}]"))
