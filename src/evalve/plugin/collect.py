"""The evaluations of a file, found as pytest finds them: it is imported, and none of its samples is run."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evalve.declare.foreach import Evaluation, as_called
from evalve.errors import DeclarationError, NotFound
from evalve.options import suggestion
from evalve.plugin.hooks import is_evaluation
from evalve.plugin.items import evaluation_of, variant_of
from evalve.plugin.run import run_pytest
from evalve.reading.marks import reading_of


@dataclass(frozen=True, slots=True)
class Collected:
    """An evaluation in one of its variants."""

    label: str
    key: str
    evaluation: Evaluation


def collect(argument: str, *, model: str | None, folder: Path) -> list[Collected]:
    """What `pytest FILE[::NAME]` would run from `folder`."""
    file, _, name = argument.partition("::")
    finder = _Finder()
    said, complained = io.StringIO(), io.StringIO()
    chosen = ["--evalve-model", model] if model is not None else []
    with redirect_stdout(said), redirect_stderr(complained):
        code = run_pytest([file, "--collect-only", "-q", *chosen], plugins=[finder])
    if finder.errors:
        raise DeclarationError(f"{file} cannot be imported:\n{finder.errors[0]}")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise DeclarationError(f"pytest cannot read {file}: {complained.getvalue().strip()}")
    found = [_collected(item, folder) for item in finder.items if is_evaluation(item)]
    found = list({one.key: one for one in [*found, *_read(finder.items, folder)]}.values())
    if not found:
        raise NotFound(f"{file} has no evaluations: no function with @foreach")
    return _named(found, name.replace("::", "."), file) if name else found


def _named(found: list[Collected], name: str, file: str) -> list[Collected]:
    named = [one for one in found if name in (one.label, one.evaluation.name)]
    if not named:
        known = list(dict.fromkeys(one.evaluation.name for one in found))
        hint = suggestion(name, known) or f"; it has: {', '.join(known)}"
        raise NotFound(f"{file} has no evaluation {name!r}{hint}")
    return named


def _collected(item: pytest.Item, folder: Path) -> Collected:
    evaluation, variant = evaluation_of(item), variant_of(item)
    return Collected(evaluation.name + variant, evaluation.key(folder, variant), evaluation)


def _read(items: Iterable[pytest.Item], folder: Path) -> Iterator[Collected]:
    """What tests read, which need not be items themselves."""
    for item in items:
        if (reading := reading_of(item)) is not None:
            evaluation = as_called(reading.evaluation)
            yield Collected(evaluation.name, evaluation.key(folder), evaluation)


@dataclass(slots=True, eq=False)
class _Finder:
    """A pytest plugin that keeps what was collected."""

    items: list[pytest.Item] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)
