"""Which version of an agent's program runs: asked once for each program."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

_WITHIN_S = 60.0
"""Ten programs of Node that start at once on a small machine take that long."""
_NUMBER = re.compile(r"\d+\.\d+[\w.+-]*")


class Versions:
    """Remembers what programs answered. It blocks: call it in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, float], str | None] = {}

    def of(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
        """The number in what it prints, else its first line; `None` where it does not tell."""
        try:
            key = program, Path(program).stat().st_mtime
        except OSError:
            return None
        with self._lock:
            if key not in self._known:
                self._known[key] = _asked([program, *arguments], environment)
            return self._known[key]


def _asked(command: list[str], environment: Mapping[str, str]) -> str | None:
    with TemporaryDirectory(prefix="evalve-version-") as home:
        try:
            answer = subprocess.run(
                command,
                cwd=home,
                env={**environment, "HOME": home},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
    if answer.returncode != 0:
        return None
    number = _NUMBER.search(answer.stdout)
    return number[0] if number is not None else answer.stdout.strip().partition("\n")[0] or None
