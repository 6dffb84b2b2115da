"""What `lane=` says: a template of columns, or a function of the row, that names the lane of each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evalve.declare.fingerprint import fingerprint
from evalve.declare.rows import lacks
from evalve.declare.templates import TemplateProblem, columns_of, filled
from evalve.errors import DatasetError, DeclarationError

Lane = str | Callable[[Mapping[str, Any]], object]


def lane_function(lane: Lane | None, where: str) -> Callable[[Mapping[str, Any]], str] | None:
    """From a row to the name of its lane; `where` begins what is told of a mistake."""
    if lane is None:
        return None
    if callable(lane):
        return lambda row: str(lane(row))
    if not isinstance(lane, str):
        raise DeclarationError(
            f'{where}: lane= takes a text such as "{{workflow}}" or a function of the row; got {lane!r}'
        )
    try:
        columns = columns_of(lane)
    except TemplateProblem as problem:
        raise DeclarationError(f"{where}: lane: {problem}") from None

    def named(row: Mapping[str, Any]) -> str:
        for column in columns:
            if column not in row:
                raise DatasetError(f"the row {lacks(column, [str(name) for name in row])}")
        return filled(lane, row)

    return named


def lane_parts(lane: Lane | None) -> dict[str, str]:
    """What of it belongs to the evaluation's fingerprint: in another order, other things are learnt."""
    if lane is None or isinstance(lane, str):
        return {} if lane is None else {"lane": lane}
    parts = fingerprint(lane, ())
    return {f"lane {name}": text for name, text in parts.items() if name.startswith("function ")}
