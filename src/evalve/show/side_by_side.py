"""The variants of one evaluation beside each other, such as agents on the same data: a column for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evalve.contracts import ABOUT, split_roles
from evalve.show import figures
from evalve.show.breakdown.groups import Grouping, Share
from evalve.show.overview import Overview, calls_made
from evalve.show.tables import Column, fits, table, visible

_GROUPS_SHOWN = 20


def side_by_side_text(overviews: Sequence[Overview], *, width: int | None, full: bool) -> Iterator[str]:
    """A table for each evaluation that has several variants."""
    by_function: dict[str, list[Overview]] = {}
    for one in overviews:
        by_function.setdefault(one.info.spec.key.partition("[")[0], []).append(one)
    for variants in by_function.values():
        if len(variants) > 1:
            yield ""
            yield from _table(variants, width, full=full)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A line: what it is, and its text for each variant, long where there is room and short where not."""

    name: str
    cells: Sequence[tuple[str, str]]


def _table(variants: Sequence[Overview], width: int | None, *, full: bool) -> list[str]:
    lines = [
        *_outcomes(variants),
        *_metrics(variants),
        *_passes(variants),
        *_calls(variants),
        *_groups(variants, full=full),
    ]
    name = variants[0].info.spec.name.partition("[")[0]
    columns = [Column(visible(name)), *(Column(_variant(one), align="right") for one in variants)]
    for place in (0, 1):
        rows = [[line.name, *(cell[place] for cell in line.cells)] for line in lines]
        made = table(columns, rows)
        if fits(made, width):
            return made
    half = len(variants) // 2
    if half < 2:
        return made
    return [*_table(variants[:half], width, full=full), "", *_table(variants[half:], width, full=full)]


def _variant(one: Overview) -> str:
    return visible(one.info.spec.name.partition("[")[2].removesuffix("]") or one.label)


def _outcomes(variants: Sequence[Overview]) -> Iterator[_Figure]:
    yield _Figure("done", [_same(figures.out_of(one.info.done, one.info.total)) for one in variants])
    if any(one.info.failed for one in variants):
        yield _Figure("failed", [_same(str(one.info.failed)) for one in variants])


def _same(text: str) -> tuple[str, str]:
    return text, text


def _metrics(variants: Sequence[Overview]) -> Iterator[_Figure]:
    found = [{(each.evaluator, each.metric): each for each in one.metrics} for one in variants]
    for name in dict.fromkeys(name for metrics in found for name in metrics):
        evaluator, metric = name
        yield _Figure(
            evaluator if metric == "accuracy" else f"{evaluator} {metric}",
            [
                _value(each.value, each.low, each.high) if (each := metrics.get(name)) else _same("–")
                for metrics in found
            ],
        )


def _value(number: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    return figures.with_interval(number, low, high), figures.value(number)


def _passes(variants: Sequence[Overview]) -> Iterator[_Figure]:
    """The last k of every evaluator."""
    most = max(one.passes.repeats for one in variants)
    for name in dict.fromkeys(name for one in variants for name in one.passes.by_evaluator):
        cells = []
        for one in variants:
            of_name = one.passes.by_evaluator.get(name, ())
            last = of_name[most - 1] if len(of_name) >= most else None
            cells.append(_value(last.value, last.low, last.high) if last else _same("–"))
        yield _Figure(f"{name} pass^{most}", cells)


def _calls(variants: Sequence[Overview]) -> Iterator[_Figure]:
    """Tokens and cost, of each role; parts of the sample's own calls are indented."""
    made = [split_roles(calls_made(one.runs)) for one in variants]
    if not any(figures for by_role in made for figures in by_role.values()):
        return
    roles = list(dict.fromkeys(role for by_role in made for role in by_role))
    roles.sort(key=lambda role: (role != "", role in ABOUT))
    texts: tuple[tuple[str, Callable[[Mapping[str, float]], str]], ...] = (
        ("tokens", figures.tokens),
        ("cost", figures.cost),
    )
    for what, text in texts:
        for role in roles:
            label = f"{role} {what}" if role in ABOUT else f"  {role}" if role else what
            yield _Figure(
                label, [_same(text(by_role[role]) if by_role.get(role) else "–") for by_role in made]
            )


def _groups(variants: Sequence[Overview], *, full: bool) -> Iterator[_Figure]:
    """By each key that names things, the evaluator that is right least often: it is the one to look at."""
    for key in dict.fromkeys(grouping.key for one in variants for grouping in one.groups):
        found = [
            next((each for each in one.groups if each.key == key), Grouping(key, ())) for one in variants
        ]
        strictest = _strictest(found)
        by_value = [{group.value: group.shares.get(strictest) for group in each.groups} for each in found]
        values = list(dict.fromkeys(value for shares in by_value for value in shares))
        if not strictest or not any(isinstance(value, str) for value in values):
            continue
        for value in values if full else values[:_GROUPS_SHOWN]:
            yield _Figure(f"{strictest}: {value}", [_share(shares.get(value)) for shares in by_value])


def _strictest(found: Sequence[Grouping]) -> str:
    shares: dict[str, list[float]] = {}
    for grouping in found:
        for name, share in grouping.all.items():
            if share.is_binary:
                shares.setdefault(name, []).append(share.mean)
    return min(shares, key=lambda name: sum(shares[name]) / len(shares[name]), default="")


def _share(share: Share | None) -> tuple[str, str]:
    return _value(share.mean, share.low, share.high) if share else _same("–")
