"""The command `evalve`: reads the command line and hands over to what does the work."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

from evalve.arguments import BATCH_ACTIONS, CACHE_ACTIONS, DEFAULT_STORAGE, command_line, parsed
from evalve.contracts import ExperimentInfo, Store
from evalve.errors import EvalveError, NotFound, OptionError
from evalve.experiments.file.configuration import configuration_file, project_folder, read_configuration
from evalve.experiments.file.variables import read_env_file
from evalve.options import OPTIONS, parse_text, suggestion
from evalve.plugin.run import files_named, is_file, run_pytest
from evalve.records import GROUPED_BY
from evalve.sandboxes.homes import forget_experiment
from evalve.secrecy import Environment
from evalve.show.comparison.comparing import compare_across, compare_experiments, expect_groups, expect_pairs
from evalve.show.comparison.regressions import Outcome, regression_check
from evalve.show.comparison.text import check_text, comparison_json, comparison_text
from evalve.show.experiment import list_json, list_text, show_json, show_text
from evalve.show.exports.exporting import Rows, export, json_lines, jsonl_lines
from evalve.show.exports.markdown import show_markdown
from evalve.show.figures import plural
from evalve.show.finding import experiment_named
from evalve.show.overview import status_of_experiment
from evalve.show.sample.page import Wanted, find_sample, sample_json, sample_text, save_files
from evalve.show.samples import LIMIT, Choice, Which
from evalve.show.starting import start
from evalve.show.tables import visible
from evalve.storage import open_store
from evalve.variables import CONFIG, unknown_variables

_EXPERIMENT = next(option for option in OPTIONS if option.name == "experiment")
OK, FAILED, INTERRUPTED, USAGE, NOTHING_FOUND, INSUFFICIENT = 0, 1, 2, 4, 5, 6
"""0 to 5 mean what they mean to pytest, so that one table serves every command."""
EXIT_CODES: dict[Outcome, int] = {"pass": OK, "fail": FAILED, "insufficient": INSUFFICIENT}


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code; an error is one line on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a response may hold what the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _command(arguments)
        sys.stdout.flush()
        return code
    except EvalveError as error:
        print(f"evalve: {visible(str(error), lines=True)}", file=sys.stderr)
        return USAGE if isinstance(error, OptionError) else FAILED
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; Python's own flush at exit must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as stop:  # argparse ends so, after help and after wrong usage
        return OK if stop.code in (None, OK) else USAGE


def _command(typed: list[str]) -> int:
    arguments = typed
    if "simulate" not in arguments:  # whose own file is another one
        arguments = _with_environment(arguments)
    place = _place_of_verb(arguments)
    if place is None:
        said = command_line().parse_args(arguments)
        if said.version:
            return _print([f"evalve {version('evalve')}"])
        command_line().print_help()
        return USAGE
    verb = arguments[place]
    if verb != "run":  # pytest tells those of a run
        for text in unknown_variables(Environment(os.environ)):
            print(f"evalve: {visible(text)}", file=sys.stderr)
    if verb == "run":
        # everything after `run` belongs to pytest, which knows options that argparse does not
        return _run(command_line().parse_args(arguments[: place + 1]), arguments[place + 1 :], typed)
    if verb == "simulate":
        return _simulate(arguments[place + 1 :])
    _refuse_unknown("command", verb, ["run", *_VERBS, "simulate"])
    actions = {"cache": CACHE_ACTIONS, "batch": BATCH_ACTIONS}.get(verb)
    if actions and (inner := _place_of_verb(arguments[place + 1 :])) is not None:
        _refuse_unknown(f"{verb} action", arguments[place + 1 + inner], actions)
    return _VERBS[verb](parsed(arguments))


def _refuse_unknown(kind: str, word: str, known: Sequence[str]) -> None:
    if word not in known:
        hint = suggestion(word, known) or f"; the {kind}s are: {', '.join(known)}"
        raise OptionError(f"unknown {kind} {word!r}{hint}")


def _place_of_verb(arguments: list[str]) -> int | None:
    """Where the first argument stands that is neither an option nor the value of `--storage`."""
    for place, argument in enumerate(arguments):
        if not argument.startswith("-") and arguments[place - 1 : place] != ["--storage"]:
            return place
    return None


def _with_environment(arguments: list[str]) -> list[str]:
    """The arguments without `--config` and `--env-file`, which hold for everything that is done here."""
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("--config", "--env-file"):
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        if not value:
            raise OptionError(f"{name} needs the path of a file")
        if name == "--config":
            os.environ[CONFIG] = str(Path(value).expanduser().absolute())
            configuration_file(Path.cwd(), Environment(os.environ))
        else:
            for variable, text in read_env_file(Path(value)).items():
                os.environ.setdefault(variable, text)
    return rest


def _run(said: argparse.Namespace, passed_on: list[str], typed: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in passed_on):
        command_line().parse_args(["run", "--help"])
    storage = [f"--evalve-storage={said.storage}"] if said.storage else []
    words = list(files_named(passed_on))
    if words and not any(is_file(word) for word in words):
        from evalve.experiments import (
            command,
        )  # with the gate and the runner, which the other verbs do without

        configuration = read_configuration(Path.cwd())
        if command.names_experiments(words, configuration):
            code, lines = command.run_command([*passed_on, *storage], configuration, typed)
            _print(lines)
            return code
    code = run_pytest([*passed_on, *storage])
    if code == NOTHING_FOUND and not words:
        _tell_experiments()
    return code


def _tell_experiments() -> None:
    """There is no evaluation here for pytest; evalve.yaml may have what was meant."""
    from evalve.experiments.declared import runnable_names

    document = read_configuration(Path.cwd()).document
    names = [] if document is None else runnable_names(document)
    if document is not None and names:
        known = f"evalve run {visible(names[0])}" + (
            f" (or {visible(', '.join(names[1:]))})" if names[1:] else ""
        )
        print(
            f"evalve: nothing for pytest here; {document.path.name} has experiments: {known}", file=sys.stderr
        )


def _validate(said: argparse.Namespace) -> int:
    from evalve.experiments import validation
    from evalve.experiments.file import schema

    if said.schema:
        sys.stdout.write(schema.schema_text())
        return OK
    report = validation.validated(Path.cwd())
    _print([validation.report_json(report)] if said.json else validation.report_lines(report))
    return OK if report.is_valid else FAILED


def _init(said: argparse.Namespace) -> int:
    return _print(start(Path(said.directory), agents=said.agents))


def _list(said: argparse.Namespace) -> int:
    try:
        with _store(said) as store:
            experiments = store.experiments()
    except NotFound:
        if said.storage:
            raise
        experiments = []  # nothing was recorded here yet, which is no mistake
    chosen = [one for one in experiments if _is_asked_for(one, said)]
    if experiments and not chosen and not said.json:
        return _print([f"none of {plural(len(experiments), 'experiment')} is so"])
    return _print([list_json(chosen)] if said.json else list_text(chosen, width=_width()))


def _is_asked_for(experiment: ExperimentInfo, said: argparse.Namespace) -> bool:
    return (
        fnmatchcase(experiment.name, said.pattern or "*")
        and (said.name or "") in experiment.name
        and said.status in (None, status_of_experiment(experiment))
    )


def _show(said: argparse.Namespace) -> int:
    if said.sample is not None:
        return _show_sample(said)
    for option in ("repeat", "save"):
        if getattr(said, option) is not None:
            raise OptionError(
                f"--{option} belongs to one sample: evalve show {said.name} SAMPLE --{option} …"
            )
    choice = Choice(_which(said), said.limit, said.full, said.failure_class)
    if said.markdown:
        return _show_markdown(said, choice)
    with _store(said, said.name) as store:
        if said.json:
            sys.stdout.writelines(
                show_json(store, said.name, evaluation=said.evaluation, choice=choice, by=said.by)
            )
            return OK
        return _print(
            show_text(store, said.name, evaluation=said.evaluation, choice=choice, width=_width(), by=said.by)
        )


def _show_markdown(said: argparse.Namespace, choice: Choice) -> int:
    if said.json:
        raise OptionError("--json and --markdown are two forms of the same: say one")
    if choice.which != "all" or choice.full:
        raise OptionError("--markdown shows what is wrong and what broke: leave out what chooses samples")
    with _store(said, said.name) as store:
        return _print(
            show_markdown(store, said.name, evaluation=said.evaluation, limit=said.limit, by=said.by)
        )


def _which(said: argparse.Namespace) -> Which:
    if said.failure_class is not None and (said.failed or said.skipped):
        other = "--failed" if said.failed else "--skipped"
        raise OptionError(f"--class is about samples that broke: leave out {other}")
    if said.errors or said.failure_class is not None:
        return "errors"
    return "failed" if said.failed else "skipped" if said.skipped else "all"


def _show_sample(said: argparse.Namespace) -> int:
    for option in ("errors", "failed", "skipped", "limit", "failure_class", "markdown", "by"):
        if getattr(said, option):
            flag = "--class" if option == "failure_class" else f"--{option}"
            raise OptionError(f"{flag} chooses among samples: leave it out to see sample {said.sample!r}")
    if said.save is not None and said.json:
        raise OptionError("--save writes files and --json shows the sample: say one")
    wanted = Wanted(said.name, said.sample, said.evaluation, said.repeat)
    with _store(said, said.name) as store:
        found = find_sample(store, wanted)
        if said.save is not None:
            return _print(save_files(store, found, Path(said.save)))
        return _print([sample_json(found)] if said.json else sample_text(found, full=said.full))


def _compare(said: argparse.Namespace) -> int:
    if (said.b is None) == (said.across is None):
        raise OptionError("compare needs two experiments, or one and --across PARAMETER")
    how = {
        "evaluation": said.evaluation,
        "accept_changes": said.accept_changes,
        "usage_counts": said.fail_on_usage,
        "by": said.by or GROUPED_BY,
    }
    with _store(said, *[name for name in (said.a, said.b) if name is not None]) as store:
        if said.across is not None:
            compared = compare_across(store, said.a, said.across, **how)
        else:
            compared = [compare_experiments(store, said.a, said.b, **how)]
    expect_groups(compared, said.by or ())
    checks = said.fail_on_regression or said.fail_on_usage
    if not checks:
        expect_pairs(compared)
    check = regression_check(compared, usage_counts=said.fail_on_usage)
    if said.json:
        _print([comparison_json(compared, check)])
    else:
        limit = said.limit if said.limit is not None else None if said.full else LIMIT
        for place, one in enumerate(compared):
            _print([""] if place else [])
            _print(comparison_text(one, limit=limit, width=_width()))
        _print(check_text(check) if checks else ())
    return EXIT_CODES[check.outcome] if checks else OK


def _export(said: argparse.Namespace) -> int:
    if said.trace and said.canonical:
        raise OptionError("--canonical leaves out what differs between equal runs, as traces do: say one")
    with _store(said, said.name) as store:
        if said.output == "-":
            rows = Rows(
                store, said.name, evaluation=said.evaluation, canonical=said.canonical, traces=said.trace
            )
            sys.stdout.writelines(json_lines(rows) if said.json else jsonl_lines(rows))
            return OK
        if said.json:
            raise OptionError("--json writes to standard output, and -o says a file: say one")
        path = Path(said.output)
        count = export(
            store,
            said.name,
            path=path,
            evaluation=said.evaluation,
            canonical=said.canonical,
            traces=said.trace,
        )
    return _print([f"wrote {plural(count, 'row')} to {path}"])


def _rename(said: argparse.Namespace) -> int:
    with _store(said, said.old) as store:
        old = experiment_named(store, said.old).name
        new = parse_text(_EXPERIMENT, said.new, said_by="rename")
        store.rename(old, new)
    return _print([visible(f"{old} is now {new}")])


def _delete(said: argparse.Namespace) -> int:
    with _store(said, *said.names) as store:
        found = list(dict.fromkeys(name for text in said.names for name in _experiments_named(store, text)))
        records = {one.name: one.done + one.failed + one.skipped for one in store.experiments()}
        whats = [f"{name} with its {plural(records[name], 'record')}" for name in found]
        question = f"delete {visible(', '.join(whats))}? [y/N] "
        if not said.yes and not _agreed(question, to="delete"):
            print("nothing was deleted", file=sys.stderr)
            return FAILED
        for name, what in zip(found, whats, strict=True):
            store.delete(name)
            forget_experiment(store.url, name)
            _print([visible(f"deleted {what}")])
    return OK


def _experiments_named(store: Store, text: str) -> list[str]:
    """The experiment of that name, else all that fit the pattern."""
    names = [one.name for one in store.experiments()]
    if text not in names and any(sign in text for sign in "*?["):
        fitting = [name for name in names if fnmatchcase(name, text)]
        if not fitting:
            raise NotFound(f"no experiment fits {text!r}; `evalve list` shows those that there are")
        return fitting
    return [experiment_named(store, text).name]


def _plan(said: argparse.Namespace) -> int:
    from evalve.planning.command import plan_lines  # with pytest and the gate

    return _print(plan_lines(said, open_store=lambda: _store(said, said.what), width=_width()))


def _limits(said: argparse.Namespace) -> int:
    from evalve import gate_commands  # with the gate, which the other verbs do without

    return gate_commands.limits(said, width=_width())


def _cache(said: argparse.Namespace) -> int:
    from evalve import gate_commands

    return gate_commands.cache(said, agreed=lambda question: _agreed(question, to="clear"), width=_width())


def _batch(said: argparse.Namespace) -> int:
    from evalve.batches import verbs

    return verbs.batch(said, width=_width())


def _gateway(said: argparse.Namespace) -> int:
    from evalve import gate_commands

    return gate_commands.gateway(said)


def _simulate(passed_on: list[str]) -> int:
    from evalve import gate_commands

    return gate_commands.simulate(passed_on)


def _agreed(question: str, *, to: str) -> bool:
    if not sys.stdin.isatty():
        raise OptionError(f"nobody can be asked here (no terminal): say --yes to {to}")
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _store(said: argparse.Namespace, *experiments: str) -> closing[Store]:
    """Where a run of these experiments keeps its records."""
    url = said.storage or os.environ.get("EVALVE_STORAGE")
    if not url:
        configured = read_configuration(Path.cwd())
        home = project_folder(Path.cwd())
        default = DEFAULT_STORAGE if home == Path.cwd() else str(home / DEFAULT_STORAGE)
        urls = [configured.options_for(name).storage or default for name in experiments or (None,)]
        if len(set(urls)) > 1:
            where = ", ".join(f"{name!r} in {url}" for name, url in zip(experiments, urls, strict=True))
            raise OptionError(f"{configured.path} keeps {where}: one storage must hold both")
        url = urls[0]
    return closing(open_store(url, create=False))


def _width() -> int:
    return shutil.get_terminal_size().columns


def _print(lines: Iterable[str]) -> int:
    for line in lines:
        print(line)
    return OK


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "init": _init,
    "validate": _validate,
    "list": _list,
    "show": _show,
    "compare": _compare,
    "export": _export,
    "rename": _rename,
    "delete": _delete,
    "plan": _plan,
    "limits": _limits,
    "cache": _cache,
    "batch": _batch,
    "gateway": _gateway,
}


if __name__ == "__main__":
    sys.exit(main())
