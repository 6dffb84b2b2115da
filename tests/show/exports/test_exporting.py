"""One exported row per sample and repeat, in four formats, whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound, OptionError, StorageError
from evalve.show.exports.exporting import export
from evalve.storage import open_store
from recorded import STARTED_AT, done, failed, record, skipped


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_row_has_exactly_the_promised_keys(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True, also={"prompt": "2 + 2?", "response": ["4"]}))

    count = export(store, "first", path=tmp_path / "x.jsonl")

    assert count == 1
    (row,) = lines_of(tmp_path / "x.jsonl")
    assert list(row.items()) == [
        ("experiment", "first"),
        ("evaluation", "eval_math"),
        ("sample_id", "s0"),
        ("index", 0),
        ("repeat", 0),
        ("status", "done"),
        ("scores", [{"name": "exact_match", "value": True, "metadata": {}}]),
        ("failure", None),
        ("failure_class", None),
        ("prompt", "2 + 2?"),
        ("response", ["4"]),
        ("row", {"question": "question 0"}),
        ("wall_s", 0.5),
        ("working_s", 0.5),
        ("tries", 1),
        ("started_at", STARTED_AT),
        ("calls", None),
        ("lent", None),
    ]


def test_what_a_sample_took_is_exported_and_no_part_of_what_equal_runs_share(
    store: Store, tmp_path: Path
) -> None:
    figures = {"exit_code": 0, "turns": 3, "cpu_s": 0.4, "peak_memory_bytes": 9_000_000, "version": "2.1"}
    took: dict[str, Any] = {"calls": {"requests": 3, "cost_usd": 0.02}, "lent": {"agents": [figures]}}
    record(store, "first", done("s0", exact_match=True, also=took))

    for path in ("x.jsonl", "x.csv", "x.parquet"):
        export(store, "first", path=tmp_path / path)
    export(store, "first", path=tmp_path / "canonical.jsonl", canonical=True)

    (row,) = lines_of(tmp_path / "x.jsonl")
    assert {"calls": row["calls"], "lent": row["lent"]} == took
    (cells,) = csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text(encoding="utf-8")))
    assert json.loads(cells["lent"]) == took["lent"]
    (columns,) = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "x.parquet").to_pylist()
    assert json.loads(columns["calls"]) == took["calls"]
    (equal,) = lines_of(tmp_path / "canonical.jsonl")
    assert not {"calls", "lent"} & set(equal)


def test_a_failure_is_exported_with_its_traceback_and_without_scores(store: Store, tmp_path: Path) -> None:
    record(store, "first", failed("s0", "KeyError", "'x'"))

    export(store, "first", path=tmp_path / "x.jsonl")

    (row,) = lines_of(tmp_path / "x.jsonl")
    assert (row["status"], row["scores"]) == ("failed", [])
    assert (row["failure"]["kind"], row["failure"]["message"]) == ("KeyError", "'x'")
    assert row["failure"]["traceback"].startswith("Traceback")


def test_whose_a_failure_is_and_what_was_skipped_are_exported(store: Store, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    record(
        store,
        "first",
        done("s0", x=1),
        failed("s1", failure_class="provider"),
        skipped("s2", "not in French"),
    )

    for name in ("x.jsonl", "x.csv", "x.parquet"):
        export(store, "first", path=tmp_path / name)

    classes = [("done", None), ("failed", "provider"), ("skipped", None)]
    rows = lines_of(tmp_path / "x.jsonl")
    assert [(row["status"], row["failure_class"]) for row in rows] == classes
    assert rows[2]["failure"] == {"kind": "Skipped", "message": "not in French", "traceback": ""}
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["status"], row["failure_class"] or None) for row in csv.DictReader(file)] == classes
    table = pyarrow.read_table(tmp_path / "x.parquet").to_pylist()
    assert [(row["status"], row["failure_class"]) for row in table] == classes


def test_json_is_one_list_of_the_same_rows(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True), failed("s1"))

    export(store, "first", path=tmp_path / "x.json")
    export(store, "first", path=tmp_path / "x.jsonl")

    rows = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    assert rows == lines_of(tmp_path / "x.jsonl")


def test_an_experiment_without_records_is_an_empty_list(store: Store, tmp_path: Path) -> None:
    record(store, "first")

    assert export(store, "first", path=tmp_path / "x.json") == 0
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == []


def test_two_equal_runs_are_canonically_equal_byte_for_byte(store: Store, tmp_path: Path) -> None:
    same: dict[str, Any] = {"row": {"question": "?"}}
    record(store, "a", done("s1", x=1, also={**same, "index": 1}), failed("s0", **same, index=0))
    record(store, "b", failed("s0", **same, index=0), done("s1", x=1, wall_s=9.9, also={**same, "index": 1}))

    export(store, "a", path=tmp_path / "a.jsonl", canonical=True)
    export(store, "b", path=tmp_path / "b.jsonl", canonical=True)

    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert lines_of(tmp_path / "a.jsonl")[0] == {
        "evaluation": "eval_math",
        "failure": {"kind": "ValueError", "message": "no"},
        "failure_class": "code",
        "index": 0,
        "prompt": None,
        "repeat": 0,
        "response": None,
        "row": {"question": "?"},
        "sample_id": "s0",
        "scores": [],
        "status": "failed",
        "tries": 1,
    }


def test_canonical_rows_are_sorted_by_evaluation_sample_and_repeat(store: Store, tmp_path: Path) -> None:
    record(store, "a", done("s2", x=1), done("s1", repeat=1, x=1), done("s1", repeat=0, x=1), name="eval_b")
    record(store, "a", done("s9", x=1), name="eval_a")

    export(store, "a", path=tmp_path / "a.jsonl", canonical=True)

    order = [(row["evaluation"], row["sample_id"], row["repeat"]) for row in lines_of(tmp_path / "a.jsonl")]
    assert order == [("eval_a", "s9", 0), ("eval_b", "s1", 0), ("eval_b", "s1", 1), ("eval_b", "s2", 0)]


def test_csv_has_a_column_for_every_score(store: Store, tmp_path: Path) -> None:
    first = done("s0", exact_match=True, also={"prompt": 'a "quoted",\nprompt', "response": {"answer": 4}})
    record(store, "first", first, done("s1", cost=0.25, status=True), failed("s2"))

    assert export(store, "first", path=tmp_path / "x.csv") == 3

    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-3:] == ["exact_match", "cost", "score.status"]
    assert (rows[0]["exact_match"], rows[0]["cost"], rows[0]["status"]) == ("true", "", "done")
    assert (rows[0]["prompt"], rows[0]["response"]) == ('a "quoted",\nprompt', '{"answer":4}')
    assert (rows[1]["exact_match"], rows[1]["cost"], rows[1]["score.status"]) == ("", "0.25", "true")
    assert json.loads(rows[2]["failure"])["kind"] == "ValueError"


def test_several_scores_of_one_name_are_a_list_in_csv(store: Store, tmp_path: Path) -> None:
    scores = [{"name": "x", "value": True}, {"name": "x", "value": False}]
    record(store, "first", done("s0", also={"scores": scores}))

    export(store, "first", path=tmp_path / "x.csv")

    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [row["x"] for row in csv.DictReader(file)] == ["[true,false]"]


def test_half_a_surrogate_pair_from_a_model_breaks_no_format(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True, also={"response": "half \ud800"}))

    for suffix in ("json", "jsonl", "csv", "parquet"):
        assert export(store, "first", path=tmp_path / f"x.{suffix}") == 1


def test_parquet_has_the_same_rows(store: Store, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    record(store, "first", done("s0", exact_match=True, also={"prompt": "2 + 2?"}), failed("s1"))

    assert export(store, "first", path=tmp_path / "x.parquet") == 2

    first, second = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert first["scores"] == [{"name": "exact_match", "value": 1.0, "metadata": "{}"}]
    assert (first["prompt"], first["row"], first["wall_s"]) == ("2 + 2?", '{"question": "question 0"}', 0.5)
    assert (second["status"], second["failure"]["kind"], second["scores"]) == ("failed", "ValueError", [])


def test_scores_that_are_not_all_numbers_are_json_in_parquet(store: Store, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    record(store, "first", done("s0", grade="good", cost=2))

    export(store, "first", path=tmp_path / "x.parquet")

    (row,) = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert [score["value"] for score in row["scores"]] == ['"good"', "2"]


def test_an_unknown_format_is_refused_with_those_that_are_known(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True))

    with pytest.raises(OptionError, match=r"'.xlsx' is not known; use .json, .jsonl, .csv, .parquet"):
        export(store, "first", path=tmp_path / "x.xlsx")


def test_an_export_that_cannot_be_finished_leaves_the_old_file_and_nothing_else(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(store, "first", done("s0", exact_match=True))
    (tmp_path / "x.json").write_text("old", encoding="utf-8")

    def break_off(*_: object) -> Iterator[None]:
        yield from ()
        raise OSError("the disk is full")

    monkeypatch.setattr(type(store), "records", break_off)

    with pytest.raises(StorageError, match="the disk is full"):
        export(store, "first", path=tmp_path / "x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert (tmp_path / "x.json").read_text(encoding="utf-8") == "old"


def test_a_directory_that_does_not_exist_is_named(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True))

    with pytest.raises(StorageError, match=r"cannot write .*nowhere/x.json: No such file"):
        export(store, "first", path=tmp_path / "nowhere" / "x.json")


def test_only_the_evaluation_that_was_asked_for_is_exported(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", exact_match=True), name="eval_a")
    record(store, "first", done("s1", exact_match=True), name="eval_b")

    export(store, "first", path=tmp_path / "x.jsonl", evaluation="eval_b")

    assert [row["sample_id"] for row in lines_of(tmp_path / "x.jsonl")] == ["s1"]
    with pytest.raises(NotFound):
        export(store, "first", path=tmp_path / "x.jsonl", evaluation="nothing")


TRACE = [{"kind": "note", "at": STARTED_AT, "text": "looked it up, \x1b[1mé"}]


def test_traces_are_exported_on_request(store: Store, tmp_path: Path) -> None:
    record(store, "first", done("s0", m=True, also={"trace": TRACE}), done("s1", m=True))

    for suffix in ("jsonl", "json", "csv"):
        export(store, "first", path=tmp_path / f"x.{suffix}", traces=True)

    assert [row["trace"] for row in lines_of(tmp_path / "x.jsonl")] == [TRACE, []]
    assert [row["trace"] for row in json.loads((tmp_path / "x.json").read_text())] == [TRACE, []]
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [json.loads(row["trace"]) for row in csv.DictReader(file)] == [TRACE, []]


def test_parquet_has_traces_as_json(store: Store, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    record(store, "first", done("s0", m=True, also={"trace": TRACE}))

    export(store, "first", path=tmp_path / "x.parquet", traces=True)

    (row,) = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert json.loads(row["trace"]) == TRACE


@pytest.mark.parametrize(
    ("response", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("-12.5", "-12.5"),
        ("+3%", "+3%"),
        ("plain = text", "plain = text"),
    ],
)
def test_csv_has_no_text_that_a_spreadsheet_would_run(
    store: Store, tmp_path: Path, response: str, cell: str
) -> None:
    record(store, "first", done("s0", x=True, also={"response": response}))

    export(store, "first", path=tmp_path / "x.csv")

    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert [row["response"] for row in csv.DictReader(file)] == [cell]
