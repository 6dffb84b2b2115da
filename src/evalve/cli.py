"""The command `evalve`: reads the command line and hands over to what does the work."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from evalve.contracts import Store
from evalve.errors import EvalveError, NotFound, OptionError
from evalve.options import OPTIONS, parse_text, suggestion
from evalve.pytest_run import run_pytest
from evalve.show.comparing import compare_experiments, comparison_json, comparison_text
from evalve.show.experiment import list_json, list_text, show_json, show_text
from evalve.show.exporting import Rows, export, jsonl_lines
from evalve.show.figures import plural
from evalve.show.finding import experiment_named
from evalve.show.samples import LIMIT, Choice
from evalve.show.starting import start
from evalve.show.tables import visible
from evalve.storage import open_store

if TYPE_CHECKING:  # argparse has no public name for it, and at run time it takes no parameters
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_STORAGE = ".evalve/evalve.db"
_EXPERIMENT = next(option for option in OPTIONS if option.name == "experiment")
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

EXAMPLES = """\
examples:
  evalve init                                a first evaluation that needs no key
  evalve run eval_first.py --experiment first
  evalve list                                experiments, newest first
  evalve show latest                         scores with their intervals, samples
  evalve show first --errors                 the samples that broke, with tracebacks
  evalve show first --failed                 the samples that were scored and are wrong
  evalve compare first second                paired difference, fixed and broken samples
  evalve export first -o first.jsonl         also .json, .csv, .parquet

exit codes: 0 all is well; 1 not found, failed, or a regression; 2 wrong usage
`evalve run` ends with pytest's exit code.
"""


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
        return stop.code if isinstance(stop.code, int) else USAGE


def _command(arguments: list[str]) -> int:
    verb = _verb(arguments)
    if verb is not None and verb not in _VERBS:
        hint = suggestion(verb, _VERBS) or f"; the commands are: {', '.join(_VERBS)}"
        raise OptionError(f"unknown command {verb!r}{hint}")
    if verb == "run":
        # everything after `run` belongs to pytest, which knows options that argparse does not
        place = arguments.index("run")
        said, passed_on = _parser().parse_args(arguments[: place + 1]), arguments[place + 1 :]
        return _run(said, passed_on)
    said = _parser().parse_args(arguments)
    if said.version:
        return _print([f"evalve {version('evalve')}"])
    if verb is None:
        _parser().print_help()
        return USAGE
    return _VERBS[verb](said)


def _verb(arguments: list[str]) -> str | None:
    """The first argument that is neither an option nor the value of `--storage`."""
    previous = ""
    for argument in arguments:
        if not argument.startswith("-") and previous != "--storage":
            return argument
        previous = argument
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evalve",
        description="Runs evaluations in parallel, and shows what happened.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="say which version this is")
    parser.add_argument("--storage", metavar="URL", default=None, help=_STORAGE_HELP)
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
    _add_first_steps(verbs)
    _add_reading(verbs)
    _add_keeping(verbs)
    for verb in verbs.choices.values():
        verb.add_argument("--storage", metavar="URL", default=argparse.SUPPRESS, help=_STORAGE_HELP)
    return parser


_STORAGE_HELP = f"where records are (default: $EVALVE_STORAGE, then {DEFAULT_STORAGE})"
_EVALUATION_HELP = "only this evaluation"


def _add_first_steps(verbs: Verbs) -> None:
    verbs.add_parser(
        "run",
        help="run evaluations through pytest",
        usage="evalve run [FILE[::NAME] ...] [pytest options]",
        description="Runs pytest with these arguments; without a file, on every eval_*.py from here down.",
    )
    init = verbs.add_parser("init", help="write a first evaluation that needs no key")
    init.add_argument("directory", nargs="?", default=".", metavar="DIR")


def _add_reading(verbs: Verbs) -> None:
    listing = verbs.add_parser("list", help="experiments, newest first")
    listing.add_argument("--json", action="store_true", help="for machines")

    show = verbs.add_parser("show", help="an experiment: scores with intervals, failures, samples")
    show.add_argument("name", metavar="NAME|latest")
    show.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    which = show.add_mutually_exclusive_group()
    which.add_argument(
        "--errors", action="store_true", help="only samples that broke (an exception, a timeout): no score"
    )
    which.add_argument(
        "--failed", action="store_true", help="only samples that were scored and are wrong (false or 0)"
    )
    show.add_argument("--full", action="store_true", help="all samples, nothing shortened")
    show.add_argument("--limit", type=_count, metavar="N", help=f"at most N samples (default {LIMIT})")
    show.add_argument("--json", action="store_true", help="for machines; all samples unless --limit is given")

    compare = verbs.add_parser("compare", help="two experiments on the samples that they share")
    compare.add_argument("a", metavar="A")
    compare.add_argument("b", metavar="B")
    compare.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    compare.add_argument("--full", action="store_true", help="all fixed and broken samples")
    compare.add_argument("--limit", type=_count, metavar="N", help="at most N fixed and N broken samples")
    compare.add_argument("--json", action="store_true", help="for machines")
    compare.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit with 1 where B is worse than A beyond chance (p < 0.05)",
    )


def _add_keeping(verbs: Verbs) -> None:
    export = verbs.add_parser("export", help="one row per sample and repeat, for other programs")
    export.add_argument("name", metavar="NAME|latest")
    export.add_argument(
        "-o", "--output", metavar="FILE", default="-", help=".json, .jsonl, .csv, .parquet; - for JSONL here"
    )
    export.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    export.add_argument(
        "--canonical", action="store_true", help="no times and no experiment's name, sorted: for diff"
    )
    rename = verbs.add_parser("rename", help="give an experiment another name")
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")
    delete = verbs.add_parser("delete", help="delete an experiment and its records")
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"needs a whole number, 0 or more; got {text!r}")
    return int(text)


def _run(said: argparse.Namespace, passed_on: list[str]) -> int:
    if any(argument in ("-h", "--help") for argument in passed_on):
        _parser().parse_args(["run", "--help"])
    storage = [f"--evalve-storage={said.storage}"] if said.storage else []
    return run_pytest([*passed_on, *storage])


def _init(said: argparse.Namespace) -> int:
    return _print(start(Path(said.directory)))


def _list(said: argparse.Namespace) -> int:
    try:
        with _store(said) as store:
            experiments = store.experiments()
    except NotFound:
        if said.storage:
            raise
        experiments = []  # nothing was recorded here yet, which is no mistake
    return _print([list_json(experiments)] if said.json else list_text(experiments, width=_width()))


def _show(said: argparse.Namespace) -> int:
    choice = Choice("errors" if said.errors else "failed" if said.failed else "all", said.limit, said.full)
    with _store(said) as store:
        if said.json:
            sys.stdout.writelines(show_json(store, said.name, evaluation=said.evaluation, choice=choice))
            return OK
        return _print(show_text(store, said.name, evaluation=said.evaluation, choice=choice, width=_width()))


def _compare(said: argparse.Namespace) -> int:
    with _store(said) as store:
        compared = compare_experiments(store, said.a, said.b, evaluation=said.evaluation)
    limit = said.limit if said.limit is not None else None if said.full else LIMIT
    _print(
        [comparison_json(compared)] if said.json else comparison_text(compared, limit=limit, width=_width())
    )
    return FAILED if said.fail_on_regression and compared.regressions else OK


def _export(said: argparse.Namespace) -> int:
    with _store(said) as store:
        if said.output == "-":
            rows = Rows(store, said.name, evaluation=said.evaluation, canonical=said.canonical)
            sys.stdout.writelines(jsonl_lines(rows))
            return OK
        path = Path(said.output)
        count = export(store, said.name, path=path, evaluation=said.evaluation, canonical=said.canonical)
    return _print([f"wrote {plural(count, 'row')} to {path}"])


def _rename(said: argparse.Namespace) -> int:
    with _store(said) as store:
        old = experiment_named(store, said.old).name
        new = parse_text(_EXPERIMENT, said.new, said_by="rename")
        store.rename(old, new)
    return _print([visible(f"{old} is now {new}")])


def _delete(said: argparse.Namespace) -> int:
    with _store(said) as store:
        found = experiment_named(store, said.name)
        what = f"{found.name} with its {plural(found.done + found.failed, 'record')}"
        if not said.yes and not _agreed(f"delete {what}? [y/N] "):
            print("nothing was deleted", file=sys.stderr)
            return FAILED
        store.delete(found.name)
    return _print([visible(f"deleted {what}")])


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise OptionError("nobody can be asked here (no terminal): say --yes to delete")
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _store(said: argparse.Namespace) -> closing[Store]:
    url = said.storage or os.environ.get("EVALVE_STORAGE") or DEFAULT_STORAGE
    return closing(open_store(url, create=False))


def _width() -> int:
    return shutil.get_terminal_size().columns


def _print(lines: Iterable[str]) -> int:
    for line in lines:
        print(line)
    return OK


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": lambda said: _run(said, []),
    "init": _init,
    "list": _list,
    "show": _show,
    "compare": _compare,
    "export": _export,
    "rename": _rename,
    "delete": _delete,
}


if __name__ == "__main__":
    sys.exit(main())
