"""An agent in Python that makes the expected calls and gives the expected replies: it must succeed always.

Where it does not, tools.py and making/model.py disagree about the CRM.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from simulated.dialogue import events_of
from simulated.script import Step, next_step, place_of

from evalve import ToolError


async def answer(turn: Any) -> str:
    """Called once for each turn."""
    for name, arguments in _next(turn).calls:
        with suppress(ToolError):  # some calls are meant to be refused
            await turn.call(name, arguments)
    return _next(turn).reply


def _next(turn: Any) -> Step:
    place = place_of(events_of(turn.dialogue))
    assert place is not None, f"no conversation begins as this one does: {turn.utterance}"
    return next_step(place)
