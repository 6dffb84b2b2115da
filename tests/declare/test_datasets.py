"""Datasets: what is said at declaration, and samples as they are pulled."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import Rows
from evalve.declare.datasets import Dataset
from evalve.errors import DatasetError, DeclarationError
from evalve.records import Sample

QA = ("question", "answer")
PAIRS = [("2+2?", "4"), ("3+3?", "6"), ("4+4?", "8")]


def dataset(source: Any, columns: tuple[str, ...] = QA, **more: Any) -> Dataset:
    return Dataset(source, columns, "eval_x.py:12", **more)


async def pull_all(rows: Rows, at_most: int = 2) -> list[Sample]:
    samples: list[Sample] = []
    while chunk := await rows.next(at_most):
        assert len(chunk) <= at_most
        samples += chunk
    await rows.close()
    return samples


async def values_of(source: Any, columns: tuple[str, ...] = QA) -> list[tuple[Any, ...]]:
    samples = await pull_all(dataset(source, columns).open(None))
    return [tuple(sample.values.values()) for sample in samples]


def stream_dataset() -> Iterator[tuple[str, str]]:
    yield from PAIRS


async def stream_slowly() -> AsyncIterator[tuple[str, str]]:
    for pair in PAIRS:
        await asyncio.sleep(0)
        yield pair


async def load_rows() -> list[tuple[str, str]]:
    return PAIRS


async def load_stream() -> AsyncIterator[tuple[str, str]]:
    return stream_slowly()


class Iterable:
    def __iter__(self) -> Iterator[tuple[str, str]]:
        return stream_dataset()


class AsyncIterable:
    def __aiter__(self) -> AsyncIterator[tuple[str, str]]:
        return stream_slowly()


class Loader:
    async def __call__(self) -> list[tuple[str, str]]:
        return PAIRS


class ByIndex:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[str, str]:
        return PAIRS[index]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PAIRS,
        lambda: tuple(PAIRS),
        lambda: dict(PAIRS),
        lambda: {"question": [q for q, _ in PAIRS], "answer": [a for _, a in PAIRS]},
        stream_dataset,
        stream_slowly,
        lambda: iter(PAIRS),
        lambda: map(tuple, PAIRS),
        Iterable,
        AsyncIterable,
        ByIndex,
        lambda: stream_dataset,
        lambda: stream_slowly,
        lambda: load_rows,
        lambda: load_stream,
        lambda: Iterable,
        lambda: lambda: PAIRS,
        lambda: lambda: dict(PAIRS),
        Loader,
    ],
)
async def test_every_kind_of_source_gives_its_rows_in_order(make: Callable[[], Any]) -> None:
    assert await values_of(make()) == PAIRS


async def test_a_file_beside_the_declaration_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"k1": {"question": "2+2?", "answer": "4"}}')

    samples = await pull_all(dataset("rows.json", folder=tmp_path).open(None))

    assert [(sample.id, sample.values["answer"]) for sample in samples] == [("k1", "4")]


async def test_a_function_may_return_a_path(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,answer\n2+2?,4\n")

    assert await values_of(lambda: tmp_path / "rows.csv") == [("2+2?", "4")]


async def test_a_hugging_face_dataset_gives_its_rows() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"question": ["q1", "q2"], "answer": ["a1", "a2"]})

    assert dataset(source).open(None).size() == 2
    assert await values_of(source) == [("q1", "a1"), ("q2", "a2")]
    assert await values_of(source.to_iterable_dataset()) == [("q1", "a1"), ("q2", "a2")]
    with pytest.raises(DeclarationError, match=r"lacks the column 'q'; it has 'question', 'answer'"):
        dataset(source, ("q",))
    with pytest.raises(DeclarationError, match=r"eval_x.py:12: a dict of the datasets 'train'; choose one"):
        dataset(datasets.DatasetDict(train=source))


@pytest.mark.parametrize("package", ["pandas", "polars"])
async def test_a_data_frame_gives_its_records(package: str) -> None:
    frame = pytest.importorskip(package).DataFrame({"question": ["q1", "q2"], "answer": [1, 2]})

    assert dataset(frame).open(None).size() == 2
    assert await values_of(frame) == [("q1", 1), ("q2", 2)]
    with pytest.raises(DeclarationError, match=r"DataFrame of 2 lacks the column 'anser'.*mean 'answer'"):
        dataset(frame, ("anser",))


async def test_an_arrow_table_gives_its_rows() -> None:
    table = pytest.importorskip("pyarrow").table({"question": ["q1"], "answer": [1]})

    assert await values_of(table) == [("q1", 1)]


async def test_a_sample_holds_its_columns_and_its_whole_row() -> None:
    row = {"question": "2+2?", "answer": "4", "source": "web"}

    [sample] = await pull_all(dataset([row]).open(None))

    assert sample.index == 0
    assert sample.values == {"question": "2+2?", "answer": "4"}
    assert sample.row_json == '{"answer":"4","question":"2+2?","source":"web"}'


async def test_ids_survive_reordering_and_additions() -> None:
    first = await pull_all(dataset(PAIRS).open(None))
    later = await pull_all(dataset([("new", "row"), *reversed(PAIRS)]).open(None))

    assert {s.row_json: s.id for s in first}.items() <= {s.row_json: s.id for s in later}.items()


async def test_a_tuple_and_a_mapping_of_the_same_content_have_the_same_id() -> None:
    [one] = await pull_all(dataset([("2+2?", "4")]).open(None))
    [two] = await pull_all(dataset([{"answer": "4", "question": "2+2?"}]).open(None))

    assert one.id == two.id


async def test_two_rows_with_one_id_are_an_error_when_the_second_is_pulled() -> None:
    rows = dataset([{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}], ("n",)).open(None)

    assert [sample.id for sample in await rows.next(2)] == ["a", "b"]
    with pytest.raises(DatasetError, match=r"^eval_x.py:12: rows 1 and 3 have the id 'a'"):
        await rows.next(1)
    await rows.close()


@pytest.mark.parametrize("make", [lambda: PAIRS, lambda: dict(PAIRS), ByIndex])
def test_a_sized_source_tells_how_many_samples_there_will_be(make: Callable[[], Any]) -> None:
    source = dataset(make())

    assert (source.open(None).size(), source.open(2).size(), source.open(9).size()) == (3, 2, 3)


def test_an_unsized_source_does_not_tell() -> None:
    assert dataset(stream_dataset).open(2).size() is None


async def test_a_function_that_returns_a_list_tells_its_size_once_it_was_called() -> None:
    rows = dataset(lambda: {"question": ["q"] * 5, "answer": ["a"] * 5}).open(4)
    await rows.next(1)

    assert rows.size() == 4
    await rows.close()


async def test_a_limit_of_none_at_all_pulls_nothing() -> None:
    rows = dataset(stream_dataset()).open(0)

    assert rows.size() == 0
    assert await pull_all(rows) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (7, "eval_x.py:12: 7 (int) is not iterable"),
        ("gsm8k", "eval_x.py:12: 'gsm8k' is text"),
        ("gone.jsonl", "eval_x.py:12: there is no file 'gone.jsonl'"),
        ([("q", "a"), ("q",)], "eval_x.py:12: row 2 of list of 2 has 1 value, where the 2 columns"),
        (["q"], "eval_x.py:12: row 1 of list of 1 is a str, which cannot fill the 2 columns"),
        ([{"question": "q"}], "eval_x.py:12: row 1 of list of 1 lacks the column 'answer'"),
        ({"k": {"question": "q"}}, "eval_x.py:12: row 1 of dict of 1 lacks the column 'answer'"),
        ({"k": ("a", "b", "c")}, "eval_x.py:12: row 1 of dict of 1 has 3 values"),
    ],
)
def test_a_mistake_is_an_error_at_declaration(source: Any, problem: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        dataset(source)

    assert str(caught.value).startswith(problem)


def test_a_file_whose_first_line_lacks_a_column_is_an_error_at_declaration(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("question,anwser\n2+2?,4\n")

    with pytest.raises(DeclarationError, match=r"row 1 of rows.csv lacks the column 'answer'.*mean 'anwser'"):
        dataset("rows.csv", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", '[{"question": "2+2?", "anwser": "4"}]'),
        ("rows.json", '{"k": {"question": "2+2?", "anwser": "4"}}'),
        ("rows.yaml", "- {question: two, anwser: 4}"),
        ("rows.yml", "k: {question: two, anwser: 4}"),
    ],
)
def test_a_file_that_is_read_whole_tells_of_a_missing_column_at_declaration(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(DeclarationError, match=rf"row 1 of {name} lacks the column 'answer'.*mean 'anwser'"):
        dataset(name, folder=tmp_path)


def test_a_file_with_its_rows_inside_something_else_is_an_error_at_declaration(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"version": 1, "data": [{"question": "2+2?", "answer": "4"}]}')

    with pytest.raises(DeclarationError) as caught:
        dataset("rows.json", folder=tmp_path)

    assert str(caught.value) == (
        f"eval_x.py:12: {tmp_path}/rows.json: rows are a list, or a mapping whose values are all rows, "
        "or columns of equal length, or with two columns plain values; "
        "'data' holds a list of objects: if these are the rows, give that list alone"
    )


def test_a_parquet_file_tells_of_a_missing_column_at_declaration(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pyarrow.table({"question": ["2+2?"]}), tmp_path / "rows.parquet"
    )

    with pytest.raises(DeclarationError, match=r"row 1 of rows.parquet lacks the column 'answer'"):
        dataset("rows.parquet", folder=tmp_path)


async def test_an_array_gives_its_rows_by_position() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.array([["2+2?", "4"], ["3+3?", "6"]])

    assert await values_of(array) == [("2+2?", "4"), ("3+3?", "6")]
    with pytest.raises(DeclarationError, match=r"row 1 of ndarray of 2 has 2 values, where the 3 columns"):
        dataset(array, ("question", "answer", "more"))
    with pytest.raises(DeclarationError, match=r"ndarray is a single value, where rows are needed"):
        dataset(numpy.array(7), ("n",))


@pytest.mark.parametrize("source", [range(3), {1}, frozenset({1}), deque([1]), {"a": 1}.values()])
def test_a_collection_in_memory_tells_of_a_row_that_does_not_fit_at_declaration(source: Any) -> None:
    with pytest.raises(DeclarationError, match=r"row 1 of .* is an int, which cannot fill the 2 columns"):
        dataset(source)


async def test_a_row_that_lacks_a_column_is_an_error_when_it_is_pulled() -> None:
    rows = dataset(({"n": n} if n < 57 else {"m": n} for n in range(1, 100)), ("n",)).open(None)

    with pytest.raises(
        DatasetError, match=r"^eval_x.py:12: row 57 of generator <genexpr> lacks the column 'n'"
    ):
        await pull_all(rows)
    await rows.close()


def test_a_row_in_memory_whose_property_raises_is_an_error_at_declaration() -> None:
    class Row:
        @property
        def question(self) -> str:
            raise ZeroDivisionError("no")

    with pytest.raises(
        DeclarationError, match=r"^eval_x.py:12: reading row 1 .* raised ZeroDivisionError: no"
    ):
        dataset([Row()], ("question",))


async def test_a_row_whose_property_raises_is_an_error_that_names_the_row() -> None:
    class Row:
        @property
        def question(self) -> str:
            raise ZeroDivisionError("no")

    rows = dataset(iter([Row()]), ("question",)).open(None)

    with pytest.raises(DatasetError, match=r"reading row 1 of list_iterator raised ZeroDivisionError: no"):
        await rows.next(1)
    await rows.close()


async def test_a_broken_line_in_a_file_names_the_declaration_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('["2+2?", "4"]\noops\n')
    rows = dataset(tmp_path / "rows.jsonl").open(None)

    assert len(await rows.next(10)) == 1
    with pytest.raises(DatasetError, match=r"^eval_x.py:12: .*rows.jsonl:2: not JSON"):
        await rows.next(10)
    await rows.close()


async def test_a_function_that_returns_no_rows_is_an_error_that_says_what_it_returned() -> None:
    rows = dataset(lambda: None).open(None)

    with pytest.raises(
        DatasetError, match=r"eval_x.py:12: lambda returned no rows: None \(NoneType\) is not"
    ):
        await rows.next(1)
    await rows.close()


async def test_a_generator_can_be_opened_once() -> None:
    source = dataset(stream_dataset())
    await pull_all(source.open(2))

    assert source.is_one_shot
    with pytest.raises(DatasetError) as caught:
        source.open(None)
    assert str(caught.value) == (
        "eval_x.py:12: generator stream_dataset was already consumed; "
        "pass the function itself (stream_dataset instead of stream_dataset()) or a list"
    )


class Countdown:
    """An iterator of somebody's own, of which nothing but reading tells whether it is at its end."""

    def __init__(self, rows: int) -> None:
        self.left = rows

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> tuple[str, str]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return PAIRS[self.left]


class AsyncCountdown(Countdown):
    __next__ = None  # type: ignore[assignment]

    def __aiter__(self) -> AsyncCountdown:
        return self

    async def __anext__(self) -> tuple[str, str]:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return PAIRS[self.left]


@pytest.mark.parametrize(
    "iterator",
    [
        zip("abc", "def", strict=True),
        map(tuple, PAIRS),
        filter(None, PAIRS),
        map(tuple, stream_dataset()),
        enumerate("abc"),
        reversed(PAIRS),
        iter(dict(PAIRS).items()),
    ],
)
def test_a_consumed_iterator_is_an_error_at_declaration(iterator: Any) -> None:
    list(iterator)

    with pytest.raises(DeclarationError) as caught:
        dataset(iterator)

    assert str(caught.value) == (
        f"eval_x.py:12: {type(iterator).__name__} has no rows: it was already consumed, or never had any; "
        "pass a function that makes it or a list"
    )


def test_a_generator_that_was_begun_is_an_error_at_declaration() -> None:
    rows = stream_dataset()
    next(rows)

    with pytest.raises(DeclarationError) as caught:
        dataset(rows)

    assert str(caught.value) == (
        "eval_x.py:12: generator stream_dataset was already begun, so its first rows are gone; "
        "pass the function itself (stream_dataset instead of stream_dataset()) or a list"
    )


def test_a_generator_of_which_another_took_rows_after_the_declaration_is_an_error_when_opened() -> None:
    rows = stream_dataset()
    source = dataset(rows)
    next(rows)

    with pytest.raises(DatasetError, match=r"^eval_x.py:12: generator stream_dataset was already begun"):
        source.open(None)


async def test_a_function_may_return_a_generator_that_it_began() -> None:
    def without_header() -> Iterator[tuple[str, str]]:
        rows = stream_dataset()
        next(rows)
        return rows

    assert await values_of(without_header) == PAIRS[1:]


@pytest.mark.parametrize(
    "make",
    [
        lambda: csv.reader([]),
        lambda: csv.DictReader([]),
        lambda: io.StringIO(""),
    ],
)
def test_peeking_finds_an_iterator_that_is_at_its_end(make: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError, match=r"^eval_x.py:12: \w+ has no rows: it was already consumed"):
        dataset(make(), ("line",)).peek()


async def test_the_row_that_was_peeked_at_is_not_lost() -> None:
    source = dataset(csv.reader(["1,2", "3,4"]))

    source.peek()
    source.peek()

    samples = await pull_all(source.open(None))
    assert [sample.values["answer"] for sample in samples] == ["2", "4"]


def test_peeking_finds_a_first_row_that_lacks_a_column() -> None:
    with pytest.raises(DeclarationError, match=r"^eval_x.py:12: row 1 of \w+ has 2 values, where the 3"):
        dataset(csv.reader(["1,2"]), ("a", "b", "c")).peek()


class Restarting:
    """Begins anew whenever somebody iterates, as many loaders do."""

    def __iter__(self) -> Restarting:
        self._left = iter(PAIRS)
        return self

    def __next__(self) -> tuple[str, str]:
        return next(self._left)


async def test_an_iterator_of_ones_own_is_only_read_by_the_run() -> None:
    loader = Restarting()
    source = dataset(loader)

    source.peek()
    list(loader)

    assert len(await pull_all(source.open(None))) == len(PAIRS)


def test_peeking_reads_nothing_that_could_cost_something() -> None:
    read: list[int] = []

    def note(row: int) -> int:
        read.append(row)
        return row

    dataset(map(note, [1]), ("n",)).peek()
    dataset((note(n) for n in [1]), ("n",)).peek()
    dataset(lambda: note(1), ("n",)).peek()
    dataset(filter(note, itertools.count()), ("n",)).peek()

    assert read == []


@pytest.mark.parametrize("iterator", [Countdown(0), AsyncCountdown(0)])
async def test_an_iterator_that_gives_no_row_is_an_error_when_it_is_read(iterator: Any) -> None:
    rows = dataset(iterator).open(None)

    with pytest.raises(DatasetError, match=r"^eval_x.py:12: \w*Countdown has no rows"):
        await rows.next(1)
    await rows.close()


@pytest.mark.parametrize("make", [lambda: iter(()), lambda: filter(None, [0]), lambda: (n for n in "")])
async def test_a_function_whose_iterator_comes_to_nothing_has_no_rows(make: Callable[[], Any]) -> None:
    assert await values_of(make) == []


@pytest.mark.parametrize("source", [PAIRS, stream_dataset, Iterable(), stream_slowly])
async def test_a_source_that_is_no_iterator_can_be_opened_again(source: Any) -> None:
    opened = dataset(source)

    assert not opened.is_one_shot
    assert len(await pull_all(opened.open(None))) == 3
    assert len(await pull_all(opened.open(None))) == 3


@pytest.mark.parametrize("make", [stream_dataset, stream_slowly, lambda: iter(PAIRS)])
async def test_kept_rows_are_replayed_and_then_continued(make: Callable[[], Any]) -> None:
    source = dataset(make())
    source.keep_rows()

    first = await pull_all(source.open(2))
    second = await pull_all(source.open(None))
    third = await pull_all(source.open(None))

    assert [sample.values["answer"] for sample in first] == ["4", "6"]
    assert [sample.values["answer"] for sample in second] == ["4", "6", "8"]
    assert second == third


async def test_kept_rows_may_be_read_by_two_at_once() -> None:
    source = dataset(stream_slowly())
    source.keep_rows()

    one, two = await asyncio.gather(pull_all(source.open(None)), pull_all(source.open(None), at_most=1))

    assert one == two
    assert len(one) == 3


async def test_equal_passes_have_equal_fingerprints() -> None:
    first, second = dataset(PAIRS).open(None), dataset(PAIRS[::-1]).open(None)
    await pull_all(first)
    await pull_all(second, at_most=1)

    assert first.fingerprint() == second.fingerprint()


async def test_a_closed_pass_gives_nothing_more() -> None:
    rows = dataset(PAIRS).open(None)
    await rows.close()

    assert await rows.next(1) == []


# -- counting


def test_rows_are_counted_where_that_uses_nothing_up(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n{"n": 2}\n')

    assert Dataset([1, 2, 3], ("n",), "here").count() == 3
    assert Dataset({"n": [1, 2]}, ("n",), "here").count() == 2
    assert Dataset("rows.jsonl", ("n",), "here", folder=tmp_path).count() == 2
    assert Dataset(lambda: iter([1]), ("n",), "here").count() is None
    assert Dataset(iter([1]), ("n",), "here").count() is None


@pytest.mark.parametrize("make", [list, iter], ids=["a list", "an iterator"])
@pytest.mark.parametrize(
    ("limit", "is_whole"), [(None, True), (3, True), (1, False), (0, False)], ids=["all", "3", "1", "0"]
)
async def test_a_limit_keeps_a_dataset_from_being_read_whole(
    make: Callable[[Any], Any], limit: int | None, is_whole: bool
) -> None:
    rows = dataset(make([("1+1", "2"), ("2+2", "4")])).open(limit)

    await pull_all(rows)

    assert rows.is_whole() is is_whole
    await rows.close()


async def test_a_list_is_whole_with_its_last_row_also_where_that_is_the_limit() -> None:
    rows = dataset([("1+1", "2")]).open(1)

    assert rows.is_whole() is False
    await pull_all(rows)

    assert rows.is_whole() is True
