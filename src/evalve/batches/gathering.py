"""Several evaluations under pytest, which runs one after another: what they ask next goes in one batch.

Each runs until all of its samples wait, and stops. Then the batch is waited for, and all are replayed: what
was answered is in the cache. A round like this for each turn; in the end nobody asks for anything new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from evalve import gating
from evalve.batches.desk import desk
from evalve.contracts import Tally
from evalve.gate.batches.store import BatchRow
from evalve.gate.batches.words import batch_in_words

if TYPE_CHECKING:
    import pytest


def gather_in_batches(items: Sequence[pytest.Item], tell: Callable[[str], None]) -> None:
    """Return when everything that the items ask for is in the cache, or has failed.

    An item that asks for something else when it is replayed would do so for ever: it is left to its turn, in
    which its samples wait, and are not replayed.
    """
    queue, is_replay = gating.house().batches(), False
    while items:
        left: list[pytest.Item] = []
        with queue.gathering(is_replay=is_replay) as gathered:
            for item, following in zip_longest(items, items[1:]):
                changed = gathered.changed
                _run_quietly(item, following or items[0])
                if gathered.changed == changed:
                    left.append(item)
        if not gathered.waited_for:
            return
        items, is_replay = left, True
        for batch in asyncio.run(_collected(gathered.open, tell)):
            if batch.is_cancelled:
                queue.fail_cancelled(batch)


def _run_quietly(item: pytest.Item, following: pytest.Item) -> None:
    """Nothing of it is reported; the fixtures that the next item shares stay."""
    from _pytest.runner import runtestprotocol

    runtestprotocol(item, log=False, nextitem=following)


async def _collected(intents: Sequence[str], tell: Callable[[str], None]) -> list[BatchRow]:
    queue, at = gating.house().batches(), desk()
    told: set[str] = set()

    def say(batch: BatchRow) -> None:
        if batch.state == "submitted" and batch.intent not in told:
            told.add(batch.intent)
            what = batch_in_words(batch, batch.intent)
            tell(f"{batch.count:,} calls wait for {what}")

    try:
        waits = [
            at.until(intent, ("collected",), credentials=queue.credentials_of(intent), tell=say)
            for intent in intents
        ]
        return list(await asyncio.gather(*waits))
    except (KeyboardInterrupt, asyncio.CancelledError):
        tell(f"the batches go on at the provider: {', '.join(intents)}. Run the same command to come back")
        raise


class Quietly:
    """Progress of runs that only say what they ask for; a note is told once, however often they run."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def started(self, tally: Tally) -> None: ...

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def finished(self, tally: Tally) -> None: ...
