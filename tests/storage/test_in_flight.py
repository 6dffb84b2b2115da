"""What is under way, noted in a file: what a later run reads of it when the process has died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalve.storage import in_flight
from evalve.storage.in_flight import Flights

PROGRAM = """
import os, sys
from pathlib import Path
from evalve.storage.in_flight import Flights
flight = Flights(Path(sys.argv[1])).open(1, sys.argv[2])
flight.begins("a", 0)
flight.begins("b\\nb", 1)
flight.ended("a", 0)
flight.begins("c", 0)
os._exit(0)
"""


def die(folder: Path, run_id: str) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder), run_id], check=True)


def test_what_was_under_way_when_processes_died_is_counted(tmp_path: Path) -> None:
    die(tmp_path / "flights", "one")
    die(tmp_path / "flights", "two")

    assert Flights(tmp_path / "flights").deaths(1) == {("b\nb", 1): 2, ("c", 0): 2}
    assert Flights(tmp_path / "flights").deaths(11) == {}


def test_what_a_living_process_has_under_way_is_no_death(tmp_path: Path) -> None:
    flight = Flights(tmp_path).open(1, "run")
    flight.begins("a", 0)

    assert Flights(tmp_path).deaths(1) == {}
    flight.close()


def test_a_run_that_ends_in_order_leaves_no_file(tmp_path: Path) -> None:
    flight = Flights(tmp_path).open(1, "run")
    flight.begins("a", 0)
    flight.close()

    assert list(tmp_path.iterdir()) == []


def test_a_long_run_leaves_a_short_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "_BYTES", 400)
    flight = Flights(tmp_path).open(1, "run")
    flight.begins("first", 0)
    for number in range(200):
        flight.begins(f"s{number}", 0)
        flight.ended(f"s{number}", 0)

    header, *lines = (tmp_path / "1-run").read_text().partition("\0")[0].splitlines()

    assert json.loads(header)[0] == os.getpid()
    assert '+["first", 0]' in lines
    assert (tmp_path / "1-run").stat().st_size < 1000
    flight.close()


def test_a_file_that_cannot_be_written_costs_nobody_anything(tmp_path: Path) -> None:
    (tmp_path / "flights").write_text("a file, where a folder should be")
    flight = Flights(tmp_path / "flights").open(1, "run")

    flight.begins("a", 0)
    flight.ended("a", 0)
    flight.close()

    assert Flights(tmp_path / "flights").deaths(1) == {}


def test_what_the_dead_left_is_forgotten(tmp_path: Path) -> None:
    die(tmp_path, "one")

    Flights(tmp_path).forget(1)

    assert Flights(tmp_path).deaths(1) == {}
