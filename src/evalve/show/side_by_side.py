"""The variants of one evaluation beside each other, such as agents on the same data: a column for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evalve.contracts import ABOUT, split_roles
from evalve.show import figures
from evalve.show.breakdown.groups import GROUPS_SHOWN, Grouping, GroupValue, Share
from evalve.show.overview import Overview, calls_made
from evalve.show.tables import Column, fits, table, visible


def side_by_side_text(overviews: Sequence[Overview], *, width: int | None, full: bool) -> Iterator[str]:
    """A table for each evaluation that has several variants."""
    by_function: dict[tuple[str, str], list[Overview]] = {}
    for one in overviews:
        spec = one.info.spec
        function = spec.key.removesuffix(spec.name), spec.name.partition("[")[0]
        by_function.setdefault(function, []).append(one)
    for variants in by_function.values():
        if len(variants) > 1:
            yield ""
            yield from _tables(variants, _groupings(variants), width, full=full)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A line: what it is, and its text for each variant, long where there is room and short where not."""

    name: str
    cells: Sequence[tuple[str, str]]


def _tables(
    variants: Sequence[Overview], groupings: Sequence[_Shown], width: int | None, *, full: bool
) -> list[str]:
    """One where it fits, else several with fewer columns."""
    lines = [
        *_outcomes(variants),
        *_metrics(variants),
        *_passes(variants),
        *_calls(variants),
        *(line for each in groupings for line in _groups(variants, each, full=full)),
    ]
    more = [
        f"… and {left_out} more by {each.key}: --full shows all"
        for each in groupings
        if (left_out := len(each.values) - GROUPS_SHOWN) > 0 and not full
    ]
    name = variants[0].info.spec.name.partition("[")[0]
    columns = [Column(visible(name)), *(Column(_variant(one), align="right") for one in variants)]
    for place in (0, 1):
        rows = [[line.name, *(cell[place] for cell in line.cells)] for line in lines]
        made = table(columns, rows)
        if fits(made, width):
            return [*made, *more]
    half = len(variants) // 2
    if half < 2:
        return [*made, *more]
    halves = [_tables(part, groupings, width, full=full) for part in (variants[:half], variants[half:])]
    return [*halves[0], "", *halves[1]]


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
    if any(by_role.get("", {}).get("cached") for by_role in made):
        yield _Figure("from the cache", [_cached(by_role.get("") or {}) for by_role in made])
    for what, cell in (("tokens", _tokens), ("USD", _usd)):
        for role in roles:
            label = f"{role} {what}" if role in ABOUT else f"  {role}" if role else what
            yield _Figure(label, [cell(by_role.get(role) or {}) for by_role in made])


def _cached(made: Mapping[str, float]) -> tuple[str, str]:
    """Calls that cost nothing this time: an agent is not cheaper for what another has paid."""
    cached = int(made.get("cached", 0))
    asked = int(made.get("requests", 0)) - int(made.get("retries", 0)) + cached
    return (
        (f"{cached:,} of {figures.plural(asked, 'call')}", f"{cached:,}/{asked:,}") if asked else _same("–")
    )


def _tokens(made: Mapping[str, float]) -> tuple[str, str]:
    """Read and written, or their sum."""
    in_all = sum(amount for name, amount in made.items() if name.endswith("_tokens"))
    return (figures.tokens(made), f"{int(in_all):,}") if made else _same("–")


def _usd(made: Mapping[str, float]) -> tuple[str, str]:
    if not made:
        return _same("–")
    known = f"{made.get('cost_usd', 0.0):.4f}"
    return _same(f"{known} + ?" if made.get("unpriced") else known)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is shown of the groups by one key: all their values, and one evaluator."""

    key: str
    values: Sequence[GroupValue]
    evaluator: str


def _groupings(variants: Sequence[Overview]) -> list[_Shown]:
    """Those by names; numbers, as of turns, each variant has for itself."""
    by_key: dict[str, list[Grouping]] = {}
    for one in variants:
        for grouping in one.groups:
            by_key.setdefault(grouping.key, []).append(grouping)
    shown = []
    for key, found in by_key.items():
        values = list(dict.fromkeys(group.value for grouping in found for group in grouping.groups))
        if any(isinstance(value, str) for value in values):
            shown.append(_Shown(key, values, _broadest(found)))
    return shown


def _broadest(found: Sequence[Grouping]) -> str:
    """The evaluator with the most observations, and of equal ones the one that is right least often."""
    counts: dict[str, tuple[int, float]] = {}
    for grouping in found:
        for name, share in grouping.all.items():
            observations, total = counts.get(name, (0, 0.0))
            counts[name] = observations + share.observations, total + share.total
    return min(counts, key=lambda name: (-counts[name][0], counts[name][1]))


def _groups(variants: Sequence[Overview], shown: _Shown, *, full: bool) -> Iterator[_Figure]:
    by_value = [
        {group.value: group.shares for each in one.groups if each.key == shown.key for group in each.groups}
        for one in variants
    ]
    for value in shown.values if full else shown.values[:GROUPS_SHOWN]:
        yield _Figure(
            f"{shown.evaluator}: {value}",
            [_share(shares.get(value, {}).get(shown.evaluator)) for shares in by_value],
        )


def _share(share: Share | None) -> tuple[str, str]:
    return _value(share.mean, share.low, share.high) if share else _same("–")
