"""Puts the rooms together: the one module that names concrete stores, views and loops."""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from evalve import gateways, gating
from evalve.batches import notes as batch_notes
from evalve.contracts import Progress, Runnable, Store
from evalve.declare.foreach import MARK, Evaluation, as_called, split_arguments
from evalve.declare.scripts import said_to_run
from evalve.declare.variants import parameters, variant
from evalve.engines.choosing import engine_for
from evalve.engines.finding import refuse_while_importing
from evalve.errors import EvalveError, Interrupted, OptionError
from evalve.experiments.file.configuration import RECORDS, Configuration, project_folder, read_configuration
from evalve.gate.batches.asked import GATHERED
from evalve.gate.budget import SharedBudget
from evalve.host.machine import Machine
from evalve.options import Options, from_environment, from_mapping, merged
from evalve.records import failed_in_words
from evalve.runner.evaluation import Outcome, run_evaluation
from evalve.runner.interruption import forwarding_interrupts
from evalve.runner.leaving import let_program_end
from evalve.secrecy import Environment, secret_values
from evalve.show import figures
from evalve.show.live.progress import Workers, make_progress
from evalve.show.result import EvaluationResult
from evalve.storage import open_store

T = TypeVar("T")

MACHINE = Machine()
"""All runs of a process share it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was said outside the code: on the command line, in the environment, in `evalve.yaml`."""

    said: Options
    environment: Options
    configuration: Configuration
    experiment: str
    named: bool
    """Whether a person chose the experiment's name, so that running it again resumes it."""
    _for_any: Options = field(init=False)

    def __post_init__(self) -> None:
        from_yaml = self.configuration.options_for(self.experiment)
        options = merged(self.said, self.environment, from_yaml)
        object.__setattr__(self, "_for_any", replace(options, experiment=self.experiment))

    def options_for(self, evaluation: Evaluation) -> Options:
        return merged(self._for_any, evaluation.options)

    def options_for_any(self) -> Options:
        """What holds for every evaluation, whatever its decorator says."""
        return self._for_any


def settings(said: Options, *, folder: Path, environ: Mapping[str, str]) -> Settings:
    environment = from_environment(environ)
    configuration = read_configuration(folder)
    asked = merged(said, environment, configuration.options)
    return Settings(
        said=said,
        environment=environment,
        configuration=configuration,
        experiment=asked.experiment or timestamped_name(),
        named=asked.experiment is not None,
    )


def timestamped_name() -> str:
    """A name for an experiment that nobody named; unique on this machine."""
    return f"{datetime.now().astimezone():%Y-%m-%d_%H-%M-%S}_{os.urandom(2).hex()}"


def storage_for(evaluation: Evaluation | None, options: Options, folder: Path | None = None) -> Store:
    """The store that the options name, else the evaluation's own, else the project's (in `folder`)."""
    if options.storage is not None:
        return shared_store(options.storage)
    own = evaluation.storage if evaluation is not None else None
    if own is None:
        return shared_store((folder or project_folder(Path.cwd())) / RECORDS)
    return shared_store(own) if isinstance(own, str | Path) else cast(Store, own)


def storage_to_name(now: Settings, evaluation: Evaluation | None) -> str | None:
    """The storage that `evalve show` must be told of; `None` where it looks there by itself.

    The command reads the environment and `evalve.yaml` as a run does, but knows neither what was typed
    nor what a decorator says.
    """
    asked = now.options_for_any().storage
    if asked is not None:
        return asked if now.said.storage is not None or asked.startswith("memory:") else None
    own = evaluation.storage if evaluation is not None else None
    if own is None:
        return None
    return str(own) if isinstance(own, str | Path) else cast(Store, own).url


def shared_store(url: str | Path) -> Store:
    """One open store per place and process: results go on reading from it after their run."""
    key = str(url)
    is_whole_path = isinstance(url, Path) and url.is_absolute()
    if not is_whole_path and "://" not in key and not key.startswith("sqlite:"):
        key = str(Path(url).expanduser().absolute())
    with _STORES_LOCK:
        if key.startswith("memory:"):
            return open_store(key)
        if not _STORES:
            atexit.register(_close_stores)
        if key not in _STORES:
            _STORES[key] = open_store(key)
        return _STORES[key]


def _close_stores() -> None:
    """Closed properly, a database is one file, which may be copied; otherwise half of it is in its log."""
    for store in _STORES.values():
        store.close()


_STORES: dict[str, Store] = {}
_STORES_LOCK = threading.Lock()


INTERRUPTED = 2
"""The exit code of an interrupted run; pytest's own."""
CANNOT_END = "a sample blocks the event loop and lets no exception end it, so the process ends"
ASYNC_STAYS = "async evaluations run on the event loop of this process: --engine processes is for sync ones"
WORKERS_OF_NONE = "--workers is how many processes --engine processes starts: without that, it does nothing"
_TOLD: set[str] = set()
"""What is told once in a process, however many evaluations it concerns."""


class Purse:
    """What the evaluations of one process have spent together, those that broke included."""

    def __init__(self, shares: int = 1) -> None:
        self.spent_usd = 0.0
        self.spent_by_fixtures_usd: Callable[[], float] = lambda: 0.0
        self.shares = shares
        """Among how many processes the budget was divided."""

    @contextmanager
    def paying(self, used_usd: Callable[[], float]) -> Iterator[None]:
        try:
            yield
        finally:
            self.spent_usd += used_usd()


async def run_recording(
    evaluation: Runnable,
    *,
    store: Store,
    progress: Progress,
    folder: Path,
    give_up: Callable[[], None] | None = None,
    purse: Purse | None = None,
    budget: SharedBudget | None = None,
) -> Outcome:
    """Run one evaluation, its calls treated as its options ask; `budget` is one that others spend as well."""
    if evaluation.options.batch == "auto":
        from evalve.batches.settling import settled  # the room of batches is large, and seldom asked for

        evaluation = settled(evaluation, store, Environment(os.environ), progress.note)
    refuse_batches(evaluation)
    for text in _useless(evaluation):
        if text not in _TOLD:
            _TOLD.add(text)
            progress.note(text)
    purse = purse or Purse()
    with (
        gateways.used() if evaluation.options.gateway else nullcontext(),
        gating.calls_of(
            evaluation.options,
            spent_before_usd=purse.spent_usd + purse.spent_by_fixtures_usd(),
            shares=purse.shares,
            budget=budget,
        ) as calls,
        purse.paying(calls.account.budget.used_usd),
    ):
        batches = calls.account.batches
        if batches is not None:
            batches.tell = progress.note
        outcome = await run_evaluation(
            evaluation,
            store=store,
            progress=progress,
            engine_for=engine_for,
            calls=calls,
            host=MACHINE,
            git_commit=git_commit(folder),
            secrets=secret_values(Environment(os.environ)),
            give_up=give_up,
        )
        if batches is not None and outcome.stop_reason != GATHERED:
            for text in batch_notes.left_in_words(batches):
                progress.note(text)
        return outcome


def end_process(code: int) -> NoReturn:
    """At once, whatever its threads do; answers that wait to be written are kept."""
    with suppress(Exception):
        gating.settle_cache()
    os._exit(code)


def refuse_batches(evaluation: Runnable) -> None:
    """Where calls cannot go in batches although that is asked for: said before anything runs."""
    asked = evaluation.options
    if asked.batch in (None, "off"):
        return
    name, environ = evaluation.spec.name, Environment(os.environ)
    if not evaluation.is_async:
        raise OptionError(
            f"{name} is a sync function, which cannot wait for a batch beside thousands of others: write it"
            " as `async def` and `await model.generate(…)`, or run it without --batch"
        )
    mode = gating.cache_mode(asked, environ)
    if mode in ("off", "refresh"):
        raise OptionError(
            f"{name}: --batch needs --cache on, for the answers of a batch wait in the cache for their"
            " samples" + ("; to ask anew, clear them first: evalve cache clear" if mode == "refresh" else "")
        )


def _useless(evaluation: Runnable) -> Iterator[str]:
    """What was asked for and changes nothing."""
    asked = evaluation.options
    if evaluation.is_async and asked.engine == "processes":
        yield ASYNC_STAYS
    if asked.batch == "on" and evaluation.lenders:
        yield batch_notes.holding_in_words(evaluation.spec.name, evaluation.lenders)
    if asked.workers is not None and asked.engine != "processes":
        yield WORKERS_OF_NONE


def done_in_words(outcome: Outcome) -> str:
    """`37 of 100 samples done, 2 failed (provider), 1 skipped`."""
    info = outcome.info
    of = f" of {info.total}" if info.total is not None else ""
    failed = f", {failed_in_words(info.failed, info.failures)}" if info.failed else ""
    skipped = f", {info.skipped} skipped" if info.skipped else ""
    return f"{info.done}{of} samples done{failed}{skipped}"


@cache
def git_commit(folder: Path) -> str | None:
    """The commit that the code comes from, marked where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None  # no git, no repository, no commit yet
    return answer.stdout.strip() or None


# -- direct calls


def run(evaluation: Callable[..., Any], /, **kwargs: Any) -> EvaluationResult:
    """Run an evaluation from anywhere, also where an event loop is running, and return its result.

    Keyword arguments are the function's fixtures and any option: `experiment=`, `samples=`,
    `max_concurrency=`, `timeout_s=`, `repeat=`, `fresh=`, `storage=` …
    """
    declared = getattr(evaluation, MARK, None)
    if declared is None:
        name = getattr(evaluation, "__name__", repr(evaluation))
        raise TypeError(f"{name} is no evaluation: decorate it with @foreach(columns, dataset)")
    leading = (evaluation.__self__,) if hasattr(evaluation, "__self__") else ()
    return run_directly(as_called(evaluation), leading, kwargs)


def run_directly(
    evaluation: Evaluation, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> EvaluationResult:
    errors: list[BaseException] = []
    # a program in which a loop is running, a notebook for one, must not end because a sample does not
    leave = errors.append if _is_loop_running() else None
    try:
        return wait_for(lambda: run_directly_async(evaluation, args, kwargs, leave), errors)
    except Interrupted as error:
        raise error.with_traceback(None) from None  # the frames of the loop say nothing about it
    finally:
        let_program_end()


async def run_directly_async(
    evaluation: Evaluation,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    leave: Callable[[BaseException], None] | None = None,
) -> EvaluationResult:
    """What calling an evaluation does: run it, record it, hand back its result.

    `leave` ends the wait for a run that cannot be ended; without it, the process ends.
    """
    if args and not evaluation.is_method:
        raise TypeError(f"{evaluation.name} takes keyword arguments only: pass fixtures by name")
    refuse_while_importing(evaluation.name)
    arguments, asked = split_arguments(evaluation, kwargs)
    if asked.get("engine") == "processes" and evaluation.is_async:
        raise OptionError(
            f"{evaluation.name} is async, and engine='processes' is for sync functions: leave engine= out"
        )
    said_to_run()
    folder = project_folder(Path.cwd())
    storage = asked.pop("storage", None)
    now = settings(
        from_mapping(asked, said_by=evaluation.name), folder=folder, environ=Environment(os.environ)
    )
    if not now.named and evaluation.options.experiment is not None:
        now = replace(now, experiment=evaluation.options.experiment, named=True)
    options = now.options_for(evaluation)
    if storage is None:
        store = storage_for(evaluation, options, folder)
    else:
        store = shared_store(storage) if isinstance(storage, str | Path) else storage
    said = variant(arguments)
    runnable = evaluation.bound(
        experiment=now.experiment,
        key=evaluation.key(folder, said),
        variant=said,
        arguments=arguments,
        options=options,
        leading=args,
        parameters=parameters(arguments),
    )
    lock = store.lock(now.experiment, holder=" ".join(sys.argv) or "python")
    try:
        with progress_on(2, options) as progress:
            gating.tell_unknown_variables(progress.note)

            def give_up() -> None:
                with suppress(EvalveError):
                    lock.release()
                saved = f"what was done is saved: run it again with experiment={now.experiment!r} to go on"
                if leave is not None:
                    leave(Interrupted(f"a sample does not end, and its thread was left behind; {saved}"))
                    return
                progress.note(f"{CANNOT_END}; {saved}")
                end_process(INTERRUPTED)

            outcome = await run_recording(
                runnable, store=store, progress=progress, folder=folder, give_up=give_up
            )
            if changed := outcome.run.report["rows_changed"]:
                progress.note(figures.rows_changed(changed))
    finally:
        lock.release()
    if outcome.interrupted:
        raise Interrupted(_interruption(outcome))
    return EvaluationResult(store, outcome.info, outcome.metrics, outcome.run.report, outcome.problems)


def _interruption(outcome: Outcome) -> str:
    """Why it stopped, where it was not a person; what is saved, and what running it again would do."""
    why = f"{outcome.stop_reason}. " if outcome.stop_reason else ""
    again = f"experiment={outcome.info.spec.experiment!r}"
    if outcome.run.status == "complete":
        return (
            f"{why}{done_in_words(outcome)} and saved; none is left, and with {again} it returns the result"
        )
    return f"{why}{done_in_words(outcome)} and saved; run it again with {again} to go on"


@contextmanager
def progress_on(
    descriptor: int, options: Options, *, every_sample: Workers | None = None
) -> Iterator[Progress]:
    """Progress on a copy of the descriptor, which stays ours whatever becomes of the original."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        copy = None  # a process without standard error
    try:
        yield make_progress(
            mode=options.progress or "auto",
            stream_fd=copy,
            environ=Environment(os.environ),
            every_sample=every_sample,
        )
    finally:
        if copy is not None:
            os.close(copy)


_LOOK_FOR_SIGNALS_EVERY_S = 0.2
"""A signal that comes in the moment before a wait begins does not end it, and is noticed only afterwards."""


def wait_for(make: Callable[[], Coroutine[Any, Any, T]], errors: list[BaseException] | None = None) -> T:
    """The coroutine's result, from sync code: on a loop of its own, in a thread if one is running here.

    There an error that is put into `errors` ends the wait, whatever becomes of the coroutine.
    """
    if not _is_loop_running():
        with asyncio.Runner() as runner:
            return runner.run(make())
    results: list[T] = []
    errors = [] if errors is None else errors

    def work() -> None:
        try:
            with asyncio.Runner() as runner:
                results.append(runner.run(make()))
        except BaseException as error:  # carried to the thread that waits
            errors.append(error)

    with forwarding_interrupts() as context:
        # a daemon, because a sync function in it that never returns must not outlive the second Ctrl-C
        thread = threading.Thread(target=context.run, args=(work,), name="evalve-run", daemon=True)
        thread.start()
        while thread.is_alive() and not errors:
            thread.join(_LOOK_FOR_SIGNALS_EVERY_S)
    if errors:
        raise errors[0]
    return results[0]


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
