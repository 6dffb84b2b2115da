"""What importing evalve may not bring along: every pytest run on the machine imports its plugin."""

from __future__ import annotations

import subprocess
import sys

import evalve
from evalve import errors, records

HEAVY = (
    "asyncio",
    "concurrent.futures",
    "dataclasses",
    "datasets",
    "evalve.contracts",
    "evalve.declare",
    "evalve.runner",
    "evalve.sandboxes",
    "evalve.show",
    "evalve.storage",
    "evalve.wiring",
    "inspect",
    "jsonschema",
    "logging",
    "numpy",
    "pandas",
    "polars",
    "psutil",
    "pyarrow",
    "pytest",
    "sqlite3",
    "tenacity",
    "yaml",
)
FOR_RUNS_ONLY = (
    "aiohttp",
    "datasets",
    "evalve.declare",
    "evalve.plugin.session",
    "evalve.runner",
    "evalve.sandboxes",
    "evalve.show",
    "evalve.storage",
    "evalve.wiring",
    "jsonschema",
    "numpy",
    "pandas",
    "polars",
    "psutil",
    "pyarrow",
    "sqlite3",
    "tenacity",
    "yaml",
)
FOR_CALLS_ONLY = (
    "aiohttp",
    "datasets",
    "evalve.runner",
    "evalve.show",
    "evalve.storage",
    "evalve.wiring",
    "jsonschema",
    "numpy",
    "pandas",
    "polars",
    "psutil",
    "pyarrow",
    "pytest",
    "tenacity",
    "yaml",
)


def loaded_by(code: str) -> set[str]:
    """The modules that an interpreter holds after this code and did not hold before."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    # -I: without variables and packages of the person's own; -S would hide evalve itself
    answer = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_the_probe_sees_what_is_loaded() -> None:
    assert {"evalve", "evalve.storage", "sqlite3"} <= loaded_by("import evalve.storage")


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_by("import evalve") & set(HEAVY) == set()


def test_every_error_is_a_public_name() -> None:
    raised = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }

    assert {name: getattr(evalve, name) for name in evalve.__all__ if name in raised} == raised


def test_importing_the_plugin_loads_nothing_that_only_runs_need() -> None:
    assert loaded_by("import evalve.plugin.hooks") & set(FOR_RUNS_ONLY) == set()


def test_a_run_loads_only_the_rooms_that_it_asks_for() -> None:
    seldom = {
        "evalve.agents.agent",
        "evalve.batches.gathering",
        "evalve.conversations",
        "evalve.gate.batches.queue",
    }

    assert loaded_by("import evalve.plugin.session") & seldom == set()


def test_declaring_an_evaluation_loads_nothing_that_only_calls_need() -> None:
    code = "from evalve import ForEach, Result, foreach; from evalve.evaluators import exact_match"

    assert loaded_by(code) & set(FOR_CALLS_ONLY) == set()


def test_pytest_does_not_compile_the_package_anew_for_the_sake_of_its_asserts() -> None:
    assert type(records.__loader__).__name__ == "SourceFileLoader"
