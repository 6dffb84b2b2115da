"""Ends a process that no longer hears Ctrl-C: a call into C can keep the interpreter from all its threads.

A regular expression that backtracks for ever does so, in whatever thread it runs: nothing of Python's own
can act then, so a small program beside the process does. What each signal writes is read by a thread of the
process; where it stays unread, the process is deaf. So it is where nobody looks after a run that was
cancelled. This file is that program too: it needs the standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

DEAF_AFTER_S = 10.0
"""How long a process may be deaf before a second Ctrl-C kills it. Longer than what else ends a run that was
cancelled (`interruption.STUCK_AFTER_S`)."""
_LOOK_EVERY_S, _IDLE_S = 0.5, 30.0
_READ_WITHIN_S = 0.5
"""A terminal forgets what nobody has read of it yet when the first process on it is killed."""
_HEARD, _ALIVE, _RESTS, _CLOSES = b"h", b"a", b"r", b"c"
"""What the process tells: it has read a Ctrl-C; it has heard the second and ends its run; it has ended it;
nobody is watched any more."""
_LAST_WORDS = (
    "\nevalve: a sample keeps Python inside a call into C and lets nothing else run, so the process is"
    " killed; what was done is saved. To go on, run the same command again\n"
)


class Watchdog:
    """The program, seen by the process that it watches. Any thread may tell it something."""

    def __init__(self, unread: int) -> None:
        """`unread` is a socket from which each signal is read."""
        told, self._telling = os.pipe()
        os.set_blocking(self._telling, False)
        self._pid: int | None = None
        try:
            with suppress(OSError):  # without it, all but deafness is dealt with
                program = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(DEAF_AFTER_S)],
                    stdin=unread,
                    stdout=told,
                    process_group=0,  # or the terminal would interrupt it as well
                )
                self._pid = program.pid
                program.returncode = 0  # or it would warn, when it is collected, that nobody waited for it
        finally:
            os.close(told)

    def note_heard(self) -> None:
        """A Ctrl-C was read: the next one is the second."""
        self._tell(_HEARD)

    def note_alive(self) -> None:
        """A second Ctrl-C was heard, and somebody sees to it that the run ends; to be told now and then."""
        self._tell(_ALIVE)

    def note_rests(self) -> None:
        """Nobody tells that any more, because the run has ended."""
        self._tell(_RESTS)

    def close(self) -> None:
        self._tell(_CLOSES)  # a fork of a sample's may keep the pipe open
        os.close(self._telling)
        if self._pid is not None:
            with suppress(ChildProcessError):  # a sample has waited for all children there are
                os.waitpid(self._pid, 0)

    def forget(self) -> None:
        """In a fork: it watches the process that this one is a fork of."""
        os.close(self._telling)

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):  # it has gone
            os.write(self._telling, what)


def _watch(unread: socket.socket, told: int, process: int, deaf_after_s: float) -> None:
    """Return when the process has ended, listens no longer, or was killed."""
    has_heard = False
    alive_s: float | None = None
    unread_since_s: float | None = None
    while os.getppid() == process:  # a fork of it may hold the pipe open when it is gone
        came = _peek(unread)
        now_s = time.monotonic()
        unread_since_s = (unread_since_s or now_s) if came else None
        presses = came.count(signal.SIGINT)
        is_deaf = (alive_s is not None and now_s - alive_s > deaf_after_s) or (
            presses > (0 if has_heard else 1)
            and unread_since_s is not None
            and now_s - unread_since_s > deaf_after_s
        )
        if is_deaf:
            _say(_LAST_WORDS)
            os.kill(process, signal.SIGKILL)
            return
        is_looking = bool(came) or alive_s is not None
        waits_for = [told] if came else [told, unread.fileno()]
        ready = select.select(waits_for, [], [], _LOOK_EVERY_S if is_looking else _IDLE_S)[0]
        if told in ready:
            said = os.read(told, 4096)
            if not said or _CLOSES in said:
                return
            has_heard = has_heard or _HEARD in said
            if _ALIVE in said or _RESTS in said:
                alive_s = time.monotonic() if said.rfind(_ALIVE) > said.rfind(_RESTS) else None


def _peek(unread: socket.socket) -> bytes:
    """The numbers of the signals that nobody has read."""
    try:
        return unread.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def _say(text: str) -> None:
    """On the terminal, where there is one: pytest may have redirected standard error."""
    try:
        where = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
    except OSError:
        where = 2
    with suppress(OSError):
        os.write(where, text.encode())
        select.select([], [], [], _READ_WITHIN_S)


if __name__ == "__main__":
    _watch(socket.socket(fileno=0), 1, int(sys.argv[1]), float(sys.argv[2]))
    os._exit(0)
