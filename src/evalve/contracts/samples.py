"""The surroundings of an attempt: its calls, its waits, what it is lent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

from evalve.contracts.telling import Admitted, Host, Tally
from evalve.records import Outcome
from evalve.traces import Trace

T = TypeVar("T")


@dataclass(slots=True)
class CallLog:
    """What calls to providers came to: those of one attempt, or of a whole run."""

    requests: int = 0
    """Sent over the network, every try."""
    cached: int = 0
    """Answered from the cache."""
    retries: int = 0
    refusals: int = 0
    """Tries that met a rate limit."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    """Answers whose model's price or whose tokens are unknown; `cost_usd` leaves them out."""
    ungated: int = 0
    """Passed as they were, because nobody here knows their format."""
    waited_s: float = 0.0
    """For limits and between tries, summed over calls."""
    ordinals: dict[str, int] = field(default_factory=dict)
    """How often each request has been made by the attempt: asking twice is meant to give two answers."""
    roles: dict[str, CallLog] = field(default_factory=dict)
    """Calls by who made them: parts of the figures, as a `teacher`'s are, except for roles in `ABOUT`."""

    def in_role(self, role: str) -> CallLog:
        """What calls of that role came to; without a role, all that the sample made itself."""
        return self.roles.setdefault(role, CallLog()) if role else self

    def counting(self, role: str) -> tuple[CallLog, ...]:
        """Where a call of that role is counted."""
        if not role:
            return (self,)
        return (self.in_role(role),) if role in ABOUT else (self, self.in_role(role))

    def add(self, made: CallLog) -> None:
        """Add the figures of other calls; ordinals belong to one attempt, and stay as they are."""
        for name in _FIGURES:
            setattr(self, name, getattr(self, name) + getattr(made, name))
        for role, log in made.roles.items():
            self.in_role(role).add(log)

    def since(self, before: CallLog) -> CallLog:
        """What has been added to the figures."""
        added = CallLog(**{name: getattr(self, name) - getattr(before, name) for name in _FIGURES})
        for role, log in self.roles.items():
            added.roles[role] = log.since(before.roles.get(role) or CallLog())
        return added

    def add_plain(self, plain: Mapping[str, Any]) -> None:
        """Add what `to_plain` gave of other calls."""
        for role, figures in split_roles(plain).items():
            log = self.in_role(role)
            for name in _FIGURES:
                setattr(log, name, getattr(log, name) + figures.get(name, 0))

    def to_plain(self) -> dict[str, Any]:
        """The figures by name; those of a role as in `teacher.cost_usd`. Parts sum to the whole exactly."""
        plain = {name: getattr(self, name) for name in _FIGURES}
        parts: dict[str, float] = dict.fromkeys(_FIGURES, 0)
        # `list` first: another thread may count the first call of a role
        for role, log in list(self.roles.items()):
            for name in _FIGURES:
                plain[f"{role}.{name}"] = figure = getattr(log, name)
                parts[name] += 0 if role in ABOUT else figure
        # fractions were added in another order than here, and differ in their last digit
        return plain | {
            name: total for name, total in parts.items() if total and abs(total - plain[name]) < 1e-9
        }

    @property
    def made_any(self) -> bool:
        return bool(self.requests or self.cached) or any(log.made_any for log in self.roles.values())

    def spent_usd(self) -> float:
        """The cost of all calls: the sample's own, and those about it."""
        # `list` first: another thread may count the first call of a role
        about = [log.cost_usd for role, log in list(self.roles.items()) if role in ABOUT]
        return self.cost_usd + sum(about)


_FIGURES = tuple(figure.name for figure in fields(CallLog) if figure.name not in ("ordinals", "roles"))

JUDGE = "judge"
"""The role of calls that a judge makes (`CallLog.roles`)."""

ABOUT = frozenset({JUDGE})
"""Roles whose calls are made about a sample and not by it: none of its own figures has them."""


def split_roles(plain: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """What `CallLog.to_plain` gave, by role; all of the sample's own calls under the empty name."""
    by_role: dict[str, dict[str, float]] = {"": {}}
    for name, figure in plain.items():
        role, _, own = name.rpartition(".")
        by_role.setdefault(role, {})[own] = figure
    return by_role


def all_roles(plain: Mapping[str, float]) -> dict[str, float]:
    """The figures of all calls together: the sample's own, and those about it."""
    total: dict[str, float] = {}
    for name, figure in plain.items():
        role, _, own = name.rpartition(".")
        if not role or role in ABOUT:
            total[own] = total.get(own, 0) + figure
    return total


class Surroundings(Protocol):
    """What the runner does for an attempt whose code waits. Any thread and loop may ask for it."""

    def parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]: ...
    def held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]: ...
    def call_begins(self) -> None: ...
    def call_ends(self) -> None: ...
    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None: ...
    def when_committed(self, callback: Callable[[], None]) -> None: ...
    def when_recorded(self, callback: Callable[[], None]) -> None: ...
    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]: ...
    def elsewhere(self) -> AbstractContextManager[None]: ...


Ended = Outcome | Literal["retried"]
"""How a try ended: as its record says, or with another try to follow."""


class LaneView(Protocol):
    """Attempts that run one after another (`Runnable.lane`), as one of them sees them."""

    @property
    def name(self) -> str: ...
    @property
    def repeat(self) -> int:
        """Each repeat of a lane is a lane of its own."""

    @property
    def is_ending(self) -> bool:
        """Whether no other attempt follows, as far as rows have been read."""


@dataclass(slots=True)  # not frozen: there is one for every try, and freezing triples its cost
class SampleContext:
    """What code called by a sample may know about it and ask for, and where it leaves what it learnt."""

    experiment: str
    evaluation: str
    sample_id: str
    repeat: int
    try_number: int
    calls: CallLog = field(default_factory=CallLog)
    tally: Tally | None = None
    surroundings: Surroundings | None = None
    """`None` where no run is around the sample."""
    trace: Trace | None = None
    """Where events go; `None` where tracing is off."""
    account: Any = None
    """The gate's own: cache mode, budget and totals of the run. `None` for those of the process."""
    lent: dict[str, Any] = field(default_factory=dict)
    """What lenders want recorded about what they lent, by argument. Plain values.

    Each lender sees one of its own, and writes into it what belongs under its argument."""
    ended: Ended | None = None
    """Known to lenders when they are given back what they lent; `None` where the try was cancelled."""
    evaluation_key: str = ""
    """File, function and variant: unlike the name, no two evaluations of an experiment share it."""
    argument: str = ""
    """For a lender: which argument of the evaluation it lends for."""
    failed_calls: dict[Any, Any] = field(default_factory=dict)
    """The gate's own: requests of this try that have failed for good, and what came of them."""
    role: str = ""
    """Who makes calls now (`in_role`); empty for the sample itself."""
    host: Host | None = None
    """The machine; `None` where no run is around the sample."""
    answer: Any = None
    """What was answered, so that only scores are missing: by this run, or by an earlier one that recorded it.

    Whoever asks notes it here, and asks nobody where it is there (`Runnable.scores_answers`)."""
    lane: LaneView | None = None
    """Whose turn it is; `None` where the evaluation has no lanes."""
    keep: Callable[[SampleContext], Awaitable[None]] | None = None
    """The runner's own: stores what there is of the attempt."""

    async def keep_answer(self) -> None:
        """Return when `answer` is stored: whatever ends the process while it is scored, it is not lost."""
        if self.keep is not None:
            await self.keep(self)

    def parked(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """Wait for what is not the sample's own work.

        Meanwhile the slot is lent to other samples, the deadline stands still, progress shows the reason and
        the first Ctrl-C ends the wait. Afterwards the sample queues for a slot again.
        """
        surroundings = self.surroundings
        return awaitable if surroundings is None else surroundings.parked(awaitable, reason)

    def held(self, awaitable: Awaitable[T], reason: str) -> Awaitable[T]:
        """Like `parked`, with the slot kept: for a wait in which another sample could do nothing either."""
        surroundings = self.surroundings
        return awaitable if surroundings is None else surroundings.held(awaitable, reason)

    def stop_run(self, reason: str, *, drops_sample: bool = False) -> None:
        """End the whole run, saved and resumable: no call can succeed any more.

        `drops_sample`: it lacks a call that was not made for that reason. So whatever it comes to is no
        result, and it runs again when the run is resumed.
        """
        if self.surroundings is not None:
            self.surroundings.stop_run(reason, drops_sample=drops_sample)

    def telling_still(self, tell: Callable[[bool], None]) -> AbstractContextManager[None]:
        """In the block, `tell` is told whenever the sample begins to do nothing but wait, and goes on.

        For clocks that run elsewhere: they stand still as the sample's own deadline does.
        """
        return nullcontext() if self.surroundings is None else self.surroundings.telling_still(tell)

    def elsewhere(self) -> AbstractContextManager[None]:
        """In the block another process does its work: should this one die, it was not of this sample."""
        return nullcontext() if self.surroundings is None else self.surroundings.elsewhere()

    def when_committed(self, callback: Callable[[], None]) -> None:
        """Call back, on any thread, once the sample's record is committed.

        At once where a cancelled sample will have none; never where the store could not commit it.
        """
        if self.surroundings is None:
            callback()
        else:
            self.surroundings.when_committed(callback)

    def when_recorded(self, callback: Callable[[], None]) -> None:
        """The same, and never where the sample will have no record: what it did is done again."""
        if self.surroundings is None:
            callback()
        else:
            self.surroundings.when_recorded(callback)


WAITS_FOR_LIMITS = "limits"
"""Why a sample waits (`Tally.waiting`) that a provider's limits hold back."""
WAITS_FOR_BATCH = "a batch"
WAITS_FOR_EQUAL_CALL = "an equal call"
WAITS_FOR_POOL = "pool"
"""Others have everything that the pool holds."""
WAITS_FOR_BUDGET = "the budget"
"""What calls under way may cost leaves nothing for another."""
WAITS_FOR_OTHERS = frozenset({WAITS_FOR_BATCH, WAITS_FOR_BUDGET, WAITS_FOR_EQUAL_CALL, WAITS_FOR_POOL})
"""What no sample that waits so can end by itself: where all do, a batch has everything that it will get."""

SAMPLE: ContextVar[SampleContext | None] = ContextVar("evalve_sample", default=None)


@contextmanager
def in_role(role: str) -> Iterator[None]:
    """In the block, and in tasks that are started in it, calls are counted under the role.

    A `judge`'s calls are about the sample, and none of its own (`ABOUT`); those of any other role, such as
    `student` and `teacher`, are part of its own figures and told apart beside them.

    Outside of samples, calls in the block are those of a sample that nobody records: equal calls in it are
    asked anew.
    """
    sample = SAMPLE.get()
    if sample is None:
        inside = SampleContext("", "", "", repeat=0, try_number=1, role=role)
    else:
        inside = replace(sample, role=role)
    token = SAMPLE.set(inside)
    try:
        yield
    finally:
        SAMPLE.reset(token)


@asynccontextmanager
async def admitted(kind: str) -> AsyncIterator[Admitted]:
    """Around a process that a sample starts: entered when there is memory for another one of its kind.

    Note in what it yields what the process takes, at the end and, where that is known, now.
    """
    sample = SAMPLE.get()
    if sample is None or sample.host is None:
        yield Admitted()
        return
    async with sample.host.admission(kind, sample.held) as place:
        yield place


async def parked(awaitable: Awaitable[T], reason: str) -> T:
    """`SampleContext.parked` of the sample that is under way; outside of samples, a plain `await`."""
    sample = SAMPLE.get()
    return await awaitable if sample is None else await sample.parked(awaitable, reason)


class Lender(Protocol):
    """An argument of an evaluation that is not handed over as it is: each attempt is lent something of it.

    It may have `settings`, a mapping of plain values: they belong to the evaluation's fingerprint.

    It may have `async run_begins(at_once)`, awaited before a run of the evaluation, to get ready or to
    refuse; `at_once` is how many attempts there may be, or `None`. Then it has `async run_ends()` as well,
    awaited after the run whatever happened: a text that it returns is told.

    It may say `kept_through`: `lane` where attempts of one lane are lent the same thing, one after another,
    and find what those before them left; `run` where all are, which makes one lane of them. As that is lost
    when the run ends, a lane that was not recorded to its end runs again from its first attempt.
    """

    def lend(self, context: SampleContext) -> AbstractAsyncContextManager[Any]:
        """Entered before the attempt, left after it whatever happens; `context.ended` then says how."""


@dataclass(frozen=True, slots=True)
class GatewayLease:
    """What an attempt, or a whole process, is lent of the gateway: an address that knows whose calls come.

    Programs are given it as their provider's address, and the token as their only key.
    """

    url: str = field(repr=False)
    """`http://127.0.0.1:PORT/t/TOKEN`: the token stands in the path, since not every client can send a
    header of its own."""
    token: str = field(repr=False)
    """Accepted as the key as well: in `authorization`, `x-api-key`, `api-key` or `x-goog-api-key`."""
    last_error: Callable[[], tuple[int, str] | None] = field(default=lambda: None, repr=False, compare=False)
    """Status and words with which the last of its calls was refused; `None` where that was answered."""

    def __reduce__(self) -> Any:
        """To a worker process goes what its programs need; what became of their calls is known here."""
        return GatewayLease, (self.url, self.token)

    def base_url(self, upstream: str) -> str:
        """Where a provider is reached: `anthropic`, `openai`, `gemini`, or a name from `models:`.

        It stands for the origin of the provider; what a client appends by itself (`/v1/messages`) follows.
        """
        return f"{self.url}/{quote(upstream, safe='')}"

    def environment(self) -> dict[str, str]:
        """The variables with which a program calls through the gateway; the token stands for every key."""
        return {
            "ANTHROPIC_BASE_URL": self.base_url("anthropic"),
            "ANTHROPIC_API_KEY": self.token,
            "OPENAI_BASE_URL": self.base_url("openai") + "/v1",
            "OPENAI_API_KEY": self.token,
            "GOOGLE_GEMINI_BASE_URL": self.base_url("gemini"),
            "GEMINI_API_KEY": self.token,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }


LOST_WITHOUT_GATEWAY = (
    "with `gateway: off` the agent calls its provider by itself, on its own login: no limit holds its calls"
    " back, they share no cache and no retries, and are not in the sample's trace; tokens and cost are what"
    " the agent itself reports when it has ended, and a budget learns of them only then"
)
"""What is said where a person turns it off."""


def is_lender(value: object) -> bool:
    """Asked of its class: a mock has every attribute itself."""
    return not isinstance(value, type) and callable(getattr(type(value), "lend", None))
