"""Which version of an agent's program runs: asked once for each program, beside its first run."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory

_WITHIN_S = 60.0
"""Ten programs of Node that start at once on a small machine take that long."""
_NUMBER = re.compile(r"\d+\.\d+[\w.+-]*")


class Versions:
    """Remembers what programs answered. Each is asked in a thread of its own: nobody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, float], Future[str | None]] = {}

    def of(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> Future[str | None]:
        """The number in what it prints, else its first line; `None` where it does not tell."""
        key = program, Path(program).stat().st_mtime
        with self._lock:
            answer = self._asked.get(key)
            if answer is not None:
                return answer
            answer = self._asked[key] = Future()
        asking = threading.Thread(
            target=lambda: answer.set_result(_asked([program, *arguments], environment)),
            name="evalve-version",
            daemon=True,
        )
        asking.start()
        return answer


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
