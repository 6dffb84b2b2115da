"""Interpreters of their own: clean caches, clean memory, a folder that goes away."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


class Broke(Exception):
    """A process that was measured ended with an error."""


def python(*arguments: str, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
    """What an interpreter with these arguments prints; `bench` can be imported there."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**environment(), **(environ or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        said = (finished.stderr.strip() or finished.stdout.strip()).splitlines()
        raise Broke(f"python {' '.join(arguments)}: {said[-1] if said else f'exit {finished.returncode}'}")
    return finished.stdout


@contextmanager
def own_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="evalve-bench-") as name:
        yield Path(name)


def environment() -> dict[str, str]:
    """Ours, without what a person may have set for runs of their own; `bench` can be imported in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVALVE_", "PYTEST_"))}
    return {**kept, "PYTHONPATH": str(_ROOT)}
