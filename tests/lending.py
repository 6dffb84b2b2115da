"""Lenders as people write them, and a store that shows what is recorded about loans."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from evalve.contracts import CommitSink, RecordDraft, SampleContext, Store


class Numbered:
    """Lends a number that counts loans, and keeps what happened, in order."""

    def __init__(self, name: str = "thing", fails: int = 0, fails_to_take_back: int = 0) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._name = name
        self._loans = 0
        self._fails = fails
        self._fails_to_take_back = fails_to_take_back

    @property
    def settings(self) -> dict[str, Any]:
        return {"name": self._name}

    @asynccontextmanager
    async def lend(self, context: SampleContext) -> AsyncIterator[int]:
        self._loans += 1
        number = self._loans
        if self._fails:
            self._fails -= 1
            self.events.append(("refused", number))
            raise ConnectionError("nobody answers")
        self.events.append(("lent", number, context.sample_id, context.try_number))
        context.lent["number"] = number
        try:
            yield number
        finally:
            self.events.append(("back", number, context.ended))
            if self._fails_to_take_back:
                self._fails_to_take_back -= 1
                raise OSError("it is in use")


class KeepsDrafts:
    """A store that shows the drafts that it was given; all else is the real one's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.drafts: list[RecordDraft] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def add(self, draft: RecordDraft, sink: CommitSink) -> None:
        self.drafts.append(draft)
        self._store.add(draft, sink)

    @property
    def lent(self) -> dict[str, Any]:
        """By sample id."""
        return {
            draft.sample.id: None if draft.lent_json is None else json.loads(draft.lent_json)
            for draft in self.drafts
        }
