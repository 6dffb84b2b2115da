"""Four agents at once: beside each of them alone, and on one key whose limit they share."""

from __future__ import annotations

from bench.crm import MODELS, Crm, durations_s, nothing_left, only
from bench.measuring import Figure
from bench.processes import own_folder

CONVERSATIONS = 30
AT_ONCE = 4
LATENCY_S = 0.5
SHARED_CONVERSATIONS = 60
PER_MINUTE = 1_500


def measure() -> list[Figure]:
    with own_folder() as folder:
        crm = Crm(folder)
        return [*_unhindered(crm), *_on_one_key(crm)]


def _unhindered(crm: Crm) -> list[Figure]:
    asked = ("--samples", str(CONVERSATIONS), "--max-concurrency", str(AT_ONCE), "--cache", "off")
    alone: dict[str, float] = {}
    runs = []
    with crm.provider("--latency-s", str(LATENCY_S)):
        for name in MODELS:
            crm.write(only(name))
            runs.append(crm.run(f"alone-{name}", *asked))
            alone |= durations_s(crm.exported(f"alone-{name}"))
        crm.write(MODELS)
        runs.append(crm.run("at-once", *asked))
    together = durations_s(crm.exported("at-once"))
    slowest = max(together, key=lambda name: together[name] / alone[name])
    return [
        Figure(
            "four agents at once, the slowest against itself alone",
            together[slowest] / alone[slowest],
            "×",
            1.2,
            note=slowest,
        ),
        Figure(
            "four agents one after another, against at once",
            sum(alone.values()) / max(together.values()),
            "×",
        ),
        Figure("runs that left something on the server", nothing_left(runs), "runs", 0.0),
    ]


def _on_one_key(crm: Crm) -> list[Figure]:
    """Four agents with one model and one key: what they get of its limit, until the first of them ends."""
    model = "{{model: openai/gpt-4.1, temperature: {}, max_output_tokens: 800}}"
    crm.write({f"agent{number}": model.format(f"0.{number}") for number in range(4)}, judge="agent0")
    asked = ("--samples", str(SHARED_CONVERSATIONS), "--max-concurrency", "16", "--cache", "off")
    with crm.provider("--latency-s", "0.05", "--requests-per-minute", str(PER_MINUTE)) as provider:
        ran = crm.run("one-key", *asked)
        seen = provider.stats()
    lasted_s = durations_s(crm.exported("one-key"))
    until_s = int(min(lasted_s.values()))
    admitted = sum(seen["admitted_by_second"].get(str(second), 0) for second in range(1, until_s))
    return [
        Figure(
            "utilisation of a limit that four agents share",
            100 * admitted / (PER_MINUTE / 60 * (until_s - 1)),
            "%",
            95.0,
            at_least=True,
            note=f"{seen['refused']} of {seen['requests']} refused",
        ),
        Figure(
            "the last agent to end against the first",
            max(lasted_s.values()) / min(lasted_s.values()),
            "×",
        ),
        Figure("runs on one key that left something on the server", nothing_left([ran]), "runs", 0.0),
    ]
