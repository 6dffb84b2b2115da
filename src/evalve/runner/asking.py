"""Which questions a sample has asked, where its failure may be about the answers: tried again, it asks anew.

Only failures of the network and of the gate ask for the same answers again. Otherwise an answer that cannot
be read would come from the cache for ever, in the next run too. A function that was changed since may well
be able to read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from evalve.contracts import CallLog
from evalve.runner.attempted import Attempted
from evalve.runner.failing import may_be_about_answers

_ASKED = "asked"


def made_of(fingerprint: Mapping[str, str]) -> str:
    """Names what an evaluation's function is made of."""
    return hashlib.sha256(json.dumps(dict(fingerprint), sort_keys=True).encode()).hexdigest()[:16]


def asks_anew(attempt: Attempted) -> bool:
    """Whether the next try needs other answers."""
    failure = attempt.failure
    if failure is None or attempt.error is None:
        return True  # its result asked for it, or could not be used
    return may_be_about_answers(attempt.error, failure.failure_class)


def noted(attempt: Attempted, function: str) -> dict[str, Any]:
    """What to record of a sample's questions, for a later run; `function` is `made_of` it."""
    calls = attempt.calls
    if not calls.ordinals:
        return {}
    if attempt.status == "failed":
        needs_others = asks_anew(attempt)
    else:  # a judge whose answer is no verdict is asked anew; one that could not be reached, the same
        needs_others = attempt.lacks_scores and not attempt.lost_calls
    if not needs_others:
        return {}
    return {_ASKED: {"function": function, "ordinals": calls.ordinals}}


def recall(calls: CallLog, recorded: str | None, function: str) -> None:
    """Go on counting where a failed run of the same function has ended."""
    if recorded is None:
        return
    try:
        made = json.loads(recorded)
    except ValueError:
        return  # a damaged record: its sample runs again all the same
    asked = made.get(_ASKED) if isinstance(made, dict) else None
    if isinstance(asked, dict) and asked.get("function") == function:
        calls.ordinals.update(asked["ordinals"])
