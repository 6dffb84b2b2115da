"""`python eval_x.py`: a file of evaluations as a script, which ends without having run any."""

from __future__ import annotations

import atexit
import logging
import sys
from pathlib import Path

_declared: list[str] = []
"""A stated exception to "no globals": at its end, a process tells what was declared in its script."""


def declared_in_script(path: Path, name: str) -> None:
    """Remember what the script declares, to be told at its end unless something runs it."""
    if not _declared:
        atexit.register(_tell, path)
    _declared.append(name)


def said_to_run() -> None:
    """The script knows how: it has called an evaluation."""
    atexit.unregister(_tell)


def _tell(path: Path) -> None:
    if "evalve.plugin.session" in sys.modules:
        return  # the script has started pytest itself
    one = _declared[0]
    names = one if len(_declared) == 1 else f"{one} and {len(_declared) - 1} more"
    logging.getLogger(__name__).warning(
        "%s declares %s and runs nothing: type `evalve run %s`, or call %s() at its end",
        path.name,
        names,
        path.name,
        one,
    )
