"""`python -m evalve`: the same as the command `evalve`."""

import sys

from evalve.cli import main

if __name__ == "__main__":
    sys.exit(main())
