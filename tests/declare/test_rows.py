"""One row of any kind."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from evalve.declare.rows import DictRows, Keyed, RowProblem, id_text, read_row
from evalve.errors import DatasetError

QA = ("question", "answer")


@dataclass
class Case:
    question: str
    answer: str
    id: str | None = None
    note: str = "n"


class Slotted:
    __slots__ = ("answer", "question")

    def __init__(self) -> None:
        self.question = "q"
        self.answer = "a"


Pair = namedtuple("Pair", "answer question")
Other = namedtuple("Other", "first second")


@pytest.mark.parametrize(
    "row",
    [
        ("q", "a"),
        ["q", "a"],
        {"question": "q", "answer": "a"},
        {"answer": "a", "more": 1, "question": "q"},
        OrderedDict(question="q", answer="a"),
        Case("q", "a"),
        Slotted(),
        SimpleNamespace(question="q", answer="a"),
        Pair(answer="a", question="q"),
        Other("q", "a"),
    ],
)
def test_two_columns_come_from_any_kind_of_row(row: Any) -> None:
    assert read_row(row, QA).values == {"question": "q", "answer": "a"}


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("text", "text"),
        (7, 7),
        (None, None),
        (b"bytes", b"bytes"),
        (("only",), "only"),
        (["only"], "only"),
        (("a", "b"), ("a", "b")),
        ([], []),
        ({"title": "t", "other": 1}, "t"),
        (SimpleNamespace(title="t"), "t"),
    ],
)
def test_one_column_takes_the_named_value_or_the_row_whole(row: Any, value: Any) -> None:
    assert read_row(row, ("title",)).values == {"title": value}


def test_an_object_without_the_one_column_is_taken_whole() -> None:
    case = Case("q", "a", id="c1")

    assert read_row(case, ("case",)) == ({"case": case}, {"case": case}, "c1")


def test_a_mapping_is_stored_with_all_its_keys() -> None:
    row = {"question": "q", "answer": "a", "source": "web"}

    assert read_row(row, QA).stored == row


def test_a_row_of_attributes_is_stored_with_its_columns_and_its_id() -> None:
    row = read_row(Case("q", "a", id="c1"), QA)

    assert row.stored == {"question": "q", "answer": "a", "id": "c1"}
    assert row.id == "c1"


def test_a_column_named_id_is_the_id_of_a_tuple() -> None:
    assert read_row((7, "q"), ("id", "question")).id == "7"


def test_the_key_of_a_dict_is_the_id_of_its_row() -> None:
    assert read_row(Keyed(3, {"question": "q", "answer": "a"}), QA).id == "3"


@pytest.mark.parametrize("empty", [None, "", float("nan")])
def test_an_empty_id_is_no_id(empty: Any) -> None:
    assert id_text(empty) is None


def test_zero_is_an_id() -> None:
    assert id_text(0) == "0"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"question": "q", "answr": "a"},
            "lacks the column 'answer'; it has 'question', 'answr'; did you mean 'answr'?",
        ),
        ({}, "lacks the column 'question'; it is empty"),
        (defaultdict(str, question="q"), "lacks the column 'answer'; it has 'question'"),
        (SimpleNamespace(question="q"), "lacks the column 'answer'; it has 'question'"),
        (("q",), "has 1 value, where the 2 columns 'question', 'answer' are needed"),
        (("q", "a", "x"), "has 3 values, where the 2 columns 'question', 'answer' are needed"),
        (
            "qa",
            "is a str, which cannot fill the 2 columns 'question', 'answer'; give tuples or mappings",
        ),
        (
            object(),
            "is an object, which cannot fill the 2 columns 'question', 'answer'; give tuples or mappings",
        ),
    ],
)
def test_a_row_that_does_not_fit_says_why(row: Any, problem: str) -> None:
    with pytest.raises(RowProblem) as caught:
        read_row(row, QA)

    assert str(caught.value) == problem


def test_one_column_that_a_mapping_lacks_is_the_whole_mapping() -> None:
    row = {"name": "Ann", "age": 3, "id": 7}
    assert read_row(row, ("person",)) == ({"person": row}, {"person": row}, "7")


def test_one_column_that_is_only_misspelt_is_a_problem() -> None:
    with pytest.raises(RowProblem, match="lacks the column 'qestion'; it has 'question'"):
        read_row({"question": "q"}, ("qestion",))


def test_a_method_is_not_a_column() -> None:
    class Row:
        def question(self) -> str:
            return "called"

    row = Row()

    assert read_row(row, ("question",)).values == {"question": row}


def test_a_dict_of_lists_is_read_by_column() -> None:
    rows = DictRows({"question": ["q1", "q2"], "answer": ["a1", "a2"], "id": [1, 2], "name": "set"}, QA)

    assert len(rows) == 2
    assert list(rows) == [
        {"question": "q1", "answer": "a1", "id": 1},
        {"question": "q2", "answer": "a2", "id": 2},
    ]


@pytest.mark.parametrize(
    "row", [("q", "a"), ["q", "a"], {"question": "q", "answer": "a"}, Case("q", "a", id="own")]
)
def test_a_dict_of_rows_has_the_ids_as_keys(row: Any) -> None:
    rows = [read_row(row, QA) for row in DictRows({"k1": row, "k2": row}, QA)]

    assert [(row.id, row.values) for row in rows] == [
        ("k1", {"question": "q", "answer": "a"}),
        ("k2", {"question": "q", "answer": "a"}),
    ]


def test_a_dict_of_scalars_with_two_columns_is_a_list_of_pairs() -> None:
    assert list(DictRows({"2+2": "4", "3+3": "6"}, QA)) == [("2+2", "4"), ("3+3", "6")]


def test_a_dict_of_scalars_with_one_column_has_the_ids_as_keys() -> None:
    rows = [read_row(row, ("question",)) for row in DictRows({"k1": "q1", "k2": "q2"}, ("question",))]

    assert [(row.id, row.values["question"]) for row in rows] == [("k1", "q1"), ("k2", "q2")]


def test_an_empty_dict_has_no_rows() -> None:
    assert list(DictRows({}, QA)) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"question": ["q"], "answer": []}, "columns have different lengths: 'question': 1, 'answer': 0"),
        ({"question": "q", "answer": "a"}, "looks like a single row; put it into a list"),
        (
            {"train": SimpleNamespace(column_names=[]), "test": None},
            "a dict of the datasets 'train', 'test'; choose one",
        ),
        (
            {"version": 1, "data": [{"question": "q"}]},
            "'data' holds a list of objects: if these are the rows",
        ),
        ({"data": [{"question": "q"}], "version": 1}, "'data' holds a list of objects"),
        ({"data": [{"question": "q"}, {"question": "r"}]}, "'data' holds a list of objects"),
        ({"meta": {"version": 1}, "data": [{"x": "q"}]}, "'data' holds a list of objects"),
        (
            {"2+2": "4", "3+3": ["6", "six"]},
            "rows are a list, or a mapping whose values are .*plain values; the value of '3\\+3' is a list",
        ),
    ],
)
def test_a_dict_that_stands_for_no_rows_is_an_error(source: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        DictRows(source, QA)


def test_a_note_beside_a_list_of_objects_is_no_row_with_one_column_either() -> None:
    with pytest.raises(DatasetError, match="'data' holds a list of objects"):
        DictRows({"version": 1, "data": [{"x": "q"}]}, ("question",))


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        ({"c1": [{"role": "user"}], "c2": []}, ("messages",)),
        ({"c1": [{"role": "user"}]}, ("messages",)),
        ({"c1": [{"x": 1}, {"y": 2}]}, QA),
    ],
)
def test_rows_under_their_ids_may_be_lists_of_objects(source: Any, columns: tuple[str, ...]) -> None:
    assert [row.key for row in DictRows(source, columns)] == list(source)
