"""The program that a worker process of `--engine processes` runs."""

from __future__ import annotations

import socket
from typing import Any

from evalve import gating
from evalve.engines.worker import serve
from evalve.runner.threads import carry_samples_into_threads


def main(descriptor: int) -> None:
    """Serve the parent at the other end of the descriptor until it closes."""
    carry_samples_into_threads()
    with socket.socket(fileno=descriptor) as end:
        serve(end, prepare=gating.ask, account_for=_account_for)


def _account_for(policy: Any) -> Any:
    """Calls of this process go by what `gating.ask` was told."""
    return None
