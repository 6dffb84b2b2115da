"""A provider with batches, and a project in an empty directory that is pointed at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evalve import gating
from evalve.gate.background import SHARED
from evalve.simulator import Batches, Behaviour, Simulator

Started = Callable[..., Simulator]


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Starts one whose model says the last word of what it is asked."""
    monkeypatch.setattr(gating, "_HOUSES", {})
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"EVALVE_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("EVALVE_BATCH_LINGER_S", "2")
    opened: list[Any] = []

    def started(**settings: Any) -> Simulator:
        behaviour = behaving(**settings)
        serving = Simulator(behaviour).start_in_thread()
        simulator = serving.__enter__()
        opened.append(serving)
        for name, url in (("ANTHROPIC", simulator.url), ("OPENAI", f"{simulator.url}/v1")):
            monkeypatch.setenv(f"{name}_BASE_URL", url)
            monkeypatch.setenv(f"{name}_API_KEY", "sk-test-4711")
        return simulator

    yield started
    SHARED.stop()  # what still looks after a batch there would lose its connection to the garbage collector
    for house in gating._HOUSES.values():
        house.close()
    for serving in opened:
        serving.__exit__(None, None, None)


def behaving(**settings: Any) -> Behaviour:
    return Behaviour(
        answers=lambda ask: ask.prompt.rpartition(" ")[2], batches=Batches(**{"delay_s": 0.1, **settings})
    )
