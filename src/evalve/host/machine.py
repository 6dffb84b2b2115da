"""The machine as runs see it: its pressure, who may start a process, how many files may be open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from evalve.contracts import Admitted, HostPressure
from evalve.host.admission import MemoryAdmission, Wait
from evalve.host.descriptors import make_room_for_files, too_few_files
from evalve.host.pressure import host_pressure
from evalve.host.reading import HostReading, read_host, read_memory


class Machine:
    """One for a process: its runs share it."""

    def __init__(
        self,
        read: Callable[[], HostReading] = read_host,
        memory: Callable[[], HostReading] = read_memory,
    ) -> None:
        self._read = read
        self._before: HostReading | None = None
        self._admission = MemoryAdmission(memory)

    def pressure(self, processes: int, cores_used: float) -> HostPressure:
        now = self._read()
        before, self._before = self._before, now
        return host_pressure(now, before, processes=processes, cores_used=cores_used)

    def admission(self, kind: str, wait: Wait) -> AbstractAsyncContextManager[Admitted]:
        return self._admission.admission(kind, wait)

    def room_for_files(self, at_once: int) -> tuple[int, str] | None:
        fits = make_room_for_files(at_once)
        return None if fits is None else (fits, too_few_files(at_once, fits))
