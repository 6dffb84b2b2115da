"""Whatever becomes of the limits' file: calls go on, held to limits, and a person is told once."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from evalve.gate.limits.booking import Booking
from evalve.gate.limits.state import LimitState, Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.limits.steady_state import TRY_AGAIN_AFTER_S, SteadyState
from evalve.gate.messages import Cost, Limit, Limits, Stated
from evalve.testing import run_in_virtual_time

SCOPE = "api.test/key/model"
ONE: Cost = {"requests": 1}
ONE_A_SECOND = Limits({"requests": Limit(60, 1)})


class Time:
    """The machine's clock, set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def booked(state: LimitState, limits: Limits = ONE_A_SECOND) -> Booking:
    (booking,) = await state.exchange(SCOPE, limits, [], [ONE], horizon_s=0.0)
    return booking


def a_file_in_the_way(path: Path) -> None:
    path.parent.write_text("no folder")


def a_folder_in_its_place(path: Path) -> None:
    path.mkdir(parents=True)


@pytest.mark.parametrize("spoil", [a_file_in_the_way, a_folder_in_its_place])
def test_a_file_that_cannot_be_used_is_told_of_once_and_limits_hold_all_the_same(
    spoil: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "limits.db"
    spoil(path)
    state = SteadyState(SqliteState(path, now_s=Time()))

    with caplog.at_level(logging.WARNING):
        starts_s = [asyncio.run(booked(state)).start_s for _ in range(3)]

    assert [later - earlier for earlier, later in pairwise(starts_s)] == [
        1.5,
        1.0,
    ]  # half is trusted at first
    assert [record.getMessage().split()[0] for record in caplog.records] == [str(path)]


async def test_a_full_disk_that_can_be_read_makes_nobody_forget_what_was_booked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SqliteState) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    time = Time()
    shared = SqliteState(tmp_path / "limits.db", now_s=time)
    state = SteadyState(shared)
    await booked(state)
    monkeypatch.setattr(SqliteState, "_transaction", full)
    booked_s = [(await booked(state)).start_s for _ in range(60)]

    time.now_s += TRY_AGAIN_AFTER_S + 1
    await state.version(SCOPE)
    next_s = (await booked(state)).start_s

    assert next_s - booked_s[-1] == pytest.approx(1.0)
    await state.close()


async def test_a_disk_that_fills_up_in_the_middle_loses_no_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, time = tmp_path / "limits.db", Time()
    shared = SqliteState(path, now_s=time)
    state = SteadyState(shared)
    await booked(state, Limits())
    answer = Settlement({}, {}, time.now_s, {"requests": Stated(60, 0)}, answered=True)
    await state.exchange(SCOPE, Limits(), [answer], [], horizon_s=0.0)
    assert shared._connection is not None
    shared._connection.execute("PRAGMA max_page_count = 1")  # no page more: as a full disk
    big: Cost = {"requests": 1}
    crowd = {f"{number}": 1.0 for number in range(3000)}

    with caplog.at_level(logging.WARNING):
        first = await state.exchange(SCOPE, Limits(), [], [big | crowd], horizon_s=0.0)  # type: ignore[operator]
        second = await booked(state, Limits())

    assert "is full" in caplog.text
    assert first[0].granted
    assert second.start_s >= time.now_s + 1.0


async def test_a_file_that_is_damaged_while_it_is_open_is_put_aside_when_it_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, time = tmp_path / "limits.db", Time()
    state = SteadyState(SqliteState(path, now_s=time))
    await booked(state)
    await state._shared.close()
    path.write_bytes(b"\xff" * 8192)

    with caplog.at_level(logging.WARNING):
        later = [await booked(state) for _ in range(2)]

    assert all(booking.granted for booking in later)
    assert "limits start anew" in caplog.text


@contextmanager
def kept_by_another_program(path: Path) -> Iterator[sqlite3.Connection]:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield other
    finally:
        other.close()


def test_who_keeps_the_file_for_seconds_is_waited_for_while_the_loop_goes_on(tmp_path: Path) -> None:
    state = SteadyState(SqliteState(tmp_path / "limits.db"))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.1)
            turns += 1

    async def main() -> bool:
        await booked(state)
        counting = asyncio.create_task(count_turns())
        with kept_by_another_program(tmp_path / "limits.db") as other:
            asyncio.get_running_loop().call_later(2.0, other.execute, "ROLLBACK")
            booking = await booked(state)
        counting.cancel()
        return booking.granted and state._own is None

    assert run_in_virtual_time(main())
    assert 15 <= turns <= 25


def test_who_keeps_it_longer_is_done_without_and_it_is_used_again_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    state = SteadyState(SqliteState(tmp_path / "limits.db", now_s=time))

    async def main() -> tuple[float, bool, bool]:
        first = await booked(state)
        with kept_by_another_program(tmp_path / "limits.db"):
            second = await booked(state)
            alone = state._own is not None
        time.now_s += TRY_AGAIN_AFTER_S
        await booked(state)
        return second.start_s - first.start_s, alone, state._own is None

    with caplog.at_level(logging.WARNING):
        apart_s, alone, is_shared_again = run_in_virtual_time(main())

    assert (apart_s, alone, is_shared_again) == (1.5, True, True)
    assert "database is locked" in caplog.text


def remove_all_in(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


async def test_a_file_that_is_removed_is_made_again_with_what_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, time = tmp_path / "limits.db", Time()
    state, other = (SqliteState(path, now_s=time) for _ in range(2))
    first = await booked(state)
    remove_all_in(tmp_path)
    time.now_s += 10.0

    with caplog.at_level(logging.WARNING):
        await booked(state)
        second = await booked(other)

    assert first.granted
    assert second.start_s == pytest.approx(time.now_s + 1.0)  # it knows of the one that was just booked
    assert "was removed" in caplog.text
    await state.close()
    await other.close()


async def test_two_machines_with_one_file_keep_a_limit_each(tmp_path: Path) -> None:
    """Their clocks have nothing to do with each other: neither may take the other's buckets for old ones."""
    one = SqliteState(tmp_path / "limits.db", now_s=lambda: 1e6, boot="one")
    two = SqliteState(tmp_path / "limits.db", now_s=lambda: 50.0, boot="two")

    starts_s = [(await booked(state)).start_s for _ in range(20) for state in (one, two)]
    await one.close()
    await two.close()

    assert starts_s[::2][-1] == pytest.approx(1e6 + 19.5)
    assert starts_s[1::2][-1] == pytest.approx(50.0 + 19.5)


async def test_scopes_that_nobody_has_used_for_weeks_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    state = SqliteState(path)
    await booked(state)
    await state.exchange("api.test/replaced/model", ONE_A_SECOND, [], [ONE], horizon_s=0.0)
    await state.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE scopes SET used_at = used_at - 15 * 86400 WHERE scope LIKE '%replaced%'")
    connection.close()

    after = SqliteState(path)
    scopes = [view.scope for view in await after.views()]
    await after.close()

    assert scopes == [SCOPE]


async def test_a_process_of_another_container_holds_its_place_until_it_is_long_unheard(
    tmp_path: Path,
) -> None:
    time, one_at_once = Time(), Limits(concurrency=1)
    theirs, ours = (SqliteState(tmp_path / "limits.db", now_s=time) for _ in range(2))
    theirs._me = lambda: f"{os.getpid()}:1.00:elsewhere:0"  # type: ignore[method-assign]
    held = await booked(theirs, one_at_once)

    denied = await booked(ours, one_at_once)
    time.now_s += 601.0
    granted = await booked(ours, one_at_once)
    await theirs.close()
    await ours.close()

    assert (held.granted, denied.granted, granted.granted) == (True, False, True)
