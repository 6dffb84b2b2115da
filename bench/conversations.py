"""120 conversations with tools in PostgreSQL: sixteen at once beside one after another."""

from __future__ import annotations

from bench.crm import Crm, durations_s, nothing_left, only
from bench.measuring import Figure
from bench.processes import own_folder

CONVERSATIONS = 120
LATENCY_S = 0.05
AT_ONCE = 16


def measure() -> list[Figure]:
    """From the first conversation's start to the last one's end; a server's start is not the subject."""
    with own_folder() as folder:
        crm = Crm(folder)
        crm.write(only("claude"))
        asked = ("--samples", str(CONVERSATIONS), "--cache", "off")
        with crm.provider("--latency-s", str(LATENCY_S)):
            runs = [
                crm.run(str(at_once), "--max-concurrency", str(at_once), *asked) for at_once in (1, AT_ONCE)
            ]
        [one_s], [together_s] = (durations_s(crm.exported(name)).values() for name in ("1", str(AT_ONCE)))
        alone, together = (crm.exported(name, "--canonical") for name in ("1", str(AT_ONCE)))
    differing = sum(one != other for one, other in zip(alone, together, strict=True))
    return [
        Figure(
            f"{CONVERSATIONS} conversations, {AT_ONCE} at once against one by one",
            one_s / together_s,
            "× faster",
            8.0,
            at_least=True,
        ),
        Figure("records that differ", differing, "records", 0.0),
        Figure("runs that left something on the server", nothing_left(runs), "runs", 0.0),
        Figure("one by one", one_s, "s"),
        Figure(f"{AT_ONCE} at once", together_s, "s"),
        Figure("CPU of evalve per conversation", runs[1].cpu_s / CONVERSATIONS * 1e3, "ms"),
    ]
