"""The batches of this machine, for whoever comes with an id: found, waited for, fetched, cancelled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evalve import gating
from evalve.batches.building import minder_of, store_in
from evalve.clock import LOOP_CLOCK, Clock
from evalve.errors import ModelError, NotFound, OptionError
from evalve.gate.batches.courier import Gone, Later, Refused
from evalve.gate.batches.minding import Minder
from evalve.gate.batches.shapes import Lane
from evalve.gate.batches.store import OPEN, BatchRow, BatchStore, State
from evalve.gate.dialects.request_parts import key_hash
from evalve.gate.doors.naming import PROVIDERS
from evalve.gate.doors.wires import wire_of
from evalve.gate.limits.holders import in_words
from evalve.options import suggestion
from evalve.secrecy import Environment, secret

_ANOTHER_HOLDS_S = 0.5
_LATEST = "latest"


@dataclass(slots=True)
class Desk:
    """What the verbs and `evalve.batches` share."""

    store: BatchStore
    minder: Minder
    environ: Mapping[str, str]
    clock: Clock = LOOP_CLOCK
    api_key: str | None = None
    """Instead of those in the environment."""

    def found(self, text: str) -> BatchRow:
        """By our name, by the provider's, by a beginning that only one has, or `latest`."""
        batches = self.store.batches()
        if text == _LATEST and batches:
            return batches[0]
        named = [one for one in batches if text in (one.intent, one.provider_id)]
        begun = [one for one in batches if text and one.intent.startswith(text)]
        found = named or begun
        if not found:
            near = suggestion(text, [name for one in batches for name in (one.intent, one.provider_id)])
            raise NotFound(f"no batch {text!r}{near or '; `evalve batch list` shows those that there are'}")
        if len(found) > 1:
            raise OptionError(f"{text!r} is how several begin: {', '.join(one.intent for one in found)}")
        return found[0]

    def open(self) -> list[BatchRow]:
        """Those that are not collected, the oldest first."""
        return [one for one in reversed(self.store.batches()) if one.state in OPEN]

    async def until(
        self,
        intent: str,
        states: Sequence[State],
        *,
        credentials: Mapping[str, str] | None = None,
        tell: Callable[[BatchRow], None] = lambda batch: None,
    ) -> BatchRow:
        """Take the batch on until it is in one of the states, or wait for the process that does."""
        try:
            while True:
                batch = self.store.batch(intent)
                if batch is None:
                    raise NotFound(f"the batch {intent} is gone")
                tell(batch)
                if batch.state in states:
                    return batch
                wait_s: float | None = _ANOTHER_HOLDS_S
                if self.store.hold(intent):
                    wait_s = await self.minder.step(batch, credentials or self.credentials(batch.lane))
                if wait_s:
                    await self.clock.sleep(wait_s)
        finally:
            self.store.release(intent)

    async def stepped(self, batch: BatchRow) -> BatchRow:
        """Look at it once; what has ended is collected."""
        if not self.store.hold(batch.intent):
            row = self.store.batch(batch.intent) or batch
            raise OptionError(f"{batch.intent} is looked after by {in_words(row.holder)}: it will collect it")
        try:
            await self.minder.step(batch, self.credentials(batch.lane))
        finally:
            self.store.release(batch.intent)
        return self.store.batch(batch.intent) or batch

    async def cancelled(self, batch: BatchRow) -> BatchRow:
        """What was not submitted never will be; what was is ended by its provider."""
        if batch.state == "collected":
            raise OptionError(f"{batch.intent} is collected already: there is nothing to cancel")
        if batch.state == "intent":
            self.store.note_cancelled(batch.intent)
            return self.store.batch(batch.intent) or batch
        if not batch.provider_id:
            raise OptionError(
                f"{batch.intent} may have been submitted, and its id was lost: `evalve batch wait"
                f" {batch.intent}` finds it first"
            )
        try:
            await self.minder.cancel(batch, self.credentials(batch.lane))
        except (Later, Refused, Gone) as error:
            raise ModelError(
                f"{batch.provider_id} was not cancelled: {error}", kind="server", model=batch.lane.model
            ) from error
        return self.store.batch(batch.intent) or batch

    def credentials(self, lane: Lane) -> dict[str, str]:
        """Of the key that it was submitted with: the one at hand, else from the environment."""
        providers = [one for one in PROVIDERS.values() if one.key_variable and one.wire == lane.dialect]
        for provider in providers:
            key = self.api_key or secret((self.environ.get(provider.key_variable or "") or "").strip())
            headers = wire_of(provider).headers(key) if key else {}
            if key and key_hash(headers) == lane.key_hash:
                return {name: value for name, value in headers.items() if value and key in value}
        names = " or ".join(str(one.key_variable) for one in providers)
        raise OptionError(f"the batch was submitted with another key: set {names} to the one that was used")


def desk() -> Desk:
    """For this process."""
    environ = Environment(os.environ)
    house = gating.house()
    store = store_in(gating.state_directory(environ))
    return Desk(store, minder_of(house, store, environ), environ)


def only_looking() -> BatchStore:
    """Where nobody is asked and nothing is built."""
    return store_in(gating.state_directory(Environment(os.environ)))


def now_s() -> float:
    return time.time()
