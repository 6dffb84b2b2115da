"""A provider whose model judges as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evalve import gating
from evalve.simulator import Behaviour, Simulator


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a provider whose model answers as told, and points everything at it."""
    monkeypatch.setattr(gating, "_HOUSES", {})
    monkeypatch.chdir(tmp_path)
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"EVALVE_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-4711")

    @contextmanager
    def started(answers: Any) -> Iterator[Simulator]:
        with Simulator(Behaviour(answers=answers)).start_in_thread() as simulator:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.url)
            yield simulator

    yield started
    for house in gating._HOUSES.values():
        house.close()
