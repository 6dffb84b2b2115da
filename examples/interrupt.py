"""Runs a command and presses Ctrl-C for it after some seconds: `python interrupt.py 2.5 pytest …`."""

import signal
import subprocess
import sys

after_s, command = float(sys.argv[1]), sys.argv[2:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a child inherits it where it was ignored
process = subprocess.Popen(command)
try:
    process.wait(after_s)
except subprocess.TimeoutExpired:
    print("^C", flush=True)
    process.send_signal(signal.SIGINT)
sys.exit(process.wait())
