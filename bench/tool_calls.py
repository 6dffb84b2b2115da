"""The suite of tool calls, 200 ms a call: one by one, in a window, on four workers, under limits, cached.

What is compared is the time of the evaluations alone, from the first start of a sample to the last end:
starting pytest and its workers takes as long whatever they do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.measuring import Figure
from bench.processes import Broke, environment
from bench.provider import own_state
from evalve.storage import open_store

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "tool_calls"
LATENCY_S = 0.2
TIER_1_REQUESTS, TIER_1_INPUT_TOKENS = 50, 30_000
SCALE = 60
"""A minute's limit in a second, so that what would take five minutes takes five seconds."""
_LONGEST_END_S = 10.0
_WRONG_CASES = 1
"""pytest's exit code where tests fail: the simulated model misses what it is told to miss."""


@dataclass(frozen=True, slots=True)
class Took:
    """One run of the suite."""

    evaluating_s: float
    process_s: float
    cases: int


def measure() -> list[Figure]:
    folder = Path.cwd() / "suite"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    one_by_one = ("--max-concurrency", "1")
    with own_state() as environ, _provider(folder) as url:
        here = {**environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any"}
        first = _run("first", folder, here, *one_by_one)
        cached = _run("cached", folder, here, *one_by_one)
        uncached = {**here, "EVAL_USE_CACHE": "false"}
        window = _run("window", folder, uncached)
        workers = _run("workers", folder, uncached, "-n", "4", *one_by_one)
    limited, refused = _limited(folder)
    return [
        Figure("one by one, nothing cached", first.evaluating_s, "s", note=f"{first.cases} cases of 0.2 s"),
        *_faster("window of 10", first, window, 8.0),
        *_faster("-n 4, each one by one", first, workers, 3.0),
        *_faster("cached", first, cached, 50.0),
        Figure(
            "-n 4 under tier 1 × 60", limited.evaluating_s, "s", note="50 requests, 30,000 tokens a second"
        ),
        Figure("refused of these", refused, "calls", 0.0),
    ]


def _faster(name: str, first: Took, other: Took, at_least: float) -> Iterator[Figure]:
    ratio = first.evaluating_s / other.evaluating_s
    note = f"{other.evaluating_s:.2f} s; {other.process_s:.1f} s with pytest"
    yield Figure(f"{name}, faster than one by one", ratio, "×", at_least, note, at_least=True)


def _limited(folder: Path) -> tuple[Took, int]:
    flags = (
        *("--requests-per-minute", str(TIER_1_REQUESTS * SCALE)),
        *("--input-tokens-per-minute", str(TIER_1_INPUT_TOKENS * SCALE)),
    )
    seen: dict[str, Any] = {}
    with own_state() as environ, _provider(folder, *flags, seen=seen) as url:
        asked = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "any",
            "EVALVE_LIMITS_ANTHROPIC_RPM": str(TIER_1_REQUESTS * SCALE),
            "EVALVE_LIMITS_ANTHROPIC_ITPM": str(TIER_1_INPUT_TOKENS * SCALE),
        }
        took = _run("limited", folder, {**environ, **asked}, "-n", "4")
    return took, int(seen["refused"])


def _run(name: str, folder: Path, environ: Mapping[str, str], *flags: str) -> Took:
    """The tests by rules, as `make eval-fast` runs them."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-k", "basic", "--experiment", name, *flags]
    began = datetime.now().astimezone()
    ended = subprocess.run(
        [*command, "eval_tool_calls.py"],
        cwd=folder,
        env={**environment(), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    process_s = (datetime.now().astimezone() - began).total_seconds()
    if ended.returncode != _WRONG_CASES:
        raise Broke(
            f"{name}: pytest ended with {ended.returncode}: {ended.stdout[-300:]}{ended.stderr[-300:]}"
        )
    with closing(open_store(folder / ".evalve" / "evalve.db", create=False)) as store:
        spans = [
            (started_s := datetime.fromisoformat(record.started_at).timestamp(), started_s + record.wall_s)
            for evaluation in store.evaluations(name)
            for record in store.records(evaluation)
        ]
    evaluating_s = max(end_s for _, end_s in spans) - min(started_s for started_s, _ in spans)
    return Took(evaluating_s, process_s, len(spans))


@contextmanager
def _provider(folder: Path, *flags: str, seen: dict[str, Any] | None = None) -> Iterator[str]:
    """The example's simulated model in a process of its own; `seen` gets what it counted."""
    process = subprocess.Popen(
        [sys.executable, "provider.py", "--latency-s", str(LATENCY_S), *flags],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        told, _ = process.communicate(timeout=_LONGEST_END_S)
        if seen is not None and told.strip():
            seen.update(json.loads(told.splitlines()[-1]))
