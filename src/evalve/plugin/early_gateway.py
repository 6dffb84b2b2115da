"""A gateway for the whole pytest run, where one is asked for: it stands before anything is imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from evalve.errors import EvalveError
from evalve.options import Options


def wants_gateway(config: pytest.Config, args: Sequence[str], taken: set[str]) -> bool:
    """Asked before any conftest.py is imported, because clients read their address when they are made."""
    if "--evalve-gateway" in args or ("--gateway" in args and "--gateway" not in taken):
        return True
    if getattr(config.option, "evalve_gateway", None):  # of an xdist worker
        return True
    folder = Path(config.invocation_params.dir)
    if not os.environ.get("EVALVE_GATEWAY") and not any(map(_names_gateway, (folder, *folder.parents))):
        return False
    from evalve import wiring  # not imported for those who do not use evalve
    from evalve.secrecy import Environment

    try:
        now = wiring.settings(Options(), folder=folder, environ=Environment(os.environ))
        return bool(now.options_for_any().gateway)
    except EvalveError:
        return False  # said when the evaluations begin


def _names_gateway(folder: Path) -> bool:
    """Whether there is a configuration in it that may ask for one: cheaper than to read what it says."""
    try:
        return b"gateway" in (folder / "evalve.yaml").read_bytes()
    except OSError:
        return False


def use_gateway(config: pytest.Config) -> None:
    from evalve import gateways

    used = gateways.used()
    try:
        used.__enter__()
    except EvalveError as error:
        raise pytest.UsageError(str(error)) from None

    def leave() -> None:
        used.__exit__(None, None, None)

    config.add_cleanup(leave)
