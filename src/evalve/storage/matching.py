"""Whether a record fulfils a query. Pure: from stored texts to yes or no."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evalve import metrics
from evalve.contracts import RecordQuery, ScoreQuery
from evalve.jsontext import from_json, to_json


class Candidate(NamedTuple):
    """What a query looks at; texts that it does not look at are empty."""

    status: str
    failure_class: str | None
    scores: str
    row: str | None
    texts: tuple[str | None, ...]


def looks_at_texts(query: RecordQuery) -> bool:
    return bool(query.columns or query.text)


def looks_only_at_keys(query: RecordQuery) -> bool:
    """Whether the records need not be searched: those that are not done have an order of their own."""
    return query.status != "done" and not (query.failure_class or query.score or looks_at_texts(query))


def matcher(query: RecordQuery) -> Callable[[Candidate], bool]:
    """A function that tells whether a record fulfils the query."""
    finds = _finder(query.text) if query.text else None

    def matches(candidate: Candidate) -> bool:
        if query.status is not None and candidate.status != query.status:
            return False
        if query.failure_class is not None and _failure_class(candidate) != query.failure_class:
            return False
        try:
            if query.score is not None and not _has_score(from_json(candidate.scores), query.score):
                return False
            if query.columns and not _has_columns(candidate.row, query.columns):
                return False
        except (ValueError, TypeError, KeyError):  # a damaged record, which must not hide the others
            return False
        return finds is None or any(finds(text) for text in candidate.texts if text is not None)

    return matches


def _failure_class(candidate: Candidate) -> str | None:
    return candidate.failure_class or "code" if candidate.status == "failed" else None


def _has_score(scores: list[dict[str, Any]], query: ScoreQuery) -> bool:
    return any(score["name"] == query.name and _is_asked_for(score, query) for score in scores)


def _is_asked_for(score: dict[str, Any], query: ScoreQuery) -> bool:
    value = score["value"]
    if query.wrong and not metrics.is_wrong(value, score.get("metrics", ())):
        return False
    if query.equals is not None and value != query.equals:
        return False
    if query.at_least is None and query.at_most is None:
        return True
    if not isinstance(value, int | float):
        return False
    return (query.at_least is None or value >= query.at_least) and (
        query.at_most is None or value <= query.at_most
    )


def _has_columns(row_json: str | None, columns: Mapping[str, Any]) -> bool:
    row = None if row_json is None else from_json(row_json)
    return isinstance(row, dict) and all(
        column in row and row[column] == value for column, value in columns.items()
    )


def _finder(text: str) -> Callable[[str], bool]:
    """JSON writes what is not ASCII as `\\u00e9`: only such texts must be read before they are searched."""
    plain = text.casefold()
    written = to_json(text)[1:-1].lower()

    def finds(json_text: str) -> bool:
        if "\\u" in json_text:
            return _is_within(from_json(json_text), plain)
        return text.isascii() and written in json_text.lower()

    return finds


def _is_within(value: Any, plain: str) -> bool:
    if isinstance(value, str):
        return plain in value.casefold()
    if isinstance(value, dict):
        return any(_is_within(part, plain) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(_is_within(part, plain) for part in value)
    return plain in to_json(value)
