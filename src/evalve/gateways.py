"""The process's gateway: built from the environment and `evalve.yaml` when it is first needed.

What it is made of, a web server among it, is imported then.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evalve.contracts import SAMPLE, GatewayLease
from evalve.experiments.file.configuration import read_configuration
from evalve.secrecy import Environment

if TYPE_CHECKING:
    from evalve.gate.doors.gateway.leases import Tag
    from evalve.gate.doors.gateway.lending import Gateway, GatewayLender
    from evalve.gate.doors.gateway.upstreams import Upstream
    from evalve.gate.messages import Sender

_GATEWAYS: dict[int, Gateway] = {}
_BUILDING = threading.RLock()
_IN_USE: dict[int, _Use] = {}
"""By process, because a forked child builds its own."""


def gateway(*, cache: bool = False) -> GatewayLender:
    """For an argument of an evaluation: each sample is lent an address under which programs call models.

    `gateway.environment()` has the variables that they need, with a token in place of keys. Their calls count
    for the sample. With `cache=True` answers are cached as those of its own calls are.
    """
    return process_gateway().lender(caches=cache)


def process_gateway() -> Gateway:
    """This process's own."""
    with _BUILDING:
        if os.getpid() not in _GATEWAYS:
            _GATEWAYS[os.getpid()] = built = build()
            atexit.register(built.close)
        return _GATEWAYS[os.getpid()]


def build(*, port: int = 0) -> Gateway:
    """One more, for whoever wants a port of its own."""
    from evalve.gate.background import SHARED
    from evalve.gate.doors.gateway.lending import Gateway
    from evalve.gate.doors.gateway.server import GatewayServer
    from evalve.gate.doors.gateway.upstreams import LOCAL
    from evalve.gate.doors.local import LocalSender
    from evalve.gating import house

    house_ = house()
    senders: dict[str, Sender] = {
        "": house_.sender,
        LOCAL: LocalSender(house_.connection.local, house_.sender),
    }
    known = upstreams()
    return Gateway(lambda leases: GatewayServer(house_.gate, senders, known, leases), SHARED, port=port)


def upstreams() -> dict[str, Upstream]:
    """Where it sends calls to, by name."""
    from evalve.gate.doors.gateway.environment import seen_from_behind
    from evalve.gate.doors.gateway.upstreams import upstreams_from

    models = read_configuration(Path.cwd()).models
    return upstreams_from(Environment(seen_from_behind(Environment(os.environ))), models)


@contextmanager
def used() -> Iterator[GatewayLease]:
    """In the block, clients of this process that read their address from the environment call the gateway.

    It is for clients that are made in the block: those made before have their provider's address already.
    """
    entered = use()
    try:
        yield entered.lease
    finally:
        with _BUILDING:
            entered.users -= 1
            if not entered.users:
                del _IN_USE[os.getpid()]
                entered.leaving.close()


def use() -> _Use:
    """The same until the process ends."""
    with _BUILDING:
        entered = _IN_USE.get(os.getpid())
        if entered is None:
            leaving = ExitStack()
            entered = _IN_USE[os.getpid()] = _Use(_enter(leaving), leaving)
        entered.users += 1
        return entered


@dataclass(slots=True)
class _Use:
    """Of the gateway by this process."""

    lease: GatewayLease
    leaving: ExitStack
    users: int = 0


def _enter(leaving: ExitStack) -> GatewayLease:
    from evalve.gate.doors.gateway.environment import leading_to
    from evalve.gate.doors.gateway.leases import is_own_gateway
    from evalve.gate.doors.gateway.tagging import tagging
    from evalve.gate.ungated import asks_a_model
    from evalve.gating import house

    served = process_gateway()
    lease = served.lent_to_process()

    def tag_for(host: str | None, port: int | None) -> Tag | None:
        if port != served.port or host not in ("127.0.0.1", "localhost"):
            return None
        sample = SAMPLE.get()
        return None if sample is None else served.tag(sample)

    def leaves(method: str, url: str) -> None:
        if asks_a_model(method, url) and not is_own_gateway(url):
            house().gate.passed_by(url, is_past_gateway=True)

    leaving.enter_context(_set(leading_to(lease, Environment(os.environ))))
    leaving.enter_context(tagging(tag_for, leaves))
    return lease


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
