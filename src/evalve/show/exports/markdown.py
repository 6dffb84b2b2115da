"""An experiment as Markdown: for the summary of a CI job, or a comment below a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from evalve import metrics
from evalve.contracts import Store
from evalve.records import Record
from evalve.show import figures
from evalve.show.breakdown.groups import group_rows
from evalve.show.finding import Labelled, evaluations_of, experiment_named
from evalve.show.overview import Overview, metric_text, overviews, samples_line, status_text
from evalve.show.samples import LIMIT, Choice, chosen
from evalve.show.tables import shortened, visible

_REASON_WIDTH = 200


def show_markdown(
    store: Store,
    name: str,
    *,
    evaluation: str | None,
    limit: int | None = None,
    by: Sequence[str] | None = None,
) -> Iterator[str]:
    """Scores of each evaluation, misses by kind, shares by tool, then samples that are wrong or broke."""
    experiment = experiment_named(store, name)
    labelled = evaluations_of(store, experiment.name, evaluation)
    found = overviews(store, experiment, labelled, by)
    yield f"## {_cell(experiment.name)}"
    yield ""
    yield f"{status_text(experiment)} · {figures.when(experiment.updated_at)}"
    yield ""
    yield from _scores(found)
    yield from _misses(found)
    yield from _groups(found)
    at_most = LIMIT if limit is None else limit
    yield from _samples("Wrong", store, labelled, Choice("failed"), at_most)
    yield from _samples("Broken", store, labelled, Choice("errors"), at_most)


def _scores(found: Sequence[Overview]) -> Iterator[str]:
    names = list(dict.fromkeys((metric.evaluator, metric.metric) for one in found for metric in one.metrics))
    rows = []
    for one in found:
        by_name = {(metric.evaluator, metric.metric): metric for metric in one.metrics}
        values = [metric_text(by_name[name]) if name in by_name else "–" for name in names]
        rows.append([one.label, samples_line(one.info), *values])
    yield from _table(["evaluation", "samples", *(".".join(name) for name in names)], rows)


def _misses(found: Sequence[Overview]) -> Iterator[str]:
    """Summed over all evaluations."""
    together: dict[str, Counter[str]] = {}
    for name, counts in ((name, counts) for one in found for name, counts in one.misses.items()):
        together.setdefault(name, Counter()).update(counts)
    if not together:
        return
    most = {
        kind: max(counts[kind] for counts in together.values()) for kind in set().union(*together.values())
    }
    kinds = sorted(most, key=lambda kind: (-most[kind], kind))
    rows = [[kind, *(str(counts[kind] or "–") for counts in together.values())] for kind in kinds]
    yield ""
    yield from _table(["miss", *together], rows)


def _groups(found: Sequence[Overview]) -> Iterator[str]:
    for one in found:
        for grouping in one.groups:
            yield ""
            yield from _table([f"{one.label} by {grouping.key}", *grouping.evaluators], group_rows(grouping))


def _samples(
    title: str, store: Store, labelled: Sequence[Labelled], choice: Choice, at_most: int
) -> Iterator[str]:
    records = chain.from_iterable(
        ((one.label, record) for record in chosen(store, one.info, choice)) for one in labelled
    )
    rows = [[label, record.sample_id, _why(record)] for label, record in islice(records, at_most)]
    left_out = sum(1 for _ in records)
    if not rows and not left_out:
        return
    yield ""
    yield f"### {title}: {len(rows) + left_out}"
    yield ""
    yield from _table(["evaluation", "sample", "why"], rows)
    if left_out:
        yield ""
        yield f"… and {left_out} more"


def _why(record: Record) -> str:
    """What broke it, or what the evaluators that found it wrong say."""
    if record.error is not None:
        return f"{record.failure_class}: {record.error}"
    wrong = [score for score in record.scores if metrics.is_wrong(score.value, score.metrics)]
    reasons = [figures.text_of(score.metadata["reason"]) for score in wrong if score.metadata.get("reason")]
    return "; ".join(dict.fromkeys(reasons)) or ", ".join(score.name for score in wrong)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _line(head)
    yield _line(["---"] * len(head))
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """One line in which nothing is taken for Markdown or HTML that a table or a page would fall for."""
    plain = shortened(visible(" ".join(text.split())), _REASON_WIDTH)
    for sign in ("\\", "|", "`", "*", "<", "#"):
        plain = plain.replace(sign, f"\\{sign}")
    return plain.replace("](", "]\\(")
