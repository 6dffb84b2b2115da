"""The grammar of the command `evalve`: its verbs, their arguments, its help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evalve.experiments.file.keys import flags_in_words
from evalve.options import OPTIONS
from evalve.records import FAILURE_CLASSES, GROUPED_BY
from evalve.show.samples import LIMIT

if TYPE_CHECKING:  # argparse has no public name for it, and at run time it takes no parameters
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_STORAGE = ".evalve/evalve.db"
STATUSES = ("complete", "partial", "running")
_HIGHEST_PORT = 65535
BATCH_ACTIONS = ("list", "status", "wait", "cancel", "fetch")
CACHE_ACTIONS = ("stats", "clear", "path", "verify")

EXAMPLES = """\
examples:
  evalve init                                a first evaluation that needs no key
  evalve run eval_first.py --experiment first
  evalve run docs_qa --concurrency 10        an experiment of evalve.yaml
  evalve validate                            what is wrong with evalve.yaml
  evalve list                                experiments, newest first
  evalve show latest                         scores with their intervals, samples
  evalve show first --errors                 the samples that broke, with tracebacks
  evalve show first --class provider         of those, only what the provider failed at
  evalve show first --failed                 the samples that were scored and are wrong
  evalve show first 02779621420815be         one sample: its calls, tool calls, notes, files
  evalve compare first second                paired difference, fixed and broken samples
  evalve compare first --across model        the same for the variants inside one
  evalve export first -o first.jsonl         also .json, .csv, .parquet
  evalve plan eval_first.py                  what it will take, and how long at which tier
  evalve limits                              of every provider: level, pauses, who holds what
  evalve cache clear --older-than 7d         forget answers; `stats` says what is kept
  evalve gateway                             any program's calls under the same limits and budget
  evalve simulate --requests-per-minute 600  a provider to try against, without a key

exit codes: 0 all is well; 1 failed, not found, or a regression; 2 interrupted; 4 wrong usage;
6 insufficient: too little to say. `evalve run` ends with pytest's, which mean the same.
"""


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """What was said; a word that its command does not know is an error with that command's usage."""
    parser = command_line()
    said, unknown = parser.parse_known_args(arguments)
    if unknown:
        verbs = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
        verbs.choices.get(said.verb, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    return said


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evalve",
        description="Runs evaluations in parallel, and shows what happened.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="say which version this is")
    parser.add_argument("--storage", metavar="URL", default=None, help=_STORAGE_HELP)
    parser.add_argument(
        "--config", metavar="FILE", help="instead of the project's evalve.yaml; with any command"
    )
    parser.add_argument(
        "--env-file", metavar="FILE", help="variables, as NAME=value by line; with any command"
    )
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", title="commands")
    _add_first_steps(verbs)
    _add_reading(verbs)
    _add_keeping(verbs)
    _add_planning(verbs)
    for verb in verbs.choices.values():
        verb.add_argument("--storage", metavar="URL", default=argparse.SUPPRESS, help=_STORAGE_HELP)
    _add_gate(verbs)  # which has no records
    return parser


_STORAGE_HELP = f"where records are (default: $EVALVE_STORAGE, then evalve.yaml, then {DEFAULT_STORAGE})"
_EVALUATION_HELP = "only this evaluation"
_PATTERN_HELP = "'try-*', with * for any letters and ? for one"


def _add_first_steps(verbs: Verbs) -> None:
    verbs.add_parser(
        "run",
        help="run evaluations through pytest, or experiments of evalve.yaml",
        usage="evalve run [FILE[::NAME] ...] [pytest options]"
        "\n       evalve run EXPERIMENT [EXPERIMENT ...] [options]",
        description="Runs pytest with these arguments; without a file, on every eval_*.py from here down."
        " A word that is not a file names an experiment of evalve.yaml with `datasets:`; several run beside"
        " each other.",
        epilog=_run_options(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    validate = verbs.add_parser(
        "validate", help="check evalve.yaml: keys, names, files, columns; runs nothing"
    )
    validate.add_argument("--json", action="store_true", help="for machines")
    validate.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of the file, for editors"
    )
    init = verbs.add_parser("init", help="write a first evaluation that needs no key")
    init.add_argument("directory", nargs="?", default=".", metavar="DIR")
    init.add_argument(
        "--agents", action="store_true", help="an experiment in evalve.yaml that asks a command-line agent"
    )


def _run_options() -> str:
    lines = ["options, beside those of pytest:"]
    for option in OPTIONS:
        metavar = f" {option.metavar}" if option.metavar else ""
        metavar = f"[={option.metavar}]" if option.bare else metavar
        names = ", ".join(f"--{name}" for name in (option.name, *option.aliases))
        lines.append(f"  {names}{metavar}\n      {option.help.replace('%%', '%')}")
    lines.append("\nof experiments in evalve.yaml, in place of what the file says:")
    for name, words in flags_in_words():
        lines.append(f"  {name}\n      {words}")
    return "\n".join(lines)


def _add_reading(verbs: Verbs) -> None:
    listing = verbs.add_parser("list", help="experiments, newest first")
    listing.add_argument("pattern", nargs="?", metavar="PATTERN", help=f"only these: {_PATTERN_HELP}")
    listing.add_argument("--name", metavar="TEXT", help="only those whose name contains this")
    listing.add_argument("--status", choices=STATUSES, help="only those that are so")
    listing.add_argument("--json", action="store_true", help="for machines")

    show = verbs.add_parser(
        "show", help="an experiment: scores with intervals, failures, samples; or one sample in full"
    )
    show.add_argument("name", metavar="NAME|latest")
    show.add_argument("sample", nargs="?", metavar="SAMPLE", help="the id of a sample: all about it")
    show.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    which = show.add_mutually_exclusive_group()
    which.add_argument(
        "--errors", action="store_true", help="only samples that broke (an exception, a timeout): no score"
    )
    which.add_argument(
        "--failed",
        action="store_true",
        help="only samples that were scored and are wrong (false or 0; true where less is better)",
    )
    which.add_argument(
        "--skipped", action="store_true", help="only samples whose function called pytest.skip, with reasons"
    )
    show.add_argument(
        "--class",
        dest="failure_class",
        choices=FAILURE_CLASSES,
        metavar="C",
        help=f"only samples that broke so: {', '.join(FAILURE_CLASSES)}",
    )
    show.add_argument("--full", action="store_true", help="all samples, nothing shortened")
    show.add_argument("--limit", type=_count, metavar="N", help=f"at most N samples (default {LIMIT})")
    show.add_argument("--json", action="store_true", help="for machines; all samples unless --limit is given")
    show.add_argument(
        "--markdown",
        action="store_true",
        help="scores, misses, and what is wrong or broke, for a CI job's summary",
    )
    _add_by(show)
    show.add_argument("--repeat", type=_count, metavar="K", help="of SAMPLE: only this repeat (from 0)")
    show.add_argument("--save", metavar="DIR", help="of SAMPLE: write the files that it kept to DIR")

    _add_compare(verbs)


def _add_by(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--by",
        action="append",
        metavar="KEY",
        help="a table of scores by this key of their metadata; may be repeated"
        f" (default: {' and '.join(GROUPED_BY)}, where scores have them)",
    )


def _add_compare(verbs: Verbs) -> None:
    compare = verbs.add_parser(
        "compare",
        help="two experiments, or the variants of one, on the samples that they share",
        description="Pairs evaluations by file, function and variant, or by function where the variants are"
        " others, and samples by id. What has changed or is missing is said and left out.",
    )
    compare.add_argument("a", metavar="A")
    compare.add_argument("b", metavar="B", nargs="?", help="not with --across")
    compare.add_argument(
        "--across", metavar="PARAMETER", help="compare the variants of A by this parameter, as in model"
    )
    compare.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    compare.add_argument(
        "--accept-changes", action="store_true", help="compare evaluations although their code differs"
    )
    compare.add_argument("--full", action="store_true", help="all fixed and broken samples")
    compare.add_argument("--limit", type=_count, metavar="N", help="at most N fixed and N broken samples")
    _add_by(compare)
    compare.add_argument("--json", action="store_true", help="for machines")
    compare.add_argument(
        "--fail-on-regression",
        action="store_true",
        help="exit with 1 where a score or the failures of B are worse than those of A beyond chance (Holm's"
        " p over all of them is below 0.05), and with 6 where something is missing or too few to say",
    )
    compare.add_argument(
        "--fail-on-usage",
        action="store_true",
        help="the same, and time, tokens and cost are judged together with the scores",
    )


def _add_keeping(verbs: Verbs) -> None:
    export = verbs.add_parser("export", help="one row per sample and repeat, for other programs")
    export.add_argument("name", metavar="NAME|latest")
    export.add_argument(
        "-o", "--output", metavar="FILE", default="-", help=".json, .jsonl, .csv, .parquet; - for JSONL here"
    )
    export.add_argument("--json", action="store_true", help="here, as one JSON array")
    export.add_argument("--evaluation", metavar="E", help=_EVALUATION_HELP)
    export.add_argument(
        "--canonical", action="store_true", help="no times and no experiment's name, sorted: for diff"
    )
    export.add_argument("--trace", action="store_true", help="with what each sample did: calls, notes, files")
    rename = verbs.add_parser("rename", help="give an experiment another name")
    rename.add_argument("old", metavar="OLD")
    rename.add_argument("new", metavar="NEW")
    delete = verbs.add_parser("delete", help="delete experiments and their records")
    delete.add_argument("names", nargs="+", metavar="NAME", help=f"a name, or a pattern: {_PATTERN_HELP}")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _add_planning(verbs: Verbs) -> None:
    plan = verbs.add_parser(
        "plan",
        help="before anything is spent: calls, tokens, cost, and per tier how long and how many at once",
        description="Says what a run will take. Figures come from the options, else from earlier records.",
    )
    plan.add_argument("what", metavar="FILE[::NAME]|EXPERIMENT|latest")
    plan.add_argument("--samples", "--limit", type=_count, metavar="N", help="plan for N samples")
    plan.add_argument(
        "--concurrency",
        "--max-concurrency",
        type=_times,
        metavar="N",
        help="of an experiment of evalve.yaml: so many at once",
    )
    plan.add_argument("--repeat", type=_times, metavar="K", help="each K times")
    plan.add_argument("--phases", metavar="A,B;C", help="of an experiment of evalve.yaml: in these phases")
    plan.add_argument(
        "--models-at-once",
        type=_times,
        metavar="N",
        help="of an experiment of evalve.yaml: so many at a time",
    )
    plan.add_argument("--model", metavar="NAME", help="whose price and limits, as in anthropic/claude-…")
    plan.add_argument("--models", metavar="A,B", help="of an experiment of evalve.yaml: these of its models")
    plan.add_argument("--calls-per-sample", type=_amount, metavar="X", help="calls that a sample makes")
    plan.add_argument("--input-tokens", type=_amount, metavar="X", help="per call")
    plan.add_argument("--output-tokens", type=_amount, metavar="X", help="per call")
    plan.add_argument("--latency-s", type=_amount, metavar="X", help="how long a call takes")
    plan.add_argument(
        "--deadline", metavar="TIME", help="when it must be over, as in 2h: live or in batches?"
    )
    plan.add_argument("--tier", metavar="T", help="only this tier, as in 1 or build")
    plan.add_argument("--json", action="store_true", help="for machines")


def _add_gate(verbs: Verbs) -> None:
    limits = verbs.add_parser(
        "limits",
        help="limits of every provider, key and model: level now, pauses, who holds what",
        description="Shows the limits that all processes of yours on this machine share. Changes nothing.",
    )
    limits.add_argument("--json", action="store_true", help="for machines")
    limits.add_argument(
        "--forget", metavar="SCOPE", help="HOST/KEY-HASH/MODEL, or a part that only one has: learn it anew"
    )
    _add_cache(verbs)
    _add_batch(verbs)
    _add_gateway(verbs)
    verbs.add_parser("simulate", help="a provider to try against, with limits, latency and faults")


def _add_gateway(verbs: Verbs) -> None:
    gateway = verbs.add_parser(
        "gateway",
        help="an address on this machine through which any program calls its models, until Ctrl-C",
        description="Serves on 127.0.0.1: calls of any program, in any language, that is pointed at it share"
        " limits, retries and a budget with all of evalve. The real keys stay here.",
    )
    gateway.add_argument(
        "--port", type=_port, default=0, metavar="N", help="to listen on (default: any free one)"
    )
    gateway.add_argument(
        "--cache",
        choices=("on", "off", "read", "refresh"),
        default="off",
        help="use answers that were paid for, and keep new ones (default: off)",
    )
    gateway.add_argument("--budget-usd", type=_amount, metavar="USD", help="refuse calls beyond this")
    gateway.add_argument("--json", action="store_true", help="a line at the start and one at the end")


def _add_batch(verbs: Verbs) -> None:
    batch = verbs.add_parser(
        "batch", help="batches at providers: list, status, wait, cancel, fetch (--batch makes them)"
    )
    actions = batch.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    listing = actions.add_parser("list", help="all of this machine, newest first; asks no provider")
    status = actions.add_parser("status", help="one, as its provider shows it now")
    wait = actions.add_parser("wait", help="until batches have ended and their answers are in the cache")
    cancel = actions.add_parser("cancel", help="end one; what is done of it is paid for and can be fetched")
    fetch = actions.add_parser("fetch", help="put the answers of one that has ended into the cache")
    wait.add_argument("ids", nargs="*", metavar="ID", help="(default: all that have not ended)")
    for one in (status, cancel, fetch):
        one.add_argument("id", metavar="ID|latest", help="ours, the provider's, or the beginning of ours")
    for one in (listing, status, wait, cancel, fetch):
        one.add_argument("--json", action="store_true", help="for machines")
    fetch.add_argument("--output", metavar="FILE", help="write the results there as JSON lines; - for stdout")


def _add_cache(verbs: Verbs) -> None:
    cache = verbs.add_parser("cache", help="kept answers of models: stats, clear, path, verify")
    actions = cache.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    stats = actions.add_parser("stats", help="how many answers of which models, how large, how often used")
    stats.add_argument("--json", action="store_true", help="for machines")
    clear = actions.add_parser("clear", help="remove answers: those that meet all that is said, else all")
    clear.add_argument("--model", metavar="M", help="of this model: MODEL or PROVIDER/MODEL")
    clear.add_argument("--older-than", metavar="AGE", help="kept for longer than 7d, 12h or 30m")
    clear.add_argument("--experiment", metavar="NAME", help="made by this experiment")
    clear.add_argument("--yes", action="store_true", help="do not ask")
    actions.add_parser("path", help="the file that they are in")
    verify = actions.add_parser("verify", help="read every answer, remove those that are damaged")
    verify.add_argument("--json", action="store_true", help="for machines")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"needs a port, 1 to {_HIGHEST_PORT}, or 0 for any; got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"needs a whole number, 0 or more; got {text!r}")
    return int(text)


def _times(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number, 1 or more; got {text!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise argparse.ArgumentTypeError(f"needs a number, 0 or more; got {text!r}")
    return amount
