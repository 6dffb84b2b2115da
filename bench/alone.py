"""One benchmark, in this process and folder: `python -m bench.alone NAME` prints its figures as JSON."""

from __future__ import annotations

import importlib
import sys

from bench.reporting import figures_to_text


def main(name: str) -> None:
    print(figures_to_text(importlib.import_module(f"bench.{name}").measure()))


if __name__ == "__main__":
    main(sys.argv[1])
