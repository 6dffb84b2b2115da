"""What a file says of calls, limits and prices: what is wrong with it, with its place."""

from __future__ import annotations

from collections.abc import Iterator

from evalve.errors import OptionError
from evalve.experiments.file.document import Document
from evalve.experiments.file.problems import Problem
from evalve.gate.limits.presets import read_limits
from evalve.gate.prices import read_prices


def call_problems(document: Document) -> Iterator[Problem]:
    """What the gate would not take of limits and prices, entry by entry."""
    for section, read in (("limits", read_limits), ("prices", read_prices)):
        said = document.content.get(section) if isinstance(document.content, dict) else None
        for one in [{name: body} for name, body in said.items()] if isinstance(said, dict) else [said]:
            try:
                read(one, section)
            except OptionError as error:
                yield Problem(document.place(section, *(one if isinstance(one, dict) else ())), str(error))
