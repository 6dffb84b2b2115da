"""`evalve.trace` inside a sample, wherever its code runs, and outside of one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve.contracts import Store
from evalve.engines.choosing import engine_for
from evalve.runner.evaluation import run_evaluation
from evalve.storage import open_store
from evalve.testing import run_in_virtual_time
from running import Notes, records, rows, run, runnable


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def events(store: Store, sample_id: str = "a") -> list[dict[str, Any]]:
    """The sample's events without their instants."""
    (record,) = (record for record in records(store) if record.sample_id == sample_id)
    return [{key: event[key] for key in event if key != "at"} for event in store.trace(record.id)]


def test_a_text_alone_is_a_note(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("looked it up")
        return True

    run(runnable(eval_x, rows("a")), store)

    assert events(store) == [{"kind": "note", "text": "looked it up"}]


def test_with_keyword_arguments_the_first_one_is_the_kind(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("tool_call", name="search", arguments={"q": "x"}, result="found")
        evalve.trace("turn", role="user", content="and now?")
        return True

    run(runnable(eval_x, rows("a")), store)

    assert events(store) == [
        {"kind": "tool_call", "name": "search", "arguments": {"q": "x"}, "result": "found"},
        {"kind": "turn", "role": "user", "content": "and now?"},
    ]


def test_samples_beside_each_other_have_traces_of_their_own(store: Store) -> None:
    async def eval_x(id: str) -> bool:
        evalve.trace(f"begins {id}")
        await asyncio.sleep(1)
        evalve.trace(f"ends {id}")
        return True

    run(runnable(eval_x, rows("a", "b")), store)

    assert [event["text"] for event in events(store, "a")] == ["begins a", "ends a"]
    assert [event["text"] for event in events(store, "b")] == ["begins b", "ends b"]


def in_a_task() -> Any:
    async def eval_x(id: str) -> bool:
        async with asyncio.TaskGroup() as group:
            group.create_task(_tracing())
        return True

    return eval_x


async def _tracing() -> None:
    evalve.trace("from elsewhere")


def in_to_thread() -> Any:
    async def eval_x(id: str) -> bool:
        await asyncio.to_thread(evalve.trace, "from elsewhere")
        return True

    return eval_x


def in_an_executor() -> Any:
    def eval_x(id: str) -> bool:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(evalve.trace, "from elsewhere").result()
        return True

    return eval_x


def in_a_bare_thread() -> Any:
    def eval_x(id: str) -> bool:
        thread = threading.Thread(target=evalve.trace, args=("from elsewhere",))
        thread.start()
        thread.join()
        return True

    return eval_x


@pytest.mark.parametrize("make", [in_a_task, in_to_thread, in_an_executor, in_a_bare_thread])
def test_tasks_and_threads_of_a_sample_add_to_its_trace(make: Callable[[], Any], store: Store) -> None:
    run(runnable(make(), rows("a"), max_concurrency=2), store)

    assert events(store) == [{"kind": "note", "text": "from elsewhere"}]


def test_a_failed_sample_has_its_trace(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("about to break")
        raise ValueError("broken")

    run(runnable(eval_x, rows("a")), store)

    assert records(store)[0].status == "failed"
    assert events(store) == [{"kind": "note", "text": "about to break"}]


def test_the_trace_has_the_events_of_every_try(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("tries")
        raise ConnectionError("away")

    run(runnable(eval_x, rows("a"), retries=2), store)

    assert events(store) == [{"kind": "note", "text": "tries"}] * 2


def test_with_tracing_off_nothing_is_recorded(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("unheard")
        evalve.trace.file("missing")
        return True

    run(runnable(eval_x, rows("a"), trace="off"), store)

    assert events(store) == []


def test_outside_of_a_sample_it_does_nothing(tmp_path: Path) -> None:
    evalve.trace("unheard")
    evalve.trace("tool_call", name="search")
    evalve.trace.file(tmp_path / "missing")


@pytest.mark.parametrize(
    "keep",
    [evalve.trace.file, lambda path: evalve.trace("file", path=path)],
    ids=["trace.file", "an event of the kind file"],
)
def test_a_file_is_kept_with_the_record(keep: Callable[[Path], None], store: Store, tmp_path: Path) -> None:
    def eval_x(id: str) -> bool:
        path = tmp_path / "answer.txt"
        path.write_text("four")
        keep(path)
        path.unlink()
        return True

    run(runnable(eval_x, rows("a")), store)

    (event,) = events(store)
    assert (event["kind"], event["name"], event["size_bytes"]) == ("file", "answer.txt", 4)
    with store.open_artefact(event["hash"]) as kept:
        assert kept.read() == b"four"


def test_a_file_that_cannot_be_kept_does_not_fail_the_sample(store: Store, tmp_path: Path) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace.file(tmp_path / "missing.txt")
        return True

    run(runnable(eval_x, rows("a")), store)

    assert records(store)[0].status == "done"
    assert events(store)[0]["problem"].startswith("not kept: No such file")


def test_a_secret_of_the_run_is_in_no_trace(store: Store) -> None:
    def eval_x(id: str) -> bool:
        evalve.trace("the key is correct horse battery")
        return True

    evaluation = runnable(eval_x, rows("a"))
    run_in_virtual_time(
        run_evaluation(
            evaluation,
            store=store,
            progress=Notes(),
            engine_for=engine_for,
            secrets=("correct horse battery",),
        )
    )

    assert events(store) == [{"kind": "note", "text": "the key is ***"}]
