"""What a run will take, before anything is spent: its calls against limits, on a virtual clock. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from evalve.gate.batches.choosing import Choice, Prospect, choose
from evalve.gate.limits.booking import REFUSALS, ScopeState
from evalve.gate.messages import Cost, Dimension, Limit, Limits

HEADROOM = 1.25
"""How many more calls than Little's law are kept in flight: latency varies, and a gap is lost for good."""
SIMULATED_CALLS = 5_000
"""Beyond these the steady state is carried on linearly."""
_RATE_CALLS = 1_000
"""Several times what a bucket of one second's depth holds at the highest tier."""
_HOLDER = "plan"


@dataclass(frozen=True, slots=True)
class Work:
    """What one evaluation will ask for; figures are per call, and `None` is not known."""

    label: str
    samples: int
    repeat: int
    calls_per_sample: float
    input_tokens: float | None
    output_tokens: float | None
    latency_s: float | None
    cost_usd: float | None
    takes: Cost
    """What a call takes of each limit; without tokens where they are not known."""
    source: str
    """Where the figures come from, in words."""

    @property
    def attempts(self) -> int:
        return self.samples * self.repeat

    @property
    def calls(self) -> int:
        return math.ceil(self.attempts * self.calls_per_sample - 1e-9)

    def total(self, per_call: float | None) -> float | None:
        return None if per_call is None else per_call * self.attempts * self.calls_per_sample


@dataclass(frozen=True, slots=True)
class ScopePlan:
    """How the run goes under one set of limits."""

    name: str
    source: str
    per_minute: Mapping[Dimension, float]
    duration_s: float
    binding: str
    """The dimension that sets the pace; `concurrency`, or empty where the calls' own latency does."""
    used: Mapping[Dimension, float]
    """Share of each limit that the run uses, on average."""
    calls_per_minute: float | None
    """What the limits let through in the long run; `None` without any."""
    calls_at_once: float | None
    """Little's law: that rate × latency; `None` where one of them is not known."""
    max_concurrency: int | None
    """Samples at once that use the limit up; `None` where that cannot be told."""
    throttle_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run takes in all, and how long under which limits."""

    works: tuple[Work, ...]
    samples: int
    attempts: int
    calls: int
    input_tokens: float | None
    output_tokens: float | None
    cost_usd: float | None
    latency_s: float | None
    one_by_one_s: float | None
    """With one call at a time."""
    scopes: tuple[ScopePlan, ...]
    batch: Prospect | None = None
    """The same in batches; `None` where the provider has none."""
    choice: Choice | None = None
    """What `--batch=auto` would choose."""

    def with_batches(self, deadline_s: float | None) -> Plan:
        """Its fastest way here, or where nothing is known of the limits one by one, against batches."""
        live_s = next((scope.duration_s for scope in self.scopes if scope.name == "here"), self.one_by_one_s)
        rounds = max(1, round(self.calls / self.attempts)) if self.attempts else 1
        prospect = Prospect(self.calls, rounds, live_s, self.cost_usd, deadline_s)
        return replace(self, batch=prospect, choice=choose(prospect))


@dataclass(frozen=True, slots=True)
class Simulated:
    """Calls of equal cost, issued as fast as the buckets and a window let them."""

    duration_s: float
    calls_per_s: float
    """In the steady state; infinite where all start at once."""
    binding: str


def plan(works: Sequence[Work], scopes: Mapping[str, Limits]) -> Plan:
    """The works together, as one stream of calls of their mean cost, under each of the limits."""
    latency_s = _mean(works, lambda work: work.latency_s)
    calls = sum(work.calls for work in works)
    return Plan(
        works=tuple(works),
        samples=sum(work.samples for work in works),
        attempts=sum(work.attempts for work in works),
        calls=calls,
        input_tokens=_sum(work.total(work.input_tokens) for work in works),
        output_tokens=_sum(work.total(work.output_tokens) for work in works),
        cost_usd=_sum(work.total(work.cost_usd) for work in works),
        latency_s=latency_s,
        one_by_one_s=None if latency_s is None else calls * latency_s,
        scopes=tuple(_under(name, limits, works, latency_s) for name, limits in scopes.items()),
    )


def _under(name: str, limits: Limits, works: Sequence[Work], latency_s: float | None) -> ScopePlan:
    cost = _mean_cost(works)
    attempts, calls = sum(work.attempts for work in works), sum(work.calls for work in works)
    rate_per_s = long_run_rate(limits, cost)
    at_once = calls_at_once(rate_per_s, latency_s, limits.concurrency)
    window = None if at_once is None else max(1, min(attempts, math.ceil(at_once * HEADROOM - 1e-9)))
    if window is not None and limits.concurrency is not None:
        window = min(window, limits.concurrency)
    run = simulate(limits, cost, calls, latency_s=latency_s or 0.0, window=window)
    if latency_s and limits.concurrency is not None:
        rate_per_s = min(rate_per_s, limits.concurrency / latency_s)
    return ScopePlan(
        name=name,
        source=limits.source,
        per_minute={dimension: limit.per_minute for dimension, limit in limits.by_dimension.items()},
        duration_s=run.duration_s,
        binding=run.binding,
        used={
            dimension: min(1.0, cost[dimension] * calls / (limit.per_minute / 60 * run.duration_s))
            for dimension, limit in limits.by_dimension.items()
            if dimension in cost and run.duration_s > 0
        },
        calls_per_minute=None if math.isinf(rate_per_s) else rate_per_s * 60,
        calls_at_once=at_once,
        max_concurrency=window,
        throttle_s=throttle(rate_per_s, calls / attempts if attempts else 1.0),
    )


def simulate(limits: Limits, cost: Cost, calls: int, *, latency_s: float, window: int | None) -> Simulated:
    """Book the calls one after another, each as soon as one of `window` is free; `None` for any number.

    Where there are more than `SIMULATED_CALLS`, the rest goes on at the rate of the last of these, or more
    slowly where the buckets would be empty before its end.
    """
    if calls <= 0:
        return Simulated(0.0, math.inf, "")
    state = ScopeState()
    state.hold(limits, 0.0)
    state.concurrency = None  # the window stands for it
    widest = min((n for n in (window, limits.concurrency) if n is not None), default=None)
    now_s = 0.0
    in_flight_until_s: deque[float] = deque()
    starts_s: list[float] = []
    reasons: list[str] = []
    for _ in range(min(calls, SIMULATED_CALLS)):
        waits = widest is not None and len(in_flight_until_s) >= widest
        free_s = max(now_s, in_flight_until_s.popleft()) if waits else now_s
        booking = state.book(cost, _HOLDER, free_s, not_after_s=math.inf)
        in_flight_until_s.append(booking.start_s + latency_s)
        starts_s.append(booking.start_s)
        reasons.append(booking.binding or ("concurrency" if waits and widest == limits.concurrency else ""))
        now_s = booking.start_s
    calls_per_s = _steady_rate(starts_s, widest)
    rest_s, held_by = _rest(state, cost, calls - len(starts_s), calls_per_s, now_s)
    most = Counter(reasons[len(reasons) // 2 :]).most_common(1)[0][0]
    return Simulated(now_s + rest_s + latency_s, calls_per_s, held_by or most)


def _steady_rate(starts_s: Sequence[float], window: int | None) -> float:
    """Calls a second in the later half, over whole windows: calls of one window start together."""
    counted = len(starts_s) - 1 - len(starts_s) // 2
    if window is not None and window <= counted:
        counted -= counted % window
    took_s = starts_s[-1] - starts_s[-1 - counted]
    return counted / took_s if took_s > 0 else math.inf


def _rest(state: ScopeState, cost: Cost, calls: int, calls_per_s: float, now_s: float) -> tuple[float, str]:
    """How long further calls take at that rate, and the bucket that is empty before that, if one is."""
    rest_s, held_by = calls / calls_per_s, ""
    for dimension, bucket in state.buckets.items():
        filled_s = (calls * cost.get(dimension, 0.0) - bucket.level(now_s)) / bucket.rate()
        if filled_s > rest_s * (1 + 1e-6):
            rest_s, held_by = filled_s, dimension
    return rest_s, held_by


def long_run_rate(limits: Limits, cost: Cost) -> float:
    """Calls a second that the buckets let through when they are no longer full."""
    if not any(cost.get(dimension) for dimension in limits.by_dimension):
        return math.inf
    shallow = {dimension: replace(limit, burst=None) for dimension, limit in limits.by_dimension.items()}
    return simulate(Limits(shallow), cost, _RATE_CALLS, latency_s=0.0, window=None).calls_per_s


def calls_at_once(rate_per_s: float, latency_s: float | None, concurrency: int | None) -> float | None:
    """Little's law: how many calls are in flight where so many start a second and each lasts so long."""
    most = math.inf if concurrency is None else float(concurrency)
    in_flight = min(most, math.inf if latency_s is None else rate_per_s * latency_s)
    return None if math.isinf(in_flight) else in_flight


def throttle(rate_per_s: float, calls_per_sample: float) -> float:
    """Seconds between two samples' starts at that rate; two digits, cut off so that it never binds itself."""
    if math.isinf(rate_per_s) or calls_per_sample <= 0:
        return 0.0
    exact_s = calls_per_sample / rate_per_s
    if exact_s < 0.01:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(exact_s)) - 1)
    return round(math.floor(exact_s / unit + 1e-6) * unit, 3)


def in_force(configured: Limits, learnt: ScopeState, now_s: float) -> Limits:
    """What holds for a scope: of what is configured and what its answers stated, the lower."""
    state = ScopeState(
        buckets={dimension: replace(bucket) for dimension, bucket in learnt.buckets.items()},
        stated=dict(learnt.stated),
    )
    state.hold(configured, now_s)
    limits = {
        dimension: Limit(bucket.per_s * 60, bucket.depth, bucket.source)
        for dimension, bucket in state.buckets.items()
        if dimension in configured.by_dimension or dimension in state.stated or bucket.source == REFUSALS
    }
    sources = [limit.source for limit in limits.values()]
    if configured.concurrency is not None:
        sources += configured.source.split(", ")
    return Limits(limits, configured.concurrency, ", ".join(dict.fromkeys(sources)))


def _mean_cost(works: Sequence[Work]) -> Cost:
    calls = sum(work.attempts * work.calls_per_sample for work in works)
    cost: dict[Dimension, float] = {}
    for work in works:
        for dimension, amount in work.takes.items():
            share = work.attempts * work.calls_per_sample / calls if calls else 0.0
            cost[dimension] = cost.get(dimension, 0.0) + amount * share
    return cost


def _mean(works: Sequence[Work], of: Callable[[Work], float | None]) -> float | None:
    """Over calls; `None` where it is not known of one."""
    total = _sum(work.total(of(work)) for work in works)
    calls = sum(work.attempts * work.calls_per_sample for work in works)
    return total / calls if total is not None and calls else None


def _sum(amounts: Iterable[float | None]) -> float | None:
    known = list(amounts)
    return None if None in known else math.fsum(amount for amount in known if amount is not None)
