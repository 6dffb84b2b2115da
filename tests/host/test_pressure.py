"""Whether a machine has room for more."""

from __future__ import annotations

import pytest

from evalve.contracts import CLEAR
from evalve.host.pressure import host_pressure
from evalve.host.reading import HostReading

GB = 10**9


@pytest.mark.parametrize(
    ("now", "level", "reason"),
    [
        (HostReading(), "clear", ""),
        (HostReading(total_bytes=16 * GB, available_bytes=4 * GB), "clear", ""),
        (HostReading(total_bytes=16 * GB, available_bytes=2 * GB), "tight", "2.0 of 16.0 GB memory left"),
        (HostReading(total_bytes=16 * GB, available_bytes=GB // 2), "over", "0.5 of 16.0 GB memory left"),
        (HostReading(memory_stalled=0.10), "tight", "waits for memory 10% of the time"),
        (HostReading(memory_stalled=0.30), "over", "waits for memory 30% of the time"),
        (
            HostReading(memory_stalled=0.10, all_stalled=0.08),
            "over",
            "everything waits for memory 8% of the time",
        ),
        (HostReading(open_files=800, most_files=1024), "tight", "800 of 1024 files are open"),
        (HostReading(open_files=1000, most_files=1024), "over", "1000 of 1024 files are open"),
        (HostReading(open_files=1000, most_files=None), "clear", ""),
    ],
)
def test_each_cause_is_told(now: HostReading, level: str, reason: str) -> None:
    pressure = host_pressure(now, processes=1)

    assert (pressure.level, pressure.reason) == (level, reason)


def test_swap_counts_from_look_to_look() -> None:
    before, some, much = (HostReading(swapped_pages=pages) for pages in (1000, 1010, 3000))

    assert host_pressure(before).level == "clear"
    assert host_pressure(some, before).reason == "the machine begins to swap"
    assert host_pressure(much, before) == ("over", "the machine swaps: 8 MB just now", 1)
    assert host_pressure(much, much) == CLEAR


def test_load_counts_only_while_samples_have_processes_here_that_compute() -> None:
    loaded, busy = HostReading(load=18.0, cores=4), HostReading(load=9.0, cores=4)

    assert host_pressure(loaded, processes=0) == CLEAR
    assert host_pressure(loaded, processes=8, cores_used=0.9) == CLEAR  # they wait, and others work
    assert host_pressure(busy, processes=8, cores_used=1.0) == ("tight", "load 9.0 on 4 cores", 4)
    assert host_pressure(loaded, processes=8, cores_used=3.0) == ("over", "load 18.0 on 4 cores", 4)
    # who has fewer than cores is not the cause
    assert host_pressure(loaded, processes=3, cores_used=3.0).level == "tight"


def test_the_worst_is_told() -> None:
    now = HostReading(total_bytes=16 * GB, available_bytes=2 * GB, open_files=1000, most_files=1024)

    assert host_pressure(now, processes=1).reason == "1000 of 1024 files are open"


@pytest.mark.parametrize(("left_gb", "level"), [(2, "clear"), (0.5, "tight"), (0.3, "over")])
def test_samples_without_processes_of_their_own_need_less_memory(left_gb: float, level: str) -> None:
    now = HostReading(total_bytes=16 * GB, available_bytes=int(left_gb * GB))

    assert host_pressure(now, processes=0).level == level
