"""Rows from files."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from evalve.declare.files import beginning, find_file, read_file
from evalve.errors import DatasetError

ROWS = [{"question": "2+2?", "answer": "4"}, {"question": "ünï", "answer": "6"}]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.jsonl", '{"question": "2+2?", "answer": "4"}\n\n{"question": "ünï", "answer": "6"}'),
        ("x.ndjson", '\ufeff{"question": "2+2?", "answer": "4"}\r\n{"question": "ünï", "answer": "6"}\r\n'),
        ("x.json", '[{"question": "2+2?", "answer": "4"}, {"question": "ünï", "answer": "6"}]'),
        ("x.csv", '\ufeffquestion,answer\r\n2+2?,4\r\n"ünï",6\r\n'),
        ("x.tsv", "question\tanswer\n2+2?\t4\nünï\t6\n"),
        ("x.yaml", "- question: 2+2?\n  answer: '4'\n- {question: ünï, answer: '6'}\n"),
        ("x.yml", "- question: 2+2?\n  answer: '4'\n- {question: ünï, answer: '6'}\n"),
        ("X.JSONL", '{"question": "2+2?", "answer": "4"}\n{"question": "ünï", "answer": "6"}\n'),
    ],
)
def test_rows_are_read_by_suffix(tmp_path: Path, name: str, text: str) -> None:
    assert list(read_file(write(tmp_path / name, text))) == ROWS


def test_parquet_is_read_in_batches(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"n": list(range(1000))}), path)

    assert [row["n"] for row in read_file(path)] == list(range(1000))


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(DatasetError, match=r'x.parquet: .*pip install "evalve\[parquet\]"'):
        next(read_file(tmp_path / "x.parquet"))


def test_a_json_file_may_hold_a_dict(tmp_path: Path) -> None:
    assert read_file(write(tmp_path / "x.json", '{"k1": {"a": 1}}')) == {"k1": {"a": 1}}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.jsonl", '{"a": 1}\n\n{"a": oops}\n', r"x\.jsonl:3: not JSON: Expecting value at column 7"),
        ("x.json", "[1,\n2,\n", r"x\.json:3: not JSON"),
        ("x.json", "7", r"x\.json: holds int, where a list of rows is needed"),
        ("x.csv", "a,b\n1,2\n1,2,3\n", r"x\.csv:3: more fields than the header's 2"),
        ("x.csv", 'a,b\n\n"1\n2",2\n"1\n2",2,3\n', r"x\.csv:5: more fields than the header's 2"),
        ("x.yaml", "- a: 1\n- b: [\n", r"x\.yaml:\d: not YAML"),
        ("x.yaml", "", r"x\.yaml: holds NoneType, where a list"),
    ],
)
def test_a_file_that_cannot_be_read_names_the_line(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    path = write(tmp_path / name, text)

    with pytest.raises(DatasetError, match=problem):
        list(read_file(path))


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.csv"])
def test_a_file_in_another_encoding_is_an_error_that_says_so(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b'a\n"\xff\xfe"\n' if name == "x.csv" else b'\n"\xff\xfe"\n')

    with pytest.raises(DatasetError, match=rf"{name}:2: not UTF-8"):
        list(read_file(path))


def test_a_short_csv_row_lacks_its_last_columns(tmp_path: Path) -> None:
    assert list(read_file(write(tmp_path / "x.csv", "a,b\n1\n"))) == [{"a": "1"}]


def test_a_csv_field_may_be_of_any_length(tmp_path: Path) -> None:
    text = "long " * 100_000
    limit = csv.field_size_limit()

    assert list(read_file(write(tmp_path / "x.csv", f"a,b\n1,{text}\n"))) == [{"a": "1", "b": text}]
    assert csv.field_size_limit() == limit


def test_the_limit_of_others_is_restored_while_a_csv_file_is_half_read(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    rows = [read_file(write(tmp_path / f"{n}.csv", "a\n1\n2\n")) for n in range(2)]

    assert [next(row) for row in rows] == [{"a": "1"}, {"a": "1"}]
    assert csv.field_size_limit() == limit
    for row in rows:
        row.close()


def test_json_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    rows = read_file(write(tmp_path / "x.jsonl", '{"a": 1}\nbroken\n'))

    assert next(rows) == {"a": 1}
    rows.close()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.csv", "a\n1\n2\n", [{"a": "1"}]),
        ("x.jsonl", '{"a": 1}\nbroken', [{"a": 1}]),
        ("x.jsonl", "", []),
        ("x.json", ' [ {"a": 1}, broken', [{"a": 1}]),
        ("x.json", f'[{{"a": "{"long " * 50_000}"}}, broken', [{"a": "long " * 50_000}]),
        ("x.json", "[12]", [12]),
        ("x.json", "[]", []),
        ("x.json", '{"k": {"a": 1}}', {"k": {"a": 1}}),
        ("x.yaml", "- {a: 1, b: &shared [2], c: *shared}\n- [broken", [{"a": 1, "b": [2], "c": [2]}]),
        ("x.yaml", "[]", []),
        ("x.yaml", "k: {a: 1}", {"k": {"a": 1}}),
    ],
)
def test_a_beginning_is_the_first_row_or_a_whole_dict(
    tmp_path: Path, name: str, text: str, told: object
) -> None:
    assert beginning(write(tmp_path / name, text)) == told


def test_the_beginning_of_parquet_has_the_columns_without_reading_a_row(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pyarrow.table({"n": [1], "m": [2]}), tmp_path / "x.parquet"
    )

    assert beginning(tmp_path / "x.parquet") == [{"n": None, "m": None}]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("x.json", r"x\.json:2: not JSON"),
        ("x.yaml", r"x\.yaml:\d: not YAML"),
        ("x.parquet", r"x\.parquet: not Parquet"),
    ],
)
def test_a_broken_beginning_is_an_error(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        beginning(write(tmp_path / name, '[{"a":\n oops ["}'))


def test_a_relative_path_is_seen_from_the_current_directory_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    write(tmp_path / "here" / "x.json", "[]")
    write(tmp_path / "there" / "x.json", "[]")
    write(tmp_path / "there" / "y.json", "[]")
    monkeypatch.chdir(tmp_path / "here")

    assert find_file(Path("x.json"), tmp_path / "there") == tmp_path / "here" / "x.json"
    assert find_file(Path("y.json"), tmp_path / "there") == tmp_path / "there" / "y.json"


def test_a_missing_file_is_an_error_that_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DatasetError) as caught:
        find_file(Path("x.json"), tmp_path / "evals")

    assert str(caught.value) == f"there is no file 'x.json'; looked in {tmp_path} and in {tmp_path / 'evals'}"


def test_an_unknown_suffix_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(DatasetError, match=r"known are \.jsonl, .*\.parquet; did you mean '\.jsonl'\?"):
        find_file(Path("x.jsonll"), None)
