"""`python -m evalve.simulator`."""

from __future__ import annotations

import sys

from evalve.simulator.command import main

sys.exit(main())
