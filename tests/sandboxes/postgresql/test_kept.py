"""Databases that samples share: through a lane, or through a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve.errors import DeclarationError, OptionError
from evalve.runner import retries
from evalve.sandboxes.postgresql.lender import postgres
from postgres_server import Admin

Play = Callable[[str, Any], Any]

ROWS = [{"id": name} for name in ("a1", "b1", "a2", "b2", "a3")]


async def writes(db: Any, text: str) -> list[str]:
    """By a tool call: what was there before, in order."""
    async with db.savepoint() as connection:
        cursor = await connection.execute("SELECT body FROM notes WHERE body <> 'first call' ORDER BY id")
        found = [body for (body,) in await cursor.fetchall()]
        await connection.execute("INSERT INTO notes (body) VALUES (%s)", (text,))
        return found


async def commits(db: Any, text: str) -> list[str]:
    """By a connection of the agent's own."""
    async with db.connect() as connection:
        cursor = await connection.execute("SELECT body FROM notes WHERE body <> 'first call' ORDER BY id")
        found = [body for (body,) in await cursor.fetchall()]
        await connection.execute("INSERT INTO notes (body) VALUES (%s)", (text,))
        return found


class Played:
    """Evaluations over the rows, in lanes by their first letter."""

    def __init__(self, state: tuple[Path, Path], folder: Path) -> None:
        self.storage = f"sqlite:///{folder}/db"
        self._state = state
        self.saw: dict[str, list[str]] = {}
        self.tries: list[str] = []

    def run(self, play: Play, *, reset: Any = "lane", lane: Any = "{id}", **options: Any) -> Any:
        if lane == "{id}":
            lane = lambda row: row["id"][0]  # noqa: E731

        @evalve.foreach("id", ROWS, lane=lane)
        async def eval_notes(id: str, db: Any) -> bool:
            self.tries.append(id)
            self.saw[id] = await play(id, db)
            return True

        return evalve.run(
            eval_notes,
            db=postgres(*self._state, reset=reset),
            storage=self.storage,
            experiment="exp",
            progress="plain",
            accept_changes=True,
            **options,
        )


@pytest.fixture
def played(admin: Admin, state: tuple[Path, Path], tmp_path: Path) -> Played:
    return Played(state, tmp_path)


def _without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again at once."""
    monkeypatch.setattr(retries, "FIRST_DELAY_S", 0.0)
    defaults = retries.InfrastructureRetries.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "jitter", lambda: 0.0)


@pytest.mark.parametrize("write", [writes, commits])
def test_a_lane_keeps_its_database_and_the_next_has_a_fresh_one(
    played: Played, write: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    result = played.run(lambda id, db: write(db, id))

    assert played.saw == {"a1": [], "a2": ["a1"], "a3": ["a1", "a2"], "b1": [], "b2": ["b1"]}
    lent = {record.sample_id: record.lent["db"] for record in result}
    assert len({lent[name]["database"] for name in ("a1", "a2", "a3")}) == 1
    assert lent["a3"]["kept"] == "after 2 of its lane"
    assert "0 databases, 0 connections left (lent 2" in capfd.readouterr().err


def test_never_keeps_one_database_through_the_run_which_is_one_lane(played: Played) -> None:
    played.run(lambda id, db: writes(db, id), reset="never", lane=None)

    assert played.saw["a3"] == ["a1", "b1", "a2", "b2"]


def test_each_repeat_begins_anew(played: Played) -> None:
    counts: list[int] = []

    async def play(id: str, db: Any) -> list[str]:
        found = await writes(db, id)
        counts.append(len(found))
        return found

    played.run(play, reset="never", lane=None, repeat=2)

    assert sorted(counts) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("fails_at", ["a1", "a2"])
def test_a_try_that_fails_in_evalves_transaction_is_undone(
    played: Played, fails_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_delay(monkeypatch)

    async def play(id: str, db: Any) -> list[str]:
        found = await writes(db, id)
        if id == fails_at and played.tries.count(id) < 2:
            raise evalve.errors.InfrastructureError("the machine was busy")
        return found

    played.run(play)

    assert played.tries.count(fails_at) == 2
    assert played.saw["a3"] == ["a1", "a2"]


def test_a_sample_that_fails_for_good_leaves_nothing_to_its_lane(played: Played) -> None:
    async def play(id: str, db: Any) -> list[str]:
        found = await writes(db, id)
        if id == "a2":
            raise ValueError("broken")
        return found

    result = played.run(play)

    assert played.saw["a3"] == ["a1"]
    assert [(one.sample_id, one.status) for one in result if one.status != "done"] == [("a2", "failed")]


def test_what_cannot_be_undone_ends_the_lane_and_running_again_runs_it_from_its_first(played: Played) -> None:
    async def play(id: str, db: Any) -> list[str]:
        found = await commits(db, id)
        if id == "a2":
            raise ValueError("broken")
        return found

    result = played.run(play)

    failed = {one.sample_id: one.failure for one in result if one.status == "failed"}
    assert list(failed) == ["a2", "a3"]
    assert "the state of lane 'a' was lost with sample 'a2' (ValueError: broken)" in str(failed["a3"])
    assert failed["a3"].failure_class == "infrastructure"
    assert played.tries.count("a3") == 0

    again = list(played.run(lambda id, db: commits(db, id)))

    assert played.saw["a3"] == ["a1", "a2"]
    assert played.tries.count("b1") == 1
    assert {one.status for one in again} == {"done"}


def test_a_lane_whose_connection_is_ended_is_lost(
    played: Played, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_delay(monkeypatch)

    async def play(id: str, db: Any) -> list[str]:
        found = await writes(db, id)
        if id == "a2":
            admin.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", db.name)
        return found

    result = played.run(play)

    assert {one.sample_id: one.status for one in result} == {
        "a1": "done",
        "a2": "failed",
        "a3": "failed",
        "b1": "done",
        "b2": "done",
    }


def test_a_lane_whose_database_somebody_else_wrote_into_is_not_trusted(
    played: Played, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_delay(monkeypatch)

    async def play(id: str, db: Any) -> list[str]:
        found = await writes(db, id)
        if id == "a3":
            admin.ask("UPDATE clients SET stage = 'lead'", database=db.name)
        return found

    result = played.run(play)

    assert [one.sample_id for one in result if one.status == "failed"] == ["a3"]
    assert played.tries.count("a3") == 1
    played.run(lambda id, db: writes(db, id))
    assert played.saw["a3"] == ["a1", "a2"]


def test_lanes_need_to_be_told_and_words_to_be_known(played: Played, state: tuple[Path, Path]) -> None:
    with pytest.raises(OptionError, match="'db' is kept through each lane, and there are no lanes"):
        played.run(lambda id, db: writes(db, id), lane=None)
    with pytest.raises(
        DeclarationError, match=r"test_kept.py:\d+: reset= is one of: conversation, lane, never"
    ):
        postgres(*state, reset="always")  # type: ignore[arg-type]
