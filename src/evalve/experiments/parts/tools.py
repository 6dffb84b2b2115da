"""`tools:` of an experiment: what a model is offered to call, from the file, another file, or a column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from evalve.declare.templates import TemplateProblem, columns_of
from evalve.errors import DatasetError, OptionError
from evalve.evaluators.tools.definitions import definitions
from evalve.experiments.file.resolving import Entry
from evalve.jsontext import as_text


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The same tools for every row, or those of a column."""

    tools: Any = None
    column: str | None = None

    def of_row(self, row: Mapping[str, Any]) -> Any:
        if self.column is None:
            return self.tools
        given = row[self.column]
        try:
            tools = json.loads(given) if isinstance(given, str) else given
            definitions(tools)
        except (ValueError, OptionError) as error:
            raise DatasetError(
                f"the column {self.column!r} has no definitions of tools ({error}): {as_text(given)[:100]}"
            ) from None
        return tools


def tools_of(entry: Entry) -> OfferedTools | None:
    """What the experiment offers; `OptionError` with file, line and remedy where it cannot be that."""
    said = entry.get("tools")
    if said is None:
        return None
    where = f"{entry.where('tools')}: experiments.{entry.name}: tools"
    if isinstance(said, str) and (column := _column(said, where)) is not None:
        return OfferedTools(column=column)
    tools = _from_file(entry, said, where) if isinstance(said, str) else said
    try:
        definitions(tools)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None
    return OfferedTools(tools)


def _column(said: str, where: str) -> str | None:
    try:
        columns = columns_of(said)
    except TemplateProblem as problem:
        raise OptionError(f"{where}: {problem}") from None
    if not columns:
        return None
    if said.strip() != f"{{{columns[0]}}}":
        raise OptionError(f"{where}: {said!r} is neither a file nor one {{column}}")
    return columns[0]


def _from_file(entry: Entry, said: str, where: str) -> Any:
    path = entry.folder("tools") / said
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))  # which reads JSON as well
    except OSError as error:
        raise OptionError(f"{where}: {str(path)!r} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise OptionError(f"{where}: {path} is neither JSON nor YAML: {error}") from None
