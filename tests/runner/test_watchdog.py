"""The program that ends a process which no longer hears Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from evalve.runner import watchdog

A_PRESS = bytes([signal.SIGINT])
OTHER = bytes([signal.SIGTERM])


@pytest.mark.parametrize(
    ("unread", "told", "kills"),
    [
        (b"", b"", False),
        (A_PRESS, b"", False),
        (A_PRESS + OTHER, b"", False),
        (A_PRESS + A_PRESS, b"", True),
        (A_PRESS, b"h", True),
        (OTHER, b"h", False),
        (b"", b"ha", True),
        (b"", b"har", False),
        (b"", b"hara", True),
        (b"", b"hac", False),
    ],
    ids=[
        "nothing",
        "a first press is unread",
        "a first press, and a signal of another kind",
        "two presses are unread",
        "the second press is unread",
        "a signal of another kind is unread",
        "nobody ends the run",
        "the run has ended",
        "of two runs one has ended",
        "nobody is watched any more",
    ],
)
def test_only_a_second_ctrl_c_that_does_not_end_the_run_kills(
    unread: bytes, told: bytes, kills: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    monkeypatch.setattr(watchdog, "_say", done.append)
    monkeypatch.setattr(os, "getppid", lambda: 4711)
    monkeypatch.setattr(os, "kill", lambda process, number: done.append((process, number)))
    writing, reading = socket.socketpair()
    telling, listening = socket.socketpair()
    with writing, reading, telling, listening:
        writing.sendall(unread)
        telling.sendall(told)
        telling.close()  # the process has ended: what is not killed by now never is

        watchdog._watch(reading, listening.fileno(), 4711, deaf_after_s=-1.0)

    expected = [watchdog._LAST_WORDS, (4711, signal.SIGKILL)]
    assert done == (expected if kills else [])


def test_a_process_that_is_gone_is_not_killed_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "kill", lambda process, number: pytest.fail("another may have that number now"))
    writing, reading = socket.socketpair()
    telling, listening = socket.socketpair()
    with writing, reading, telling, listening:
        writing.sendall(A_PRESS + A_PRESS)

        watchdog._watch(reading, listening.fileno(), os.getppid() + 1, deaf_after_s=-1.0)
