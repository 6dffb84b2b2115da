"""`evalve.yaml`: options for every experiment of a project, and for single ones by name."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.options import Options, from_mapping, merged, suggestion

FILE_NAME = "evalve.yaml"
RECORDS = ".evalve/evalve.db"
"""Where the records of a project are, unless something else is said."""
KEYS = ("options", "experiments", "limits", "prices")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a project's `evalve.yaml` says."""

    path: Path | None = None
    options: Options = field(default_factory=Options)
    experiments: Mapping[str, Options] = field(default_factory=dict)
    limits: Any = None
    """As it stands there; the gate reads it."""
    prices: Any = None

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
    return folder != Path.home() and status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH


def read_configuration(folder: Path) -> Configuration:
    """The configuration of the project that `folder` is in; none where there is no file."""
    path = project_folder(folder) / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Configuration()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
    found = _configuration(path, _loaded(path, text))
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


def _loaded(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OptionError(f"{path} is not valid YAML: {error}") from error


def _configuration(path: Path, document: Any) -> Configuration:
    top = _mapping(document, str(path))
    for key in top:
        if key not in KEYS:
            raise OptionError(
                f"{path}: unknown key {key!r}{suggestion(str(key), KEYS)} (known: {', '.join(KEYS)})"
            )
    experiments = _mapping(top.get("experiments"), f"{path}: experiments")
    return Configuration(
        path=path,
        options=from_mapping(_mapping(top.get("options"), f"{path}: options"), said_by=f"{path}: options"),
        experiments={
            str(name): from_mapping(
                _mapping(body, f"{path}: experiments.{name}"), said_by=f"{path}: experiments.{name}"
            )
            for name, body in experiments.items()
        },
        limits=top.get("limits"),
        prices=top.get("prices"),
    )


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise OptionError(f"{where} must be a mapping of names to values; got {type(value).__name__}")
    return value
