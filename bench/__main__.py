"""`python -m bench [NAME …] [--json]`: measure, show, and exit with 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
import time

from bench.processes import Broke, own_folder, python
from bench.reporting import Report, as_json, figures_from_text, table

BENCHMARKS = (
    "import_time",
    "plugin_idle",
    "many_evaluations",
    "cpu_per_sample",
    "constant_latency",
    "heavy_tail",
    "longest_first",
    "engines",
    "tutorial",
    "resume",
    "pages",
    "memory",
    "parked",
    "pacing",
    "four_processes",
    "concurrency_shared",
    "other_client",
    "cpu_per_call",
    "gateway",
    "agents",
    "tool_calls",
    "traces",
    "faults",
    "batches",
    "kill_and_resume",
    "statistics",
    "sandbox_lending",
    "sandbox_faults",
    "conversations",
    "many_conversations",
    "side_by_side",
)


def main() -> int:
    asked = _arguments()
    reports = []
    for name in asked.names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        reports.append(_report(name))
    print(as_json(reports) if asked.json else table(reports))
    return int(any(report.is_bad for report in reports))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}")
    return asked


def _report(name: str) -> Report:
    began_s = time.monotonic()
    try:
        with own_folder() as folder:
            figures = figures_from_text(python("-m", "bench.alone", name, folder=folder))
    except Broke as error:
        return Report(name, (), time.monotonic() - began_s, str(error))
    return Report(name, figures, time.monotonic() - began_s)


if __name__ == "__main__":
    sys.exit(main())
