"""Landlock: after `confine`, the process and all that it starts reach only the paths that are named."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38
_DROP_FROM_BOUND = 24
_SEES_OTHERS = (19, 21, 38)
"""Capabilities (ptrace, admin, perfmon) by which root reads the environment of any process in spite of it."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ALL_OF_FIRST = (1 << 13) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READING = _EXECUTE | _READ_FILE | _READ_DIR


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


_LIBC = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """What the kernel offers; 0 where it has none."""
    try:
        return max(
            0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))
        )
    except (OSError, AttributeError):
        return 0


def confine(readable: Iterable[str], writable: Iterable[str]) -> None:
    """For this process, for good. Paths that are not there are left out."""
    handled = _handled(version())
    ruleset = _checked(
        _LIBC.syscall(
            _CREATE_RULESET, ctypes.byref(_Ruleset(handled)), ctypes.c_size_t(ctypes.sizeof(_Ruleset)), 0
        )
    )
    for path in readable:
        _allow(ruleset, path, handled & _READING)
    for path in writable:
        _allow(ruleset, path, handled)
    _checked(_LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    for capability in _SEES_OTHERS:
        _LIBC.prctl(_DROP_FROM_BOUND, capability, 0, 0, 0)  # fails where it is not there anyway
    _checked(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _handled(known: int) -> int:
    if known < 1:
        raise OSError("this kernel has no Landlock")
    return _ALL_OF_FIRST | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        parent = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        access &= _OF_FILES
    rule = _PathBeneath(access, parent)
    _checked(_LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    os.close(parent)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result
