"""Whether a try is worth another, and after how long: a decision, made without waiting."""

from __future__ import annotations

import errno
import inspect
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from evalve.errors import LaneLost, OptionError, WorkerDied

TRIES = 3
WORKER_DEATHS = 2
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0

_JITTER = random.SystemRandom().random
"""Not Python's shared numbers: a program that seeds them, or forks, would have all its workers wait alike.
Nor may we draw what the program would have drawn."""

_NETWORK_ERRNOS = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
    }
)
_NETWORK_CLASSES = frozenset(
    # package and class name: known without importing packages that the evaluation may not use
    {
        "aiohttp.ClientConnectionError",
        "anthropic.APIConnectionError",
        "httpcore.NetworkError",
        "httpcore.RemoteProtocolError",
        "httpcore.TimeoutException",
        "httpcore2.NetworkError",
        "httpcore2.RemoteProtocolError",
        "httpcore2.TimeoutException",
        "httpx.TransportError",
        "httpx2.TransportError",
        "openai.APIConnectionError",
        "requests.ConnectionError",
        "requests.Timeout",
        "urllib3.HTTPError",
        "websockets.ConnectionClosed",
    }
)


OF_MACHINE = "infrastructure"
"""Why a sample waits for its next try when what broke is not its own doing."""


@dataclass(slots=True)
class Tried:
    """One finished try, with what came before it."""

    number: int
    """Counted from 1."""
    error: BaseException | None
    value: Any
    first_started_s: float
    ended_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`delay_s` until the next try, or `None` to stop; `value` replaces the result where `replaced`."""

    delay_s: float | None = None
    replaced: bool = False
    value: Any = None
    reason: str = "retry"
    """What progress shows meanwhile."""


STOP = Verdict()


class RetryPolicy(Protocol):
    reads_results: bool
    """Whether a result may be worth another try; otherwise it is not asked about any."""

    async def after(self, tried: Tried) -> Verdict: ...


def retry_policy(declared: Any) -> RetryPolicy:
    """The policy for what a person wrote as `retries=`."""
    if declared is None:
        return NetworkRetries()
    if isinstance(declared, bool):
        return NetworkRetries(tries=TRIES if declared else 1)
    if isinstance(declared, int):
        if declared < 1:
            raise OptionError(f"retries={declared} must be the number of tries, 1 or more")
        return NetworkRetries(tries=declared)
    if all(callable(getattr(declared, name, None)) for name in ("retry", "stop", "wait")):
        return TenacityRetries(declared)
    raise OptionError(
        f"retries= takes a number of tries or a tenacity AsyncRetrying; got {type(declared).__name__}"
    )


class NetworkRetries:
    """The default: connection errors, timeouts and network OSErrors, with exponential delays and jitter."""

    reads_results = False

    def __init__(self, tries: int = TRIES, *, jitter: Callable[[], float] = _JITTER) -> None:
        self._tries = tries
        self._jitter = jitter

    async def after(self, tried: Tried) -> Verdict:
        if tried.error is None or tried.number >= self._tries or not is_network_error(tried.error):
            return STOP
        exponential_s = FIRST_DELAY_S * 2.0 ** (tried.number - 1)
        return Verdict(delay_s=min(LONGEST_DELAY_S, exponential_s + self._jitter()))


def is_network_error(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):  # of a TaskGroup, for one
        return all(is_network_error(member) for member in error.exceptions)
    if isinstance(error, ConnectionError | TimeoutError | socket.gaierror | socket.herror):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS:
        return True
    reason = getattr(error, "reason", None)  # urllib wraps what happened
    if isinstance(error, OSError) and isinstance(reason, OSError):
        return is_network_error(reason)
    return any(
        f"{c.__module__.partition('.')[0]}.{c.__name__}" in _NETWORK_CLASSES for c in type(error).__mro__
    )


class InfrastructureRetries:
    """For what broke around a sample: it says nothing about the sample, whatever retries that one has."""

    def __init__(self, *, jitter: Callable[[], float] = _JITTER) -> None:
        self._jitter = jitter

    def after(self, error: BaseException | None, times: int) -> Verdict:
        """`times` counts the tries of the sample that broke so, this one included."""
        if isinstance(error, LaneLost):
            return STOP
        # whatever kills its worker twice is the cause, not the victim
        most = WORKER_DEATHS if isinstance(error, WorkerDied) else TRIES
        if times >= most:
            return STOP
        delay_s = FIRST_DELAY_S * 2.0 ** (times - 1) + self._jitter()
        return Verdict(delay_s=delay_s, reason=OF_MACHINE)


class TenacityRetries:
    """Any configuration of tenacity: its conditions and callbacks are asked, the waiting is ours."""

    reads_results = True

    def __init__(self, retrying: Any) -> None:
        self._retrying = retrying

    async def after(self, tried: Tried) -> Verdict:
        from tenacity import Future, RetryCallState, TryAgain

        retrying = self._retrying
        state = RetryCallState(retrying, None, (), {})
        state.attempt_number = tried.number
        state.start_time = tried.first_started_s
        state.outcome_timestamp = tried.ended_s
        state.idle_for = tried.waited_s
        failed = tried.error is not None
        state.outcome = Future.construct(tried.number, tried.error if failed else tried.value, failed)
        if failed:
            state.outcome.exception()  # marks it as looked at
        if not isinstance(tried.error, TryAgain) and not await _asked(retrying.retry, state):
            return STOP
        await _asked(retrying.after, state)
        delay_s = float(await _asked(retrying.wait, state) or 0.0)
        state.upcoming_sleep = delay_s
        if await _asked(retrying.stop, state):
            if retrying.retry_error_callback is None:
                return STOP
            return Verdict(replaced=True, value=await _asked(retrying.retry_error_callback, state))
        await _asked(retrying.before_sleep, state)
        return Verdict(delay_s=delay_s)


async def _asked(question: Callable[[Any], Any] | None, state: Any) -> Any:
    if question is None:
        return None
    answer = question(state)
    return await answer if inspect.isawaitable(answer) else answer
