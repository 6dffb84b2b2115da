"""What the surroundings do to tests: undone before the first one starts."""

from __future__ import annotations

import os
import signal

# Tests send themselves and their children Ctrl-C, and a shell that started us in the background ignores it:
# a test that waits for an interrupt would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest and evalve write other output on a CI machine; tests that are about that say so themselves.
for name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)
