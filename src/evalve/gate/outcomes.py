"""What came of a call: an answer, a stream that goes on, or nothing; and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evalve.gate.messages import Problem, Reply, SendError, Usage

if TYPE_CHECKING:
    from evalve.gate.live_stream import LiveStream


@dataclass(slots=True)
class Outcome:
    """Of one try, or of all of them."""

    reply: Reply | None = None
    stream: LiveStream | None = None
    error: SendError | None = None
    problem: Problem | None = None
    usage: Usage | None = None
    cost_usd: float | None = None

    def final(self) -> Reply:
        if self.reply is not None:
            return self.reply
        assert self.error is not None
        raise self.error
