"""Whether and when to try again: a decision per problem, a budget for all, a circuit per host."""

from __future__ import annotations

import asyncio
import math
import random as random_numbers
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from evalve.clock import LOOP_CLOCK, Clock
from evalve.gate.circuit import Circuit, Hold, Pass
from evalve.gate.messages import Problem, ProblemKind

FAULT_TRIES = 6
TRIES_OF_THE_UNREACHED = 3
"""For a host that never answered: it is rather not there than overloaded, and a person waits to hear so."""
BASE_DELAY_S = 0.5
MAX_DELAY_S = 30.0
JITTER_SHARE = 0.05
MAX_JITTER_S = 5.0
TRIES_WITHOUT_ANSWER = 2
"""For a host that answers 200 with something else: mostly a wrong address, and a person waits to hear so."""

_OWN_NUMBERS = random_numbers.SystemRandom()
"""Not Python's shared ones: a program that seeds them, or forks, would have all its workers wait alike."""
_NEVER_RETRIED: frozenset[ProblemKind] = frozenset({"permanent", "spent", "unreadable"})
_FAULTS: frozenset[ProblemKind] = frozenset({"overload", "server", "connection"})
_MOST_TRIES: dict[ProblemKind, int] = dict.fromkeys(_FAULTS, FAULT_TRIES) | {
    "no_answer": TRIES_WITHOUT_ANSWER
}


@dataclass(frozen=True, slots=True)
class Wait:
    """Try again after this long, admitted anew by the limiter."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The problem is final."""

    reason: str


@dataclass(slots=True)
class Tries:
    """One call's failed tries. Refusals cost nothing but time, so they do not use up those for faults."""

    refusals: int = 0
    faults: int = 0
    no_answers: int = 0

    def add(self, problem: Problem) -> int:
        """The number of tries that failed in this way, this one included."""
        if problem.kind == "rate_limit":
            self.refusals += 1
            return self.refusals
        if problem.kind == "no_answer":
            self.no_answers += 1
            return self.no_answers
        self.faults += 1
        return self.faults


def is_failure(problem: Problem | None) -> bool:
    """Whether an outcome speaks against the host; one that refuses, or answers something else, is well."""
    return problem is not None and problem.kind in _FAULTS


def decide(problem: Problem, tries: int, elapsed_s: float, random: Callable[[], float]) -> Wait | GiveUp:
    """What follows a problem. `tries` is what `Tries.add` said; `random` draws from [0, 1)."""
    if problem.kind in _NEVER_RETRIED:
        return GiveUp(problem.message)
    if tries >= _MOST_TRIES.get(problem.kind, math.inf):
        return GiveUp(f"gave up after {tries} tries in {elapsed_s:.0f} s: {problem.message}")
    backoff_s = random() * min(MAX_DELAY_S, BASE_DELAY_S * 2 ** min(tries - 1, 16))  # full jitter
    asked_s = problem.retry_after_s or 0.0
    if problem.kind == "rate_limit" and asked_s > 0:
        return Wait(asked_s + random() * min(max(JITTER_SHARE * asked_s, 0.05), MAX_JITTER_S))
    return Wait(max(backoff_s, asked_s))


class RetryBudget:
    """Bounds retries to a share of the requests of the last seconds, over all calls of a process.

    It books each retry's instant, so that an exhausted budget spreads retries out and never fails one.
    """

    def __init__(self, *, share: float = 0.1, floor: int = 10, window_s: float = 10.0) -> None:
        self._share = share
        self._floor = floor
        self._window_s = window_s
        self._lock = threading.Lock()
        self._requests: deque[list[float]] = deque()  # [start of a tenth of the window, how many]
        self._recent = 0
        self._booked: deque[float] = deque()

    def request(self, now_s: float) -> None:
        """A first try was sent."""
        with self._lock:
            if self._requests and now_s - self._requests[-1][0] < self._window_s / 10:
                self._requests[-1][1] += 1
            else:
                self._requests.append([now_s, 1])
            self._recent += 1
            self._forget(now_s)

    def retry(self, now_s: float) -> float:
        """Books a retry and says how long to wait for it; 0 while there is credit."""
        with self._lock:
            self._forget(now_s)
            allowed = self._floor + int(self._share * self._recent)
            start_s = now_s
            if len(self._booked) >= allowed:
                start_s = max(now_s, self._booked[-allowed] + self._window_s)
            self._booked.append(start_s)
            return start_s - now_s

    def _forget(self, now_s: float) -> None:
        while self._requests and now_s - self._requests[0][0] >= self._window_s:
            self._recent -= int(self._requests.popleft()[1])
        while self._booked and now_s - self._booked[0] >= self._window_s:
            self._booked.popleft()


class Retries:
    """What the calls of a process share about trying again."""

    def __init__(
        self,
        *,
        clock: Clock = LOOP_CLOCK,
        random: Callable[[], float] = _OWN_NUMBERS.random,
        budget: RetryBudget | None = None,
        new_circuit: Callable[[], Circuit] = Circuit,
    ) -> None:
        self.clock = clock
        self.random = random
        self.budget = budget or RetryBudget()
        self._new_circuit = new_circuit
        self._circuits: dict[str, Circuit] = {}

    def begin(self, host: str) -> RetryState:
        """The tries of one call."""
        circuit = self._circuits.get(host)
        if circuit is None:
            circuit = self._circuits.setdefault(host, self._new_circuit())
            circuit.has_answered = False
        return RetryState(self, circuit)

    def open_hosts(self) -> list[str]:
        """Hosts that are being spared, to be shown."""
        return [host for host, circuit in list(self._circuits.items()) if circuit.is_open]


class RetryState:
    """One call's tries: `may_send`, then `note` what came, then `next_delay_s` where it was a problem.

    A context manager, so that a cancelled call gives back its probe.
    """

    __slots__ = ("_circuit", "_pass", "_retries", "_started_s", "_tries", "reason", "sent")

    def __init__(self, retries: Retries, circuit: Circuit) -> None:
        self._retries = retries
        self._circuit = circuit
        self._pass: Pass | None = None
        self._tries = Tries()
        self._started_s = retries.clock.now_s()
        self.reason = ""
        """Why it was given up."""
        self.sent = 0
        """How many tries were made."""
        retries.budget.request(self._started_s)

    def may_send_now(self) -> bool:
        """Whether the host's circuit lets a try through without a wait."""
        admitted = self._circuit.admit(self._retries.clock.now_s())
        if isinstance(admitted, Hold):
            return False
        self._pass = admitted
        return True

    async def may_send(self) -> None:
        """Waits while the host's circuit is open."""
        admitted = self._circuit.admit(self._retries.clock.now_s())
        while isinstance(admitted, Hold):
            await _changed_or_after(admitted, self._retries.clock.now_s())
            admitted = self._circuit.admit(self._retries.clock.now_s())
        self._pass = admitted

    def note(self, problem: Problem | None) -> None:
        """What came of the try."""
        self.sent += 1
        if problem is None or problem.kind != "connection":
            self._circuit.has_answered = True
        self._settle(is_failure(problem))

    def next_delay_s(self, problem: Problem) -> float | None:
        """How long to wait for the next try; `None` where there is none, and `reason` says why."""
        now_s = self._retries.clock.now_s()
        tries = self._tries.add(problem)
        unreached = problem.kind == "connection" and not self._circuit.has_answered
        if unreached and tries >= TRIES_OF_THE_UNREACHED:
            self.reason = f"it was never reached: {problem.message}"
            return None
        decision = decide(problem, tries, now_s - self._started_s, self._retries.random)
        if isinstance(decision, GiveUp):
            self.reason = decision.reason
            return None
        if problem.kind in ("rate_limit", "no_answer") or unreached:
            return decision.delay_s  # the limiter bounds the first; the others are few
        return max(decision.delay_s, self._retries.budget.retry(now_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """A try that came to nothing, as when its caller was cancelled, gives its leave back."""
        self._settle(None)

    def _settle(self, failed: bool | None) -> None:
        given, self._pass = self._pass, None
        if given is not None:
            self._circuit.settle(given, failed, self._retries.clock.now_s())


async def _changed_or_after(hold: Hold, now_s: float) -> None:
    """Waits on this loop for a future that any thread may resolve, at most until the hold ends."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake(_: object) -> None:
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:
            pass  # that loop has ended, and with it whoever waited there

    hold.changed.add_done_callback(wake)
    try:
        async with asyncio.timeout(max(0.0, hold.until_s - now_s)):
            await woken.wait()
    except TimeoutError:
        pass  # the other way to be done
