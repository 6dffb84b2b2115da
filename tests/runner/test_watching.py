"""An async evaluation that blocks the loop is told so."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve.runner import watching
from evalve.runner.watching import watching_for_blocking


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "BLOCKED_FOR_S", 0.0)
    monkeypatch.setattr(watching, "_LOOK_EVERY_S", 0.001)


class Listener:
    """Keeps what it is told, and lets go whoever blocks until something is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = threading.Event()

    def tell(self, text: str) -> None:
        self.said.append(text)
        self.heard.set()


async def test_the_place_that_blocks_is_told_with_the_remedy() -> None:
    listener = Listener()

    async def evaluate() -> None:
        listener.heard.wait(30)

    line = inspect.getsourcelines(evaluate)[1] + 1
    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        await evaluate()

    (text,) = listener.said
    assert text.startswith(f"eval_x blocks the event loop: `listener.heard.wait(30)` ({__file__}:{line}) ")
    assert text.endswith(
        "and no other sample runs meanwhile. Await an async call there, wrap it as "
        "`await asyncio.to_thread(...)`, or write the evaluation as `def` instead of `async def`."
    )


async def test_a_block_below_the_function_is_told_at_the_functions_own_line() -> None:
    listener = Listener()

    def helper() -> None:
        listener.heard.wait(30)

    async def evaluate() -> None:
        helper()

    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        await evaluate()

    assert "`helper()`" in listener.said[0]


async def test_a_path_with_letters_of_any_language_is_found(tmp_path: Path) -> None:
    path = tmp_path / "prüfung_🜁" / "eval_x.py"
    path.parent.mkdir()
    path.write_text("async def evaluate(heard):\n    heard.wait(30)\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    listener = Listener()

    with watching_for_blocking(names["evaluate"], "eval_x", tell=listener.tell):
        await names["evaluate"](listener.heard)

    assert f"`heard.wait(30)` ({path}:2) " in listener.said[0]


async def test_many_that_each_take_a_moment_do_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    moved_on, looked, over = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    current_task = asyncio.current_task

    def look(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Task[Any] | None:
        assert over.is_set() or moved_on.acquire(timeout=60)
        task = current_task(loop)
        looked.release()
        return task

    async def evaluate() -> None:
        moved_on.release()
        assert looked.acquire(timeout=60)  # the turn lasts for as many looks as there are samples

    monkeypatch.setattr(asyncio, "current_task", look)  # before anybody looks, or a sample is seen twice
    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        tasks = [asyncio.ensure_future(evaluate()) for _ in range(20)]
        await asyncio.wait(tasks)
        over.set()
        moved_on.release()  # whoever looks already after the last one

    assert listener.said == []


async def test_the_import_of_a_module_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_to_import.py").write_text("import builtins\nbuiltins.wait_for_looks()\n")
    monkeypatch.syspath_prepend(tmp_path)
    listener = Listener()
    stack_of = watching._stack_of
    looks = threading.Semaphore(0)

    def look(thread: int) -> Iterator[tuple[str, int, str]]:
        looks.release()
        return stack_of(thread)

    def wait_for_looks() -> None:
        for _ in range(4):
            assert looks.acquire(timeout=60)

    async def evaluate() -> None:
        importlib.import_module("slow_to_import")

    monkeypatch.setattr(watching, "_stack_of", look)
    monkeypatch.setattr("builtins.wait_for_looks", wait_for_looks, raising=False)
    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        await evaluate()

    assert listener.said == []


@pytest.mark.parametrize(("file", "told"), [("gate/exchange.py", 0), ("gate/background.py", 1)])
async def test_what_evalve_itself_takes_long_for_is_not_the_evaluations_fault(file: str, told: int) -> None:
    listener = Listener()
    package = str(Path(watching.__file__).parent.parent)
    names: dict[str, Any] = {}
    exec(compile("def block(wait): wait(0.2)", f"{package}/{file}", "exec"), names)

    async def evaluate() -> None:
        names["block"](listener.heard.wait)

    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        await evaluate()

    assert len(listener.said) == told


async def test_it_is_told_only_once() -> None:
    listener = Listener()
    watcher_is_alive: list[bool] = []

    async def evaluate() -> None:
        listener.heard.wait(30)
        for thread in [thread for thread in threading.enumerate() if thread.name == "evalve-watch"]:
            thread.join(30)
            watcher_is_alive.append(thread.is_alive())

    with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
        await evaluate()

    assert (any(watcher_is_alive), len(listener.said)) == (False, 1)


async def test_a_loop_blocked_by_something_else_is_not_the_evaluations_fault() -> None:
    listener = Listener()
    looked = threading.Event()

    async def evaluate() -> None:
        await asyncio.sleep(0)

    stack_of = watching._stack_of

    def look(thread: int) -> Iterator[tuple[str, int, str]]:
        looked.set()
        return stack_of(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "_stack_of", look)
        with watching_for_blocking(evaluate, "eval_x", tell=listener.tell):
            assert looked.wait(30)

    assert listener.said == []


async def test_afterwards_nobody_watches() -> None:
    async def evaluate() -> None:
        await asyncio.sleep(0)

    before = set(threading.enumerate())  # one of the test before may not have ended yet
    with watching_for_blocking(evaluate, "eval_x", tell=Listener().tell):
        watchers = [one for one in set(threading.enumerate()) - before if one.name == "evalve-watch"]
        await evaluate()
    for thread in watchers:
        thread.join(30)

    assert [thread.is_alive() for thread in watchers] == [False]
