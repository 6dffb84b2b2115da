"""Validators of JSON Schemas, from the optional package `jsonschema`; nothing is fetched for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalve.errors import DeclarationError


class NotASchema(Exception):
    """Why it is none, with the path of what is wrong."""


def validator_of(schema: Any, *, who: str) -> Any:
    """A validator of the schema's own draft, else of the latest; `who` is told to need the package."""
    jsonschema = imported(who)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise NotASchema(f"{error.json_path}: {error.message[:200]}") from error
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # comes with jsonschema

    return kind(schema, registry=REGISTRY)


def errors_of(validator: Any, value: Any) -> Iterator[Any]:
    """What does not fit, by path; `NotASchema` where the schema refers to something that is not in it."""
    from referencing.exceptions import Unresolvable  # comes with jsonschema

    try:
        yield from sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        raise NotASchema(f"it refers to {error.ref!r}, which is not in it") from error


def imported(who: str) -> Any:
    try:
        import jsonschema
    except ImportError as error:
        raise DeclarationError(
            f'{who} needs the package jsonschema: pip install "evalve[json-schema]"'
        ) from error
    return jsonschema
