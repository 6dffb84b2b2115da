"""Ids of samples, and what was seen in a pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evalve.declare.ids import SampleIds, Unnamed
from evalve.errors import DatasetError


@pytest.fixture
def ids() -> Iterator[SampleIds]:
    ids = SampleIds("eval_x.py:12")
    yield ids
    ids.close()


def test_a_row_without_an_id_is_known_by_the_hash_of_its_content(ids: SampleIds) -> None:
    # the first 16 digits of `printf '{"a":1}' | sha256sum`
    assert ids.assign([Unnamed('{"a":1}')]) == ["015abd7f5cc57a2d"]


def test_equal_rows_are_numbered_in_order_of_appearance(ids: SampleIds) -> None:
    assert ids.assign([Unnamed('{"a":1}')] * 3) == [
        "015abd7f5cc57a2d",
        "015abd7f5cc57a2d-2",
        "015abd7f5cc57a2d-3",
    ]


def test_equal_rows_are_numbered_across_chunks(ids: SampleIds) -> None:
    ids.assign([Unnamed('{"a":1}'), Unnamed('{"a":2}')])

    assert ids.assign([Unnamed('{"a":1}')]) == ["015abd7f5cc57a2d-2"]
    assert ids.assign([Unnamed('{"a":1}')]) == ["015abd7f5cc57a2d-3"]


def test_more_rows_than_one_query_takes_are_assigned_in_order(ids: SampleIds) -> None:
    names = [f"row-{number}" for number in range(1234)]

    assert ids.assign(names) == names


def test_an_id_used_twice_in_one_chunk_is_an_error(ids: SampleIds) -> None:
    with pytest.raises(
        DatasetError, match=r"^eval_x.py:12: rows 1 and 3 have the id 'a'; ids must be unique"
    ):
        ids.assign(["a", "b", "a"])


def test_an_id_used_in_two_chunks_is_an_error_that_names_both_rows(ids: SampleIds) -> None:
    ids.assign(["a", "b"])

    with pytest.raises(DatasetError, match=r"rows 2 and 4 have the id 'b'"):
        ids.assign(["c", "b"])


def test_rows_with_and_without_ids_may_be_mixed(ids: SampleIds) -> None:
    assert ids.assign(["a", Unnamed('{"a":1}'), "b", Unnamed('{"a":1}')]) == [
        "a",
        "015abd7f5cc57a2d",
        "b",
        "015abd7f5cc57a2d-2",
    ]


def test_the_fingerprint_does_not_depend_on_the_order() -> None:
    forwards, backwards = SampleIds("x:1"), SampleIds("x:1")
    forwards.assign(["a", "b", Unnamed("{}"), Unnamed("{}")])
    backwards.assign([Unnamed("{}"), "b"])
    backwards.assign([Unnamed("{}"), "a"])

    assert forwards.fingerprint() == backwards.fingerprint()
    assert forwards.fingerprint().endswith("-4")
    forwards.close()
    backwards.close()


def test_the_fingerprint_changes_with_every_row(ids: SampleIds) -> None:
    before = ids.fingerprint()
    ids.assign(["a"])
    after_one = ids.fingerprint()
    ids.assign([Unnamed("{}")])

    assert len({before, after_one, ids.fingerprint()}) == 3


def test_any_text_can_be_an_id(ids: SampleIds) -> None:
    assert ids.assign(["ünï", "a'b\"c", "x" * 10_000]) == ["ünï", "a'b\"c", "x" * 10_000]


def test_ids_that_no_row_has_are_told(ids: SampleIds) -> None:
    ids.assign(["a", Unnamed('{"a":1}'), Unnamed('{"a":1}')])
    content = "015abd7f5cc57a2d"

    asked = ["a", "b", content, f"{content}-2", f"{content}-3", "ffffffffffffffff", "a-2"]

    assert ids.lacking(asked) == ["b", f"{content}-3", "ffffffffffffffff", "a-2"]


def test_before_the_first_row_every_id_is_lacking(ids: SampleIds) -> None:
    assert ids.lacking(["a", "b"]) == ["a", "b"]


def test_any_number_of_ids_can_be_asked_about(ids: SampleIds) -> None:
    names = [f"row-{number}" for number in range(1234)]
    ids.assign(names)

    assert ids.lacking([*names, "other"]) == ["other"]
