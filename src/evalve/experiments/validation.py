"""`evalve validate`: everything that is wrong with a file, before anything is run or spent."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalve.errors import EvalveError, OptionError
from evalve.experiments.declared import Declared, dataset_named, declared_named
from evalve.experiments.file.calls import call_problems
from evalve.experiments.file.configuration import configuration_file
from evalve.experiments.file.document import Document, Place, read_document
from evalve.experiments.file.problems import Problem, is_sound, own_problems
from evalve.experiments.file.resolving import Entry, entry_of
from evalve.experiments.file.variables import not_set, variables_in
from evalve.experiments.parts.agents import check_agent
from evalve.experiments.parts.conversations import MODE, row_problems
from evalve.experiments.parts.models import asked_named, missing_key
from evalve.experiments.parts.rows import source_of
from evalve.experiments.parts.scripts import check_scripts
from evalve.secrecy import Environment

_PLACED = re.compile(r"(?s)(.+?):(\d+): (.*)")


@dataclass(slots=True)
class Report:
    """What a file declares, and what is wrong with it."""

    path: Path
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    experiments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return not self.errors


def validated(folder: Path) -> Report:
    """The report on the file that holds in a folder."""
    environ = Environment(os.environ)
    path = configuration_file(folder, environ)
    report = Report(path)
    try:
        document = read_document(path)
    except FileNotFoundError:
        raise OptionError(
            f"there is no {path.name} in {path.parent} or above it; `evalve init --agents` writes one"
        ) from None
    except OptionError as error:
        report.errors.append(_placed(error, Place(path, 1)))
        return report
    report.errors = list(own_problems(document))
    if report.errors and not isinstance(document.content, dict):
        return report
    for problem in _reference_problems(document, report.experiments, environ):
        found = report.warnings if problem.is_warning else report.errors
        if str(problem) not in map(str, found):
            found.append(problem)
    report.errors.extend(call_problems(document))
    report.errors.extend(_sandbox_problems(document))
    report.errors.sort(key=lambda one: (one.place.path != path, one.place.path, one.place.line))
    report.warnings.extend(_missing_variables(document, environ))
    return report


def _reference_problems(
    document: Document, told: list[dict[str, Any]], environ: Mapping[str, str]
) -> Iterator[Problem]:
    """What names something that is not there; every experiment by itself."""
    for name in document.section("datasets"):
        place = document.place("datasets", name)
        entry, failed = _tried(place, entry_of, document, "datasets", name)
        if failed or is_sound(document, "datasets", name, entry.values):
            yield from failed or _tried(place, source_of, entry)[1]
    for name in document.section("models"):
        place = document.place("models", name)
        entry, failed = _tried(place, entry_of, document, "models", name)
        if not failed and not is_sound(document, "models", name, entry.values):
            continue
        asked, failed = _tried(place, asked_named, document, str(name), where=place, who="models")
        yield from failed
        if asked is not None and asked.is_agent:
            yield from _tried(place, check_agent, asked)[1]
    for name in document.section("experiments"):
        place = document.place("experiments", name)
        entry, failed = _tried(place, entry_of, document, "experiments", name)
        if failed or "datasets" not in entry.values:
            yield from failed
            told.append({"name": str(name), "runnable": False})
            continue
        declared = None
        failed = list(_names_problems(document, entry))
        if not failed and _can_be_read(document, entry):
            declared, failed = _tried(place, declared_named, document, str(name))
        yield from failed
        if declared is not None:
            yield from _not_installed(declared)
            yield from _row_problems(declared)
            yield from _without_keys(declared, environ)
        told.append({"name": str(name), "runnable": bool(declared), **(_shape(declared) if declared else {})})


def _can_be_read(document: Document, experiment: Entry) -> bool:
    """Whether the experiment and all that it names are sound; of others their own mistakes are told."""
    named = [("experiments", experiment.name, experiment)]
    for section, keys in (("datasets", ("datasets",)), ("models", ("models", "judge_model"))):
        known = {str(name): name for name in document.section(section)}
        named += [
            (section, known[name], entry_of(document, section, known[name]))
            for key in keys
            for name in experiment.names(key)
            if name in known
        ]
    return all(is_sound(document, section, name, entry.values) for section, name, entry in named)


def _row_problems(declared: Declared) -> Iterator[Problem]:
    """Of conversations, every row is looked at: each has much to get wrong."""
    for source in declared.sources if declared.conversations is not None else ():
        assert declared.conversations is not None
        has_database = "sandbox" in declared.entry.values
        found = row_problems(declared.conversations, source, declared.judge, has_database=has_database)
        yield from (Problem(declared.entry.where("datasets"), text) for text in found)


def _not_installed(declared: Declared) -> Iterator[Problem]:
    """Told of agents that an experiment uses: a file may name others for other machines."""
    for asked in declared.asked:
        yield from _tried(asked.entry.place, check_scripts, asked, declared.folder, declared.files)[1]
        missing = _tried(asked.entry.place, check_agent, asked)[0] if asked.is_agent else None
        if missing:
            yield Problem(asked.entry.place, f"models.{asked.name}: {missing}", is_warning=True)


def _without_keys(declared: Declared, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Warnings: what is cached needs no key, and another machine may have it."""
    judges = [] if declared.judge is None else [declared.judge]
    for one in (*(member for asked in declared.asked for member in asked.members), *judges):
        if (missing := missing_key(one, environ)) is not None:
            yield Problem(one.entry.place, f"experiments.{declared.entry.name}: {missing}", is_warning=True)


def _sandbox_problems(document: Document) -> Iterator[Problem]:
    """Files that are not there; whether a server takes them, only a server can tell."""
    entry = document.section("sandboxes").get("postgres")
    for key in ("schema", "seed"):
        name = entry.get(key) if isinstance(entry, dict) else None
        if isinstance(name, str):
            place = document.place("sandboxes", "postgres", key)
            if not (place.path.parent / Path(name).expanduser()).is_file():
                yield Problem(place, f"sandboxes.postgres: {key}: there is no file {name!r}")


def _names_problems(document: Document, entry: Entry) -> Iterator[Problem]:
    who = f"experiments.{entry.name}"
    for name in entry.names("datasets"):
        yield from _tried(entry.where("datasets"), dataset_named, document, entry, name)[1]
    for key in ("models", "judge_model"):
        place = entry.where(key)
        for name in entry.names(key):
            yield from _tried(place, asked_named, document, name, where=place, who=who)[1]


def _shape(declared: Declared) -> dict[str, Any]:
    return {
        "datasets": [source.name for source in declared.sources],
        "models": [asked.name for asked in declared.asked],
        "evaluation_mode": declared.asked[0].mode if declared.conversations is None else MODE,
        "evaluations": len(declared.sources) * len(declared.asked),
    }


def _tried(
    place: Place, look: Callable[..., Any], *arguments: Any, **named: Any
) -> tuple[Any, list[Problem]]:
    """What looking gave, or what is wrong."""
    try:
        return look(*arguments, **named), []
    except EvalveError as error:
        return None, [_placed(error, place)]


def _placed(error: EvalveError, place: Place) -> Problem:
    """Every error about the file begins with its place; one that does not is about what is around it."""
    if match := _PLACED.fullmatch(str(error)):
        return Problem(Place(Path(match[1]), int(match[2])), match[3])
    return Problem(place, str(error))


def _missing_variables(document: Document, environ: Mapping[str, str]) -> Iterator[Problem]:
    for name in document.section("models"):
        with suppress(OptionError):
            entry = entry_of(document, "models", name)
            for key, value in entry.values.items():
                for variable in variables_in(value):
                    if not environ.get(variable):
                        text = f"models.{name}: {key}: {not_set(variable, environ)}"
                        yield Problem(entry.where(key), text, is_warning=True)


def report_lines(report: Report) -> Iterator[str]:
    yield from map(str, report.errors)
    yield from (f"{warning.place}: warning: {warning.text}" for warning in report.warnings)
    for one in report.experiments:
        if one.get("evaluations"):
            count = one["evaluations"]
            whom = f"{', '.join(one['datasets'])} × {', '.join(one['models'])}"
            yield f"{one['name']}: {count} evaluation{'s' if count > 1 else ''} ({whom})"
    count = len(report.errors)
    wrong = f"{count} error{'s' if count > 1 else ''}" if count else "valid"
    yield f"{report.path}: {wrong}"


def report_json(report: Report) -> str:
    return json.dumps(
        {
            "file": str(report.path),
            "valid": report.is_valid,
            "errors": [_plain(one) for one in report.errors],
            "warnings": [_plain(one) for one in report.warnings],
            "experiments": report.experiments,
        },
        indent=2,
    )


def _plain(problem: Problem) -> dict[str, Any]:
    return {"file": str(problem.place.path), "line": problem.place.line, "message": problem.text}
