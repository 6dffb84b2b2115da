"""Where values stand in a YAML file, and files that extend others."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from evalve.errors import OptionError
from evalve.experiments.file.document import Document, read_document
from evalve.experiments.file.resolving import entry_of


def write(path: Path, text: str) -> Path:
    path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def read(folder: Path, text: str) -> Document:
    return read_document(write(folder / "evalve.yaml", text))


def test_each_value_knows_its_line(tmp_path: Path) -> None:
    document = read(
        tmp_path,
        """
        options:
          samples: 3

        experiments:
          one:
            datasets:
              - a
              - b
        """,
    )

    assert document.place("options", "samples").line == 2
    assert document.place("experiments", "one", "datasets", 1).line == 8
    assert document.place("experiments", "one", "missing").line == 5
    assert document.place("nothing").line == 1


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"evalve\.yaml:3: the key 'samples' is there already, at line 2"):
        read(tmp_path, "options:\n  samples: 3\n  samples: 4\n")


def test_an_anchor_that_contains_itself_ends_somewhere(tmp_path: Path) -> None:
    assert read(tmp_path, "options: &a\n  inner: *a\n").section("options")["inner"] is not None


def test_merge_keys_of_yaml_work(tmp_path: Path) -> None:
    document = read(tmp_path, "experiments:\n  a: &a {limit: 3}\n  b:\n    <<: *a\n    repeat: 2\n")

    assert document.section("experiments")["b"] == {"limit": 3, "repeat": 2}


def test_a_key_without_a_value_takes_away_what_an_entry_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "evalve.yaml"
    path.write_text(
        "experiments:\n"
        "  full: {judge_model: j, limit: 5, repeat: 2}\n"
        "  middle: {extends: full, judge_model: null}\n"
        "  whole: {extends: middle, limit: }\n"
    )

    assert entry_of(read_document(path), "experiments", "whole").values == {"repeat": 2}


def test_a_file_extends_another_entry_by_entry(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "models:\n  m: a/b\n  n: a/c\ndatasets:\n  d: rows.jsonl\n")
    document = read(tmp_path, "extends: base.yaml\nmodels:\n  m: a/d\n")

    assert document.section("models") == {"n": "a/c", "m": "a/d"}
    assert document.section("datasets") == {"d": "rows.jsonl"}
    assert str(document.place("models", "n")) == f"{tmp_path / 'base.yaml'}:3"
    assert str(document.place("models", "m")) == f"{tmp_path / 'evalve.yaml'}:3"


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "extends: evalve.yaml\n")

    with pytest.raises(OptionError, match=r"base\.yaml:1: 'evalve\.yaml' extends itself"):
        read(tmp_path, "extends: base.yaml\n")


def test_a_file_that_is_not_there_cannot_be_extended(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"evalve\.yaml:1: there is no file '.*none\.yaml' to extend"):
        read(tmp_path, "extends: [none.yaml]\n")
