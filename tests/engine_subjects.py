"""Functions that engines run: in a module of their own, which worker processes can import."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from evalve import Score, metric
from evalve.contracts import SAMPLE, SampleContext


class OddError(Exception):
    """One that pickle writes and cannot read."""

    def __init__(self, code: int, *, lock: Any) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.lock = lock


class Unwritable:
    """Something that cannot leave its process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Unreadable:
    """Something that can be written, and not read again."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not here")


@metric
def share_above(threshold: float = 0.5) -> Any:
    def share(values: list[float]) -> float:
        return sum(value > threshold for value in values) / len(values)

    return share


def context() -> SampleContext:
    sample = SAMPLE.get()
    assert sample is not None
    return sample


# -- what every engine runs


def returns(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


def raises_value_error(a: int) -> None:
    raise ValueError(f"no {a}")


def raises_odd_error() -> None:
    raise OddError(7, lock=threading.Lock())


def raises_local_error() -> None:
    class LocalError(ConnectionError):
        pass

    raise LocalError("far away")


def skips() -> None:
    pytest.skip("does not apply")


def exits() -> None:
    sys.exit(3)


def stops_iterating() -> None:
    raise StopIteration("early")


def tells_its_sample() -> tuple[Any, ...]:
    sample = context()
    return sample.experiment, sample.evaluation, sample.sample_id, sample.repeat, sample.try_number


def leaves_calls_and_a_trace() -> bool:
    sample = context()
    sample.calls.requests += 2
    sample.calls.cost_usd += 0.5
    sample.calls.ordinals["question"] = sample.calls.ordinals.get("question", 0) + 1
    assert sample.trace is not None
    sample.trace.add("note", text="seen", lock=threading.Lock())
    return True


def leaves_a_file_that_changes_and_goes(folder: str) -> bool:
    trace = context().trace
    assert trace is not None
    path = Path(folder) / "plan.txt"
    for text in ("draft", "final"):
        path.write_text(text)
        trace.file(path)
    path.unlink()
    trace.file(path)
    return True


def waits() -> str:
    return asyncio.run(waits_async())


async def waits_async() -> str:
    surroundings = context().surroundings
    assert surroundings is not None
    surroundings.call_begins()
    await context().held(asyncio.sleep(0), "limits")
    await context().parked(asyncio.sleep(0), "circuit")
    surroundings.call_ends()
    return "waited"


def waits_for_ever() -> None:
    asyncio.run(waits_for_ever_async())


async def waits_for_ever_async() -> None:
    await context().held(asyncio.Event().wait(), "nothing")


def stops_the_run() -> bool:
    context().stop_run("the account is spent")
    context().stop_run("the budget is spent", drops_sample=True)
    return True


# -- what only processes can run, or need to show


def pid() -> int:
    return os.getpid()


def pid_of_sample(a: int) -> tuple[int, int]:
    return a, os.getpid()


def is_on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def kills_its_process(how: str) -> None:
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), getattr(signal, how))


def leaves_a_note_and_a_call_and_kills_its_process() -> None:
    trace, surroundings = context().trace, context().surroundings
    assert trace is not None
    assert surroundings is not None
    trace.add("note", text="the last words")

    async def call() -> None:
        surroundings.call_begins()
        context().calls.requests += 1
        surroundings.call_ends()

    for _ in range(2):
        asyncio.run(call())
    os._exit(3)


def starts_a_program_and_hangs(folder: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (Path(folder) / "writing").write_text(f"{os.getpid()} {child.pid}")
    (Path(folder) / "writing").rename(Path(folder) / "pids")
    while True:
        time.sleep(600)


def waits_for_a_file(path: str) -> bool:
    async def wait() -> bool:
        return await context().held(asyncio.to_thread(works_until_a_file, path), "file")

    return asyncio.run(wait())


def works_until_a_file(path: str) -> bool:
    Path(path).with_suffix(".begun").touch()
    while not Path(path).exists():
        time.sleep(0.005)
    return True


def computes(cpu_s: float) -> bool:
    while time.process_time() < cpu_s:
        pass
    return True


def returns_a_lock() -> Any:
    return threading.Lock()


def returns_a_variant_metric() -> Score:
    return Score("x", 0.7, metrics=[share_above(0.25)])


def takes_anything(thing: Any) -> str:
    return type(thing).__name__


def tells_its_model(model: Any) -> tuple[str, str, int]:
    return model.name, model._headers["x-team"], os.getppid()


def prints() -> bool:
    print("printed in a worker")
    return True


class Subject:
    """Its method is run with an instance that crosses."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def multiplies(self, a: int) -> int:
        return self.factor * a
