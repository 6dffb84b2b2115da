"""Who may use the gateway, and whose their calls are: a token for each lease, a tag for each call."""

from __future__ import annotations

import re
import secrets
import threading
import weakref
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from evalve.contracts import SampleContext
from evalve.gate.background import KeepsSlot

if TYPE_CHECKING:
    from evalve.gate.doors.gateway.relay import Relay

_TOKEN = "evalve-"
_ADDRESS = re.compile(rf"http://(?:127\.0\.0\.1|localhost):(\d+)/t/{_TOKEN}")

PORTS: set[int] = set()
"""Where gateways of this process listen."""


def is_own_gateway(url: str) -> bool:
    """Whether a call is on its way to a gateway of this process, and will come to the same gate there.

    Another process's gateway is a server like any other: what is called there is counted here too.
    """
    found = _ADDRESS.match(url)
    return found is not None and int(found[1]) in PORTS


@dataclass(eq=False, slots=True)
class Holder:
    """Whoever has a token."""

    token: str
    context: SampleContext | None
    """The attempt that its calls belong to; `None` for a process, whose calls are tagged or nobody's."""
    keeps_own_keys: bool
    """Whether calls that bring a key of their own are made with it."""
    relays: set[Relay] = field(default_factory=set)
    """Its calls that are under way."""
    last_error: tuple[int, str] | None = None
    """How the last of them was refused, for whoever asks why its program has failed."""


class Tag:
    """Says whose one call is. It holds for as long as its maker holds it."""

    __slots__ = ("__weakref__", "context", "value")

    def __init__(self, context: SampleContext) -> None:
        self.context = context
        self.value = secrets.token_urlsafe(16)


class Leases:
    """Tokens and tags of one gateway. Any thread may ask."""

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}
        self._tags: weakref.WeakValueDictionary[str, Tag] = weakref.WeakValueDictionary()
        self._changing = threading.Lock()

    def add(self, context: SampleContext | None, *, keeps_own_keys: bool) -> Holder:
        holder = Holder(_TOKEN + secrets.token_urlsafe(24), context, keeps_own_keys)
        with self._changing:
            self._holders[holder.token] = holder
        return holder

    def remove(self, holder: Holder) -> None:
        with self._changing:
            self._holders.pop(holder.token, None)

    def holder(self, token: str) -> Holder | None:
        return self._holders.get(token)

    def tag(self, context: SampleContext) -> Tag:
        tag = Tag(context)
        with self._changing:
            self._tags[tag.value] = tag
        return tag

    def tagged(self, value: str) -> SampleContext | None:
        tag = self._tags.get(value)
        return None if tag is None else tag.context


def calling_from_outside(context: SampleContext, *, caches: bool | None = None) -> SampleContext:
    """The attempt as the gate sees calls that come over the gateway.

    It keeps its slot while they wait: its program goes on living, and a sync client may block the very loop
    that lends slots. None of them waits for a batch. With `caches=False` nothing is read from the cache or
    kept in it, whatever the run says.
    """
    surroundings, account = context.surroundings, context.account
    if account is not None:
        account = account.without_batches()
    return replace(
        context,
        surroundings=None if surroundings is None else KeepsSlot(surroundings),
        account=account if caches is not False or account is None else account.in_mode("off"),
    )
