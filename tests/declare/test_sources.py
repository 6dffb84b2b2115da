"""What can be a source of rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evalve.declare.sources import describe, iterate, recognise
from evalve.errors import DatasetError


def stream_dataset() -> Iterator[int]:
    yield 1


async def stream_slowly() -> AsyncIterator[int]:
    yield 1


async def load_rows() -> list[int]:
    return [1]


def load_split(split: str) -> list[int]:
    return [1]


class ByIndex:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index * 10  # never raises IndexError, as many datasets for training don't


class Unsized:
    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        return iter([1])


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ([1, 2], "list of 2"),
        ((1,), "tuple of 1"),
        ({"a": 1}, "dict of 1"),
        (stream_dataset(), "generator stream_dataset"),
        (stream_slowly(), "async generator stream_slowly"),
        (stream_dataset, "function stream_dataset"),
        (lambda: [1], "lambda"),
        ("evals/data.jsonl", "data.jsonl"),
        (Path("data.csv"), "data.csv"),
        (map(int, "12"), "map"),
        (ByIndex(), "ByIndex of 3"),
        (Unsized(), "Unsized"),
    ],
)
def test_a_source_has_a_short_label(source: Any, label: str) -> None:
    assert describe(source) == label


def test_an_object_with_indices_is_read_to_its_length() -> None:
    assert list(iterate(ByIndex(), ("n",))) == [0, 10, 20]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (7, r"7 \(int\) is not iterable; give a list"),
        (None, r"None \(NoneType\) is not iterable"),
        (b"bytes", r"is not iterable"),
        ("gsm8k", "'gsm8k' is text, where an iterable of rows or the path of a file is needed"),
        ("data.docx", "'data.docx' is not a kind of file that can be read"),
        (Path("folder"), "'folder' is not a kind of file that can be read"),
        (load_split, r"function load_split must be callable without arguments \(missing .*'split'\)"),
    ],
)
def test_what_holds_no_rows_is_an_error_that_says_why(source: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        recognise(source, None)


def test_a_coroutine_is_told_to_be_passed_as_a_function() -> None:
    coroutine = load_rows()

    with pytest.raises(DatasetError, match=r"pass the function itself \(load_rows, uncalled\)"):
        recognise(coroutine, None)
    coroutine.close()


def test_a_function_with_its_arguments_bound_is_a_source() -> None:
    source = partial(load_split, "test")

    assert recognise(source, None) is source


def test_a_class_is_a_function_that_makes_its_rows() -> None:
    assert recognise(Unsized, None) is Unsized


def test_an_exhausted_generator_is_an_error_with_the_remedy() -> None:
    rows = stream_dataset()
    list(rows)

    with pytest.raises(DatasetError) as caught:
        recognise(rows, None)

    assert str(caught.value) == (
        "generator stream_dataset was already consumed; "
        "pass the function itself (stream_dataset instead of stream_dataset()) or a list"
    )


async def test_an_exhausted_async_generator_is_an_error() -> None:
    rows = stream_slowly()
    assert [row async for row in rows] == [1]

    with pytest.raises(DatasetError, match="async generator stream_slowly was already consumed"):
        recognise(rows, None)
