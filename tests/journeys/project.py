"""A person's project in a directory of its own, and what its real processes did."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil

from evalve.contracts import LiveProgress
from evalve.runner import watchdog
from evalve.show.exports.exporting import Rows
from evalve.storage import open_store

PATIENCE_S = 150.0
"""How long a test waits for another process before it fails: only a broken program takes so long."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        return self.out + self.err

    @property
    def outcomes(self) -> dict[str, int]:
        """`{"passed": 2, "failed": 1}` from pytest's last line."""
        last = self.out.rstrip().rpartition("\n")[2]
        words = "passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?"
        return {word: int(count) for count, word in re.findall(rf"(\d+) ({words})\b", last)}

    @property
    def summary(self) -> list[str]:
        """The lines of evalve's section."""
        lines = self.out.splitlines()
        start = next((n for n, line in enumerate(lines) if re.fullmatch(r"=+ evalve =+", line)), None)
        if start is None:
            return []
        rest = lines[start + 1 :]
        end = next((n for n, line in enumerate(rest) if _ends_a_section(line)), len(rest))
        return rest[:end]


def _ends_a_section(line: str) -> bool:
    return line.startswith(("===", "!!!")) or bool(re.search(r" in [\d.]+s", line))


class Project:
    """A directory with files, in which commands are run as a person would run them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("pytest.ini", _PYTEST_INI)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def read(self, name: str) -> str:
        """A file's text; empty where there is none yet."""
        try:
            return (self.folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    # -- running

    def pytest(self, *arguments: str, **environment: str) -> Ended:
        return self._run([sys.executable, "-m", "pytest", *arguments], environment)

    def evalve(self, *arguments: str, **environment: str) -> Ended:
        return self._run([str(Path(sys.executable).parent / "evalve"), *arguments], environment)

    def python(self, *arguments: str, **environment: str) -> Ended:
        return self._run([sys.executable, *arguments], environment)

    @contextmanager
    def started(self, *arguments: str, **environment: str) -> Iterator[Running]:
        """`python` with these arguments, running; it is gone at the end of the block."""
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=_clean(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_hear_hang_ups,  # noqa: PLW1509  # it only resets a signal
            )
        try:
            yield Running(process, self)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)

    @contextmanager
    def on_terminal(self, *arguments: str, **environment: str) -> Iterator[Running]:
        """The same on a terminal of its own, whose Ctrl-C goes to the program and to its children.

        What either stream shows is in `out`.
        """
        keyboard, terminal = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_THE_TERMINAL, *arguments],
            cwd=self.folder,
            env=_clean({"COLUMNS": "100", "TERM": "dumb", **environment}),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        reader = threading.Thread(target=_copy, args=(keyboard, self.folder / "out"))
        reader.start()
        try:
            yield OnTerminal(process, self, keyboard, reader)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)
            reader.join(PATIENCE_S)
            os.close(keyboard)

    def _run(self, command: list[str], environment: Mapping[str, str]) -> Ended:
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env=_clean(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    # -- reading what they left

    def records(self, experiment: str = "latest", *, at: str = ".evalve/evalve.db") -> list[dict[str, Any]]:
        """The experiment's records as `evalve export` writes them."""
        with closing(open_store(self.folder / at, create=False)) as store:
            return list(Rows(store, experiment, evaluation=None, canonical=False))

    def live(self, experiment: str) -> list[LiveProgress]:
        """What is told of the experiment's runs that have not ended."""
        with closing(open_store(self.folder / ".evalve/evalve.db", create=False)) as store:
            return store.live(experiment)

    def values(self, experiment: str = "latest") -> dict[str, list[Any]]:
        """The first score's value of each sample that has one, by evaluation, in dataset order."""
        found: dict[str, list[Any]] = {}
        for record in self.records(experiment):
            values = found.setdefault(record["evaluation"], [])
            values.extend(score["value"] for score in record["scores"][:1])
        return found

    def experiments(self, *, at: str = ".evalve/evalve.db") -> list[str]:
        """Names, newest first."""
        with closing(open_store(self.folder / at, create=False)) as store:
            return [one.name for one in store.experiments()]

    def junit(self, name: str) -> dict[str, ET.Element]:
        """The test cases of a JUnit file by name."""
        return {case.get("name", ""): case for case in ET.parse(self.folder / name).iter("testcase")}


def _hear_hang_ups() -> None:
    """As in a terminal: whoever runs the tests under `nohup` hands down that they are not heard."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Running:
    """A process that has been started."""

    def __init__(self, process: subprocess.Popen[bytes], project: Project) -> None:
        self.pid = process.pid
        self._process = process
        self._project = project

    def has_written(self, text: str, to: str) -> None:
        """Wait until the file (`out` and `err` are its streams) holds the text."""
        self.wait_until(lambda: text in self._project.read(to), f"{text!r} in {to}")

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not is_so():
            running = self._process.poll() is None and time.monotonic() < until_s
            if not running and not is_so():
                raise AssertionError(f"no {what}; {self._read()}")
            time.sleep(0.005)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def send(self, name: str) -> None:
        """Any signal, by its name."""
        self._process.send_signal(signal.Signals[name])

    def kill(self) -> None:
        """As kill -9 does."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def workers(self) -> list[psutil.Process]:
        """Its child processes, without the one that watches it."""
        return [child for child in psutil.Process(self.pid).children() if not _is_watchdog(child)]

    def end(self) -> Ended:
        """Wait for the end."""
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended; {self._read()}") from None
        return self._read()

    def _read(self) -> Ended:
        code = self._process.poll()
        return Ended(-1000 if code is None else code, self._project.read("out"), self._project.read("err"))


def _is_watchdog(process: psutil.Process) -> bool:
    try:
        return watchdog.__file__ in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


class OnTerminal(Running):
    """A process that has been started on a terminal."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        project: Project,
        keyboard: int,
        reader: threading.Thread,
    ) -> None:
        super().__init__(process, project)
        self._keyboard = keyboard
        self._reader = reader

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._keyboard, b"\x03")

    def end(self) -> Ended:
        super().end()
        self._reader.join(PATIENCE_S)
        return self._read()


_TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def _copy(keyboard: int, to: Path) -> None:
    # on Linux, a terminal that nobody has open any more is an error to read
    with to.open("wb", buffering=0) as file, suppress(OSError):
        while text := os.read(keyboard, 65536):
            file.write(text)


def have_ended(processes: Sequence[psutil.Process]) -> bool:
    """Whether all of them end before a test would give up."""
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    return not alive


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what the person who runs these tests may have set."""
    unwanted = ("EVALVE_", "PYTEST_", "COV_")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "COLUMNS", "FORCE_COLOR", "PY_COLORS") and not name.startswith(unwanted)
    }
    return {**inherited, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **environment}


# A tenth of the time that pytest takes to start is anyio's plugin, which tests that are about it ask for.
_PYTEST_INI = """
    [pytest]
    addopts = -p no:anyio
    filterwarnings = error
    asyncio_default_fixture_loop_scope = function
"""
