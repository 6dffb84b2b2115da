"""What each try gets of a row."""

from __future__ import annotations

from typing import Any

from evalve.runner.owning import own_values


def test_plain_values_are_passed_as_they_are() -> None:
    values = {"question": "1+1", "answer": 2, "share": 0.5, "data": b"x", "nothing": None}

    assert own_values(values) is values


def test_lists_dicts_and_sets_are_copied_however_deep_they_lie() -> None:
    values = {"messages": [{"parts": ["a"]}], "tags": {"x"}, "pair": (["b"], 1), "text": "t"}

    own = own_values(values)
    own["messages"][0]["parts"].append("more")
    own["tags"].add("y")
    own["pair"][0].append("c")

    assert values == {"messages": [{"parts": ["a"]}], "tags": {"x"}, "pair": (["b"], 1), "text": "t"}
    assert own == {
        "messages": [{"parts": ["a", "more"]}],
        "tags": {"x", "y"},
        "pair": (["b", "c"], 1),
        "text": "t",
    }


def test_objects_of_other_kinds_are_shared() -> None:
    class Client:
        pass

    client = Client()

    own = own_values({"clients": [client], "client": client})

    assert own["clients"][0] is client
    assert own["client"] is client


def test_one_list_in_two_places_stays_one_and_a_list_in_itself_ends() -> None:
    shared: list[Any] = [1]
    shared.append(shared)

    (pair,) = own_values({"pair": [shared, shared]}).values()

    assert pair[0] is pair[1]
    assert pair[0] is not shared
    assert pair[0][1] is pair[0]
