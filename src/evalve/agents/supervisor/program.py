"""The supervisor's loop: orders come in, processes are held, what becomes of them goes out.

It ends, and all agents with it, when the process that started it is gone, however that ended.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from evalve.agents.supervisor import proc
from evalve.agents.supervisor.child import AgentProcess
from evalve.agents.supervisor.launching import adopt_orphans

MEASURE_EVERY_S = 0.5
_LAST_GRACE_S = 2.0
"""How long agents may take to end when nobody waits for them any more."""
_LOOK_AGAIN_S = 0.02
_FULL_BYTES = 1 << 20
"""Of what the other side has not read: figures are not added to it, endings always."""


def main(channel: int, owner: int, where: str) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(channel, False)  # it is between evalve and this process alone
    adopt_orphans()
    supervisor = Supervisor(socket.socket(fileno=channel), owner, where)
    try:
        for pid in list(proc.leftovers(where)):
            proc.kill(pid)
        supervisor.run()
    except Exception:
        supervisor.say({"broken": traceback.format_exc()})
        raise
    finally:
        supervisor.kill_all()


class Supervisor:
    """Everything happens in `run`, one thing after another."""

    def __init__(self, channel: socket.socket, owner: int, where: str) -> None:
        self._channel = channel
        self._where = where
        self._agents: dict[int, AgentProcess] = {}
        self._leaders: dict[int, AgentProcess] = {}
        self._orphans: dict[int, AgentProcess | None] = {}
        self._selector = selectors.DefaultSelector()
        self._incoming = b""
        self._outgoing = b""
        self._is_leaving = False
        self._measure_s = 0.0
        self._files = _raise_open_files()
        self._watch_for_end(owner)

    def run(self) -> None:
        while self._agents or not self._is_leaving:
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            self._reap()
            self._act_on_time()
            self._send()

    def kill_all(self) -> None:
        """Whatever is left, without any grace, until nothing is."""
        give_up_s = time.monotonic() + _LAST_GRACE_S
        while _has_children() and time.monotonic() < give_up_s:
            for pid in proc.tree(os.getpid())[1:]:
                proc.kill(pid)
            self._selector.select(_LOOK_AGAIN_S)

    def say(self, message: dict[str, Any]) -> None:
        self._outgoing += json.dumps(message).encode() + b"\n"
        self._send()

    # -- the beginning and the end

    def _watch_for_end(self, owner: int) -> None:
        self._channel.setblocking(False)
        self._selector.register(self._channel, selectors.EVENT_READ, self._take_orders)
        woken, wake = os.pipe()
        for end in (woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 4096))
        if hasattr(os, "pidfd_open"):
            # a fork of the owner may hold the channel open although the owner is dead
            try:
                alive = os.pidfd_open(owner)
            except OSError:
                self._is_leaving = True
                return
            self._selector.register(alive, selectors.EVENT_READ, self._owner_is_gone(alive))

    def _owner_is_gone(self, alive: int) -> Callable[[], None]:
        def gone() -> None:
            self._selector.unregister(alive)
            os.close(alive)
            self._leave()

        return gone

    def _leave(self) -> None:
        self._is_leaving = True
        for agent in self._agents.values():
            agent.end("asked", _LAST_GRACE_S)

    # -- messages

    def _take_orders(self) -> None:
        try:
            received = self._channel.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._selector.unregister(self._channel)
            self._leave()
            return
        *lines, self._incoming = (self._incoming + received).split(b"\n")
        for line in lines:
            order = json.loads(line)
            number = order.get("end", order.get("still"))
            if number is None:
                self._start(order)
            elif number in self._agents and "end" in order:
                self._agents[number].end("asked", order["grace_s"])
            elif number in self._agents:
                self._agents[number].stand_still(order["is_still"])

    def _send(self) -> None:
        while self._outgoing:
            try:
                sent = self._channel.send(self._outgoing)
            except BlockingIOError:
                return  # tried again after the next event, or the next measuring
            except OSError:
                self._outgoing = b""  # nobody is there any more
                return
            self._outgoing = self._outgoing[sent:]

    # -- agents

    def _start(self, order: dict[str, Any]) -> None:
        order["environment"][proc.MARKER] = proc.marker(self._where, os.getpid(), order["id"])
        try:
            agent = AgentProcess(order, self._files)
        except OSError as error:
            problem = {"error": f"it could not be started: {error}", "errno": error.errno}
            self.say({"ended": order["id"], "exit_code": None, "by": "itself", "problem": problem})
            return
        self._agents[agent.id] = self._leaders[agent.pid] = agent
        for output in agent.outputs:
            self._selector.register(output.pipe or 0, selectors.EVENT_READ, self._listening(agent, output))
        failure = agent.failure
        assert failure is not None
        self._selector.register(failure, selectors.EVENT_READ, lambda: self._begun(agent, failure))
        if self._is_leaving:
            agent.end("asked", 0.0)

    def _begun(self, agent: AgentProcess, failure: int) -> None:
        self._selector.unregister(failure)
        if agent.begun():
            self.say({"started": agent.id, "pid": agent.pid})

    def _listening(self, agent: AgentProcess, output: Any) -> Callable[[], None]:
        pipe = output.pipe

        def listen() -> None:
            before = output.seen_bytes
            if not output.read():
                # in this order: a process that is about to become an agent's program has a copy of the pipe,
                # whose end would be told under the number that another pipe has by then
                self._selector.unregister(pipe)
                output.close_pipe()
            if output.seen_bytes > before and agent.heard():
                self._tell_output(agent)

        return listen

    def _tell_output(self, agent: AgentProcess) -> None:
        if len(self._outgoing) < _FULL_BYTES:
            self.say({"output": agent.id, "bytes": agent.output_bytes})

    def _reap(self) -> None:
        """Zombies are looked at before they are reaped: whose they were is gone afterwards."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if ended is None:
                break
            self._bury(ended.si_pid)
        if not self._agents and _has_children():
            self._orphans.clear()
            self._orphans_by_agent()
        dead = [agent for agent in self._agents.values() if agent.exit_code is not None]
        if dead:
            orphans = self._orphans_by_agent()
            for agent in dead:
                if agent.sweep(orphans.get(agent.id, [])):
                    self._finish(agent)

    def _bury(self, pid: int) -> None:
        agent = self._leaders.pop(pid, None)
        if agent is not None:
            agent.leader_ended()
            return
        whose = self._whose(pid)
        _, _, used = os.wait4(pid, 0)
        self._orphans.pop(pid, None)
        if whose is not None:
            whose.add_cpu(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)

    def _finish(self, agent: AgentProcess) -> None:
        for output in agent.outputs:
            if output.pipe is not None:
                self._selector.unregister(output.pipe)
        if agent.failure is not None:
            self._selector.unregister(agent.failure)
            agent.begun()
        del self._agents[agent.id]
        self.say(agent.finish())

    def _orphans_by_agent(self) -> dict[int, list[int]]:
        """Processes whose parents are dead, by whose they are; those of nobody that lives are killed."""
        found: dict[int, list[int]] = {}
        for pid in proc.children(os.getpid()):
            if pid in self._leaders:
                continue
            whose = self._whose(pid)
            if whose is None:
                if all(agent.mark is not None for agent in self._agents.values()):
                    proc.kill(pid)
            else:
                found.setdefault(whose.id, []).append(pid)
        return found

    def _whose(self, pid: int) -> AgentProcess | None:
        if pid not in self._orphans:
            mark = proc.mark_of(pid)
            self._orphans[pid] = next((a for a in self._agents.values() if a.mark == mark), None)
        return self._orphans[pid]

    # -- time

    def _wait_s(self) -> float | None:
        if not self._agents:
            return _LOOK_AGAIN_S if _has_children() else None
        times = [self._measure_s, *(agent.next_time_s() for agent in self._agents.values())]
        return max(0.0, min(at_s for at_s in times if at_s is not None) - time.monotonic())

    def _act_on_time(self) -> None:
        for agent in list(self._agents.values()):
            agent.act_on_time()
        now_s = time.monotonic()
        if not self._agents or now_s < self._measure_s:
            return
        self._measure_s = now_s + MEASURE_EVERY_S
        orphans = self._orphans_by_agent()
        for agent in self._agents.values():
            if agent.exit_code is None and agent.has_begun:
                cpu_s, memory_bytes = agent.measure(orphans.get(agent.id, []))
                if len(self._outgoing) < _FULL_BYTES:
                    self.say(
                        {
                            "measured": agent.id,
                            "cpu_s": cpu_s,
                            "memory_bytes": memory_bytes,
                            "bytes": agent.output_bytes,
                        }
                    )


def _has_children() -> bool:
    """Asked of the kernel: a list of children may lack one that is there, if another ends while it is read.

    Those that have ended are reaped on the way.
    """
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
        return True
    except ChildProcessError:
        return False


def _raise_open_files() -> tuple[int, int] | None:
    """As many as the system allows, for the pipes of many agents; what programs get is as it was."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        return before
    return None


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
