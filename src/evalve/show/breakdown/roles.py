"""What calls take a sample, by who makes them: the sample itself, its student and its teacher, a judge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evalve.contracts import ABOUT, Measured, split_roles
from evalve.show.tables import Column, table

OWN = "own"
"""The calls of the sample itself, all parts together."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Of one sample, on average."""

    tokens: float
    cost_usd: float | None
    """`None` where a price is not known."""


ByRole = Mapping[str, Taken]
"""`own` first, its parts below it, then those about the sample."""


def taken_by_role(
    measures: Iterable[Measured], *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> dict[str, Taken]:
    """Means over samples that ended well and called a model, of the means over their repeats."""
    sums: dict[str, dict[str, _Sum]] = {}
    for one in measures:
        if one.status != "done" or not one.calls or one.sample_id in without:
            continue
        if only is not None and one.sample_id not in only:
            continue
        of_sample = sums.setdefault(one.sample_id, {})
        of_sample.setdefault(OWN, _Sum())  # counts the repeats, for roles that not all of them have
        for role, figures in split_roles(one.calls).items():
            of_sample.setdefault(role or OWN, _Sum()).add(figures)
    roles = _ordered({role for of_sample in sums.values() for role in of_sample})
    return {role: _mean(role, sums) for role in roles}


class _Sum:
    __slots__ = ("cost_usd", "repeats", "tokens", "unpriced")

    def __init__(self) -> None:
        self.tokens = self.cost_usd = 0.0
        self.unpriced = 0.0
        self.repeats = 0

    def add(self, figures: Mapping[str, float]) -> None:
        self.tokens += sum(amount for name, amount in figures.items() if name.endswith("_tokens"))
        self.cost_usd += figures.get("cost_usd", 0.0)
        self.unpriced += figures.get("unpriced", 0)
        self.repeats += 1


def _mean(role: str, sums: Mapping[str, Mapping[str, _Sum]]) -> Taken:
    """A sample whose repeats have no calls of the role took nothing for it."""
    of_role = [(one[role], one[OWN].repeats) for one in sums.values() if role in one]
    tokens = sum(taken.tokens / repeats for taken, repeats in of_role) / len(sums)
    cost_usd = sum(taken.cost_usd / repeats for taken, repeats in of_role) / len(sums)
    return Taken(tokens, None if any(taken.unpriced for taken, _ in of_role) else cost_usd)


def _ordered(roles: Collection[str]) -> list[str]:
    parts = sorted(role for role in roles if role != OWN and role not in ABOUT)
    return [*([OWN] if roles else []), *parts, *sorted(role for role in roles if role in ABOUT)]


def roles_text(a: ByRole, b: ByRole) -> list[str]:
    """Tokens and cost a sample in both runs; nothing where no role is told apart."""
    if not _roles_of(a, b):
        return []
    columns = [
        Column("a sample takes"),
        Column("tokens A", align="right"),
        Column("tokens B", align="right"),
        Column("USD A", align="right"),
        Column("USD B", align="right"),
    ]
    rows = [
        [
            role_label(role),
            *(_tokens(side.get(role)) for side in (a, b)),
            *(usd(side.get(role)) for side in (a, b)),
        ]
        for role in _ordered({*a, *b})
    ]
    return table(columns, rows, indent="  ")


def _roles_of(*sides: ByRole) -> list[str]:
    return [role for side in sides for role in side if role != OWN]


def role_label(role: str) -> str:
    """Parts of the sample's own calls are indented."""
    return role if role == OWN or role in ABOUT else f"  {role}"


def _tokens(taken: Taken | None) -> str:
    return "–" if taken is None else f"{taken.tokens:,.0f}"


def usd(taken: Taken | None) -> str:
    if taken is None:
        return "–"
    return "unknown" if taken.cost_usd is None else f"{taken.cost_usd:.4f}"


def roles_plain(sides: Mapping[str, ByRole]) -> dict[str, Any]:
    """By role, then by side."""
    return {
        role: {
            side: {"tokens": by_role[role].tokens, "cost_usd": by_role[role].cost_usd}
            for side, by_role in sides.items()
            if role in by_role
        }
        for role in _ordered({role for by_role in sides.values() for role in by_role})
    }
