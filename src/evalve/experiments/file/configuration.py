"""`evalve.yaml`: options for every experiment of a project, and for single ones by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.file.document import Document, read_document
from evalve.experiments.file.problems import own_problems
from evalve.experiments.file.resolving import entry_of, options_part
from evalve.filesystems import home_folder
from evalve.options import Options, from_mapping, merged
from evalve.secrecy import Environment
from evalve.variables import CONFIG

FILE_NAME = "evalve.yaml"
RECORDS = ".evalve/evalve.db"
"""Where the records of a project are, unless something else is said."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a project's `evalve.yaml` says."""

    path: Path | None = None
    options: Options = field(default_factory=Options)
    experiments: Mapping[str, Options] = field(default_factory=dict)
    limits: Any = None
    """As it stands there; the gate reads it."""
    prices: Any = None
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The entries of `models:` as they stand there; the gateway reads where some of them are."""
    document: Document | None = None
    """The file itself, with the lines of what it says."""

    def options_for(self, experiment: str | None) -> Options:
        """The experiment's own options over those for all."""
        own = self.experiments.get(experiment) if experiment is not None else None
        return merged(own, self.options) if own is not None else self.options


def project_folder(start: Path) -> Path:
    """Where the project's `evalve.yaml` or records are, in `start` or above; `start` where there are none.

    The search ends with the folder of a repository, and before one that others may write into: what lies in
    `/tmp` is nobody's project.
    """
    for folder in (start, *start.parents):
        if folder != start and not _is_ones_own(folder):
            break
        if (folder / FILE_NAME).exists() or (folder / RECORDS).exists():
            return folder
        if (folder / ".git").exists():
            break
    return start


def _is_ones_own(folder: Path) -> bool:
    status = folder.stat()
    return folder != home_folder() and status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


def configuration_file(folder: Path, environ: Mapping[str, str]) -> Path:
    """The file that holds in `folder`: the one that was named, else that of the project."""
    named = environ.get(CONFIG)
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise OptionError(f"there is no file {named!r}, which --config (or {CONFIG}) names")
        return path
    return project_folder(folder) / FILE_NAME


def read_configuration(folder: Path) -> Configuration:
    """The configuration of the project that `folder` is in; none where there is no file."""
    path = configuration_file(folder, Environment(os.environ))
    try:
        document = read_document(path)
    except FileNotFoundError:
        return Configuration()
    for problem in own_problems(document):
        raise OptionError(str(problem))
    found = _configuration(document)
    return found if path.parent == folder else _seen_from_elsewhere(found, path.parent)


def _seen_from_elsewhere(found: Configuration, home: Path) -> Configuration:
    """A storage that is named by a relative path lies beside the file that names it."""

    def placed(options: Options) -> Options:
        storage = options.storage
        if storage is None or "://" in storage:
            return options
        return replace(options, storage=str(home / Path(storage).expanduser()))

    experiments = {name: placed(options) for name, options in found.experiments.items()}
    return replace(found, options=placed(found.options), experiments=experiments)


def _configuration(document: Document) -> Configuration:
    path = document.path
    if document.content is None:
        return Configuration(path=path, document=document)
    return Configuration(
        path=path,
        options=from_mapping(document.section("options"), said_by=f"{path}: options"),
        experiments={
            str(name): from_mapping(
                options_part(entry_of(document, "experiments", name)), said_by=f"{path}: experiments.{name}"
            )
            for name in document.section("experiments")
        },
        limits=document.content.get("limits"),
        prices=document.content.get("prices"),
        models={
            str(name): dict(entry_of(document, "models", name).values) for name in document.section("models")
        },
        document=document,
    )
