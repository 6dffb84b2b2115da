"""One large JSON array, row by row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evalve.declare.files import read_file
from evalve.declare.json_rows import array_rows
from evalve.errors import DatasetError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [1],
        [12345678901234567890, -1.5e-7, True, False, None, 'ü\\"\n', [], {}],
        [{"id": 1, "nested": {"list": [1, [2, {"deep": "]},["}]]}}, {"id": 2}],
        [{"text": "x" * 65_530, "number": 1234567} for _ in range(4)],
    ],
)
@pytest.mark.parametrize("indent", [None, 3])
def test_rows_are_those_that_json_reads(tmp_path: Path, rows: list[object], indent: int | None) -> None:
    path = write(tmp_path / "x.json", json.dumps(rows, indent=indent) + "\n")

    assert list(array_rows(path)) == rows


def test_a_value_may_be_cut_anywhere_by_what_is_read_at_once(tmp_path: Path) -> None:
    for length in range(65_500, 65_540):
        path = write(tmp_path / "x.json", json.dumps(["x" * length, 1234.5e10, True, "\u00e9\\n"]))

        assert list(array_rows(path)) == ["x" * length, 1234.5e10, True, "\u00e9\\n"]


@pytest.mark.parametrize(
    ("text", "rows", "message"),
    [
        ("[1,\n2\n3]", 2, r"x\.json:3: not JSON: Expecting ','"),
        ("[1,\n2,\n", 2, r"x\.json:3: not JSON: Expecting value"),
        ('[1,\n{"a": oops}]', 1, r"x\.json:2: not JSON: Expecting value"),
        ("[1]\n[2]", 1, r"x\.json:2: not JSON: the array has ended, and more follows"),
    ],
)
def test_a_mistake_is_told_with_its_line_after_the_rows_before(
    tmp_path: Path, text: str, rows: int, message: str
) -> None:
    read = read_file(write(tmp_path / "x.json", text))

    for _ in range(rows):
        next(read)
    with pytest.raises(DatasetError, match=message):
        next(read)


def test_a_mistake_in_the_middle_is_told_without_reading_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", '[{"a": oops},\n' + "[1],\n" * 500_000 + "2]")

    with pytest.raises(DatasetError, match=r"x\.json:1: not JSON: Expecting value"):
        next(array_rows(path))


def test_memory_holds_a_row_and_not_the_file(tmp_path: Path) -> None:
    row = json.dumps({"id": 0, "context": "c" * 400_000})
    with (tmp_path / "large.json").open("w") as file:
        file.write("[" + ",\n".join([row] * 150) + "]")  # 60 MB
    program = f"""
import resource
from evalve.declare.files import read_file
from pathlib import Path
import json
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = sum(1 for _ in read_file(Path({str(tmp_path / "large.json")!r})))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    rows, grown_kb = map(int, said.stdout.split())
    assert rows == 150
    assert grown_kb < 20_000
