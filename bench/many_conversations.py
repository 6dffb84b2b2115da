"""Four agents over 1,200 conversations each: memory beside that over a tenth of them, and what is left."""

from __future__ import annotations

from bench.crm import MODELS, Crm, nothing_left
from bench.measuring import Figure
from bench.processes import own_folder

FEW, MANY = 120, 1_200
AT_ONCE = 16


def measure() -> list[Figure]:
    with own_folder() as folder:
        crm = Crm(folder)
        crm.write(MODELS, repeated=10)
        with crm.provider("--latency-s", "0.01"):
            runs = [
                crm.run(
                    f"of-{samples}",
                    *("--samples", str(samples), "--max-concurrency", str(AT_ONCE), "--cache", "off"),
                )
                for samples in (FEW, MANY)
            ]
        done = len(crm.exported(f"of-{MANY}"))
    few, many = runs
    return [
        Figure(
            f"peak RSS over {MANY:,} × {len(MODELS)} conversations, above that over {FEW} × {len(MODELS)}",
            (many.peak_bytes - few.peak_bytes) / 1e6,
            "MB",
            30.0,
        ),
        Figure("peak RSS over the few", few.peak_bytes / 1e6, "MB"),
        Figure("conversations that are not recorded", MANY * len(MODELS) - done, "conversations", 0.0),
        Figure("runs that left something on the server", nothing_left(runs), "runs", 0.0),
        Figure("conversations a second", MANY * len(MODELS) / many.wall_s, "1/s"),
    ]
