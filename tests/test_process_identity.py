"""Processes in other namespaces of time: who they are, and what time it is, is the same for all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from evalve.gate.limits.state_sqlite import machine_now_s
from evalve.processes import started

ELSEWHERE = ["unshare", "--time", "--fork", "--boottime", "90000", "--monotonic", "90000"]


def in_another_time(program: str) -> str:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*ELSEWHERE, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no namespaces of time here, or no right to make one")
    command = [*ELSEWHERE, sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_process_is_the_same_seen_from_another_namespace_of_time() -> None:
    seen = in_another_time(f"from evalve.processes import started; print(started({os.getpid()}))")

    assert float(seen) == started(os.getpid())


def test_the_time_of_limits_is_the_machines_in_every_namespace_of_time() -> None:
    before_s = machine_now_s()
    seen_s = float(
        in_another_time("from evalve.gate.limits.state_sqlite import machine_now_s; print(machine_now_s())")
    )

    assert before_s <= seen_s <= machine_now_s()
