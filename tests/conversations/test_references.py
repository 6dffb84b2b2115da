"""`{{turn_N.field}}`: what it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.conversations.references import Returned, Unknown, Unresolved, resolved
from evalve.errors import DatasetError

TURNS = {
    1: Returned([{"id": 7, "client": {"tags": ["a", "b"]}}], is_right=True),
    2: Returned([[{"id": "x"}, {"id": "y"}]], is_right=True),
    3: Returned([], is_right=False),
    4: Returned([{"id": 9}], is_right=False),
    5: Returned([], is_right=True, is_known=False),
}


@pytest.mark.parametrize(
    ("value", "stands_for"),
    [
        ("{{turn_1.id}}", 7),
        ("{{ turn_1.id }}", 7),
        ("client {{turn_1.id}} of {{turn_2.id}}", "client 7 of x"),
        ({"a": [{"b": "{{turn_1.client.tags}}"}]}, {"a": [{"b": ["a", "b"]}]}),
        ("{{turn_1.client.tags[1]}}", "b"),
        ("{{turn_2.1.id}}", "y"),
        ({"{{turn_1.id}}": {"name": "Acme"}}, {7: {"name": "Acme"}}),
        ("{{turn_4.id}}", 9),  # the turn went wrong, and its call returned something all the same
        ("{{other}} {x}", "{{other}} {x}"),
    ],
)
def test_a_reference_stands_for_what_the_call_returned(value: Any, stands_for: Any) -> None:
    assert resolved(value, TURNS) == stands_for


def test_a_turn_that_went_wrong_leaves_references_to_it_open() -> None:
    with pytest.raises(Unresolved, match=r"{{turn_3\.id}} is not known, because turn 3 went wrong"):
        resolved("{{turn_3.id}}", TURNS)


def test_a_field_that_a_right_call_does_not_return_is_a_mistake_of_the_dataset() -> None:
    with pytest.raises(DatasetError, match=r"turn 1 returned has no 'ids'; did you mean 'id'\?"):
        resolved("{{turn_1.ids}}", TURNS)
    with pytest.raises(DatasetError, match=r"turn 1 returned has no 'id' \(it is 7\)"):
        resolved("{{turn_1.id}}", {1: Returned([7], is_right=True)})


def test_what_nobody_has_seen_is_unknown() -> None:
    assert isinstance(resolved("{{turn_5.id}}", TURNS), Unknown)
    assert isinstance(resolved("see {{turn_5.id}}", TURNS), Unknown)
