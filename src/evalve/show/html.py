"""Results as HTML for notebooks: every text escaped, control characters written out."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from evalve.records import Record
from evalve.show import figures
from evalve.show.breakdown.groups import group_rows
from evalve.show.breakdown.misses import miss_rows
from evalve.show.overview import Overview, calls_made, metric_text, samples_line, skip_reason, time_line
from evalve.show.samples import asked, scores_text, status_text
from evalve.show.tables import shortened, visible

_WIDTH = 100


def overview_html(one: Overview, *, verdict: Sequence[str], records: Iterable[Record]) -> str:
    """The evaluation's scores, why it did not pass, and some of its samples."""
    metrics = [
        [metric.evaluator, metric.metric, metric_text(metric), str(metric.samples)] for metric in one.metrics
    ]
    parts = [
        f"<p><b>{escaped(one.label)}</b>: {escaped(one.status)}; {escaped(samples_line(one.info))}; "
        f"{escaped(time_line(one.info))}</p>",
        f"<p>{figures.left_out(one.info.left_out)}</p>" if one.info.left_out else "",
        *(f"<p>{escaped(who)}: {escaped(made)}</p>" for who, made in _calls(one)),
        table_html(["evaluator", "metric", "value [95% interval]", "samples"], metrics) if metrics else "",
        table_html(["miss", *one.misses], miss_rows(one.misses)) if one.misses else "",
        *(table_html([f"by {each.key}", *each.evaluators], group_rows(each)) for each in one.groups),
        *(f"<p><b>not passed</b>: {escaped(problem)}</p>" for problem in verdict),
        table_html(["sample", "status", "scores or failure", "time", "prompt or row"], map(_cells, records)),
    ]
    return f"<div>{''.join(parts)}</div>"


def _calls(one: Overview) -> Iterable[tuple[str, str]]:
    return ((who.strip(), made) for who, made in figures.calls_by_role(calls_made(one.runs)))


def _cells(record: Record) -> list[str]:
    if record.status == "skipped":
        outcome = skip_reason(record)
    else:
        outcome = scores_text(record) if record.ok else str(record.failure or "")
    time = figures.duration(record.wall_s)
    return [
        record.sample_id,
        status_text(record),
        shortened(outcome, _WIDTH),
        time,
        shortened(asked(record), _WIDTH),
    ]


def table_html(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    header = "".join(f"<th>{escaped(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"


def escaped(text: str) -> str:
    return html.escape(visible(text))
