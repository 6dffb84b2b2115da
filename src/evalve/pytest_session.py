"""Evaluations inside one pytest process: their experiment, its lock, the loop, the verdicts, the summary."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve import gating, wiring
from evalve.contracts import Lock, Progress
from evalve.declare.foreach import MARK, Evaluation
from evalve.errors import EvalveError
from evalve.options import Options
from evalve.show.pytest_summary import NO_ROWS, Told, failure_text, properties, summary_lines


class EvalveSession:
    """What the evaluations of one pytest process share."""

    def __init__(self, config: pytest.Config, said: Options, *, experiment_flag: str) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        """What to tell about each item, by node id."""
        self._config = config
        self._experiment_flag = experiment_flag
        self._folder = Path(config.invocation_params.dir)
        self._worker: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self._settings = self._read_settings(said)
        self._locks: dict[str, Lock] = {}
        self._lent = 0
        self._runner: asyncio.Runner | None = None
        self._progress: Progress | None = None
        self._scope = ExitStack()
        if self._worker is not None:
            gating.tell_unknown_variables(lambda text: None)  # the controller has told

    def _read_settings(self, said: Options) -> wiring.Settings:
        try:
            settings = wiring.settings(said, folder=self._folder, environ=os.environ)
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None
        if self._worker is not None:
            lent = self._worker["evalve_experiment"]
            settings = replace(settings, experiment=lent["name"], named=lent["named"])
            asked = settings.options_for_any()
            if asked.budget_usd is not None:  # together the workers may spend what one process might
                share_usd = asked.budget_usd / self._worker["workercount"]
                settings = replace(settings, said=replace(settings.said, budget_usd=share_usd))
        return settings

    def models(self) -> tuple[str, ...]:
        """The models that a person chose."""
        return self._settings.options_for_any().model or ()

    # -- before and after

    def begin(self, items: Sequence[pytest.Item]) -> None:
        """Check the items and take the experiment, before anything is spent."""
        self._refuse_namesakes(items)
        if self._worker is None:
            gating.tell_unknown_variables(self._warn)
            for item in items:
                self._lock(evaluation_of(item))
        elif self._worker["evalve_experiment"]["replaces_another"]:
            return  # the others are at work: what is recorded is new
        for item in items:
            self._start_over_if_asked(item)

    def lend_to_worker(self, *, of: int) -> dict[str, Any]:
        """On the xdist controller: the experiment for a worker, locked here where a person named it.

        `of` says how many workers begin; a later one takes the place of one that crashed.
        """
        gating.tell_unknown_variables(self._warn)
        if self._settings.named:
            self._lock(None)
        self._lent += 1
        return {
            "name": self._settings.experiment,
            "named": self._settings.named,
            "replaces_another": self._lent > of,
        }

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._scope.close()
        for lock in self._locks.values():
            lock.release()

    def _lock(self, evaluation: Evaluation | None) -> None:
        """Take the experiment in the evaluation's store, or in the one that holds for all."""
        said = self._settings
        options = said.options_for_any() if evaluation is None else said.options_for(evaluation)
        try:
            store = wiring.storage_for(evaluation, options)
            if store.url not in self._locks:
                self._locks[store.url] = store.lock(said.experiment, holder=shlex.join(self._typed()))
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None

    def _start_over_if_asked(self, item: pytest.Item) -> None:
        """All at once, or a run that is interrupted and resumed would go on with what was there before."""
        evaluation = evaluation_of(item)
        options = self._settings.options_for(evaluation)
        if not options.fresh:
            return
        try:
            store = wiring.storage_for(evaluation, options)
            store.forget(self._settings.experiment, evaluation.key(self._folder, variant_of(item)))
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None

    def _refuse_namesakes(self, items: Sequence[pytest.Item]) -> None:
        seen: dict[str, str] = {}
        for item in items:
            key = evaluation_of(item).key(self._folder, variant_of(item))
            if key in seen:
                raise pytest.UsageError(
                    f"{item.nodeid} and {seen[key]} would both be recorded as {key!r}: give them two names"
                )
            seen[key] = item.nodeid

    # -- running an item

    def item_function(self, item: pytest.Function, declared: Callable[..., Any]) -> Callable[..., Any]:
        """What pytest calls in place of the declared function: it raises the verdict inside the call."""
        evaluation = evaluation_of(item)
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
        variant = variant_of(item)
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
            where, said = getattr(item.function, MARK).where, str(error)
            text = said if said.startswith(where) else f"{where}: {said}"
            raise pytest.fail.Exception(text, pytrace=False) from None
        told = Told.about(
            outcome.info,
            outcome.metrics,
            ran=outcome.ran,
            problems=outcome.problems,
            interrupted=outcome.interrupted,
            stop_reason=outcome.stop_reason,
            calls=outcome.run.report["calls"],
            storage=wiring.storage_to_name(self._settings, evaluation),
        )
        self.told[item.nodeid] = told.to_plain()
        item.user_properties.extend(properties(told))
        if outcome.stop_reason:
            raise pytest.exit.Exception(outcome.stop_reason, returncode=int(pytest.ExitCode.INTERRUPTED))
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.problems:
            pytest.fail(failure_text(told, outcome.info, store), pytrace=False)
        if told.is_empty:
            pytest.skip(f"{told.name}: {NO_ROWS}")  # as pytest does with an empty list of parameters

    def _showing(self, options: Options) -> Progress:
        """Progress on a copy of the terminal's descriptor, made while pytest does not capture it."""
        if self._progress is None:
            if self._worker is not None:
                options = replace(options, progress=options.progress or "plain")
            capture = self._config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
                self._progress = self._scope.enter_context(wiring.progress_on(_terminal(), options))
        return self._progress

    # -- telling

    def summarise(self, reporter: Any, told: Sequence[Mapping[str, Any]], *, interrupted: bool) -> None:
        """Write the section; an interrupted item has no report, so it is known only here."""
        stopped = [one for one in self.told.values() if one["interrupted"]]
        if not told and not interrupted:
            return
        reporter.write_sep("=", "evalve", bold=True)
        lines = summary_lines(
            [*told, *stopped],
            experiment=self._settings.experiment,
            storage=wiring.storage_to_name(self._settings, None),
            resume_command=self._resume_command() if interrupted else None,
        )
        for line in lines:
            reporter.write_line(line)

    def _warn(self, text: str) -> None:
        """A line where pytest writes its own: not captured, and no Python warning, which may be an error."""
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            logging.getLogger(__name__).warning("%s", text)
            return
        reporter.ensure_newline()
        reporter.write_line(f"evalve: {text}", yellow=True)

    def _resume_command(self) -> str:
        again = [word for word in self._typed() if word not in ("--fresh", "--evalve-fresh")]
        if not self._settings.named:
            again += [self._experiment_flag, self._settings.experiment]
        return shlex.join(again)

    def _typed(self) -> list[str]:
        """The command that the person typed, as far as it is known."""
        program = Path(sys.argv[0]).name if sys.argv else ""
        if program in _PROGRAMS:
            return [program, *sys.argv[1:]]
        return ["pytest", *map(str, self._config.invocation_params.args)]


_PROGRAMS = ("pytest", "py.test", "evalve", "doteval")


def _terminal() -> int:
    """Standard output where a person sees it, else standard error."""
    return 1 if os.isatty(1) else 2


def evaluation_of(item: pytest.Item) -> Evaluation:
    """The item's evaluation, named by the file and class that the item is in.

    Another file may have imported it, and another class inherited it: these are other evaluations.
    """
    function = getattr(item, "function", None)
    declared: Evaluation = getattr(function, MARK)
    name = declared.name
    owner = getattr(item, "cls", None)
    if owner is not None and name == declared.function.__qualname__:
        name = f"{owner.__qualname__}.{declared.function.__name__}"
    return replace(declared, name=name, path=item.path)


def variant_of(item: pytest.Item) -> str:
    """`[gpt-low]` of `eval_x[gpt-low]`."""
    return item.name[len(getattr(item, "originalname", None) or item.name) :]
