"""Limits shared by real processes through one file, and what becomes of it when things go wrong."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from evalve.clock import LOOP_CLOCK
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Call, Cost, Limit, Limits, Stated

SCOPE = "api.test/key/model"
ONE: Cost = {"requests": 1}
TWO_AT_ONCE = Limits({"requests": Limit(6e6, 1e5)}, concurrency=2)
PATIENCE_S = 60

HEADER = """
import asyncio, json, sys
from pathlib import Path
from evalve.gate.messages import Limit, Limits
from evalve.gate.limits.state import Settlement
from evalve.gate.limits.state_sqlite import SqliteState
state = SqliteState(Path(sys.argv[1]))
"""

BOOKS_MANY = """
async def main():
    limits = Limits({"requests": Limit(6000, 20), "input_tokens": Limit(600_000, 5000)})
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        cost = {"requests": 1, "input_tokens": 3000 if number % 10 == 0 else 50}
        (booking,) = await state.exchange(SCOPE, limits, [], [cost], horizon_s=0.0)
        print(json.dumps([booking.start_s, cost]), flush=True)
asyncio.run(main())
"""

HOLDS_TWO = """
async def main():
    limits = Limits({"requests": Limit(6e6, 1e5)}, concurrency=2)
    await state.exchange(SCOPE, limits, [], [{"requests": 1}, {"requests": 1}], horizon_s=1.0)
    print("ready", flush=True)
    sys.stdin.readline()
asyncio.run(main())
"""

HANDS_ONE_OVER = """
async def main():
    limits = Limits({"requests": Limit(6e6, 1e5)}, concurrency=2)
    one, _ = await state.exchange(SCOPE, limits, [], [{"requests": 1}, {"requests": 1}], horizon_s=1.0)
    print("ready", flush=True)
    sys.stdin.readline()
    ended = Settlement(one.cost, one.cost, one.start_s, version=one.version)
    await state.exchange(SCOPE, limits, [ended], [], horizon_s=0.0)
    sys.stdin.readline()
asyncio.run(main())
"""


@contextmanager
def a_process(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process with the same state, when it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", HEADER + dedent(program).replace("SCOPE", repr(SCOPE)), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdin.close()
        process.stdout.close()


def refusals_of_a_true_provider(
    calls: Sequence[tuple[float, Cost]], rates: dict[str, tuple[float, float]]
) -> int:
    """How many would be refused by buckets of that rate and depth, if sent at their instants."""
    levels = {name: depth for name, (_, depth) in rates.items()}
    refused, at_s = 0, calls[0][0]
    for start_s, cost in calls:
        for name, (rate, depth) in rates.items():
            levels[name] = min(depth, levels[name] + (start_s - at_s) * rate)
        at_s = start_s
        fits = all(levels[name] >= amount - 1e-6 for name, amount in cost.items())
        refused += not fits
        for name, amount in cost.items():
            levels[name] -= amount if fits else 0.0
    return refused


def test_processes_that_share_a_file_are_together_never_above_the_rates(tmp_path: Path) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(a_process(BOOKS_MANY, tmp_path / "limits.db", 100)) for _ in range(4)
        ]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        lines = [
            line for process in processes for line in process.communicate(timeout=PATIENCE_S)[0].splitlines()
        ]
    calls = sorted((json.loads(line) for line in lines), key=lambda call: float(call[0]))

    assert len(calls) == 400
    rates = {"requests": (100.0, 20.0), "input_tokens": (10_000.0, 5000.0)}
    assert refusals_of_a_true_provider(calls, rates) == 0
    # 138,000 tokens at 10,000 a second: nobody waited for nothing either
    assert calls[-1][0] - calls[0][0] < 13.8 + 0.5


async def test_what_a_killed_process_had_in_flight_is_reclaimed(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")
    with a_process(HOLDS_TWO, tmp_path / "limits.db") as holder:
        (while_alive,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
        holder.kill()
        holder.wait(PATIENCE_S)

        (after,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)

    assert (while_alive.granted, after.granted) == (False, True)
    await state.close()


async def test_a_killed_process_that_nobody_has_waited_for_is_dead_too(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")
    with a_process(HOLDS_TWO, tmp_path / "limits.db") as holder:
        os.kill(holder.pid, signal.SIGKILL)
        await asyncio.to_thread(until_dead_but_not_reaped, holder.pid)

        (booking,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
        views = await state.views()

    assert booking.granted
    pids = [name.partition(":")[0] for view in views for name in view.holders]
    assert pids == [str(os.getpid())]
    await state.close()


def until_dead_but_not_reaped(pid: int) -> None:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


CALL = Call(
    provider="anthropic",
    host="api.test",
    model="model",
    pool="model",
    key_hash="key",
    input_bytes=100,
    max_output_tokens=100,
    streams=False,
)


def a_limiter_that_asks_again_tomorrow(state: SqliteState) -> Limiter:
    """What it has before, it has because it was woken."""
    return Limiter(state, limits_for=lambda call: TWO_AT_ONCE, ask_again_s=86_400.0)


async def until_somebody_waits(state: SqliteState) -> None:
    while not (await state.peek(SCOPE)).line.waits:  # nobody tells of that
        await LOOP_CLOCK.sleep(0.001)


async def test_who_waits_for_a_place_is_woken_by_the_process_that_leaves_it(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")
    with a_process(HANDS_ONE_OVER, tmp_path / "limits.db") as holder:
        assert holder.stdin is not None
        limiter = a_limiter_that_asks_again_tomorrow(state)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            admitted = tasks.create_task(limiter.admit(CALL, ONE))
            await until_somebody_waits(state)
            holder.stdin.write("leave one\n")
            holder.stdin.flush()
    await state.close()

    assert admitted.result().booked


async def test_who_waits_in_another_thread_is_woken_there(tmp_path: Path) -> None:
    state, other = (SqliteState(tmp_path / "limits.db") for _ in range(2))
    held, _ = await other.exchange(SCOPE, TWO_AT_ONCE, [], [ONE, ONE], horizon_s=1.0)
    limiter = a_limiter_that_asks_again_tomorrow(state)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        admitted = tasks.create_task(asyncio.to_thread(lambda: asyncio.run(limiter.admit(CALL, ONE))))
        await until_somebody_waits(other)
        ended = Settlement(held.cost, held.cost, held.start_s, version=held.version)
        await other.exchange(SCOPE, TWO_AT_ONCE, [ended], [], horizon_s=0.0)
    await state.close()
    await other.close()

    assert admitted.result().booked


async def test_who_waits_is_told_when_its_scope_is_forgotten(tmp_path: Path) -> None:
    state, other = (SqliteState(tmp_path / "limits.db") for _ in range(2))
    await other.exchange(SCOPE, TWO_AT_ONCE, [], [ONE, ONE], horizon_s=1.0)
    limiter = a_limiter_that_asks_again_tomorrow(state)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        admitted = tasks.create_task(limiter.admit(CALL, ONE))
        await until_somebody_waits(other)
        await other.forget(SCOPE)
    await state.close()
    await other.close()

    assert admitted.result().booked


async def test_where_nobody_can_be_woken_a_place_is_asked_for_again_soon(tmp_path: Path) -> None:
    (tmp_path / "limits.waiting").write_text("a file is in the way of FIFOs")
    state, other = (SqliteState(tmp_path / "limits.db", now_s=lambda: 5.0) for _ in range(2))
    await other.exchange(SCOPE, TWO_AT_ONCE, [], [ONE, ONE], horizon_s=1.0)

    (denied,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
    await state.close()
    await other.close()

    assert (denied.granted, denied.start_s) == (False, 5.1)


def test_while_nobody_waits_for_a_place_nothing_is_made_but_the_database(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")

    asyncio.run(_book(state))
    asyncio.run(_book(state))
    asyncio.run(state.close())

    assert [path.name for path in tmp_path.iterdir()] == ["limits.db"]


async def test_what_a_dead_process_booked_stays_spent(tmp_path: Path) -> None:
    limits = Limits({"requests": Limit(60, 2)}, concurrency=2)
    path = tmp_path / "limits.db"
    state = SqliteState(path)
    await state.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    (booking,) = await state.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    await state.close()
    with sqlite3.connect(path) as connection:
        plain = connection.execute("SELECT state FROM scopes").fetchone()[0]
        connection.execute("UPDATE scopes SET state = ?", (plain.replace(f'"{os.getpid()}:', '"999999999:'),))
    connection.close()

    another = SqliteState(path)
    for _ in range(2):
        (after,) = await another.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    await another.close()

    assert after.granted
    assert after.start_s > booking.start_s


async def test_the_levels_of_another_boot_are_dropped_and_its_limits_kept(tmp_path: Path) -> None:
    before = SqliteState(tmp_path / "limits.db", now_s=lambda: 1e6, boot="yesterday")
    (booking,) = await before.exchange(SCOPE, Limits(), [], [ONE], horizon_s=0.0)
    answer = Settlement(
        booking.cost, booking.cost, booking.start_s, {"requests": Stated(60, 0)}, answered=True
    )
    await before.exchange(SCOPE, Limits(), [answer], [{"requests": 1000}, ONE], horizon_s=float("inf"))
    await before.close()

    after = SqliteState(tmp_path / "limits.db", now_s=lambda: 5.0, boot="today")
    remembered = await after.peek(SCOPE)
    (first,) = await after.exchange(SCOPE, Limits(), [], [ONE], horizon_s=0.0)
    state = await after.peek(SCOPE)
    await after.close()

    assert remembered.stated["requests"][0] == 1.0
    assert remembered.buckets == {}
    assert first.start_s == 5.0
    assert state.buckets["requests"].per_s == 1.0


async def test_a_process_whose_clock_is_faked_holds_nobody_up_for_years(tmp_path: Path) -> None:
    """As under faketime, which fakes the time since the machine's start as well."""
    limits = Limits({"requests": Limit(60, 1)})
    path = tmp_path / "limits.db"
    ours = SqliteState(path, now_s=lambda: 1000.0)
    (before,) = await ours.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    faked = SqliteState(path, now_s=lambda: 1.8e9)
    await faked.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)

    (after,) = await ours.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    await faked.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    another = SqliteState(path, now_s=lambda: 1001.0)
    (of_another,) = await another.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    for state in (ours, faked, another):
        await state.close()

    assert before.start_s == 1000.0
    assert 1000.0 < after.start_s < 1002.0  # after its own first, as the limit wants it
    assert of_another.start_s < 1003.0


@pytest.mark.parametrize("damage", ["not a database", "a page"])
async def test_a_damaged_file_is_put_aside_and_limits_start_anew(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "limits.db"
    if damage == "a page":
        healthy = SqliteState(path)
        await healthy.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
        await healthy.close()
        content = bytearray(path.read_bytes())
        content[4096:] = b"\xff" * (len(content) - 4096)
        path.write_bytes(content)
    else:
        path.write_bytes(b"this is no database, whatever its name says" * 100)
    state = SqliteState(path)

    with caplog.at_level(logging.WARNING):
        (booking,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
    await state.close()

    assert booking.granted
    assert "limits start anew" in caplog.text
    assert (tmp_path / f"limits.broken-{os.getpid()}").exists()


async def test_a_state_that_another_version_wrote_is_learnt_anew(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    state = SqliteState(path)
    await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE, ONE], horizon_s=1.0)
    with sqlite3.connect(path) as connection:
        connection.execute("""UPDATE scopes SET state = '{"buckets": {"requests": [1, 2]}}'""")
    connection.close()

    (booking,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
    await state.close()

    assert booking.granted


async def test_a_directory_that_does_not_exist_is_made_for_this_person_alone(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "a" / "limits.db")

    await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
    await state.close()

    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_a_forked_child_uses_a_connection_of_its_own_and_holds_what_is_its_own(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")
    asyncio.run(_book(state))

    child = os.fork()
    if child == 0:
        os._exit(0 if asyncio.run(_book(state)) else 1)
    _, status = os.waitpid(child, 0)

    # the child had the second place, and lost it by dying
    assert os.waitstatus_to_exitcode(status) == 0
    assert asyncio.run(_book(state))
    asyncio.run(state.close())


async def _book(state: SqliteState) -> bool:
    (booking,) = await state.exchange(SCOPE, TWO_AT_ONCE, [], [ONE], horizon_s=0.0)
    return booking.granted


async def test_who_holds_what_is_told_in_words(tmp_path: Path) -> None:
    state = SqliteState(tmp_path / "limits.db")
    with a_process(HOLDS_TWO, tmp_path / "limits.db") as holder:
        (view,) = await state.views()
        words = list(view.holders.values())
    await state.close()

    assert len(words) == 1
    assert words[0].startswith(f"process {holder.pid} (python")
