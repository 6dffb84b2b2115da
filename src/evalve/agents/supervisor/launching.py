"""From the supervisor to the agent's program: what a new process does to itself before it becomes it."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from evalve.agents.supervisor import landlock

_SET_DEATH_SIGNAL = 1
_SET_SUBREAPER = 36
_MARKS = 400_000
"""Fewer than the bytes of message queues that a process may have by default."""

_PRCTL = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
"""Linux has it."""


_OOM_SCORE = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO = "500"


class Launched(NamedTuple):
    """A process that is about to become a program, and the ends of its pipes."""

    pid: int
    stdout: int
    stderr: int
    failure: int
    """Ends when the program has begun; before that, it says why it cannot."""


def adopt_orphans() -> None:
    """From now on, descendants whose parent dies are this process's children."""
    if _PRCTL is not None:
        _PRCTL(_SET_SUBREAPER, 1, 0, 0, 0)


def mark_for(number: int) -> int | None:
    """A limit that no other agent's processes have at the same time; they cannot lose it."""
    if sys.platform != "linux":
        return None
    _, most = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    most = 819_200 if most == resource.RLIM_INFINITY else most
    return most - 1 - number % _MARKS if most > _MARKS else None


def launch(order: dict[str, Any], mark: int | None, files: tuple[int, int] | None) -> Launched:
    """Fork. `files` is how many files a program may have open, where the supervisor itself has more."""
    pipes = [os.pipe() for _ in range(3)]
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _leave(supervisor)
        _become(order, mark, files, out=pipes[0][1], err=pipes[1][1], failure=pipes[2][1])
    for _, theirs in pipes:
        os.close(theirs)
    for ours, _ in pipes:
        os.set_blocking(ours, False)
    return Launched(pid, pipes[0][0], pipes[1][0], pipes[2][0])


def _become(
    order: dict[str, Any],
    mark: int | None,
    files: tuple[int, int] | None,
    *,
    out: int,
    err: int,
    failure: int,
) -> NoReturn:
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        _limit(mark, files)
        os.chdir(order["directory"])
        confined = order.get("landlock")
        if confined is not None:
            landlock.confine(confined["readable"], confined["writable"])
        os.execvpe(order["command"][0], order["command"], order["environment"])
    except BaseException as error:
        number = error.errno if isinstance(error, OSError) else None
        told = {"error": f"it could not be started: {type(error).__name__}: {error}", "errno": number}
        with suppress(OSError):
            os.write(failure, json.dumps(told).encode())
    os._exit(127)


def _leave(supervisor: int) -> None:
    """A session of its own, ended with the supervisor whatever becomes of that."""
    os.setsid()
    if _PRCTL is not None:
        _PRCTL(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(127)  # it died before it was asked for
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with suppress(OSError):  # where memory runs out, an agent shall be killed, and not who holds it
        _OOM_SCORE.write_text(_FIRST_TO_GO)


def _limit(mark: int | None, files: tuple[int, int] | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    if mark is not None and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_MSGQUEUE, (mark, mark))
