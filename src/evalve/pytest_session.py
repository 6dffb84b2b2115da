"""Evaluations inside one pytest process: their experiment, its lock, the loop, the verdicts, the summary."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve import wiring
from evalve.contracts import Lock, Progress, Store
from evalve.declare.foreach import MARK, Evaluation
from evalve.errors import EvalveError
from evalve.options import Options
from evalve.show.pytest_summary import Told, failure_text, properties, summary_lines


class EvalveSession:
    """What the evaluations of one pytest process share."""

    def __init__(self, config: pytest.Config, said: Options) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        """What to tell about each item, by node id."""
        self._config = config
        self._folder = Path(config.invocation_params.dir)
        self._worker: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self._settings = self._read_settings(said)
        self._locks: dict[str, Lock] = {}
        self._runner: asyncio.Runner | None = None
        self._progress: Progress | None = None
        self._progress_scope: Any = None

    def _read_settings(self, said: Options) -> wiring.Settings:
        try:
            settings = wiring.settings(said, folder=self._folder, environ=os.environ)
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None
        if self._worker is not None:
            lent = self._worker["evalve_experiment"]
            settings = replace(settings, experiment=lent["name"], named=lent["named"])
        return settings

    # -- before and after

    def begin(self, items: Sequence[pytest.Item]) -> None:
        """Check the items and take the experiment, before anything is spent."""
        self._refuse_namesakes(items)
        if self._worker is None:
            for item in items:
                evaluation = _evaluation(item)
                self._lock(wiring.storage_for(evaluation, self._settings.options_for(evaluation)))

    def lend_to_worker(self) -> dict[str, Any]:
        """On the xdist controller: the experiment for a worker, locked here where a person named it."""
        if self._settings.named:
            self._lock(wiring.storage_for(None, self._settings.options_for_any()))
        return {"name": self._settings.experiment, "named": self._settings.named}

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        if self._progress_scope is not None:
            self._progress_scope.__exit__(None, None, None)
        for lock in self._locks.values():
            lock.release()

    def _lock(self, store: Store) -> None:
        if store.url in self._locks:
            return
        command = " ".join(["pytest", *map(str, self._config.invocation_params.args)])
        try:
            self._locks[store.url] = store.lock(self._settings.experiment, holder=command)
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None

    def _refuse_namesakes(self, items: Sequence[pytest.Item]) -> None:
        seen: dict[str, str] = {}
        for item in items:
            key = _evaluation(item).key(self._folder, _variant(item))
            if key in seen:
                raise pytest.UsageError(
                    f"{item.nodeid} and {seen[key]} would both be recorded as {key!r}: give them two names"
                )
            seen[key] = item.nodeid

    # -- running an item

    def item_function(self, item: pytest.Function, declared: Callable[..., Any]) -> Callable[..., Any]:
        """What pytest calls in place of the declared function: it raises the verdict inside the call."""
        evaluation: Evaluation = getattr(declared, MARK)
        leading = (declared.__self__,) if hasattr(declared, "__self__") else ()

        if evaluation.is_async:

            @functools.wraps(declared)
            async def run_async(**fixtures: Any) -> None:
                await self._run(item, evaluation, leading, fixtures)

            return run_async

        @functools.wraps(declared)
        def run(**fixtures: Any) -> None:
            self.run_on_loop(self._run(item, evaluation, leading, fixtures))

        return run

    def run_on_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(coroutine)

    async def _run(
        self,
        item: pytest.Function,
        evaluation: Evaluation,
        leading: tuple[Any, ...],
        fixtures: Mapping[str, Any],
    ) -> None:
        options = self._settings.options_for(evaluation)
        variant = _variant(item)
        runnable = evaluation.bound(
            experiment=self._settings.experiment,
            key=evaluation.key(self._folder, variant),
            variant=variant,
            arguments=fixtures,
            options=options,
            leading=leading,
        )
        store = wiring.storage_for(evaluation, options)
        try:
            outcome = await wiring.run_recording(
                runnable, store=store, progress=self._showing(options), folder=self._folder
            )
        except EvalveError as error:
            pytest.fail(f"{evaluation.where}: {error}", pytrace=False)
        told = Told.about(
            outcome.info,
            outcome.metrics,
            ran=outcome.ran,
            problems=outcome.problems,
            interrupted=outcome.interrupted,
        )
        self.told[item.nodeid] = told.to_plain()
        item.user_properties.extend(properties(told))
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.problems:
            pytest.fail(failure_text(told, outcome.info, store), pytrace=False)

    def _showing(self, options: Options) -> Progress:
        """Progress on a copy of the terminal's descriptor, made while pytest does not capture it."""
        if self._progress is None:
            self._progress_scope = self._open_progress(options)
            self._progress = self._progress_scope.__enter__()
        return self._progress

    def _open_progress(self, options: Options) -> Any:
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if self._worker is not None:
            options = replace(options, progress=options.progress or "plain")
        suspended = capture.global_and_fixture_disabled() if capture is not None else None
        if suspended is None:
            return wiring.progress_on(_terminal(), options)
        with suspended:
            return wiring.progress_on(_terminal(), options)

    # -- telling

    def summarise(self, reporter: Any, told: Sequence[Mapping[str, Any]]) -> None:
        """Write the section; an interrupted item has no report, so it is known only here."""
        interrupted = [one for one in self.told.values() if one["interrupted"]]
        if not told and not interrupted:
            return
        reporter.section("evalve", sep="=", bold=True)
        for line in summary_lines([*told, *interrupted], resume_command=self._resume_command()):
            reporter.write_line(line)

    def _resume_command(self) -> str:
        arguments = [str(argument) for argument in self._config.invocation_params.args]
        if not self._settings.named:
            arguments += ["--experiment", self._settings.experiment]
        program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "pytest"
        return " ".join([program if program in ("pytest", "py.test") else "pytest", *arguments])


def _terminal() -> int:
    """Standard output where a person sees it, else standard error."""
    return 1 if os.isatty(1) else 2


def _evaluation(item: pytest.Item) -> Evaluation:
    evaluation: Evaluation = getattr(getattr(item, "function", None), MARK)
    return evaluation


def _variant(item: pytest.Item) -> str:
    """`[gpt-low]` of `eval_x[gpt-low]`."""
    return item.name[len(getattr(item, "originalname", None) or item.name) :]
