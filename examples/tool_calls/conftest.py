"""What the suite needs: a cache of its own, a judge, and a simulated provider where there is no key."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import evalve
from evalve.simulator import Simulator

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
SIMULATED: pytest.StashKey[str] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--known-misses", metavar="FILE", help="tests that are known to fail, one in each line")


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is asked; xdist's workers inherit the variables."""
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("EVALVE_CACHE_DIR", str(HERE / ".tool_call_cache"))
    os.environ.setdefault("EVALVE_MODEL", suite().MODEL)
    if not os.environ.get("ANTHROPIC_API_KEY"):
        simulated = ExitStack()
        config.add_cleanup(simulated.close)
        config.stash[SIMULATED] = simulated.enter_context(serving())
        os.environ["ANTHROPIC_BASE_URL"] = config.stash[SIMULATED]
        os.environ["ANTHROPIC_API_KEY"] = "simulated"


def pytest_report_header(config: pytest.Config) -> str | None:
    url = config.stash.get(SIMULATED, None)
    return url and f"tool calls: no ANTHROPIC_API_KEY, so a simulated model answers at {url}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is known to fail may fail, and must not pass: then its line goes."""
    file = config.getoption("--known-misses")
    known = set(Path(file).read_text(encoding="utf-8").split()) if file else set()
    for item in items:
        if item.name in known:
            item.add_marker(pytest.mark.xfail(reason=f"known, in {file}", strict=True))


@pytest.fixture(scope="session")
def judge(request: pytest.FixtureRequest) -> Any:
    """The model that judges; nobody where no test that was selected reads a verdict."""
    is_wanted = any(item.get_closest_marker("llm") for item in request.session.items)
    return evalve.model(os.environ.get("EVAL_JUDGE") or suite().MODEL) if is_wanted else None


def suite() -> Any:
    import suite as module  # here, because pytest reads this file before it knows the folder

    return module


@contextmanager
def serving() -> Iterator[str]:
    """A simulated provider, at the address of last time if it is free: the cache knows calls by it."""
    from provider import behaviour

    noted = Path(os.environ["EVALVE_CACHE_DIR"]) / "simulated_port"
    latency_s = float(os.environ.get("SIMULATED_LATENCY_S", "0.05"))
    last = int(noted.read_text()) if noted.exists() else 0
    with ExitStack() as stack:
        for port in dict.fromkeys((last, 0)):
            with suppress(evalve.OptionError):  # somebody else has it now
                provider = Simulator(behaviour(latency_s), port=port)
                url = stack.enter_context(provider.start_in_thread()).url
                break
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(url.rpartition(":")[2])
        yield url
