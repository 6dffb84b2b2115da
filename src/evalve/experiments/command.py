"""`evalve run NAME …`: experiments of the file, run side by side."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from evalve import gating, wiring
from evalve.checking import check_calls
from evalve.contracts import LOST_WITHOUT_GATEWAY, EvaluationInfo
from evalve.errors import EvalveError, OptionError
from evalve.experiments.building import build
from evalve.experiments.declared import Declared, check_gates_of, declared_named, runnable_names
from evalve.experiments.file.configuration import Configuration, project_folder
from evalve.experiments.ordering import Order
from evalve.experiments.outputs import OutputFolder
from evalve.experiments.overriding import with_model_keys
from evalve.experiments.parts.models import missing_key
from evalve.experiments.running import INTERRUPTED, Ended, Planned, exit_code, run_all
from evalve.experiments.spending import shared_budget, spending_beside
from evalve.experiments.typed import Said, parsed
from evalve.options import Options, from_environment, suggestion
from evalve.secrecy import Environment
from evalve.show import figures
from evalve.show.overview import skip_reasons
from evalve.show.pytest_summary import Told, failure_text, summary_lines


def names_experiments(words: Sequence[str], configuration: Configuration) -> bool:
    """Whether the words after `run` name experiments; a file of that name wins, a folder does not."""
    document = configuration.document
    paths = [Path(word.split("::", 1)[0]) for word in words]
    if document is None or any(path.is_file() for path in paths):
        return False
    known = [str(name) for name in document.section("experiments")]
    if any(word in known for word in words):
        return True
    is_path = any(path.exists() or path.suffix or len(path.parts) > 1 for path in paths)
    if is_path:
        return False
    # a name that is misspelt, or that there is not: no file could have been meant either
    is_file = Path(f"{words[0]}.py").exists() or any(Path.cwd().glob("eval_*.py"))
    return bool(suggestion(words[0], known) or (runnable_names(document) and not is_file))


def run_command(
    arguments: Sequence[str], configuration: Configuration, typed: Sequence[str]
) -> tuple[int, Iterator[str]]:
    """Runs what the arguments name; the exit code, and what to tell afterwards.

    `typed` is the whole command, with `--config` and `--env-file`, which have been read: it goes on.
    """
    said = parsed(arguments)
    assert configuration.document is not None
    environ = Environment(os.environ)
    if said.options.experiment is not None and len(said.names) > 1:
        raise OptionError("--experiment gives one experiment another name, and several were named")
    check_calls((), configuration, environ)
    planned: list[Planned] = []
    notes: list[str] = []
    orders: dict[str, Order] = {}
    for name in dict.fromkeys(said.names):
        declared, settings = _settled(name, said, configuration, environ)
        declared, untouched = with_model_keys(declared, said.of_models)
        notes += untouched
        planned += _planned(declared, settings, environ)
        agents = [one.name for one in declared.asked]
        orders[settings.experiment] = Order.of(declared.entry, configuration.document, agents)
        if declared.judge is not None and any(one.is_agent for one in declared.asked):
            # told before agents have worked for it: they may take long
            missing = missing_key(declared.judge, environ)
            notes += [f"{name}: the judge {missing}; answers are kept until then"] if missing else []
        if past_us := [one.name for one in declared.asked if one.calls_past_us]:
            notes.append(f"{', '.join(dict.fromkeys(past_us))}: {LOST_WITHOUT_GATEWAY}")
    if said.options.budget_usd is not None:  # for all of them together
        together = shared_budget(said.options.budget_usd, planned)
        planned = [replace(one, budget=together) for one in planned]
    notes += spending_beside(planned)
    folder = project_folder(Path.cwd())
    workers = {
        (one.runnable.spec.experiment, one.runnable.spec.name): _workers(one.runnable.options)
        for one in planned
    }
    with ExitStack() as stack:
        outputs = None
        if said.output_dir is not None:
            outputs = OutputFolder(said.output_dir, planned, lambda ended: _summary(ended, None))
            stack.enter_context(outputs.opened(workers))
        progress = stack.enter_context(
            wiring.progress_on(2, planned[0].runnable.options, every_sample=workers)
        )
        gating.tell_unknown_variables(progress.note)
        for note in notes:
            progress.note(note)
        ended = run_all(planned, progress=progress, folder=folder, orders=orders, watcher=outputs)
    code = exit_code(ended)
    again = shlex.join(["evalve", *without_fresh(typed)]) if code == INTERRUPTED else None
    return code, _summary(ended, again)


def without_fresh(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if argument not in ("--fresh", "--evalve-fresh")]


def _settled(
    name: str, said: Said, configuration: Configuration, environ: Mapping[str, str]
) -> tuple[Declared, wiring.Settings]:
    """The experiment with the models that are asked, and everything that is said about its run."""
    document = configuration.document
    assert document is not None
    environment = from_environment(environ)
    models = said.options.model or environment.model
    keys, flags = {**said.keys}, {**said.flags}
    if models:
        keys["models"] = list(models)
        flags["models"] = "--model" if said.options.model else "EVALVE_MODEL"
    declared = declared_named(document, name, keys, flags)
    alone = environment.experiment if len(said.names) == 1 else None
    recorded_as = said.options.experiment or alone or name
    options = configuration.options_for(name)
    settings = wiring.Settings(
        said=said.options,
        environment=environment,
        configuration=replace(configuration, experiments={recorded_as: options}),
        experiment=recorded_as,
        named=True,
    )
    return declared, settings


def _planned(declared: Declared, settings: wiring.Settings, environ: Mapping[str, str]) -> list[Planned]:
    options = settings.options_for_any()
    check_gates_of(declared, options.fail_under or (), "fail_under")
    store = wiring.storage_for(None, options)
    storage = wiring.storage_to_name(settings, None)
    planned = [
        Planned(built.runnable, store, storage, prepare=built.prepare)
        for built in build(declared, options, environ, experiment=settings.experiment)
    ]
    if options.budget_usd is None:
        return planned
    budget = shared_budget(options.budget_usd, planned)
    return [replace(one, budget=budget) for one in planned]


def _workers(options: Options) -> str:
    return str(options.max_concurrency or 10)


# -- what is told afterwards


def _summary(ended: Sequence[Ended], again: str | None) -> Iterator[str]:
    experiments = list(dict.fromkeys(one.planned.runnable.spec.experiment for one in ended))
    for place, experiment in enumerate(experiments):
        own = [one for one in ended if one.planned.runnable.spec.experiment == experiment]
        told = [_told(one) for one in own]
        if place:
            yield ""
        if len(experiments) > 1:
            yield experiment
        yield from summary_lines(
            [one.to_plain() for one in told],
            experiment=experiment,
            storage=own[0].planned.storage,
            all_told=True,
            resume_command=again if any(one.interrupted for one in told) else None,
        )
        for one, said in zip(own, told, strict=True):
            if one.outcome is not None and one.outcome.info.failed and not said.interrupted:
                yield failure_text(said, one.outcome.info, one.planned.store)
            if one.error is not None:
                yield f"{said.name}: {one.error}"


def _stored(planned: Planned) -> EvaluationInfo | None:
    spec = planned.runnable.spec
    try:
        infos = planned.store.evaluations(spec.experiment)
    except EvalveError:
        return None  # nothing is recorded yet, or the store is what broke
    return next((info for info in infos if info.spec.key == spec.key), None)


def _told(one: Ended) -> Told:
    planned, outcome = one.planned, one.outcome
    if outcome is None:
        reason = (
            str(one.error)
            if isinstance(one.error, EvalveError)
            else f"{type(one.error).__name__}: {one.error}"
        )
        return Told.about_broken(planned.runnable.spec, _stored(planned), reason)
    options = planned.runnable.options
    rows = (outcome.info.total or 0) // (options.repeat or 1)
    is_part = not outcome.run.fingerprint.get("is_whole") and rows >= (options.samples or 0)
    return Told.about(
        outcome.info,
        outcome.metrics,
        ran=outcome.ran,
        problems=outcome.problems,
        interrupted=outcome.interrupted,
        stop_reason=outcome.stop_reason,
        calls=outcome.run.report["calls"],
        storage=planned.storage,
        rows_changed=outcome.run.report["rows_changed"],
        skip_reasons=skip_reasons(planned.store, outcome.info),
        asked_for=figures.first_rows(options.samples, None) if is_part else "",
    )
