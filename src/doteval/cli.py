"""The command `doteval` is evalve's."""

import sys

from evalve.cli import main

__all__ = ["cli", "main"]


def cli() -> None:
    """Run the command line of this process and end with its exit code."""
    sys.exit(main())
