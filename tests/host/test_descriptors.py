"""How many files may be open."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from evalve.host.descriptors import FilePlan, plan_files


@pytest.mark.parametrize(
    ("at_once", "soft", "hard", "plan"),
    [
        (10, 1024, 4096, FilePlan(None, None)),
        (10, None, None, FilePlan(None, None)),
        (100, 1024, 4096, FilePlan(1358, None)),
        (100, 1024, None, FilePlan(1358, None)),
        (100, 256, 512, FilePlan(512, 29)),
        (100, 512, 512, FilePlan(None, 29)),
        (100, 128, 128, FilePlan(None, 1)),
    ],
)
def test_the_limit_is_raised_to_what_is_needed_or_fewer_run(
    at_once: int, soft: int | None, hard: int | None, plan: FilePlan
) -> None:
    assert plan_files(at_once, soft=soft, hard=hard, opened=30) == plan


EVALUATION = """
    import asyncio, resource, socket, sys
    soft, hard = map(int, sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    import evalve
    from evalve import ForEach
    from evalve.concurrency import SlidingWindow

    many = ForEach(concurrency=SlidingWindow(60))

    @many("n", range(120))
    async def eval_files(n):
        opened = [socket.socket() for _ in range(8)]
        await asyncio.sleep(0.2)
        for one in opened:
            one.close()
        return True

    result = evalve.run(eval_files, storage="memory://")
    now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(sum(sample.ok for sample in result.results), result.report["peak_in_flight"], now > soft)
"""


def run_with(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a hard limit that is lowered stays so."""
    program = dedent(EVALUATION)
    return subprocess.run(
        [sys.executable, "-c", program, str(soft), str(hard)], capture_output=True, text=True, check=False
    )


def test_a_low_soft_limit_is_raised_and_no_file_is_too_many() -> None:
    ended = run_with(256, 4096)

    assert ended.stderr == ""
    done, peak, is_raised = ended.stdout.split()
    assert (done, is_raised) == ("120", "True")
    assert int(peak) > 40


def test_under_a_low_hard_limit_fewer_run_at_once_and_the_run_says_what_to_do() -> None:
    ended = run_with(256, 512)

    done, peak, _ = ended.stdout.split()
    assert done == "120", ended.stderr
    assert int(peak) < 40
    assert "this process may open 512 files, and 60 samples at once need about" in ended.stderr
    assert "ulimit -Hn" in ended.stderr
