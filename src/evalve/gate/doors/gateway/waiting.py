"""Calls under way, and those that a client may ask for again."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from evalve.gate.doors.gateway.leases import Holder
from evalve.gate.doors.gateway.relay import Relay

CLIENT_MAY_RETURN_S = 10.0
"""For so long a call that waits is not given up when its client has gone: SDKs ask again within 8 s."""
ANSWER_IS_HELD_S = 60.0
"""For so long an answer is there that came when its client had gone."""
FAILS_AGAIN_S = 10.0
"""For so long a final failure answers the same request again: some clients obey no header."""


class Underway:
    """Of one gateway, on its loop."""

    def __init__(self) -> None:
        self.relays: set[Relay] = set()
        self._adoptable: dict[Hashable, Relay] = {}

    def add(self, key: Hashable, relay: Relay, holder: Holder) -> None:
        self.relays.add(relay)
        holder.relays.add(relay)

        def ended(task: asyncio.Task[None]) -> None:
            self.relays.discard(relay)
            holder.relays.discard(relay)
            if relay.has_failed:
                self._hold(key, relay, FAILS_AGAIN_S)

        relay.task.add_done_callback(ended)

    def adopted(self, key: Hashable) -> Relay | None:
        """The call that was made for an equal request whose client has gone, or that has failed just now."""
        relay = self._adoptable.get(key)
        if relay is None or relay.head.cancelled():
            return None
        if not relay.has_failed:
            del self._adoptable[key]  # two who ask the same get two answers
        return relay

    def client_gone(self, key: Hashable, relay: Relay) -> None:
        """Another may take its place for a while; then what is not sent yet is given up."""
        if relay.head.cancelled() or relay.has_failed:
            return
        self._hold(key, relay, ANSWER_IS_HELD_S)

        def give_up() -> None:
            if self._adoptable.get(key) is relay:
                relay.abandon()

        asyncio.get_running_loop().call_later(CLIENT_MAY_RETURN_S, give_up)

    def _hold(self, key: Hashable, relay: Relay, for_s: float) -> None:
        self._adoptable[key] = relay

        def forget() -> None:
            if self._adoptable.get(key) is relay:
                del self._adoptable[key]

        asyncio.get_running_loop().call_later(for_s, forget)
