"""Real processes that do not want to end, under a real supervisor."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve.agents.spec import Ending
from evalve.agents.supervising import CannotRun, Order, Supervisor, Watch
from evalve.agents.supervisor import proc
from evalve.errors import InfrastructureError
from evalve.processes import started

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="who left the group is found by Linux's /proc")
SOON_S = 30.0
"""Far longer than anything here takes on a loaded machine."""

UNMISTAKABLE_S = 10_000_000 + os.getpid()
"""What no other run of these tests lets its processes sleep."""

Run = Callable[..., Any]


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    one = Supervisor()
    yield one
    await asyncio.to_thread(one.close)


@pytest.fixture
def run(supervisor: Supervisor, tmp_path: Path) -> Run:
    async def run(command: list[str], *, watch: Watch | None = None, **limits: Any) -> Ending:
        return await supervisor.run(order(tmp_path, command, **limits), watch or Watch())

    return run


def order(folder: Path, command: list[str], **limits: Any) -> Order:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return Order(command, str(folder), environment, f"{folder}/out", f"{folder}/err", **limits)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def is_gone(pid: int) -> bool:
    return started(pid) is None


async def eventually(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_so():  # noqa: ASYNC110 (another process tells nobody)
            await asyncio.sleep(0.02)


async def number_in(path: Path) -> int:
    await eventually(lambda: path.exists() and path.read_text().strip().isdigit())
    return int(path.read_text())  # noqa: ASYNC240 (a few bytes)


async def test_output_goes_to_files_and_the_exit_code_is_told(run: Run, tmp_path: Path) -> None:
    ending = await run(["sh", "-c", "echo answer; echo trouble >&2; exit 3"])
    assert (ending.exit_code, ending.by) == (3, "itself")
    assert ending.output_bytes == len("answer\ntrouble\n")
    assert (tmp_path / "out").read_text() == "answer\n"
    assert (tmp_path / "err").read_text() == "trouble\n"


async def test_a_program_reads_nothing_from_standard_input(run: Run, tmp_path: Path) -> None:
    ending = await run(["cat"], total_s=SOON_S)
    assert (ending.exit_code, ending.by) == (0, "itself")


@LINUX
async def test_a_program_has_no_files_open_but_its_own_three(run: Run, tmp_path: Path) -> None:
    await run(["ls", "/proc/self/fd"])
    assert (tmp_path / "out").read_text().split() == ["0", "1", "2", "3"]  # and the directory that it lists


@LINUX
async def test_a_program_goes_before_evalve_where_memory_runs_out(run: Run, tmp_path: Path) -> None:
    await run(["cat", "/proc/self/oom_score_adj"])
    assert int((tmp_path / "out").read_text()) == 500


async def test_a_program_that_is_not_there_is_told_with_its_errno(run: Run) -> None:
    with pytest.raises(CannotRun, match="no-such-program") as raised:
        await run(["no-such-program"])
    assert raised.value.errno == 2


async def test_output_that_the_disk_does_not_take_is_told(supervisor: Supervisor, tmp_path: Path) -> None:
    full = replace(order(tmp_path, ["echo", "hello"]), stdout="/dev/full")
    with pytest.raises(CannotRun, match="its output could not be written") as raised:
        await supervisor.run(full, Watch())
    assert raised.value.errno == errno.ENOSPC


def test_an_order_does_not_show_its_environment(tmp_path: Path) -> None:
    assert "PATH" not in repr(order(tmp_path, ["true"]))


async def test_who_says_nothing_at_first_is_ended_by_the_clock_for_starting(run: Run) -> None:
    ending = await run(["sleep", "600"], startup_s=0.2, silence_s=SOON_S, total_s=SOON_S)
    assert (ending.exit_code, ending.by) == (-signal.SIGTERM, "startup")


async def test_who_falls_silent_is_ended_by_the_clock_for_silence(run: Run) -> None:
    ending = await run(["sh", "-c", "echo hello; exec sleep 600"], startup_s=SOON_S, silence_s=0.2)
    assert (ending.exit_code, ending.by) == (-signal.SIGTERM, "silence")


async def test_who_talks_for_ever_is_ended_by_the_clock_for_all(run: Run) -> None:
    ending = await run(["sh", "-c", "while :; do echo x; sleep 0.05; done"], silence_s=SOON_S, total_s=0.3)
    assert (ending.by, ending.exit_code) == ("total", -signal.SIGTERM)


async def test_its_clocks_stand_still_while_its_sample_waits(supervisor: Supervisor, tmp_path: Path) -> None:
    tells: list[Callable[[bool], None]] = []

    @contextmanager
    def telling_still(tell: Callable[[bool], None]) -> Iterator[None]:
        tells.append(tell)
        tell(True)
        yield

    quick = order(tmp_path, ["sleep", "2"], total_s=1.0, startup_s=1.0)
    held = await supervisor.run(quick, Watch(), telling_still=telling_still)
    endless = order(tmp_path, ["sleep", str(UNMISTAKABLE_S)], total_s=0.1)
    goes_on = Watch(measured=lambda *_: tells[-1](False))
    ended = await supervisor.run(endless, goes_on, telling_still=telling_still)

    assert (held.by, held.exit_code) == ("itself", 0)
    assert held.ran_s >= 2.0
    assert ended.by == "total"


async def test_who_ignores_sigterm_is_killed_after_its_grace(run: Run) -> None:
    ending = await run(["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], total_s=0.2, grace_s=0.2)
    assert (ending.exit_code, ending.by) == (-signal.SIGKILL, "total")


async def test_who_obeys_sigterm_may_write_its_last_words(run: Run, tmp_path: Path) -> None:
    command = ["sh", "-c", "trap 'echo bye; exit 143' TERM; echo hi; while :; do sleep 0.05; done"]
    ending = await run(command, silence_s=None, total_s=0.5, grace_s=SOON_S)
    assert (ending.exit_code, (tmp_path / "out").read_text()) == (143, "hi\nbye\n")


@LINUX
async def test_a_child_that_left_the_group_ends_with_its_agent(run: Run, tmp_path: Path) -> None:
    ending = await run(
        ["sh", "-c", "setsid sh -c 'echo $$ > left; exec sleep 600' & while ! [ -s left ]; do :; done"]
    )
    assert ending.exit_code == 0
    assert ending.survivors >= 1
    assert is_gone(await number_in(tmp_path / "left"))


@LINUX
async def test_a_daemon_without_parent_group_and_environment_ends_with_its_agent(
    run: Run, tmp_path: Path
) -> None:
    daemon = """
        import os, sys
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                with open("daemon", "w") as file:
                    file.write(str(os.getpid()))
                os.execve("/bin/sleep", ["sleep", "600"], {})
            os._exit(0)
        os.wait()
        while not os.path.exists("daemon") or not open("daemon").read():
            pass
        """
    ending = await run(python(daemon))
    assert (ending.exit_code, ending.survivors) == (0, 1)
    assert is_gone(await number_in(tmp_path / "daemon"))


@LINUX
async def test_a_daemon_of_one_agent_is_left_alone_when_another_ends(
    run: Run, supervisor: Supervisor, tmp_path: Path
) -> None:
    daemon = "(setsid sh -c 'echo $$ > left; exec sleep 600' &) ; exec sleep 600"
    first = asyncio.ensure_future(run(["sh", "-c", daemon]))
    pid = await number_in(tmp_path / "left")
    other = tmp_path / "other"
    other.mkdir()
    await supervisor.run(order(other, ["true"]), Watch())
    lived = not is_gone(pid)
    first.cancel()
    await asyncio.wait({first})
    assert lived
    assert is_gone(pid)


async def test_a_pipe_that_a_child_holds_open_is_not_awaited_for_ever(run: Run, tmp_path: Path) -> None:
    ending = await run(["sh", "-c", "sleep 600 & echo done"])
    assert (ending.exit_code, (tmp_path / "out").read_text()) == (0, "done\n")
    assert ending.ran_s < SOON_S


async def test_many_forks_are_all_ended(run: Run, tmp_path: Path) -> None:
    sleep = f"sleep {UNMISTAKABLE_S}"
    forks = f"for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; setsid {sleep} & {sleep}) & done; wait"
    ending = await run(["sh", "-c", forks], total_s=0.3, grace_s=0.2)
    assert ending.by == "total"
    assert _sleeping() == []


def _sleeping() -> list[int]:
    return [pid for pid in proc._all() if _arguments(pid) == f"sleep\0{UNMISTAKABLE_S}\0".encode()]


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_a_flood_is_kept_in_part_and_its_end_is_there(run: Run, tmp_path: Path) -> None:
    flood = """
        import sys
        sys.stdout.write("x" * 999 + "\\n")
        for _ in range(20_000):
            sys.stdout.write("y" * 999 + "\\n")
        print("the end")
        """
    ending = await run(python(flood), head_bytes=100_000, tail_bytes=70_000)
    kept = (tmp_path / "out").read_bytes()
    assert ending.output_bytes == 20_001_000 + len("the end\n")
    assert len(kept) < 300_000
    assert kept.startswith(b"xxx")
    assert kept.endswith(b"the end\n")
    assert b"bytes left out" in kept
    assert ending.left_out_bytes > 19_000_000


@LINUX
async def test_cpu_and_memory_are_those_of_the_whole_tree(run: Run) -> None:
    work = """
        import os, sys, time
        pids = []
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                block = bytearray(60_000_000)
                until = time.process_time() + 0.3
                while time.process_time() < until:
                    pass
                print("ready", flush=True)
                time.sleep(600)
            pids.append(pid)
        time.sleep(600)
        """
    seen: list[tuple[float, int]] = []
    enough = asyncio.Event()

    def measured(cpu_s: float, memory_bytes: int, output_bytes: int) -> None:
        seen.append((cpu_s, memory_bytes))
        if output_bytes == len("ready\n" * 2) and memory_bytes > 120_000_000:
            enough.set()

    running = asyncio.ensure_future(run(python(work), watch=Watch(measured=measured), total_s=600, grace_s=5))
    async with asyncio.timeout(SOON_S):
        await enough.wait()
    running.cancel()
    await asyncio.wait({running})
    assert max(cpu_s for cpu_s, _ in seen) >= 0.6


@LINUX
async def test_who_takes_more_memory_than_allowed_is_killed_for_it(run: Run) -> None:
    ending = await run(
        python("import time; b = bytearray(200_000_000); time.sleep(600)"), memory_bytes=100_000_000
    )
    assert ending.by == "memory"
    assert ending.peak_memory_bytes > 100_000_000


async def test_a_cancelled_run_ends_its_process_before_it_returns(run: Run, tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $$ > pid; trap '' TERM; while :; do sleep 0.05; done"]
    running = asyncio.ensure_future(run(command, grace_s=0.2))
    pid = await number_in(tmp_path / "pid")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert is_gone(pid)


@LINUX
async def test_killed_with_sigkill_a_supervisor_takes_its_agents_along(
    run: Run, supervisor: Supervisor, tmp_path: Path
) -> None:
    command = ["sh", "-c", "setsid sh -c 'echo $$ > left; exec sleep 600' & echo $$ > pid; wait"]
    running = asyncio.ensure_future(run(command))
    pid, left = await number_in(tmp_path / "pid"), await number_in(tmp_path / "left")
    assert supervisor._connection is not None
    supervisor._connection._process.kill()
    with pytest.raises(InfrastructureError, match="supervisor of agents ended with -9"):
        await running
    await eventually(lambda: is_gone(pid) and is_gone(left))
    assert (await run(["true"])).exit_code == 0


OWNER = """
    import asyncio, os, sys
    sys.path.insert(0, {src!r})
    from evalve.agents.supervising import Order, Supervisor, Watch
    async def main():
        one = Supervisor()
        command = ["sh", "-c", "trap '' TERM; setsid sh -c 'echo $$ > left; exec sleep 600' & "
            "echo $$ > pid; while :; do sleep 0.05; done"]
        folder = {folder!r}
        order = Order(command, folder, dict(PATH=os.environ["PATH"]), folder + "/o", folder + "/e")
        running = asyncio.ensure_future(one.run(order, Watch()))
        {then}
        await running
    asyncio.run(main())
    """


def owner(folder: Path, then: str = "pass") -> subprocess.Popen[bytes]:
    src = str(Path(__file__).parent.parent.parent / "src")
    return subprocess.Popen(python(textwrap.dedent(OWNER).format(src=src, folder=str(folder), then=then)))


@LINUX
async def test_when_evalve_is_killed_with_sigkill_its_agents_die_within_seconds(tmp_path: Path) -> None:
    process = owner(tmp_path)
    pid, left = await number_in(tmp_path / "pid"), await number_in(tmp_path / "left")
    process.kill()
    process.wait()
    killed_s = time.monotonic()
    await eventually(lambda: is_gone(pid) and is_gone(left))
    assert time.monotonic() - killed_s < SOON_S


@LINUX
async def test_a_fork_of_evalve_that_lives_on_does_not_keep_its_agents_alive(tmp_path: Path) -> None:
    then = "await asyncio.sleep(0.5); os.fork() == 0 and __import__('time').sleep(20)"
    process = owner(tmp_path, then)
    pid = await number_in(tmp_path / "pid")
    fork = await _child_of(process.pid)
    process.kill()
    process.wait()
    await eventually(lambda: is_gone(pid))
    proc.kill(fork)


async def _child_of(pid: int) -> int:
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [child for child in proc.children(pid) if b"supervisor" not in _arguments(child)]
        return bool(found)

    await eventually(is_there)
    return found[0]


@LINUX
async def test_what_an_earlier_crash_left_is_ended_at_the_next_start(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Another test's supervisor that starts right then may do it before this one's."""
    process = owner(tmp_path)
    left = await number_in(tmp_path / "left")
    supervisor_pid = int(_marker_of(left).split(".")[1])
    os.kill(process.pid, signal.SIGSTOP)  # so that it cannot clean up either
    os.kill(supervisor_pid, signal.SIGKILL)
    process.kill()
    process.wait()
    await supervisor.run(order(tmp_path, ["true"]), Watch())
    await eventually(lambda: is_gone(left))


def _marker_of(pid: int) -> str:
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(entry for entry in environment if entry.startswith(b"EVALVE_AGENT=")).decode()


async def test_an_agent_that_asks_its_parent_to_end_ends_nobody_else(run: Run) -> None:
    ending = await run(["sh", "-c", "kill -TERM $PPID; sleep 0.2; echo answer"])
    assert (ending.exit_code, ending.by) == (0, "itself")


async def test_many_agents_at_once_each_have_their_own_end(supervisor: Supervisor, tmp_path: Path) -> None:
    async def one(number: int) -> int | None:
        folder = tmp_path / str(number)
        folder.mkdir()
        ending = await supervisor.run(order(folder, ["sh", "-c", f"exit {number}"]), Watch())
        return ending.exit_code

    assert await asyncio.gather(*map(one, range(50))) == list(range(50))


async def test_an_end_is_not_taken_for_the_beginning_of_another_agent(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """A process that is about to become a program holds copies of what the supervisor has open."""
    slow_to_begin = ":".join([*(f"/nowhere/{number}" for number in range(3_000)), os.environ["PATH"]])

    async def one(number: int) -> int | None:
        folder = tmp_path / str(number)
        folder.mkdir()
        asked = order(folder, ["true"])
        asked.environment["PATH"] = slow_to_begin
        await asyncio.sleep(0.005 * number)
        return (await supervisor.run(asked, Watch())).exit_code

    assert set(await asyncio.gather(*map(one, range(60)))) == {0}


@LINUX
async def test_of_many_agents_that_leave_daemons_nothing_is_left_when_evalve_ends(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    async def one(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        daemon = f"(setsid env -i sleep {UNMISTAKABLE_S} > /dev/null 2>&1 &)"
        await supervisor.run(order(folder, ["sh", "-c", daemon]), Watch())

    await asyncio.gather(*map(one, range(30)))
    await asyncio.to_thread(supervisor.close)
    assert _sleeping() == []
