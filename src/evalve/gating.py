"""The process's gate: built once, when the first call is made, from the environment and `evalve.yaml`.

Cache mode, budget and totals are not its own: they belong to each run (`calls_of`). What the gate is
made of is imported then: an evaluation that calls no model loads none of it.
"""

from __future__ import annotations

import atexit
import copyreg
import json
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalve.contracts import all_roles, split_roles
from evalve.errors import OptionError
from evalve.experiments.file.configuration import Configuration, read_configuration
from evalve.filesystems import home_folder, on_network
from evalve.gate.accounts import Account, Accounts
from evalve.gate.budget import BudgetShare, SharedBudget
from evalve.options import Options, switched_on
from evalve.secrecy import Environment, discreet, discreet_headers, secret
from evalve.variables import unknown_variables

if TYPE_CHECKING:
    from evalve.gate.accounts import CacheMode
    from evalve.gate.batches.queue import BatchQueue
    from evalve.gate.cache.cache import ResponseCache
    from evalve.gate.cache.store import CacheStore
    from evalve.gate.doors.limiting import ScopeLimiter
    from evalve.gate.doors.model import Connection, Model
    from evalve.gate.doors.naming import Target
    from evalve.gate.estimates import Estimates
    from evalve.gate.exchange import Gate
    from evalve.gate.limits.limiter import Limiter
    from evalve.gate.limits.queueing import Hold
    from evalve.gate.limits.state import LimitState
    from evalve.gate.messages import Call, Dialect, Limits, Request
    from evalve.gate.prices import Prices
    from evalve.gate.sender import AiohttpSender

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class GateHouse:
    """The gate with what it is made of."""

    gate: Gate
    account: Account
    """The process's own: of calls that belong to no run."""
    cache: ResponseCache
    limiter: Limiter
    state: LimitState
    prices: Prices
    sender: AiohttpSender
    estimates: Estimates
    estimates_path: Path
    limits_for: Callable[[Call], Limits]
    named: Callable[[Call], Call]
    """A call under the account that a person named for it."""
    connection: Connection
    store: CacheStore
    endings: tuple[Callable[[], None], ...]
    _batches: BatchQueue | None = None

    def batches(self) -> BatchQueue:
        """The queue of calls that wait for batches, built when the first run wants it."""
        if self._batches is None:
            from evalve.batches.building import batch_queue

            with _BUILDING:
                self._batches = self._batches or batch_queue(self, Environment(os.environ))
        return self._batches

    def close(self) -> None:
        """When the process ends: keep what was learnt, and leave no thread and no lease behind."""
        self.keep_estimates()
        for end in self.endings:
            end()

    def keep_estimates(self) -> None:
        """Remember how long prompts and answers turned out to be, for the next process."""
        temporary = self.estimates_path.with_suffix(f".{os.getpid()}")
        try:
            self.estimates_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps(self.estimates.to_plain()))
            temporary.replace(self.estimates_path)
        except OSError:  # a home that cannot be written costs the next process a few calls' accuracy
            with suppress(OSError):
                temporary.unlink()


_HOUSES: dict[int, GateHouse] = {}
_BUILDING = threading.Lock()


def house() -> GateHouse:
    """This process's gate; a forked child builds its own."""
    built = _HOUSES.get(os.getpid())
    if built is None:
        with _BUILDING:
            built = _HOUSES.get(os.getpid())
            if built is None:
                tell_unknown_variables(lambda text: _LOG.warning("%s", text))
                built = _build(Environment(os.environ), Path.cwd())
                atexit.register(built.close)
                _HOUSES[os.getpid()] = built
    return built


def settle_cache() -> None:
    """See to the answers that could not be written yet: the process may end in a hurry from now on."""
    built = _HOUSES.get(os.getpid())
    if built is not None:
        built.store.settle()


_TOLD: set[str] = set()


def tell_unknown_variables(say: Callable[[str], None]) -> None:
    """What is probably misspelt in the environment, each thing once in a process, to whoever asks first."""
    for text in unknown_variables(Environment(os.environ)):
        if text not in _TOLD:
            _TOLD.add(text)
            say(text)


_RUNS = Accounts()
"""The runs that are under way in this process."""


@contextmanager
def calls_of(
    options: Options,
    *,
    spent_before_usd: float = 0.0,
    shares: int = 1,
    budget: SharedBudget | None = None,
) -> Iterator[Calls]:
    """In the block, a run is under way whose calls are treated as its options ask.

    With a `budget` that it shares with others, its own does not count.
    """
    calls = Calls(options, spent_before_usd, shares, budget)
    if options.batch == "on":
        calls.account.batches = house().batches().join(options.experiment or "")
    try:
        with _RUNS.open(calls.account):
            yield calls
    finally:
        if calls.account.batches is not None:
            calls.account.batches.leave()
        settle_cache()


@contextmanager
def calls_between_runs(options: Options) -> Iterator[Calls]:
    """In the block, calls that belong to no run are treated as these options ask."""
    calls = Calls(options)
    with _RUNS.around(calls.account):
        yield calls


def account_of_worker(options: Options) -> Account:
    """The account of a process that works for one run as long as it lives."""
    return _RUNS.enter(Calls(options).account)


class Calls:
    """One run's calls: what they may do, and their figures.

    A run whose samples call no model builds no gate.
    """

    def __init__(
        self,
        options: Options,
        spent_before_usd: float = 0.0,
        shares: int = 1,
        budget: SharedBudget | None = None,
    ) -> None:
        self.account = Account(
            cache_mode(options, Environment(os.environ)),
            budget_usd=options.budget_usd,
            spent_before_usd=spent_before_usd,
            shares=shares,
            shared=budget,
        )

    async def utilisation(self) -> list[dict[str, Any]]:
        used, built = self.account.admitted, _HOUSES.get(os.getpid())
        if built is None or not used:
            return []
        from evalve.gate.limits.utilisation import utilisation

        return utilisation(used, {scope: await built.state.peek(scope) for scope in used})

    def note_spending(self, note: Callable[[float], None]) -> None:
        if isinstance(self.account.budget, BudgetShare):
            self.account.budget.note = note

    def may_have_cost_usd(self) -> float | None:
        budget = self.account.budget
        return budget.may_have_cost_usd() if isinstance(budget, BudgetShare) else None

    def totals(self) -> dict[str, float]:
        return self.account.totals()

    def quiet(self) -> str:
        return "" if self.account.batches is None else self.account.batches.quiet()

    def held_by(self) -> str:
        if self.account.batches is not None and (waits := self.account.batches.in_words()):
            return waits
        built = _HOUSES.get(os.getpid())
        if built is None:
            return ""
        holds = [hold for hold in built.limiter.holds() if hold.scope in self.account.scopes]
        return held_in_words(holds, built.state.now_s())

    def spent(self) -> str:
        totals = self.totals()
        together = all_roles(totals)
        parts = [f"{int(together['cached'])} cached"] if together["cached"] else []
        if together["cost_usd"]:
            cost = f"{together['cost_usd']:.3f} USD"
            by_role = [
                f"{role} {made['cost_usd']:.3f}"
                for role, made in split_roles(totals).items()
                if role and made["cost_usd"]
            ]
            parts.append(f"{cost} ({', '.join(by_role)})" if by_role else cost)
        return ", ".join(parts)


def _build(environ: Mapping[str, str], folder: Path) -> GateHouse:
    import asyncio

    from evalve.gate.background import SHARED
    from evalve.gate.cache.cache import ResponseCache
    from evalve.gate.cache.cassettes import Cassettes
    from evalve.gate.cache.flights import Flights
    from evalve.gate.cache.leases import Leases
    from evalve.gate.cache.store import CacheStore
    from evalve.gate.dialects.finding import recognised
    from evalve.gate.doors.local import LocalServer
    from evalve.gate.doors.model import Connection
    from evalve.gate.exchange import Gate
    from evalve.gate.limits.limiter import Limiter
    from evalve.gate.metering import Meter
    from evalve.gate.prices import prices_from
    from evalve.gate.retry import Retries
    from evalve.gate.sender import AiohttpSender, Timeouts

    configuration = read_configuration(folder)
    prices = prices_from(configuration.prices, environ)

    limits_of = limits_reader(configuration, environ)
    store = CacheStore(cache_directory(environ), cap_bytes=cache_cap_bytes(environ))
    leases = Leases(store.writer)
    cassettes = environ.get("EVALVE_CASSETTES")
    account = Account(cache_mode(Options(), environ))
    cache = ResponseCache(
        store=store,
        flights=Flights(leases),
        cassettes=Cassettes(Path(cassettes).absolute()) if cassettes else None,
    )
    state = limit_state(environ)
    limiter = Limiter(state, limits_for=limits_of)
    estimates_path = state_directory(environ) / "estimates.json"
    estimates = _kept_estimates(estimates_path)
    whose = account_namer(configuration, environ)

    def read(request: Request) -> tuple[Dialect, Call] | None:
        understood = recognised(request)
        return understood and (understood[0], whose(understood[1]))

    gate = Gate(
        read=read,
        cache=cache,
        retries=Retries(),
        limiter=limiter,
        estimates=estimates,
        meter=Meter(prices.cost),
        account=lambda: _RUNS.of_no_sample() or account,
    )
    sender = AiohttpSender()
    return GateHouse(
        gate=gate,
        account=account,
        cache=cache,
        limiter=limiter,
        state=state,
        prices=prices,
        sender=sender,
        estimates=estimates,
        estimates_path=estimates_path,
        limits_for=limits_of,
        named=whose,
        connection=Connection(
            gate=gate,
            sender=sender,
            sender_within=lambda answer_s: sender.with_timeouts(Timeouts(answer_s=answer_s)),
            price=lambda provider, model, usage: prices.cost(model, usage),
            call_sync=SHARED.call,
            local=LocalServer(),
        ),
        store=store,
        endings=(leases.close, store.close, lambda: asyncio.run(state.close())),
    )


def limits_reader(configuration: Configuration, environ: Mapping[str, str]) -> Callable[[Call], Limits]:
    """What is configured for a call."""
    from evalve.gate.limits.presets import limits_for, read_limits
    from evalve.gate.messages import Limits

    configured = read_limits(configuration.limits)

    def limits_of(call: Call) -> Limits:
        for name in _names_of(call.host, call.provider, call.dialect):
            limits = limits_for(name, call.model, call.pool, configured, environ)
            if limits.by_dimension or limits.concurrency is not None:
                return limits
        return Limits()

    return limits_of


def account_namer(configuration: Configuration, environ: Mapping[str, str]) -> Callable[[Call], Call]:
    """Names whose limits a call is under: its key's, unless a person said that all keys are one account's."""
    from evalve.gate.dialects.request_parts import hash_of
    from evalve.gate.limits.presets import account_for, read_limits

    configured = read_limits(configuration.limits)

    @cache
    def account_at(host: str, provider: str, dialect: str) -> str | None:
        names = _names_of(host, provider, dialect)
        found = (account_for(name, configured, environ) for name in names)
        return next((hash_of(f"account/{account}") for account in found if account is not None), None)

    def named(call: Call) -> Call:
        account = account_at(call.host, call.provider, call.dialect)
        return call if account is None else replace(call, key_hash=account)

    return named


def _names_of(host: str, provider: str, dialect: str) -> Iterable[str]:
    """Under which a server's limits may be set: itself, whose it is, and at last whose wire it speaks."""
    from evalve.gate.dialects.hosts import provider_at

    return dict.fromkeys([host, provider, provider_at(host), dialect])


def limit_state(environ: Mapping[str, str]) -> LimitState:
    """Shared by every process of this person on this machine, unless memory is asked for."""
    from evalve.gate.limits.state import MemoryState
    from evalve.gate.limits.state_sqlite import SqliteState, machine_now_s
    from evalve.gate.limits.steady_state import SteadyState

    if keeps_limits_in_memory(environ):
        return MemoryState(now_s=machine_now_s)
    return SteadyState(SqliteState(limits_path(environ)))


def keeps_limits_in_memory(environ: Mapping[str, str]) -> bool:
    said = environ.get("EVALVE_LIMITS_STATE", "").strip()
    if said not in ("", "memory"):
        raise OptionError(
            f"EVALVE_LIMITS_STATE: needs memory, or nothing for limits that processes share; got {said!r}"
        )
    return said == "memory"


def _kept_estimates(path: Path) -> Estimates:
    from evalve.gate.estimates import Estimates

    try:
        return Estimates.from_plain(json.loads(path.read_text()))
    except (OSError, ValueError):
        return Estimates()


def cache_mode(options: Options, environ: Mapping[str, str]) -> CacheMode:
    if options.no_cache:
        return "off"
    if options.cache is not None:
        return options.cache
    said = environ.get("EVAL_USE_CACHE", "")
    try:
        return "on" if not said or switched_on(said) else "off"
    except ValueError as error:
        raise OptionError(f"EVAL_USE_CACHE: {error}; got {said!r}") from None


def cache_cap_bytes(environ: Mapping[str, str]) -> int | None:
    """How large the cache may grow: `EVALVE_CACHE_SIZE`, as in 500MB or 5GB, or none for no bound."""
    text = environ.get("EVALVE_CACHE_SIZE", "2GB").strip().upper()
    if text == "NONE":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(MB|GB)", text)
    if match is None:
        said = environ["EVALVE_CACHE_SIZE"]
        raise OptionError(f"EVALVE_CACHE_SIZE: needs a size such as 500MB or 5GB, or none; got {said!r}")
    return int(float(match[1]) * (1 << 20 if match[2] == "MB" else 1 << 30))


def state_directory(environ: Mapping[str, str]) -> Path:
    return _directory(environ, "EVALVE_STATE_DIR", "XDG_STATE_HOME", ".local/state", "Application Support")


def limits_path(environ: Mapping[str, str]) -> Path:
    """On a network every machine has its own file: SQLite's locks and maps do not reach across."""
    folder = state_directory(environ)
    if not on_network(folder):
        return folder / "limits.db"
    return folder / f"limits-{re.sub('[^A-Za-z0-9.-]', '_', socket.gethostname())}.db"


def cache_directory(environ: Mapping[str, str]) -> Path:
    return _directory(environ, "EVALVE_CACHE_DIR", "XDG_CACHE_HOME", ".cache", "Caches")


def _directory(environ: Mapping[str, str], ours: str, theirs: str, below: str, on_macos: str) -> Path:
    """Absolute: it is opened later, and a sample may have changed the working directory by then."""
    if environ.get(ours):
        return Path(environ[ours]).expanduser().absolute()
    if environ.get(theirs):
        return (Path(environ[theirs]) / "evalve").absolute()
    if sys.platform == "darwin":
        return home_folder() / "Library" / on_macos / "evalve"
    return home_folder() / below / "evalve"


def held_in_words(holds: list[Hold], now_s: float) -> str:
    """`input tokens: next in 0.4 s`; of several scopes, the one that waits longest."""
    if not holds:
        return ""
    longest = max(holds, key=lambda hold: hold.until_s)
    left_s = max(0.0, longest.until_s - now_s)
    if longest.reason == "pause":
        return f"paused by 429 for {left_s:.0f} s"
    if longest.reason in ("concurrency", "first answer"):
        return f"waiting for {'a free call' if longest.reason == 'concurrency' else 'the first answer'}"
    used = f" {longest.used_share:.0%}" if longest.used_share is not None else ""
    return f"{longest.reason.replace('_', ' ')}{used}: next in {left_s:.1f} s"


# -- the doors


def async_http_client(*, library: Any = None, **client_options: Any) -> Any:
    """An `httpx2` or `httpx` AsyncClient for any SDK, as in `AsyncAnthropic(http_client=…)`.

    Its calls to models pass the gate; what else the client is given (proxy, verify, cert …) is kept.
    """
    from evalve.gate.doors import transport

    built = house()
    return transport.async_http_client(built.gate, library=library, sender=built.sender, **client_options)


def http_client(*, library: Any = None, **client_options: Any) -> Any:
    """The same for sync SDK clients: `OpenAI(http_client=evalve.http_client())`."""
    from evalve.gate.doors import transport

    built = house()
    return transport.http_client(built.gate, library=library, sender=built.sender, **client_options)


def model(
    name: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Model:
    """A model to ask: `anthropic/claude-…`, `openai/…`, `openai-compatible/NAME@http://…`, `local`.

    Keys and addresses come from the arguments, else from the provider's usual environment variables.
    """
    name, base_url, api_key = discreet(name), discreet(base_url), secret(api_key)
    headers = discreet_headers(headers) if isinstance(headers, Mapping) else headers
    from evalve.gate.doors.gateway.environment import seen_from_behind
    from evalve.gate.doors.model import Model, open_model

    copyreg.pickle(Model, _crossing)
    return open_model(
        name,
        connection=house().connection,
        environ=Environment(seen_from_behind(Environment(os.environ))),
        api_key=api_key,
        base_url=base_url,
        headers=headers,
    )


def _crossing(model: Model) -> tuple[Callable[..., Model], tuple[Any, ...]]:
    """How a model crosses to a worker process: there it calls through the gate of that process."""
    return _crossed, (model._target, model._headers)


def _crossed(target: Target, headers: Mapping[str, str]) -> Model:
    from evalve.gate.doors.model import Model

    copyreg.pickle(Model, _crossing)
    return Model(target, house().connection, headers=headers)


def limiter(name: str, *, api_key: str | None = None, base_url: str | None = None) -> ScopeLimiter:
    """The shared limits of a model, for code that calls its provider by means of its own."""
    name, base_url, api_key = discreet(name), discreet(base_url), secret(api_key)
    from evalve.gate.background import SHARED
    from evalve.gate.doors.limiting import ScopeLimiter

    call = house().named(model(name, api_key=api_key, base_url=base_url).call())
    return ScopeLimiter(house().limiter, call, combined=call.dialect == "openai", call_sync=SHARED.call)
