"""Who may start another process."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from evalve.concurrency import SlidingWindow
from evalve.contracts import SAMPLE, admitted
from evalve.engines.choosing import engine_for
from evalve.host.admission import UNKNOWN_BYTES, MemoryAdmission, has_room
from evalve.host.machine import Machine
from evalve.host.reading import HostReading
from evalve.runner.evaluation import run_evaluation
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import Notes, runnable

MB = 1 << 20


@pytest.mark.parametrize(
    ("available_mb", "expected_mb", "owed_mb", "room"),
    [(1000, 500, 0, True), (500, 500, 0, False), (1000, 500, 500, False), (1200, 500, 500, True)],
)
def test_a_process_fits_beside_what_the_others_will_still_take(
    available_mb: int, expected_mb: int, owed_mb: int, room: bool
) -> None:
    reading = HostReading(total_bytes=4000 * MB, available_bytes=available_mb * MB)

    assert has_room(reading, expected_mb * MB, owed_mb * MB) is room


def test_a_machine_that_does_not_say_has_room() -> None:
    assert has_room(HostReading(), 10**12, 0)


async def _wait(awaitable: Any, reason: str) -> Any:
    assert reason == "memory"
    return await awaitable


def test_what_is_expected_is_learnt_from_those_before() -> None:
    admission = MemoryAdmission(HostReading)

    async def run() -> None:
        assert admission.expected_bytes("codex") == UNKNOWN_BYTES
        for peak in (100 * MB, 300 * MB, 200 * MB):
            async with admission.admission("codex", _wait) as place:
                place.peak_bytes = peak

    run_in_virtual_time(run())

    assert admission.expected_bytes("codex") == int(1.2 * 300 * MB)
    assert admission.expected_bytes("gemini-cli") == UNKNOWN_BYTES


def test_whoever_is_alone_is_admitted_and_the_next_waits_for_room() -> None:
    left = {"mb": 100}
    events: list[str] = []
    admission = MemoryAdmission(lambda: HostReading(total_bytes=1000 * MB, available_bytes=left["mb"] * MB))

    async def agent(name: str, runs_s: float) -> None:
        async with admission.admission("codex", _wait) as place:
            events.append(f"{name} begins at {asyncio.get_running_loop().time():.0f}")
            await asyncio.sleep(runs_s)
            place.peak_bytes = 50 * MB
        events.append(f"{name} ends")

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(agent("first", 10))
            group.create_task(agent("second", 10))
            group.create_task(agent("third", 10))
            await asyncio.sleep(5)
            left["mb"] = 700  # which the first may still need

    run_in_virtual_time(run())

    assert events[:2] == ["first begins at 0", "first ends"]
    assert events[2:4] == ["second begins at 10", "third begins at 10"]  # each known to take 60 MB now


def test_agents_of_unknown_size_start_with_room_for_large_ones_and_more_when_they_have_settled() -> None:
    """Four of 500 MB do not fit into 2 GB, and they run for minutes: nobody waits for their end to know."""
    begun: list[tuple[str, int]] = []

    async def run() -> None:
        now_s = asyncio.get_running_loop().time
        used = {"mb": 0}

        def read() -> HostReading:
            return HostReading(total_bytes=2000 * MB, available_bytes=(2000 - used["mb"]) * MB)

        admission = MemoryAdmission(read, now_s=now_s)

        async def agent(name: str) -> None:
            async with admission.admission("claude-code", _wait) as place:
                begun.append((name, round(now_s())))
                used["mb"] += 500
                place.memory_bytes = lambda: 500 * MB
                await asyncio.sleep(600)
                used["mb"] -= 500
                place.peak_bytes = 500 * MB

        async with asyncio.TaskGroup() as group:
            for name in "abcd":
                group.create_task(agent(name))

    run_in_virtual_time(run())

    assert begun == [("a", 0), ("b", 0), ("c", 10), ("d", 600)]


CAP_MB = 400
AGENT = "import sys, time\nheld = bytearray(int(sys.argv[1]) << 20)\ntime.sleep(float(sys.argv[2]))\n"


class CappedMachine:
    """Has `CAP_MB` for processes, whose real memory it reads; kills whoever begins to exceed that."""

    def __init__(self) -> None:
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.killed = 0
        self.peak_mb = 0.0
        self.most_at_once = 0

    def used_bytes(self, pid: int) -> int:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def read(self) -> HostReading:
        used = sum(self.used_bytes(pid) for pid in self.processes)
        self.peak_mb = max(self.peak_mb, used / MB)
        self.most_at_once = max(self.most_at_once, len(self.processes))
        if used > CAP_MB * MB:
            _, process = self.processes.popitem()
            process.kill()
            self.killed += 1
        return HostReading(total_bytes=CAP_MB * MB, available_bytes=max(0, CAP_MB * MB - used))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of processes from /proc")
def test_under_a_memory_cap_no_agent_is_killed_for_memory() -> None:
    """Real processes with real memory; the cap is kept by the test, as no cgroup is at hand everywhere."""
    capped = CappedMachine()
    machine = Machine(memory=capped.read)

    async def agent(n: int) -> bool:
        async with admitted("reader") as place:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", AGENT, "60", "0.3")
            capped.processes[process.pid] = process
            place.memory_bytes = lambda: capped.used_bytes(process.pid)
            peak = 0
            waiting = asyncio.ensure_future(process.wait())
            while not waiting.done():
                capped.read()
                peak = max(peak, capped.used_bytes(process.pid))
                await asyncio.wait([waiting], timeout=0.01)
            place.peak_bytes = peak
            capped.processes.pop(process.pid, None)
        return process.returncode == 0

    async def run() -> Any:
        return await run_evaluation(
            runnable(agent, range(16), strategy=SlidingWindow(16)),
            store=open_store("memory://"),
            progress=Notes(),
            engine_for=engine_for,
            host=machine,
        )

    outcome = asyncio.run(run())

    assert outcome.info.done == 16
    assert [value.value for value in outcome.metrics] == [1.0]
    assert capped.killed == 0
    assert capped.peak_mb <= CAP_MB
    assert capped.most_at_once >= 3  # and they did not run one by one


def test_outside_of_a_run_everyone_is_admitted() -> None:
    async def run() -> bool:
        assert SAMPLE.get() is None
        async with admitted("reader") as place:
            return place.peak_bytes == 0

    assert asyncio.run(run())
