"""Sets the calls that were made beside those that are expected, and says what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from evalve.errors import OptionError
from evalve.evaluators.tools.alignment import Pairs, best_assignment_of, best_in_order, out_of_order
from evalve.evaluators.tools.comparing import Compared, compare_arguments
from evalve.evaluators.tools.defaults import without_defaults
from evalve.evaluators.tools.definitions import ToolDefinition
from evalve.evaluators.tools.matchers import with_value_lists
from evalve.evaluators.tools.misses import Miss, call_text
from evalve.evaluators.tools.rules import ArgumentRules
from evalve.jsontext import as_text
from evalve.options import suggestion
from evalve.records import ToolCall

Mode = Literal["exact", "in_order", "any_order", "subset", "superset"]
MODES: tuple[str, ...] = get_args(Mode)
_SCORE_SCALE = 10**6
"""Shares of right arguments, as whole numbers: an assignment is compared exactly."""


@dataclass(frozen=True, slots=True)
class Standard:
    """What calls are held against, beside the expected ones."""

    mode: Mode = "exact"
    rules: ArgumentRules = field(default_factory=ArgumentRules)
    tools: Sequence[ToolDefinition] = ()
    forbidden: Sequence[str] = ()
    """Names or globs of tools that may not be called whatever else is expected."""
    allow_extra: bool | None = None
    """Whether calls beside the expected ones are right; `None` for what the mode says."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            hint = suggestion(str(self.mode), MODES) or f" (there is: {', '.join(MODES)})"
            raise OptionError(f"mode={self.mode!r} is not a way to compare tool calls{hint}")

    @property
    def has_order(self) -> bool:
        return self.mode in ("exact", "in_order")

    @property
    def takes_extra(self) -> bool:
        return self.mode in ("in_order", "superset") if self.allow_extra is None else self.allow_extra

    @property
    def takes_fewer(self) -> bool:
        return self.mode == "subset"

    def schema(self, tool: str) -> Any:
        return next((one.schema for one in self.tools if one.name == tool), None)

    def forbids(self, call: ToolCall) -> bool:
        return any(fnmatchcase(call.name, glob) for glob in self.forbidden)


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of it."""

    called: int
    expected: int
    matched: int
    """Calls of a tool that is expected, each counted once."""
    in_order: int
    """The longest run of expected tools that were called in their order."""
    argument_share: float
    misses: list[Miss]
    """Everything that the mode does not allow."""

    @property
    def precision(self) -> float:
        return self.matched / self.called if self.called else float(not self.expected)

    @property
    def recall(self) -> float:
        return self.matched / self.expected if self.expected else float(not self.called)

    @property
    def f1(self) -> float:
        return _f1(self.matched, self.called, self.expected)

    @property
    def order(self) -> float:
        return _f1(self.in_order, self.called, self.expected)


def _f1(common: int, called: int, expected: int) -> float:
    """Nothing called where nothing is expected is right."""
    return 2 * common / (called + expected) if called + expected else 1.0


def examine(called: Sequence[ToolCall], expected: Sequence[ToolCall], standard: Standard) -> Examination:
    _check_forbidden(expected, standard.forbidden)
    compared = _as_expected(called, expected, standard) or _all_compared(called, expected, standard)
    pairs = _aligned(compared, len(expected), len(called), has_order=standard.has_order)
    of_pairs = [compared[pair] for pair in pairs]
    shares = [one.share for one in of_pairs]
    argument_share = sum(shares) / len(shares) if shares else float(not called and not expected)
    misses = [
        *_unpaired(called, expected, pairs, standard),
        *(_misplaced(called, pairs) if standard.has_order else ()),
        *(miss for one in of_pairs for miss in one.misses()),
    ]
    names = [
        [1 if (row, column) in compared else None for column in range(len(called))]
        for row in range(len(expected))
    ]
    return Examination(
        called=len(called),
        expected=len(expected),
        matched=len(pairs),
        in_order=len(best_in_order(names)),
        argument_share=argument_share,
        misses=misses,
    )


def _check_forbidden(expected: Sequence[ToolCall], forbidden: Sequence[str]) -> None:
    for call in expected:
        if any(fnmatchcase(call.name, glob) for glob in forbidden):
            raise OptionError(f"{call.name!r} is expected and forbidden: take it out of one of them")


def is_named(call: ToolCall, expected: ToolCall) -> bool:
    """Whether it is the tool; an expected name may be a glob, and `*` is any tool."""
    if call.name == expected.name:
        return True
    return ("*" in expected.name or "?" in expected.name) and fnmatchcase(call.name, expected.name)


def _as_expected(
    called: Sequence[ToolCall], expected: Sequence[ToolCall], standard: Standard
) -> dict[tuple[int, int], Compared]:
    """Each call with the one in its place, where all are right: no other assignment could be better.

    Without it, three hundred calls that are all right would be compared with three hundred each.
    """
    found: dict[tuple[int, int], Compared] = {}
    if len(called) != len(expected):
        return found
    for place, (made, wanted) in enumerate(zip(called, expected, strict=True)):
        if not is_named(made, wanted) or standard.forbids(made):
            return {}
        one = found[place, place] = _compared(made, wanted, standard)
        if one.found or one.share < 1:
            return {}
    return found


def _all_compared(
    called: Sequence[ToolCall], expected: Sequence[ToolCall], standard: Standard
) -> dict[tuple[int, int], Compared]:
    """Each expected call with each made one of the same tool."""
    return {
        (row, column): _compared(made, wanted, standard)
        for row, wanted in enumerate(expected)
        for column, made in enumerate(called)
        if is_named(made, wanted) and not standard.forbids(made)
    }


def _compared(made: ToolCall, wanted: ToolCall, standard: Standard) -> Compared:
    rules = standard.rules.of(wanted.name, made.name)
    if made.unparsed or not isinstance(made.arguments, Mapping):
        what = "JSON" if made.unparsed and isinstance(made.arguments, str) else "a JSON object"
        reason = f"the arguments are not {what}: {as_text(made.arguments)[:200]}"
        return Compared(made.name, 0, 1, [("bad JSON", (), lambda: reason)])
    if wanted.arguments is None or rules.compare == "ignore":
        return Compared(made.name, 0, 0)
    if wanted.unparsed or not isinstance(wanted.arguments, Mapping):
        raise OptionError(
            f"the expected arguments of {wanted.name} are not an object of arguments by name:"
            f" {as_text(wanted.arguments)[:200]}"
        )
    arguments, right = dict(made.arguments), dict(wanted.arguments)
    if rules.compare == "values":
        right = with_value_lists(right)
    elif (
        rules.defaults and not callable(rules.compare) and (schema := standard.schema(made.name)) is not None
    ):
        arguments, right = without_defaults(arguments, right, schema, rules)
    return compare_arguments(made.name, arguments, right, rules)


def _aligned(
    compared: Mapping[tuple[int, int], Compared], rows: int, columns: int, *, has_order: bool
) -> Pairs:
    """The most calls of the right tool; among these the most right arguments; among these the best order."""
    nearness = max(rows, columns) ** 2 + 1
    of_score = nearness * (rows + 1)
    of_pair = (rows + 1) * (_SCORE_SCALE * of_score + of_score)
    plain = {pair: of_pair + round(one.share * _SCORE_SCALE) * of_score for pair, one in compared.items()}
    near = {pair: weight + nearness - (pair[0] - pair[1]) ** 2 for pair, weight in plain.items()}
    free = sorted(pair for group in _apart(compared) for pair in best_assignment_of(near, *group))
    if not has_order or not out_of_order(free):
        return free
    ordered = best_in_order([[plain.get((row, column)) for column in range(columns)] for row in range(rows)])
    return ordered if sum(map(plain.__getitem__, ordered)) == sum(map(plain.__getitem__, free)) else free


def _apart(pairs: Iterable[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Rows and columns in groups that have nothing to do with each other: mostly, the calls of each tool."""
    groups: list[tuple[set[int], set[int]]] = []
    for row, column in pairs:
        touched = [group for group in groups if row in group[0] or column in group[1]]
        if len(touched) == 1 and row in touched[0][0] and column in touched[0][1]:
            continue
        merged = ({row}, {column})
        for group in touched:
            merged[0].update(group[0])
            merged[1].update(group[1])
            groups.remove(group)
        groups.append(merged)
    return [(sorted(group_rows), sorted(group_columns)) for group_rows, group_columns in groups]


def _unpaired(
    called: Sequence[ToolCall], expected: Sequence[ToolCall], pairs: Pairs, standard: Standard
) -> list[Miss]:
    """Missing, extra and forbidden calls; one of each kind together is a wrong tool."""
    rows, columns = {row for row, _ in pairs}, {column for _, column in pairs}
    missing = [one for place, one in enumerate(expected) if place not in rows]
    extra = [one for place, one in enumerate(called) if place not in columns]
    misses = [
        Miss("forbidden", one.name, f"{call_text(one)} was called") for one in extra if standard.forbids(one)
    ]
    extra = [one for one in extra if not standard.forbids(one)]
    if not standard.takes_extra and not standard.takes_fewer:
        for wanted, made in zip(missing, extra, strict=False):
            reason = f"{call_text(made)} was called instead of {call_text(wanted)}"
            misses.append(Miss("wrong tool", made.name, reason))
        swapped = min(len(missing), len(extra))
        missing, extra = missing[swapped:], extra[swapped:]
    if not standard.takes_fewer:
        misses += [Miss("missing", one.name, f"{call_text(one)} was not called") for one in missing]
    if not standard.takes_extra:
        misses += [Miss("extra", one.name, f"{call_text(one)} was not expected") for one in extra]
    return misses


def _misplaced(called: Sequence[ToolCall], pairs: Pairs) -> Iterator[Miss]:
    """The fewest calls that would have to move."""
    moved = out_of_order(pairs)
    for row, column in moved:
        one = called[column]
        others = (pair for pair in pairs if pair not in moved and (pair[0] < row) != (pair[1] < column))
        other_row, other_column = next(others)
        came, wanted = ("after", "before") if row < other_row else ("before", "after")
        other = called[other_column]
        # two calls of one tool are told apart by their arguments
        first, second = (
            (one.name, other.name) if one.name != other.name else (call_text(one), call_text(other))
        )
        yield Miss("wrong order", one.name, f"{first} was called {came} {second}, expected {wanted} it")
