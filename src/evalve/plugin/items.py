"""pytest's items and the evaluations in them: which one an item runs, and under which name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evalve.declare.foreach import MARK, Evaluation


def evaluation_of(item: pytest.Item) -> Evaluation:
    """The item's evaluation, named by the file and class that the item is in.

    Another file may have imported it, and another class inherited it: these are other evaluations.
    """
    if _EVALUATION not in item.stash:
        item.stash[_EVALUATION] = _named_by_item(item)
    return item.stash[_EVALUATION]


_EVALUATION: pytest.StashKey[Evaluation] = pytest.StashKey()


def _named_by_item(item: pytest.Item) -> Evaluation:
    function = getattr(item, "function", None)
    declared: Evaluation = getattr(function, MARK)
    name = declared.name
    owner = getattr(item, "cls", None)
    within, _, last = name.rpartition(".")
    if (
        last == declared.function.__name__
    ):  # a name that nobody gave: of one that a loop made, pytest's counts
        collected = getattr(item, "originalname", None) or last
        within = owner.__qualname__ if owner is not None else within
        name = f"{within}.{collected}" if within else collected
    return replace(declared, name=name, path=item.path)


def variant_of(item: pytest.Item) -> str:
    """`[gpt-low]` of `eval_x[gpt-low]`."""
    return item.name[len(getattr(item, "originalname", None) or item.name) :]


def parameters_of(item: pytest.Item) -> dict[str, str]:
    """The parameters of the item's variant, by name; objects that have no plain text by their number."""
    call = getattr(item, "callspec", None)
    if call is None:
        return {}
    return {
        name: str(value) if isinstance(value, str | int | float) else f"{name}{call.indices.get(name, '')}"
        for name, value in call.params.items()
    }


def refuse_namesakes(items: Sequence[pytest.Item], folder: Path) -> None:
    """Two items under one key: their records could not be told apart."""
    seen: dict[str, str] = {}
    for item in items:
        key = evaluation_of(item).key(folder, variant_of(item))
        if key in seen:
            raise pytest.UsageError(
                f"{item.nodeid} and {seen[key]} would both be recorded as {key!r}: give them two names"
            )
        seen[key] = item.nodeid
