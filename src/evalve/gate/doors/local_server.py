"""The program of the embedded model's own process: serve, say where on one line, end when stdin does.

It is run by its path, so it imports nothing of evalve.
"""

from __future__ import annotations

import json
import os
import sys

import xllamacpp


def serve(weights: str, alias: str, threads: int) -> None:
    """Serve on a free port of the loopback interface until whoever started this goes away."""
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {alias}
    params.verbosity = 0
    params.n_ctx, params.n_parallel = 8192, 4
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"address": server.listening_address}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # taking the server down in order hangs for ever while it generates


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
