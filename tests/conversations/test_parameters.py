"""From a function to what a model is told of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest

from evalve.conversations import tool
from evalve.conversations.parameters import definition_of, read_value
from evalve.conversations.tools import tools_of
from evalve.errors import DeclarationError


class Stage(enum.Enum):
    LEAD = "lead"
    CUSTOMER = "customer"


class Line(TypedDict):
    product: str
    count: int


async def create_quote(
    connection: Any,
    client_id: int,
    lines: list[Line],
    stage: Stage = Stage.LEAD,
    valid_until: date | None = None,
    currency: Literal["EUR", "USD"] = "EUR",
    rebate: Annotated[float | None, "as a share"] = None,
    *,
    notes: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Create a quote.

    It is a draft.

    Args:
        client_id: whose it is
        lines: what is quoted
    """
    return {}


def test_a_definition_comes_from_signature_annotations_and_docstring() -> None:
    line = {
        "type": "object",
        "properties": {"product": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["count", "product"],
        "additionalProperties": False,
    }
    assert definition_of(create_quote) == {
        "name": "create_quote",
        "description": "Create a quote.\n\nIt is a draft.",
        "parameters": {
            "type": "object",
            "properties": {
                "client_id": {"type": "integer", "description": "whose it is"},
                "lines": {"type": "array", "items": line, "description": "what is quoted"},
                "stage": {"enum": ["lead", "customer"], "default": "lead"},
                "valid_until": {
                    "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
                    "default": None,
                },
                "currency": {"enum": ["EUR", "USD"], "default": "EUR"},
                "rebate": {"type": ["number", "null"], "description": "as a share", "default": None},
                "notes": {
                    "anyOf": [
                        {"type": "object", "additionalProperties": {"type": "string"}},
                        {"type": "null"},
                    ],
                    "default": None,
                },
            },
            "required": ["client_id", "lines"],
            "additionalProperties": False,
        },
    }


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (date, "2026-01-31", date(2026, 1, 31)),
        (date | None, None, None),
        (Annotated[Decimal, "EUR"], 1.5, Decimal("1.5")),
        (UUID, "00000000-0000-0000-0000-000000000007", UUID(int=7)),
        (Stage | None, "lead", Stage.LEAD),
        (str, "2026-01-31", "2026-01-31"),
        (list[date] | None, ["2026-01-31"], [date(2026, 1, 31)]),
        (None, 5, 5),
    ],
)
def test_arguments_are_read_as_they_are_annotated(annotation: Any, value: Any, read: Any) -> None:
    assert read_value(annotation, value) == read


async def takes_any(**values: Any) -> None: ...


async def takes_bytes(content: bytes) -> None: ...


def is_sync(connection: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (takes_any, r"test_parameters.py:\d+: tool 'takes_any' takes \*\*values.*name each argument"),
        (takes_bytes, "the parameter 'content' is annotated with <class 'bytes'>"),
        (is_sync, "takes a connection, which is async: write it with `async def`"),
        (5, "a tool is a function; got 5"),
    ],
)
def test_what_cannot_be_a_tool_is_told_where_it_is_declared(function: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        tool(function)


def test_a_definition_of_ones_own_needs_a_name() -> None:
    declare: Callable[[Any], Any] = tool(definition={"description": "without a name"})
    with pytest.raises(DeclarationError, match="tool 'takes_any': its definition needs a name"):
        declare(takes_any)


class Shop:
    async def price(self, product: str) -> int:
        return 5


def test_a_method_is_a_tool_too() -> None:
    (found,) = tools_of([Shop().price])
    assert (found.name, list(found.definition["parameters"]["properties"])) == ("price", ["product"])


def test_a_tool_stays_the_function_that_it_is() -> None:
    assert tool(create_quote) is create_quote
