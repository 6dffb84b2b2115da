"""Evaluations inside one pytest process: their experiment, its lock, the loop, the verdicts, the summary."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import shlex
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve import gating, wiring
from evalve.checking import check_calls
from evalve.contracts import Lock, Progress, Runnable, RunningStore, Store
from evalve.declare.foreach import MARK, Evaluation
from evalve.errors import EvalveError
from evalve.experiments.file.configuration import project_folder
from evalve.gate.batches.asked import GATHERED
from evalve.gate.budget import SharedBudget
from evalve.options import Options
from evalve.plugin.command import typed, without_fresh
from evalve.plugin.heard_warnings import HeardWarnings
from evalve.plugin.items import evaluation_of, parameters_of, refuse_namesakes, variant_of
from evalve.plugin.spending import Spending
from evalve.plugin.traceback import down_to_the_person
from evalve.plugin.workers import Controller, Workers
from evalve.reading.claims import Claims
from evalve.reading.readings import Readings
from evalve.runner.evaluation import Outcome
from evalve.runner.leaving import PATIENCE_S, let_program_end_with
from evalve.runner.terminating import EndsAll, taking_gentle
from evalve.secrecy import Environment
from evalve.show import figures
from evalve.show.overview import skip_reasons
from evalve.show.pytest_summary import (
    Told,
    Warned,
    failure_text,
    properties,
    skip_text,
    summary_lines,
    warning_lines,
)


class EvalveSession:
    """What the evaluations of one pytest process share."""

    def __init__(self, config: pytest.Config, said: Options, *, experiment_flag: str) -> None:
        self.told: dict[str, dict[str, Any]] = {}
        """What to tell about each item, by node id."""
        self._config = config
        self._experiment_flag = experiment_flag
        self._folder = project_folder(Path(config.invocation_params.dir))
        self._worker: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self.spending = Spending()
        self._settings = self._read_settings(said)
        self._locks: dict[str, Lock] = {}
        self._lent = 0
        self._party = uuid.uuid4().hex
        """Whose lock it is: that of this process and its workers, or of the controller and its workers."""
        self._refused = ""
        """Why nothing may run here."""
        self._workers: Workers | None = None
        self._controller: Controller | None = None
        self._told_by_workers: list[dict[str, Any]] = []
        self._warned_by_workers: list[Warned] = []
        self._to_start_over: dict[str, tuple[Store, str]] = {}
        """By node id: what its run forgets if no engine refuses it, and else nobody."""
        self._is_checked = False
        self._passes: dict[str, tuple[int, Counter[str]]] = {}
        """Of items that ran before their turn, for the sake of batches that they share: samples and calls."""
        self._gathers: Progress | None = None
        """Where items only say what they ask for, and are run again when the answers are there."""
        self._exitstatus = 0
        self._task: asyncio.Task[Any] | None = None
        self._runner: asyncio.Runner | None = None
        self._progress: Progress | None = None
        self._scope = ExitStack()
        self.readings: Readings | None = None
        """What tests read of evaluations, where there are such tests."""
        self.ran_for: dict[str, list[dict[str, Any]]] = {}
        """What to tell about the evaluations that a test ran in order to read them, by node id."""
        self.heard = HeardWarnings()
        self._scope.enter_context(self.heard.listening())
        if self._worker is not None:
            gating.tell_unknown_variables(lambda text: None)  # the controller has told
            self._party = self._worker["evalve_experiment"]["party"]

    def _read_settings(self, said: Options) -> wiring.Settings:
        try:
            settings = wiring.settings(said, folder=self._folder, environ=Environment(os.environ))
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None
        if self._worker is not None:
            lent = self._worker["evalve_experiment"]
            settings = replace(settings, experiment=lent["name"], named=lent["named"])
            settings = self.spending.share_among(self._worker["workercount"], settings)
        return settings

    def models(self) -> tuple[str, ...]:
        """The models that a person chose, each once."""
        self.check()
        return self._chosen()

    def _chosen(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._settings.options_for_any().model or ()))

    def check(self) -> None:
        """Refuse what is wrong with the configuration of calls; on an xdist worker the controller has."""
        if self._is_checked or self._worker is not None:
            return
        try:
            check_calls(self._chosen(), self._settings.configuration, Environment(os.environ))
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None
        self._is_checked = True

    # -- before and after

    def begin(self, items: Sequence[pytest.Item], readers: Sequence[pytest.Item] = ()) -> None:
        """Check the items and take the experiment, before anything is spent; `readers` are tests."""
        try:
            self._begin(items, readers)
        except pytest.UsageError as error:
            if self._worker is None:
                raise
            self._refused = str(error)  # xdist would take it for a crash, and begin another worker for ever

    def _begin(self, items: Sequence[pytest.Item], readers: Sequence[pytest.Item]) -> None:
        self.check()
        refuse_namesakes(items, self._folder)
        if readers:
            self.readings = Readings(
                self, readers, folder=self._folder, claims=self._claims(), is_worker=self._worker is not None
            )
        read = self.readings.evaluations if self.readings is not None else []
        if self._worker is None:
            gating.tell_unknown_variables(self._warn)
        else:
            self._controller = Controller(self._worker["evalve_channel"])
            self._scope.enter_context(self._controller.obeyed())
        self._scope.enter_context(taking_gentle(EndsAll(_asked_to_end)))
        for evaluation in _of_different_storages(
            [*map(evaluation_of, items), *(one.evaluation for one in read)]
        ):
            self._lock(evaluation)
        asked = self._settings.options_for_any()
        self.spending.count_fixtures(self._scope.enter_context(gating.calls_between_runs(asked)).account)
        if self._worker is not None and self._worker["evalve_experiment"]["replaces_another"]:
            return  # the others are at work: what is recorded is new
        for one in read:
            if self.options_for(one.evaluation).fresh:
                self.store_of(one.evaluation).forget(self.experiment, one.key)
        for item in items:
            self._start_over_if_asked(item)

    def lend_to_worker(self, node: Any) -> None:
        """On the xdist controller: the experiment for a worker, locked here where a person named it.

        Where nobody did, the first worker takes the lock: there may be no evaluations at all.
        """
        self.check()
        gating.tell_unknown_variables(self._warn)
        if self._settings.named:
            self._lock(None)
        if self._workers is None:
            self._workers = Workers(beginners=node.workerinput["workercount"])
        self._lent += 1
        node.workerinput["evalve_channel"] = self._workers.channel_to(node.gateway)
        node.workerinput["evalve_experiment"] = {
            "name": self._settings.experiment,
            "named": self._settings.named,
            "party": self._party,
            "holder": self._holder(),
            # those that begin are counted there; a later one takes the place of one that crashed
            "replaces_another": self._lent > node.workerinput["workercount"],
        }

    def worker_ended(self, output: Mapping[str, Any]) -> None:
        """On the xdist controller: keep what the worker tells about evaluations that were interrupted."""
        self._told_by_workers.extend(output.get("evalve_interrupted", ()))
        self._warned_by_workers.extend(output.get("evalve_warned", ()))

    def finish(self, exitstatus: int) -> None:
        """All items have ended, one way or another."""
        for store, key in self._to_start_over.values():  # of those that were not reached
            store.forget(self._settings.experiment, key)
        self._exitstatus = exitstatus
        if self._workers is not None:
            self._workers.have_ended()
        if self._controller is None:
            return
        self._controller.have_ended()
        gating.settle_cache()  # now, for what it warns of is told below
        self._config.workeroutput["evalve_warned"] = self.heard.taken()  # type: ignore[attr-defined]
        stopped = self._interrupted()
        if exitstatus == pytest.ExitCode.INTERRUPTED and (stopped or self._controller.has_interrupted):
            # to xdist, a worker that says it was interrupted has crashed and is replaced
            reason = next((one["stop_reason"] for one in stopped if one["stop_reason"]), "interrupted")
            self._config.workeroutput.update(  # type: ignore[attr-defined]
                exitstatus=int(pytest.ExitCode.OK), shouldstop=reason, evalve_interrupted=stopped
            )

    def close(self) -> None:
        if any(one["interrupted"] or "timeout" in one["failures"] for one in self.told.values()):
            # a thread that a sample left behind would keep the process, however long its function takes
            let_program_end_with(self._exitstatus)
        if self._runner is not None:
            self._runner.close()
        self._scope.close()
        if self._workers is not None:
            self._workers.close()
        for lock in self._locks.values():
            lock.release()
        if self._worker is None:
            self._claims().forget()

    def _claims(self) -> Claims:
        """In a folder that this process and its workers know by what they have in common."""
        return Claims(Path(tempfile.gettempdir()) / f"evalve-{self._party}")

    def _lock(self, evaluation: Evaluation | None) -> None:
        """Take the experiment in the evaluation's store, or in the one that holds for all."""
        said = self._settings
        options = said.options_for_any() if evaluation is None else said.options_for(evaluation)
        try:
            store = wiring.storage_for(evaluation, options, self._folder)
            if store.url not in self._locks:
                self._locks[store.url] = store.lock(said.experiment, holder=self._holder(), party=self._party)
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None

    def _holder(self) -> str:
        if self._worker is not None:
            return f"{self._worker['evalve_experiment']['holder']}, worker {self._worker['workerid']}"
        return shlex.join(typed(self._config))

    def _start_over_if_asked(self, item: pytest.Item) -> None:
        """All at once, or a run that is interrupted and resumed would go on with what was there before."""
        evaluation = evaluation_of(item)
        options = self._settings.options_for(evaluation)
        if not options.fresh:
            return
        key = evaluation.key(self._folder, variant_of(item))
        try:
            store = wiring.storage_for(evaluation, options, self._folder)
            # on an xdist worker another one may run the item, and nobody else knows whether it did
            if self._worker is None and not evaluation.is_async and options.engine == "processes":
                self._to_start_over[item.nodeid] = store, key
            else:
                store.forget(self._settings.experiment, key)
        except EvalveError as error:
            raise pytest.UsageError(str(error)) from None

    # -- running an item

    def gather(self, items: Sequence[pytest.Item]) -> None:
        """Where several evaluations wait for batches: what all of them ask next goes in one."""
        batched = [
            item
            for item in items
            if (evaluation := evaluation_of(item)).is_async
            and self._settings.options_for(evaluation).batch == "on"
        ]
        if len(batched) > 1 and not self._refused:
            from evalve.batches.gathering import Quietly, gather_in_batches

            tell = self.showing(self._settings.options_for_any()).note
            self._gathers = Quietly(tell)
            try:
                gather_in_batches(batched, tell=tell)
            except EvalveError as error:
                pytest.exit(f"evalve: {error}", returncode=int(pytest.ExitCode.TESTS_FAILED))
            finally:
                self._gathers = None

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

    def end_what_goes_on(self) -> None:
        """An item is over by an exception that was raised into the loop, as signals do: end its run too."""
        task, self._task = self._task, None
        if task is None or task.done() or task.get_loop().is_closed() or task.get_loop().is_running():
            return
        task.cancel()
        task.get_loop().run_until_complete(asyncio.wait({task}, timeout=PATIENCE_S))

    def run_on_loop(
        self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context | None = None
    ) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(coroutine, context=context)

    def run_for_tests(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
        """What tests read, while no item of an evaluation runs."""

        async def remembered() -> None:
            self._task = asyncio.current_task()
            await coroutine

        try:
            self.run_on_loop(remembered(), context)
        finally:
            self.end_what_goes_on()

    def refuse_if_told_so(self) -> None:
        if self._refused:
            pytest.fail(self._refused, pytrace=False)

    async def _run(
        self,
        item: pytest.Function,
        evaluation: Evaluation,
        leading: tuple[Any, ...],
        fixtures: Mapping[str, Any],
    ) -> None:
        """Remembered while it lasts: an exception that a signal raises into the loop leaves it behind."""
        self._task = asyncio.current_task()
        try:
            await self._run_item(item, evaluation, leading, fixtures)
        finally:
            self._task = None

    async def _run_item(
        self,
        item: pytest.Function,
        evaluation: Evaluation,
        leading: tuple[Any, ...],
        fixtures: Mapping[str, Any],
    ) -> None:
        self.refuse_if_told_so()
        self._to_start_over.pop(item.nodeid, None)
        variant = variant_of(item)
        key = evaluation.key(self._folder, variant)
        with self.readings.begun_by_item(key) if self.readings is not None else nullcontext(False) as is_read:
            runnable = self.bound(
                evaluation,
                variant,
                fixtures,
                leading=leading,
                parameters=parameters_of(item),
                resumes=is_read,
            )
            try:
                with self.spending.leaving_the_rest_to_fixtures():
                    told, outcome = await self.recorded(runnable, evaluation, label=item.nodeid)
            except EvalveError as error:
                where, said = getattr(item.function, MARK).where, str(error)
                text = said if said.startswith(where) else f"{where}: {said}"
                raise pytest.fail.Exception(text, pytrace=False) from None
        if self._gathers and (outcome.stop_reason == GATHERED or not outcome.interrupted):
            del self.told[item.nodeid]
            return  # it is judged when it is replayed
        item.user_properties.extend(properties(told))
        if outcome.stop_reason:
            raise pytest.exit.Exception(outcome.stop_reason, returncode=int(pytest.ExitCode.INTERRUPTED))
        if outcome.interrupted:
            raise pytest.exit.Exception("interrupted", returncode=int(pytest.ExitCode.INTERRUPTED))
        if outcome.problems:
            text = failure_text(told, outcome.info, self.store_of(evaluation))
            failed = pytest.fail.Exception(text, pytrace=False)
            if outcome.first_error is not None and self._config.option.usepdb:
                failed = failed.with_traceback(down_to_the_person(outcome.first_error))  # where --pdb stops
            raise failed
        if told.is_empty or told.is_skipped:
            pytest.skip(skip_text(told))  # as pytest does with an empty list of parameters

    def bound(
        self,
        evaluation: Evaluation,
        variant: str,
        fixtures: Mapping[str, Any],
        *,
        leading: tuple[Any, ...] = (),
        parameters: Mapping[str, str] | None = None,
        resumes: bool = False,
    ) -> Runnable:
        """The evaluation under the session's options; one that `resumes` forgets nothing."""
        options = self.spending.within_budget(
            self._settings.options_for(evaluation), self._settings.options_for_any().budget_usd
        )
        try:
            return evaluation.bound(
                experiment=self._settings.experiment,
                key=evaluation.key(self._folder, variant),
                variant=variant,
                arguments=fixtures,
                options=replace(options, fresh=None) if resumes else options,
                leading=leading,
                parameters=parameters,
            )
        except EvalveError as error:
            raise pytest.fail.Exception(f"{evaluation.where}: {error}", pytrace=False) from None

    async def recorded(
        self,
        runnable: Runnable,
        evaluation: Evaluation,
        *,
        label: str,
        progress: Progress | None = None,
        budget: SharedBudget | None = None,
    ) -> tuple[Told, Outcome]:
        """Run it, and tell what came of it, also where it breaks."""
        options, store = runnable.options, self.store_of(evaluation)
        try:
            outcome = await wiring.run_recording(
                runnable,
                store=store,
                progress=progress or self._gathers or self.showing(options),
                folder=self._folder,
                give_up=None if self._worker is not None else self._give_up,
                purse=self.spending.purse if budget is None else None,
                budget=budget,
            )
        except Exception as error:
            self.told[label] = (await _told_of_broken(runnable, store, error)).to_plain()
            raise
        ran, calls = self._passes.pop(label, (0, Counter[str]()))
        ran += outcome.ran
        calls.update(outcome.run.report["calls"])
        if self._gathers:
            self._passes[label] = ran, calls
        told = Told.about(
            outcome.info,
            outcome.metrics,
            ran=ran,
            problems=outcome.problems,
            interrupted=outcome.interrupted,
            stop_reason=outcome.stop_reason,
            calls=dict(calls),
            storage=wiring.storage_to_name(self._settings, evaluation),
            rows_changed=outcome.run.report["rows_changed"],
            skip_reasons=skip_reasons(store, outcome.info),
            asked_for=figures.first_rows(outcome.info.first_rows, evaluation.dataset.known_size()),
        )
        self.told[label] = told.to_plain()
        return told, outcome

    @property
    def experiment(self) -> str:
        return self._settings.experiment

    def options_for(self, evaluation: Evaluation) -> Options:
        return self._settings.options_for(evaluation)

    def store_of(self, evaluation: Evaluation) -> Store:
        return wiring.storage_for(evaluation, self.options_for(evaluation), self._folder)

    def variant_by_model(self, model: str | None) -> str:
        """As pytest names the evaluation's own item; `model` is what a test is parametrised for."""
        chosen = self._chosen()
        name = model or (chosen[0] if len(chosen) == 1 else None)
        return f"[{name}]" if name else ""

    def _give_up(self) -> None:
        """In a thread: nothing ends what holds the main one, so say how to go on, and end the process."""
        assert self._progress is not None
        self._progress.note(
            f"{wiring.CANNOT_END}; what was done is saved. To go on: {self._resume_command()}"
        )
        with suppress(Exception):  # whatever fails here, the process ends
            for lock in self._locks.values():
                lock.release()
            self._config.get_terminal_writer().flush()
        wiring.end_process(int(pytest.ExitCode.INTERRUPTED))

    def showing(self, options: Options) -> Progress:
        """Progress on a copy of the terminal's descriptor, made while pytest does not capture it."""
        if self._progress is None:
            if self._worker is not None:
                options = replace(options, progress=options.progress or "plain")
            capture = self._config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
                self._progress = self._scope.enter_context(wiring.progress_on(_terminal(), options))
        return self._progress

    # -- telling

    def summarise(
        self,
        reporter: Any,
        told: Sequence[Mapping[str, Any]],
        warned: Sequence[Sequence[Any]],
        *,
        all_told: bool,
        interrupted: bool,
        is_ours: bool,
    ) -> None:
        """Write the section; an interrupted item has no report, so it is known only here.

        `is_ours` says whether evaluations have items here, which an interrupt concerns.
        """
        warnings = list(warning_lines([*warned, *self._warned_by_workers, *self.heard.taken()]))
        stopped = [*self._interrupted(), *self._told_by_workers]
        interrupted = interrupted and (is_ours or bool(stopped))
        if not told and not interrupted and not warnings:
            return
        reporter.write_sep("=", "evalve", bold=True)
        _count_interrupted(reporter, len(stopped))
        lines = summary_lines(
            [*told, *stopped],
            experiment=self._settings.experiment,
            storage=wiring.storage_to_name(self._settings, None),
            all_told=all_told,
            resume_command=self._resume_command() if interrupted else None,
        )
        if text := "\n".join(lines if told or interrupted else ()):
            reporter.write_line(text)  # at once: pytest flushes after each of them
        for line in warnings:
            reporter.write_line(line, yellow=True)

    def _interrupted(self) -> list[dict[str, Any]]:
        return [one for one in self.told.values() if one["interrupted"]]

    def _warn(self, text: str) -> None:
        """A line where pytest writes its own: not captured, and no Python warning, which may be an error."""
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is None:
            logging.getLogger(__name__).warning("%s", text)
            return
        reporter.ensure_newline()
        reporter.write_line(f"evalve: {text}", yellow=True)

    def _resume_command(self) -> str:
        named = [] if self._settings.named else [self._experiment_flag, self._settings.experiment]
        return shlex.join([*without_fresh(typed(self._config)), *named])


def _of_different_storages(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """One evaluation for each that is said in the code; whoever says nothing has the project's."""
    by_storage: dict[Any, Evaluation] = {}
    for evaluation in evaluations:
        by_storage.setdefault((evaluation.options.storage, id(evaluation.storage)), evaluation)
    return list(by_storage.values())


def _asked_to_end() -> BaseException:
    return pytest.exit.Exception("asked to end", returncode=int(pytest.ExitCode.INTERRUPTED))


async def _told_of_broken(runnable: Runnable, store: RunningStore, error: Exception) -> Told:
    spec = runnable.spec
    reason = str(error) if isinstance(error, EvalveError) else f"{type(error).__name__}: {error}"
    try:
        info = await store.evaluation(spec.experiment, spec.key)
    except EvalveError:
        info = None  # the store is what broke
    return Told.about_broken(spec, info, reason)


def _count_interrupted(reporter: Any, count: int) -> None:
    """An interrupted item has no report, and pytest would say that no tests ran."""
    if count:
        reporter.stats.setdefault("interrupted", []).extend([object()] * count)
        reporter._known_types = None


def _terminal() -> int:
    """Standard output where a person sees it, else standard error."""
    return 1 if os.isatty(1) else 2
