"""Rows of datasets: every format, counted, named, streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import DatasetError, OptionError
from evalve.experiments.file.document import Place
from evalve.experiments.file.resolving import Entry
from evalve.experiments.parts.rows import Source, source_of

ROWS = [{"id": "a", "question": "1?"}, {"id": "b", "question": "2?"}, {"id": "c", "question": "3?"}]


def source(folder: Path, **values: Any) -> Source:
    return source_of(Entry("datasets", "docs", Place(folder / "evalve.yaml", 7), values))


def write_parquet(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".yaml"])
def test_rows_of_every_format_are_counted_and_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        write_parquet(path)
    elif suffix == ".csv":
        path.write_text("id,question\na,1?\nb,2?\nc,3?\n")
    elif suffix == ".jsonl":
        path.write_text("\n\n".join(map(json.dumps, ROWS)) + "\n\n")
    else:
        path.write_text(json.dumps(ROWS))

    found = source(tmp_path, path=path.name)

    assert list(found.open()) == ROWS
    assert found.first() == ROWS[0]
    assert found.count(None) == 3
    assert found.count(2) == 2
    assert found.count(9) == 3


def test_a_column_may_name_the_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"key": "x", "q": 1}\n')

    assert source(tmp_path, path="rows.jsonl", id="key").first() == {"key": "x", "q": 1, "id": "x"}
    with pytest.raises(DatasetError, match=r"row 1 of rows\.jsonl lacks the column 'name', which names rows"):
        source(tmp_path, path="rows.jsonl", id="name").first()


def test_a_row_that_is_no_mapping_is_told_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"a": 1}, [2]]')

    with pytest.raises(DatasetError, match=r"row 2 of rows\.json is a list, where a mapping of columns"):
        list(source(tmp_path, path="rows.json").open())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"evalve\.yaml:7: datasets\.docs needs `path:` of a file, or `huggingface:` with a name"),
        ({"path": "none.jsonl"}, r"evalve\.yaml:7: datasets\.docs: there is no file '.*none\.jsonl'"),
        ({"path": "x.jsonl", "split": "test"}, r"datasets\.docs: split belongs to `huggingface:`"),
    ],
)
def test_what_names_no_rows_is_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        source(tmp_path, **values)


def test_rows_of_hugging_face_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    found = source(
        tmp_path, huggingface="json", data_files=str(tmp_path / "rows.jsonl"), split="train", id="id"
    )

    assert list(found.open()) == ROWS
    assert found.count(None) is None
    assert found.count(2) == 2


def test_a_folder_beside_the_file_is_a_dataset_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "files" / "data").mkdir(parents=True)
    write_parquet(tmp_path / "files" / "data" / "test-00000-of-00001.parquet")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"test": whole, "train": whole.select([0])}).save_to_disk(str(tmp_path / "splits"))

    for name in ("files", "saved", "splits"):
        assert list(source(tmp_path, huggingface=name).open()) == ROWS
    assert list(source(tmp_path, huggingface="splits", split="train").open()) == ROWS[:1]


def test_what_hugging_face_cannot_load_is_told(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(str(tmp_path / "splits"))
    (tmp_path / "empty").mkdir()

    with pytest.raises(DatasetError, match=r"splits: .* there is no split 'tset' \(there is: test\)"):
        source(tmp_path, huggingface="splits", split="tset").first()
    with pytest.raises(DatasetError, match=r"empty: Hugging Face's datasets cannot load it: "):
        source(tmp_path, huggingface="empty").first()
