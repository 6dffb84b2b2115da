"""A gateway in front of a simulated provider, and samples whose calls come over it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalve.contracts import GatewayLease, SampleContext, Surroundings
from evalve.gate.accounts import Account, CacheMode
from evalve.gate.background import BackgroundLoop
from evalve.gate.cache.cache import ResponseCache
from evalve.gate.cache.store import CacheStore
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.gateway.delivery import Patience
from evalve.gate.doors.gateway.leases import Leases
from evalve.gate.doors.gateway.lending import Gateway
from evalve.gate.doors.gateway.server import GatewayServer
from evalve.gate.doors.gateway.upstreams import upstreams_from
from evalve.gate.doors.local import LocalSender, LocalServer
from evalve.gate.estimates import Estimates
from evalve.gate.exchange import Gate
from evalve.gate.limits.limiter import Limiter
from evalve.gate.limits.state import MemoryState
from evalve.gate.messages import Call, Limits, Sender, Usage
from evalve.gate.metering import Meter
from evalve.gate.retry import Retries
from evalve.gate.sender import AiohttpSender
from evalve.simulator import Behaviour, Simulator
from evalve.traces import Trace

REAL_KEY = "sk-real-4711"


def no_limits(call: Call) -> Limits:
    return Limits()


@dataclass
class World:
    """A gateway, what stands behind it, and whose the calls of no sample are."""

    gateway: Gateway
    provider: Simulator
    account: Account
    cache: ResponseCache
    process: GatewayLease

    def sample(
        self, sample_id: str = "s1", *, surroundings: Surroundings | None = None, try_number: int = 1
    ) -> SampleContext:
        return SampleContext(
            "an experiment",
            "eval_x",
            sample_id,
            0,
            try_number,
            surroundings=surroundings,
            trace=Trace(),
            account=self.account,
        )


@contextmanager
def gateway_to(
    behaviour: Behaviour | None = None,
    *,
    limits_for: Callable[[Call], Limits] = no_limits,
    patience: Patience | None = None,
    environ: Mapping[str, str] | None = None,
    models: Any = None,
    mode: CacheMode = "on",
    budget_usd: float | None = None,
    price: Callable[[str, Usage], float | None] = lambda model, usage: None,
) -> Iterator[World]:
    """Only the key of the environment opens the provider, so that whoever is answered was given it."""
    behaviour = behaviour or Behaviour(answers=["Hello."], keys=frozenset({REAL_KEY}))
    account = Account(mode, budget_usd=budget_usd)
    folder = tempfile.TemporaryDirectory(prefix="evalve-gateway-")
    store = CacheStore(Path(folder.name))
    cache = ResponseCache(store=store)
    gate = Gate(
        read=recognised,
        cache=cache,
        retries=Retries(),
        limiter=Limiter(MemoryState(now_s=time.monotonic), limits_for=limits_for),
        estimates=Estimates(),
        meter=Meter(price),
        account=lambda: account,
    )
    with ExitStack() as ends:
        ends.callback(folder.cleanup)
        ends.callback(store.close)
        provider = ends.enter_context(Simulator(behaviour).start_in_thread())
        sender = AiohttpSender()
        background = BackgroundLoop()
        said = {
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "GOOGLE_GEMINI_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": REAL_KEY,
            "OPENAI_API_KEY": REAL_KEY,
            "GEMINI_API_KEY": REAL_KEY,
            **(environ or {}),
        }

        def server(leases: Leases) -> GatewayServer:
            senders: dict[str, Sender] = {"": sender, "local": LocalSender(LocalServer(), sender)}
            return GatewayServer(gate, senders, upstreams_from(said, models), leases, patience=patience)

        gateway = Gateway(server, background)
        ends.callback(background.stop)
        ends.callback(lambda: background.call(sender.aclose()))
        ends.callback(gateway.close)
        yield World(gateway, provider, account, cache, gateway.lent_to_process())
