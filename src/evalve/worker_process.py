"""The program that a worker process of `--engine processes` runs."""

from __future__ import annotations

import os
import socket
from typing import Any

from evalve import gateways, gating
from evalve.engines.worker import serve
from evalve.options import Options
from evalve.runner.threads import carry_samples_into_threads
from evalve.secrecy import Environment, secret_values


def main(descriptor: int) -> None:
    """Serve the parent at the other end of the descriptor until it closes."""
    carry_samples_into_threads()
    with socket.socket(fileno=descriptor) as end:
        secrets = secret_values(Environment(os.environ))
        serve(end, account_for=_account_for, secrets=secrets)
    gating.settle_cache()  # before what else there is to do at the end: the parent does not wait long


def _account_for(options: Options) -> Any:
    """Calls of this process are treated as the run's options ask, those of no sample included."""
    if options.gateway:
        gateways.use()  # before anything of the person's is imported
    return gating.account_of_worker(options)
