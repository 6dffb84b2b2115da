"""`evalve run NAME …`: experiments of the file, run side by side."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from evalve import gating, wiring
from evalve.checking import check_calls
from evalve.contracts import LOST_WITHOUT_GATEWAY, EvaluationInfo
from evalve.errors import EvalveError, OptionError
from evalve.experiments.building import build
from evalve.experiments.configuration import Configuration, project_folder
from evalve.experiments.declared import Declared, check_gates_of, declared_named, runnable_names
from evalve.experiments.document import parsed_text
from evalve.experiments.keys import EVALUATORS, EXPERIMENT, NAMES, OF_MODELS, PHASES, TEXT, Key
from evalve.experiments.ordering import Order, phases_in_text
from evalve.experiments.outputs import OutputFolder
from evalve.experiments.overriding import read_model_key, with_model_keys
from evalve.experiments.running import INTERRUPTED, Ended, Planned, exit_code, run_all
from evalve.experiments.spending import shared_budget
from evalve.options import OPTIONS, Option, Options, from_environment, parse_text, parse_texts, suggestion
from evalve.secrecy import Environment
from evalve.show import figures
from evalve.show.overview import skip_reasons
from evalve.show.pytest_summary import Told, failure_text, summary_lines


@dataclass(frozen=True, slots=True)
class Said:
    """What was typed after `evalve run`."""

    names: list[str]
    options: Options
    keys: Mapping[str, Any]
    """Keys of experiments, in place of what the file says."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """How the flag of each key was written."""
    of_models: Mapping[str, Any] = field(default_factory=dict)
    """Keys of models, in place of what their entries say."""
    output_dir: Path | None = None


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


def run_command(arguments: Sequence[str], configuration: Configuration) -> tuple[int, Iterator[str]]:
    """Runs what the arguments name; the exit code, and what to tell afterwards."""
    said = _parsed(arguments)
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
        if past_us := [one.name for one in declared.asked if one.calls_past_us]:
            notes.append(f"{', '.join(dict.fromkeys(past_us))}: {LOST_WITHOUT_GATEWAY}")
    if said.options.budget_usd is not None:  # for all of them together
        together = shared_budget(said.options.budget_usd, planned)
        planned = [replace(one, budget=together) for one in planned]
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
    again = shlex.join(["evalve", "run", *without_fresh(arguments)]) if code == INTERRUPTED else None
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


# -- what was typed


def _parsed(arguments: Sequence[str]) -> Said:
    parser = _Parser(prog="evalve run", allow_abbrev=False, add_help=False)
    parser.add_argument("names", nargs="+")
    for option in OPTIONS:
        names = _spellings(option)
        for word in option.words:
            flags = [f"{name}={word}" for name in names]
            parser.add_argument(*flags, dest=option.field, action="append_const", const=word)
        if option.is_switch:
            parser.add_argument(*names, dest=option.field, action="store_true", default=None)
        elif option.bare:
            parser.add_argument(*names, dest=option.field, action="append_const", const=option.bare)
        else:
            parser.add_argument(*names, dest=option.field, action="append", metavar=option.metavar)
    for key in _flags():
        parser.add_argument(*_key_spellings(key), dest=f"key {key.name}", action="append")
    for name in OF_MODELS:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=f"model {name}")
    parser.add_argument("--output-dir")
    said, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        hint = suggestion(unknown[0].partition("=")[0], known) or "; `evalve run --help` names them"
        raise OptionError(f"unknown option {unknown[0]!r} for an experiment of evalve.yaml{hint}")
    options = {
        option.field: _value(option, getattr(said, option.field), _typed(arguments, _spellings(option)))
        for option in OPTIONS
    }
    typed = {key.name: _typed(arguments, _key_spellings(key)) for key in _flags()}
    keys = {
        key.name: _read(key, texts, typed[key.name])
        for key in _flags()
        if (texts := getattr(said, f"key {key.name}"))
    }
    of_models = {name: getattr(said, f"model {name}") for name in OF_MODELS}
    return Said(
        said.names,
        Options(**options),
        keys,
        typed,
        {name: read_model_key(name, text) for name, text in of_models.items() if text is not None},
        None if said.output_dir is None else Path(said.output_dir).expanduser(),
    )


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in a sentence, without a page of options above it."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; `evalve run --help` names the options")


def _spellings(option: Option) -> list[str]:
    names = dict.fromkeys((option.name, *option.aliases, option.field.replace("_", "-")))
    return [f"--{prefix}{name}" for name in names for prefix in ("", "evalve-")]


def _key_spellings(key: Key) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in (key.name, *key.aliases)]


def _typed(arguments: Sequence[str], spellings: Sequence[str]) -> str:
    """How a flag was written, for messages about its value: the last time counts."""
    written = [flag for argument in arguments if (flag := argument.partition("=")[0]) in spellings]
    return written[-1] if written else spellings[0]


def _flags() -> list[Key]:
    """The keys of experiments that have no option of their own."""
    return [key for key in EXPERIMENT.keys if key.name not in ("extends", "description")]


def _read(key: Key, texts: Sequence[str], flag: str) -> Any:
    """What a flag says, as YAML writes it; several times, or with commas, where a list may stand."""
    if key.kind in (NAMES, EVALUATORS):
        value: Any = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    elif key.kind is TEXT:
        value = texts[-1]
    elif key.kind is PHASES:
        value = phases_in_text(";".join(texts))
    else:
        value = parsed_text(texts[-1])
    if not key.kind.accepts(value):
        raise OptionError(f"{flag}: needs {key.kind.words}; got {texts[-1]!r}")
    return value


def _value(option: Option, given: Any, flag: str) -> Any:
    if given is None or option.is_switch:
        return given
    if option.many:
        return parse_texts(option, given, said_by=flag)
    return parse_text(option, given[-1], said_by=flag)


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
