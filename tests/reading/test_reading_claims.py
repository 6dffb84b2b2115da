"""Which process runs what: one at a time holds a group, and what has ended is known to all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from evalve.reading.claims import Claims

HOLDER = """
import signal, sys
from pathlib import Path
from evalve.reading.claims import Claims

with Claims(Path(sys.argv[1])).taken("group"):
    print("held", flush=True)
    signal.pause()
"""


def test_what_one_notes_the_next_reads(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims")
    with claims.taken("group") as claim:
        assert claim is not None
        claim.note_ended("a")
        claim.note_ended("b", "it broke")

    with Claims(tmp_path / "claims").taken("group") as later, claims.taken("another") as other:
        assert later is not None
        assert later.ended == {"a": "", "b": "it broke"}
        assert other is not None
        assert other.ended == {}


def test_a_group_that_another_process_holds_is_not_had_without_waiting_and_is_had_when_it_dies(
    tmp_path: Path,
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with Claims(tmp_path).taken("group", wait=False) as claim:
            assert claim is None
        os.kill(holder.pid, signal.SIGKILL)
        with Claims(tmp_path).taken("group") as claim:
            assert claim is not None
    finally:
        holder.kill()
        holder.communicate()


def test_all_are_forgotten_at_the_end(tmp_path: Path) -> None:
    claims = Claims(tmp_path / "claims")
    with claims.taken("group"):
        pass

    claims.forget()
    claims.forget()

    assert not (tmp_path / "claims").exists()
