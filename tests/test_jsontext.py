"""JSON text of any value: equal for equal content, and never an error."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import numpy
import pytest

from evalve.jsontext import as_plain, as_text, digest, from_json, to_json


@dataclass
class Point:
    x: int
    y: Any = None


class Pair(NamedTuple):
    left: int
    right: int


class Model:
    def model_dump(self) -> dict[str, int]:
        return {"a": 1}


class BrokenModel:
    def model_dump(self) -> dict[str, int]:
        raise KeyError("no such field")

    def __repr__(self) -> str:
        return "BrokenModel()"


class LeavingRepr:
    def __repr__(self) -> str:
        raise SystemExit(3)


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class BrokenMapping(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "BrokenMapping()"


class Opaque:
    pass


class Colour(Enum):
    RED = 1


@dataclass
class Unfinished:
    said: int = field(init=False)

    def __repr__(self) -> str:
        return "Unfinished()"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
        ("é\n", '"\\u00e9\\n"'),
        ("\ud800", '"\\ud800"'),
        ([1, (2, 3)], "[1,[2,3]]"),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({1: "x"}, '{"1":"x"}'),
        (Point(1, Point(2)), '{"x":1,"y":{"x":2,"y":null}}'),
        (Pair(1, 2), "[1,2]"),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        ({"b", "a"}, '["a","b"]'),
        (b"\x00\xff", '"AP8="'),
        (datetime.date(2026, 11, 3), '"2026-11-03"'),
        (numpy.int64(3), "3"),
        (numpy.array([1.5, 2.5]), "[1.5,2.5]"),
        (Model(), '{"a":1}'),
        ([Decimal("500.00"), Decimal("1.50"), Decimal("-3E+2")], "[500,1.5,-300]"),
        (
            [Decimal("NaN"), Decimal("1E+40"), Decimal("0.12345678901234567891")],
            '["NaN","1E+40","0.12345678901234567891"]',
        ),
        (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        ([datetime.timedelta(minutes=90), ip_address("10.0.0.1")], '["1:30:00","10.0.0.1"]'),
        ([Colour.RED], "[1]"),
        (
            {UUID(int=7): 1, datetime.date(2026, 11, 3): 2},
            '{"00000000-0000-0000-0000-000000000007":1,"2026-11-03":2}',
        ),
    ],
)
def test_a_value_is_written_compactly_with_sorted_keys(value: Any, text: str) -> None:
    assert to_json(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), '"nan"'),
        ([float("-inf")], '["-inf"]'),
        ({"x": 1, 2: float("nan")}, '{"x":1,"2":"nan"}'),
        ({(1, 2): 3}, '{"(1, 2)":3}'),
        (BrokenModel(), '"BrokenModel()"'),
        ({"inside": BrokenModel()}, '{"inside":"BrokenModel()"}'),
        (BrokenMapping(a=1), '"BrokenMapping()"'),
        (BrokenRepr(), '"<BrokenRepr whose repr raised RuntimeError>"'),
        (LeavingRepr(), '"<LeavingRepr whose repr raised SystemExit>"'),
        ({LeavingRepr(): 1}, '{"<LeavingRepr whose repr raised SystemExit>":1}'),
        ([{BrokenRepr}], "[[\"<class 'test_jsontext.BrokenRepr'>\"]]"),
        (Unfinished(), '"Unfinished()"'),
    ],
)
def test_what_json_cannot_hold_is_written_as_text(value: Any, text: str) -> None:
    assert from_json(to_json(value)) == from_json(text)


def test_a_whole_number_too_long_for_decimal_text_is_written_in_hexadecimal() -> None:
    assert to_json([2**20_000]) == f'["0x1{"0" * 5000}"]'


def test_a_list_that_holds_itself_several_times_is_cut_where_it_repeats() -> None:
    value: list[Any] = [1]
    value += [value, value, value]

    assert to_json(value) == '[1,"\\u2026","\\u2026","\\u2026"]'


def test_the_same_object_beside_itself_is_no_cycle() -> None:
    shared = {"nan": float("nan")}

    assert to_json([shared, shared]) == '[{"nan":"nan"},{"nan":"nan"}]'


def test_nesting_beyond_the_interpreters_depth_is_cut() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]

    assert to_json(value) == "[" * 51 + '"\\u2026"' + "]" * 51


def test_text_of_an_object_has_no_memory_address() -> None:
    assert as_text(Opaque()) == "<test_jsontext.Opaque object>"


def test_as_plain_is_what_comes_back_from_the_store() -> None:
    assert as_plain({"point": Point(1), "pair": (1, 2)}) == {"point": {"x": 1, "y": None}, "pair": [1, 2]}


def test_a_digest_is_the_same_for_equal_content_in_another_order() -> None:
    # the first 16 digits of `printf '{"a":1,"b":2}' | sha256sum`
    assert digest({"b": 2, "a": 1}) == "43258cff783fe703"
