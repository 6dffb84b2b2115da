"""Tests send themselves and their children Ctrl-C; a shell that started us in the background ignores it."""

from __future__ import annotations

import signal

# inherited by every child: without this, a test that waits for an interrupt waits for ever
signal.signal(signal.SIGINT, signal.default_int_handler)
