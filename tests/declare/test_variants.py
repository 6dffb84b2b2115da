"""Which arguments tell variants apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from evalve.declare.variants import variant


@dataclass
class Settings:
    strict: bool
    client: Any = field(default=None, compare=False)


@dataclass
class Other:
    strict: bool


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("gpt", "gpt"),
        (0.5, "0.5"),
        (True, "True"),
        ({"b": 1, "a": None}, '{"a":null,"b":1}'),
        ([1, "x"], '[1,"x"]'),
        ((1, 2), "[1,2]"),
        ({"b", "a"}, '["a","b"]'),
        (Settings(True), 'Settings{"strict":true}'),
        ([Settings(False)], '[{"strict":false}]'),
    ],
)
def test_plain_values_and_what_is_made_of_them_are_part_of_the_name(value: Any, text: str) -> None:
    assert variant({"model": value}) == f"[model={text}]"


@pytest.mark.parametrize("value", [None, object(), [object()], {"a": object()}, {(1, 2): 3}, Settings])
def test_other_objects_are_not(value: Any) -> None:
    assert variant({"model": value}) == ""


def test_a_field_that_does_not_count_in_comparisons_does_not_count_here() -> None:
    assert variant({"s": Settings(True, client=object())}) == variant({"s": Settings(True)})


def test_long_values_are_told_apart_by_a_digest() -> None:
    texts = {variant({"words": ["word"] * 20 + [end]}) for end in ("a", "b", "a")}

    assert len(texts) == 2
    assert max(map(len, texts)) < 40


def test_two_classes_with_equal_fields_are_two() -> None:
    assert variant({"s": Settings(True)}) != variant({"s": Other(True)})


def test_a_value_that_lies_in_itself_does_not_count() -> None:
    value: list[Any] = []
    value.append(value)

    assert variant({"value": value}) == ""


def test_names_are_in_order() -> None:
    assert variant({"b": 1, "client": object(), "a": "x"}) == "[a=x, b=1]"
