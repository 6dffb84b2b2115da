"""What keeps an agent from reading the dataset and writing outside of its workspace, where the system can."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evalve.agents.spec import Confinement
from evalve.agents.supervisor import landlock
from evalve.errors import OptionError

_LOG = logging.getLogger(__name__)

ASKED = ("off", "auto", "bubblewrap", "landlock")
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
)
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
    "/dev/shm",
)
_PROBE_S = 10.0


@dataclass(frozen=True, slots=True)
class Walls:
    """What one run may reach."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]


@cache
def level(asked: str) -> Confinement:
    """The best that this system offers of what is asked for; what is asked for by name must be there."""
    if asked == "off":
        return "none"
    if asked in ("auto", "bubblewrap") and _bubblewrap_works():
        return "bubblewrap"
    if asked == "bubblewrap":
        raise OptionError(
            "confine: bubblewrap needs the program bwrap and unprivileged user namespaces, and "
            f"{'it does not work' if shutil.which('bwrap') else 'there is no bwrap'} here; "
            "install it, or say confine: auto"
        )
    if landlock.version():
        return "landlock"
    if asked == "landlock":
        raise OptionError("confine: landlock needs Linux 5.13 or newer with Landlock on; say confine: auto")
    _LOG.warning(
        "confine: auto: neither bubblewrap nor Landlock works here, so agents run without walls; "
        "their records say confinement: none"
    )
    return "none"


def lacking(asked: str) -> str | None:
    """What this system lacks of what is asked for by name, in words."""
    try:
        if asked != "auto":
            level(asked)
    except OptionError as error:
        return str(error)
    return None


def walls(command: list[str], *, path: str, writable: Iterable[Path], readable: Iterable[str] = ()) -> Walls:
    """The system, the program itself, files that its arguments name, and what a person adds."""
    found = [*_SYSTEM, *readable]
    for place, argument in enumerate(command):
        program = shutil.which(argument, path=path) if place == 0 else None
        named = program or (argument if argument.startswith("/") and Path(argument).is_file() else None)
        if named is not None:
            found += _with_its_parts(Path(named), is_program=program is not None)
    own = [str(each) for each in writable]
    return Walls(tuple(dict.fromkeys(found)), (*own, *_DEVICES))


def in_bubblewrap(command: list[str], walls: Walls, directory: str) -> list[str]:
    """The command inside of a namespace that has nothing but these paths."""
    wrapped = [
        "bwrap",
        "--die-with-parent",
        "--unshare-pid",
        "--unshare-ipc",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    for path in walls.readable:
        if path not in ("/proc", "/sys"):
            wrapped += ["--ro-bind-try", path, path]
    for path in walls.writable:
        if not path.startswith("/dev/"):
            wrapped += ["--bind", path, path]
    return [*wrapped, "--chdir", directory, "--", *command]


@cache
def _bubblewrap_works() -> bool:
    try:
        command = [
            "bwrap",
            "--ro-bind",
            "/",
            "/",
            "--unshare-pid",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "true",
        ]
        return subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _with_its_parts(path: Path, *, is_program: bool) -> list[str]:
    """A file, what it links to, and for a program the packages that it is part of."""
    found = []
    while True:
        found.append(str(path))
        if is_program:
            found += _packages(path)
        if not path.is_symlink():
            return [*found, *(_packages(path.resolve()) if is_program else ())]
        path = path.parent / path.readlink()


def _packages(program: Path) -> list[str]:
    """A virtual environment, its Python, or the outermost `node_modules` that the program is in."""
    found = []
    prefix = program.parent.parent
    if program.parent.name == "bin" and ((prefix / "pyvenv.cfg").is_file() or _is_prefix(prefix)):
        found.append(str(prefix))
    for parent in reversed(program.parents):
        if parent.name == "node_modules":
            found.append(str(parent))
            break
    return found


def _is_prefix(folder: Path) -> bool:
    """Whether a Python or a Node was installed there."""
    lib = folder / "lib"
    return (lib / "node_modules").is_dir() or any(lib.glob("python3.*/os.py"))
