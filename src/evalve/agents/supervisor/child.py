"""One agent as the supervisor sees it: started, listened to, timed, ended, swept."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from evalve.agents.supervisor import proc
from evalve.agents.supervisor.keeping import KeptOutput
from evalve.agents.supervisor.launching import launch, mark_for

DRAIN_S = 0.5
"""How long a pipe may stay open that a process holds which nobody can find."""
GIVE_UP_S = 10.0
"""How long after the end of its first process what it left may resist being killed."""
KILL_AGAIN_S = 0.2
TELL_EVERY_S = 0.1


class AgentProcess:
    """A process, everything that it starts, and their output. Nothing in it waits."""

    def __init__(self, order: dict[str, Any], files: tuple[int, int] | None) -> None:
        self.id: int = order["id"]
        self.mark = mark_for(self.id)
        self.survivors: set[int] = set()
        bounds = {"head_bytes": order["head_bytes"], "tail_bytes": order["tail_bytes"]}
        self.outputs = (KeptOutput(order["stdout"], **bounds), KeptOutput(order["stderr"], **bounds))
        launched = launch(order, self.mark, files)
        self.pid = launched.pid
        self.outputs[0].pipe, self.outputs[1].pipe = launched.stdout, launched.stderr
        self.failure: int | None = launched.failure
        self.has_begun = False
        self.problem: dict[str, Any] | None = None
        self.exit_code: int | None = None
        self.cpu_s = 0.0
        self.peak_bytes = 0
        self._clocks = {name: order.get(f"{name}_s") for name in ("startup", "silence", "total")}
        self._memory_bytes: int | None = order.get("memory_bytes")
        self._grace_s: float = order["grace_s"]
        self._started_s = self._heard_s = time.monotonic()
        self._still_since_s: float | None = None
        self._still_s = 0.0
        """For how long its clocks stood still."""
        self._ended_s: float | None = None
        self._ended_by = "itself"
        self._kill_s: float | None = None
        self._drained_s: float | None = None
        self._told_s = 0.0
        self._heard_bytes = 0

    # -- what happens to it

    def begun(self) -> bool:
        """Its program runs now, or never will."""
        assert self.failure is not None
        told = os.read(self.failure, 65_536)
        os.close(self.failure)
        self.failure = None
        self.problem = json.loads(told) if told else None
        self.has_begun = self.problem is None
        return self.has_begun

    def heard(self) -> bool:
        """It has said something; whether that is worth telling now."""
        now_s = time.monotonic()
        self._heard_s = now_s - self._still_s
        self._heard_bytes = self.output_bytes
        if now_s - self._told_s < TELL_EVERY_S:
            return False
        self._told_s = now_s
        return True

    def stand_still(self, is_still: bool) -> None:
        """While it waits for what evalve holds back, its clocks stand still."""
        now_s = time.monotonic()
        if is_still:
            self._still_since_s = self._still_since_s or now_s
        elif self._still_since_s is not None:
            self._still_s += now_s - self._still_since_s
            self._still_since_s = None

    def end(self, by: str, grace_s: float | None = None) -> None:
        """Ask it and all that it started to end, and set the time at which they are killed."""
        if self.exit_code is not None:
            return
        if self._ended_by == "itself":
            self._ended_by = by
        kill_s = time.monotonic() + (self._grace_s if grace_s is None else grace_s)
        if self._kill_s is not None:
            self._kill_s = min(self._kill_s, kill_s)
            return
        self._kill_s = kill_s
        outside = [pid for pid in proc.tree(self.pid)[1:] if _group(pid) != self.pid]
        proc.kill_group(self.pid, signal.SIGTERM)
        for pid in outside:
            proc.kill(pid, signal.SIGTERM)

    def leader_ended(self) -> None:
        """Its first process is a zombie, so that nobody else has its number yet."""
        proc.kill_group(self.pid)
        _, status, used = os.wait4(self.pid, 0)
        self.exit_code = os.waitstatus_to_exitcode(status)
        self._ended_s = time.monotonic()
        self.add_cpu(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
        self._drained_s = self._ended_s + DRAIN_S

    def add_cpu(self, cpu_s: float, peak_bytes: int) -> None:
        self.cpu_s += cpu_s
        self.peak_bytes = max(self.peak_bytes, peak_bytes)

    def sweep(self, orphans: list[int]) -> bool:
        """Its leader is dead: kill what it left behind; whether nothing is left."""
        for pid in orphans:
            if proc.started(pid) is not None:
                self.survivors.add(pid)
                proc.kill(pid)
        assert self._ended_s is not None
        now_s = time.monotonic()
        if orphans and now_s < self._ended_s + GIVE_UP_S:
            self._drained_s = now_s + DRAIN_S
            return False
        return all(output.pipe is None for output in self.outputs) or self._drain_is_over()

    # -- time

    def act_on_time(self) -> None:
        now_s = time.monotonic()
        if self.exit_code is not None:
            return
        if self._kill_s is not None and now_s >= self._kill_s:
            outside = proc.tree(self.pid)[1:]
            proc.kill_group(self.pid)
            for pid in outside:
                proc.kill(pid)
            self._kill_s = now_s + KILL_AGAIN_S
        elif self._kill_s is None:
            for clock, at_s in self._due():
                if now_s >= at_s:
                    self.end(clock)
                    return

    def next_time_s(self) -> float | None:
        """When something is due, by the clock of `time.monotonic`."""
        if self.exit_code is not None:
            return self._drained_s
        if self._kill_s is not None:
            return self._kill_s
        return min((at_s for _, at_s in self._due()), default=None)

    def _due(self) -> list[tuple[str, float]]:
        if self._still_since_s is not None:
            return []
        since_s = {"total": self._started_s}
        if self._heard_bytes == 0:
            since_s["startup"] = self._started_s
        else:
            since_s["silence"] = self._heard_s
        return [
            (clock, at_s + limit_s + self._still_s)
            for clock, at_s in since_s.items()
            if (limit_s := self._clocks[clock]) is not None
        ]

    def _drain_is_over(self) -> bool:
        return self._drained_s is not None and time.monotonic() >= self._drained_s

    # -- figures

    @property
    def output_bytes(self) -> int:
        return sum(output.seen_bytes for output in self.outputs)

    def measure(self, orphans: list[int]) -> proc.Taken:
        """What its living processes take now."""
        taken = proc.taken([pid for root in (self.pid, *orphans) for pid in proc.tree(root)])
        self.peak_bytes = max(self.peak_bytes, taken.memory_bytes)
        if self._memory_bytes is not None and taken.memory_bytes > self._memory_bytes:
            self.end("memory", 0.0)
        return taken

    def finish(self) -> dict[str, Any]:
        """Close its files, and say what it came to."""
        for output in self.outputs:
            output.close()
        full = next((output.problem for output in self.outputs if output.problem is not None), None)
        if full is not None and self.problem is None:
            self.problem = {"error": f"its output could not be written: {full}", "errno": full.errno}
        return {
            "ended": self.id,
            "exit_code": self.exit_code,
            "by": self._ended_by,
            "ran_s": (self._ended_s or time.monotonic()) - self._started_s,
            "cpu_s": self.cpu_s,
            "peak_memory_bytes": self.peak_bytes,
            "output_bytes": self.output_bytes,
            "left_out_bytes": sum(output.left_out_bytes for output in self.outputs),
            "survivors": len(self.survivors),
            "problem": self.problem,
        }


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0
