"""`lane:` and `reset:` of an experiment: which samples follow each other, and in which database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evalve.contracts import Lender, Runnable
from evalve.declare.lanes import lane_function
from evalve.declare.rows import lacks
from evalve.declare.templates import TemplateProblem, columns_of
from evalve.errors import DatasetError, OptionError
from evalve.experiments.file.document import Place
from evalve.experiments.file.resolving import Entry
from evalve.experiments.parts.models import Asked
from evalve.experiments.parts.rows import Source

if TYPE_CHECKING:
    from evalve.experiments.declared import Declared


def lane_said(entry: Entry, asked: Asked) -> tuple[str | None, Place]:
    """The model's own lane, else the experiment's; and where it stands."""
    for one in (asked.entry, entry):
        if (lane := one.get("lane")) is not None:
            return str(lane), one.where("lane")
    return None, entry.place


def lane_of(entry: Entry, asked: Asked) -> Callable[[Mapping[str, Any]], str] | None:
    """From a row to its lane; one for all where nothing is reset."""
    if entry.get("reset") == "never":
        return lambda row: ""
    lane, where = lane_said(entry, asked)
    return lane_function(lane, f"{where}: experiments.{entry.name}")


def in_lanes(runnable: Runnable, declared: Declared, asked: Asked) -> Runnable:
    """The evaluation with its lanes, and with databases that are kept through them."""
    entry = declared.entry
    lenders = {
        name: _kept(lender, entry.get("reset", "conversation")) for name, lender in runnable.lenders.items()
    }
    return replace(runnable, lane=lane_of(entry, asked), lenders=lenders)


def _kept(lender: Lender, reset: Any) -> Lender:
    if reset == "conversation" or not hasattr(lender, "run_begins"):
        return lender
    from evalve.sandboxes.postgresql.kept import reset_by  # its driver is an optional package
    from evalve.sandboxes.postgresql.lender import Postgres

    return reset_by(lender, reset) if isinstance(lender, Postgres) else lender


def check_lanes(declared: Declared) -> None:
    """`OptionError` for lanes that cannot be meant."""
    entry = declared.entry
    whose = f"experiments.{entry.name}"
    reset = entry.get("reset")
    if reset is not None and "sandbox" not in entry.values:
        raise OptionError(
            f"{entry.where('reset')}: {whose}: `reset:` says when the sandbox is reset, and there is none:"
            " add `sandbox: postgres`"
        )
    for asked in declared.asked:
        lane, where = lane_said(entry, asked)
        if lane is None and reset == "lane":
            raise OptionError(
                f"{entry.where('reset')}: {whose}: reset: lane keeps a database through each lane, and"
                f' {asked.name!r} has none: add `lane: "{{column}}"`, or write reset: never'
            )
        if lane is not None:
            _check_columns(lane, where, whose, declared.sources)


def _check_columns(lane: str, where: Place, whose: str, sources: Any) -> None:
    try:
        columns = columns_of(lane)
    except TemplateProblem as problem:
        raise OptionError(f"{where}: {whose}: lane: {problem}") from None
    for source in sources:
        first = _first(source)
        for column in columns:
            if first is not None and column not in first:
                raise OptionError(
                    f"{where}: {whose}: lane names the column {column!r}, and row 1 of {source.label}"
                    f" {lacks(column, [str(name) for name in first])}"
                )


def _first(source: Source) -> Mapping[str, Any] | None:
    if source.path is None:
        return None  # nothing is fetched for the sake of looking
    try:
        return source.first()
    except DatasetError as error:
        raise OptionError(f"{source.where}: {error}") from None
