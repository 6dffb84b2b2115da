"""A limit that nobody states, learnt from refusals. Pure.

A provider that refuses has just been asked for more than it gives. Then one call at a time tries whether
there is more. If there soon is, it flows in: what is served from one refusal to the next, over the time
between them, is the rate, for there was nothing left at both. Calls then go out a little below that rate, and
more is tried: in large steps while little is known, in small ones and seldom afterwards. If there is nothing
until the first calls are a second old, or ten, or a minute, calls are counted in windows of that length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from evalve.gate.limits.doubt import BOOKED
from evalve.gate.limits.explaining import Explained, explained
from evalve.gate.limits.history import History, together
from evalve.gate.limits.trace import Trace
from evalve.gate.limits.window import (
    LEAST_OF,
    MOST_REFUSED,
    MOST_SLACK,
    SHARE_REFUSED,
    SHORTEST_S,
    USUAL_S,
    Window,
    asked_after_s,
    usual_length_s,
)

LEAST_PER_S = 1.0
MOST_UNCERTAIN = 1.5
"""A measured rate that may be so many times more or less tells nothing: some calls are served by chance, such
as when another process has just begun."""
LEAST_UNCERTAIN, SURE = 0.02, 0.1
UNMEASURED = 4.0
"""Times more or less than was suspected, it may be."""
WELL_MEASURED = 0.5
"""Where it is less certain, what lies between is as likely as what was measured."""
GIVEN_WEIGHT = 0.3
"""Of what was served, beside what was refused, in the rate by which a bucket may have overflowed meanwhile:
while calls become faster the first are far below it."""
SHALLOWEST = 1.0
"""Calls that every bucket holds."""
BELOW_SHARE, FADES, MANY, LEAST_GOOD = 0.92, 0.95, 30, 6
"""Refusals below that share of the best rate, which fades with each, are not about rate, unless so many were
served before; the best is one that so many have measured."""
SUSPECTED_SHARE = 0.85
MOST_EXPECTED = 20.0
"""Refusals that would have come by chance, and have not, at a slower pace: it is about pace."""
RESUMED_SHARE = 0.94
"""Of the rate that was refused, used at first."""
STEP_S, STEP_GAIN, MOST_GROWTH = 0.5, 0.75, 0.25
"""A step is as large as the rate is uncertain, but no larger than this; and as long as it takes for so many
more calls to go out than without it."""
SEARCH_DOUBLES_S, MOST_AT_ONCE = 0.3, 1.25
"""While nothing is known it doubles in so long, but with one call grows no more than so many times."""
STAY_S, STAY_REQUESTS = 5.0, 30.0
"""Growth stops near the rate that was refused, the first time; then twice as long, and so on. Where the rate
is less certain than `SURE`, shorter in proportion."""
LONGEST_STAY = 8
LEAST_USED = 0.5
"""Of a rate; where less was called for, that nothing was refused says nothing about more."""
SEARCHED_BELOW = 0.5

REFUSED_SOON_S, FIRST_TRY_S = 0.05, 0.1
MOST_TELLING_S, TELLING = 0.55, 1.05
"""The first try waits up to so long, to tell whether it was a bucket, and a little longer than it must."""
REFUSED_WITHIN = 3.0
"""A try that was not refused for so many times as long as refusals take to come is taken to be served."""
SOONEST, LATEST = 1.0, 5.0
"""Next a try goes out when a window of a usual length would be over, between so many times as long from now
as nothing was served; soon after the first, and where there is none, after twice as long."""
ROUNDED_S = 1.0
"""Up to so much may be added to when calls are welcome again, because it is told in whole seconds …"""
DATED_S = 2.0
"""… or by a date in whole seconds, of which the present one is cut off."""
LATE_S = 0.1
"""The first calls arrive late, for they open connections: so much later is a window surely over."""
ROUNDING_S = 1e-6
"""Of instants that are sums."""
RARE_S = (2.0, 5.0, 15.0, 30.0)
"""Lengths in which few providers count: that one is over just then may be chance."""
ASKED_AGAIN = 4
"""So often it is asked at every refusal what explains them, then so often at every second, and so on."""
LEAST_LENGTH_S = 1.0
"""Calls that flow evenly keep within shorter windows too."""
MOST_LATEST = 32
MOST_TRIES = 32
"""Calls after a window was found until they come as fast as they can."""
GENTLY, GENTLY_FOR_S, GENTLY_FOR = 2.5, 3.0, 2.0
"""Times its rate, what fits into a window goes out at first, for so long and so many of its lengths: if it is
none after all, few are under way."""
NEARLY = 1.2
"""Times what a window held when it was full, at most, was ever served within its length."""
LEAST_BLOCKED = 0.25
"""Of a window, for which nothing is served when it is full."""

FILL_PER_S, FILL_GAP_S = 125.0, 0.03
"""The first time that calls are served again after a try was refused, so many follow, the second so long
after the first: fewer would not fill a window of a second, of more several would be refused at once."""
FILLS_FOR_S = 2.0
"""Only after so long they come faster still."""
MOST_LOST, NEAR_S = 0.17, 1.5
"""Of a run, while nothing is served: how soon it is asked again, if the end of a usual window is not near."""
LEAST_FILLED = 3
"""Fewer calls than that were a bucket's, which had flowed in."""

LONG_S = 1.0
"""What tells that calls are welcome again only after so long, besides what rounding may add, tells of a
window."""
FULL = 0.5
"""Of what a window held when it was full: what was served in the next one, at least, if it is one."""

DEEPEST_S = 60.0
"""No bucket is deeper, in seconds of its rate: one that has served much, and not one call more for long, is a
window."""


@dataclass(frozen=True, slots=True)
class Full:
    """A window that was full, until a moment ago."""

    length_s: float
    began_s: float
    """What was sent since has filled it."""
    ends_s: float | None
    """When it ends for all at once; `None` where that is not known."""
    sent: History


@dataclass(slots=True)
class LearntRate:
    """Requests a second that are tried where the provider refuses and states no limit."""

    per_s: float
    empty_at_s: float
    """When it last had nothing left."""
    given_per_s: float | None = None
    """What it gives, as far as is known …"""
    least_per_s: float = 0.0
    most_per_s: float = 1e9
    """… and between which that is."""
    is_measured: bool = False
    """Whether it was once measured so that nothing can have overflowed meanwhile."""
    admitted: int = 0
    """Since it last had nothing left, and not refused …"""
    counted_from_s: float = 0.0
    """… of those that were sent later than this."""
    stepped_at_s: float = 0.0
    admitted_then: int = 0
    stay: int = 1
    """How often as long as the first time growth stops near the rate that was refused."""
    beyond: int = 0
    """Steps beyond that rate: each is larger than the one before."""
    best_per_s: float = 0.0
    """The most that it gave; it fades with every refusal."""
    below: float = 0.0
    """Refusals below the rate that was refused, less half of the others: many are not about the rate."""
    is_suspicion: bool = False
    """Whether nothing but single refusals speaks for it."""
    is_settled: bool = False
    known_at_s: float = 0.0
    """When the last refusal was known: those of calls sent before tell nothing new."""
    blocked_at_s: float = 0.0
    """Since when nothing is served, while calls try."""
    try_at_s: float | None = None
    """When the next call may try whether anything is served again."""
    out_at_s: float | None = None
    """When a call went out to try whose answer is still to come."""
    refused_try_s: float = 0.0
    """When the last try went out that was refused."""
    refusal_takes_s: float = REFUSED_SOON_S / REFUSED_WITHIN
    latest_s: list[float] = field(default_factory=list)
    """When the latest calls were sent, or will be."""
    tries: int | None = None
    """Calls since a window was found: each follows sooner than the one before."""
    more_until_s: float = 0.0
    """Until when calls try whether a window holds more than was told …"""
    more_from_s: float | None = None
    """… and since when."""
    welcome_s: float | None = None
    """Where it was told: when a window was over that was full …"""
    resumed_at_s: float = 0.0
    """… and when calls were served again after the one before."""
    unexplained: int = 0
    """Refusals since it was asked last what explains them …"""
    asked_in_vain: int = 0
    """… and how often that has told nothing new."""
    gently_until_s: float = 0.0
    """Until when it may show that the explanation is wrong."""
    is_filling: bool = False
    has_filled: bool = False
    aimed_s: float = 0.0
    """When a window of a usual length would be over, where it is asked before."""
    refused_before: int = 0
    """Calls, until nothing was served any more and since."""
    history_began_s: float = 0.0
    burst: float = 0.0
    """Calls that were served before anything was refused …"""
    burst_s: float = 0.0
    """… and within how long: a bucket holds at least what did not flow in meanwhile."""
    suspected_share: float = 0.0
    """Of calls that were refused when it was suspected."""
    history: History = field(default_factory=History)
    """Calls since there was last nothing left."""
    past: History = field(default_factory=History)
    """Calls before."""
    unheld: dict[str, History] = field(default_factory=dict)
    """What each process sent before any of this was known."""
    trace: Trace = field(default_factory=Trace)
    """All of it, call by call, for what explains it."""

    @classmethod
    def suspected(cls, per_s: float, share: float, unheld: dict[str, History], now_s: float) -> LearntRate:
        """Single refusals, of that share: a little less is tried, to see whether they become fewer."""
        rate = cls(SUSPECTED_SHARE * per_s, now_s, per_s, per_s, per_s, is_suspicion=True, unheld=unheld)
        rate.suspected_share = share
        rate.stepped_at_s = rate.known_at_s = rate.counted_from_s = now_s
        return rate

    @classmethod
    def blocked(
        cls, unheld: dict[str, History], retry_after_s: float, now_s: float, refused: int = 0
    ) -> LearntRate:
        """Nothing is served any more: what was sent until then, and after how long calls are welcome."""
        rate = cls(1.0 / REFUSED_SOON_S, now_s, known_at_s=now_s, counted_from_s=now_s, unheld=unheld)
        rate.refused_before = refused
        first = together(unheld.values())
        rate.burst, rate.burst_s = first.sum_after(-math.inf), now_s - first.began_s
        rate._block(now_s)
        rate._try_again(retry_after_s, now_s)
        return rate

    def is_confirmed(self) -> bool:
        """Whether nothing was refused until more was tried than is suspected to be too much, or for long."""
        if self.given_per_s is None or self.below:
            return False
        return self.per_s > self.given_per_s or self.admitted * self.suspected_share >= MOST_EXPECTED

    def confirm(self) -> None:
        """It is about pace, and nothing else is known yet: what was suspected was not measured."""
        if self.is_suspicion:
            self.is_suspicion = False
            self.least_per_s, self.most_per_s = self.least_per_s / UNMEASURED, self.most_per_s * UNMEASURED

    # -- sending

    def earliest_s(self) -> float:
        if self.out_at_s is not None:
            return self.out_at_s + self._refused_within_s()
        if self.tries is not None and self.latest_s:
            first_gap_s = FILL_GAP_S if self.given_per_s is None else self._refused_within_s()
            return self.latest_s[-1] + first_gap_s / self.tries
        if self.latest_s and self.latest_s[-1] < self.gently_until_s:
            return self.latest_s[-1] + 1.0 / max(GENTLY * self.per_s, FILL_PER_S)
        return self.try_at_s or 0.0

    def note_sent(self, at_s: float) -> None:
        self.admitted += 1
        self.history.add(1, at_s)
        self.trace.add(at_s)
        self.latest_s = [*self.latest_s[1 - MOST_LATEST :], at_s]
        if self.tries is not None:
            self.tries = self.tries + 1 if self.tries < MOST_TRIES else None
        if self.try_at_s is not None:
            self.out_at_s = self.out_at_s or at_s
        elif not self.is_settled:
            self._grow(at_s)

    def note_unsent(self, at_s: float) -> None:
        """It was refused, or has not gone."""
        if not self.trace.take_back(at_s) and BOOKED in self.unheld:
            self.unheld[BOOKED].take_back(1, at_s)
        if at_s > self.counted_from_s:
            self.admitted = max(0, self.admitted - 1)
        if at_s in self.latest_s:
            self.latest_s.remove(at_s)
        (self.history if at_s > self.history_began_s else self.past).take_back(1, at_s)
        if self.out_at_s == at_s:
            self.out_at_s = None

    def _sent_after(self, instant_s: float) -> int:
        """Calls of which nobody knows yet whether they are refused."""
        return sum(at_s > instant_s for at_s in self.latest_s)

    def _refused_within_s(self) -> float:
        return max(REFUSED_SOON_S, REFUSED_WITHIN * self.refusal_takes_s)

    # -- refusals

    def refused(self, sent_at_s: float, retry_after_s: float, now_s: float) -> None:
        """The first refusal of an episode."""
        self.refusal_takes_s = min(max(now_s - sent_at_s, 0.5 * self.refusal_takes_s), 1.0)
        self.known_at_s = now_s
        if self.try_at_s is not None:
            self.refused_try_s, self.out_at_s = sent_at_s, None
            self.refused_before += 1
            self._try_again(retry_after_s, now_s)
            return
        served = max(0, self.admitted - self._sent_after(sent_at_s))
        passed_s = max(now_s - self.empty_at_s, 0.05)
        uncertain = 1.0 / max(served, 0.5) + SHORTEST_S / passed_s
        if _soonest_s(retry_after_s) >= max(LONG_S, 2 * passed_s / max(served, 1)):
            self._block(now_s)
            self._try_again(retry_after_s, now_s)
        elif uncertain <= MOST_UNCERTAIN:
            filled = self._sent_since(self.resumed_at_s) - self._sent_after(sent_at_s)
            if self.is_filling and filled < LEAST_FILLED:  # so little is a bucket's, which has flowed in
                self.per_s = min(self.per_s, (served + 2) / passed_s)
            self.is_filling = False
            self._measure(served, passed_s, uncertain)
            self.admitted -= served
            self.counted_from_s = sent_at_s
            self.empty_at_s = self.stepped_at_s = now_s
            self._begin_history(now_s)
            self.admitted_then = self.beyond = 0
        else:
            self._lower(served, passed_s)
            self._block(now_s)
            self._try_again(retry_after_s, now_s)

    def _measure(self, served: int, passed_s: float, uncertain: float) -> None:
        """What was served since it last had nothing left is its rate, or less than that."""
        before, given = self.given_per_s, min(self.per_s, served / passed_s)
        least_per_s, most_per_s = given / (1 + uncertain), given * (1 + uncertain)
        if before is not None:
            is_below = self.per_s <= max(BELOW_SHARE * self.best_per_s, self.least_per_s) and served < MANY
            self.below = max(0.0, self.below + (1.0 if is_below else -0.5))
        if not self._may_have_overflowed(given**GIVEN_WEIGHT * self.per_s ** (1 - GIVEN_WEIGHT)):
            likely_per_s = self._narrow(least_per_s, given, most_per_s)
            self.is_measured = self.is_measured or uncertain <= WELL_MEASURED
        else:  # it may be as much as was refused
            likely_per_s = self._narrow(
                least_per_s, before if self.is_measured else None, max(given, self.per_s)
            )
        is_near = before is not None and likely_per_s > 0.9 * before
        self.stay = min(2 * self.stay, LONGEST_STAY) if is_near else 1
        self.best_per_s *= FADES
        if served >= LEAST_GOOD:
            self.best_per_s = max(given, self.best_per_s)
        self.given_per_s, self.per_s = likely_per_s, RESUMED_SHARE * likely_per_s

    def _narrow(self, least_per_s: float, likely_per_s: float | None, most_per_s: float) -> float:
        """The rate is between these, and where it was before, unless it has changed."""
        if least_per_s <= self.most_per_s and self.least_per_s <= most_per_s:
            least_per_s, most_per_s = max(least_per_s, self.least_per_s), min(most_per_s, self.most_per_s)
        else:
            self.is_measured = False
        self.least_per_s, self.most_per_s = least_per_s, most_per_s
        return min(max(likely_per_s or math.sqrt(least_per_s * most_per_s), least_per_s), most_per_s)

    def _uncertain(self) -> float:
        """The share by which the rate may be another."""
        return max(math.sqrt(self.most_per_s / self.least_per_s) - 1, LEAST_UNCERTAIN)

    def _may_have_overflowed(self, per_s: float) -> bool:
        """Whether, at that rate, more came in between than the bucket holds for certain."""
        holds_s = max(SHORTEST_S, SHALLOWEST / per_s, self.burst / per_s - self.burst_s)
        sent = 0.0
        for last_s, amount in self.history.parts:
            sent += amount
            if last_s - self.empty_at_s - sent / per_s > holds_s:
                return True
        return False

    def _lower(self, served: int, passed_s: float) -> None:
        """Too few were served to measure by."""
        if passed_s > 1.0 / self.per_s:
            least = 0.5 * self.per_s if self.given_per_s is not None else 0.0
            self.per_s = min(self.per_s, max(1.1 * (served + 1) / passed_s, least))

    def doubt_window(self, window: Window, sent_at_s: float, now_s: float) -> bool:
        """Whether what was found out to be a window is none, by a refusal that nothing explains.

        One that comes soon, or while nothing has been served for longer than the window lasts.
        """
        is_soon = sent_at_s <= window.since_s + 2 * window.length_s
        if not is_soon and self.trace.blocked_s(now_s) <= window.length_s + window.slack_s:
            return False
        self.given_per_s, self.tries = None, None
        self.least_per_s, self.most_per_s = 0.0, 1e9
        self.per_s = (self.admitted + 1) / max(now_s - self.empty_at_s, 0.05)
        self.unsettle(now_s)
        return True

    # -- windows

    def tries_more(self, window: Window, at_s: float) -> bool:
        """Whether the next call goes out although a window is full that was found a moment ago.

        Few calls have filled it. Some may have come from processes that ended before anybody asked.
        """
        surely_full = window.most - 1  # the try that was served may count in it
        if at_s >= self.more_until_s or self._sent_since_served() < surely_full:
            return False
        self.more_from_s, self.tries = self.more_from_s or at_s, 1
        return True

    def refused_more(self, window: Window, sent_at_s: float, retry_after_s: float, now_s: float) -> bool:
        """Whether a refusal tells what a window holds that was found a moment ago."""
        if self._is_told_more(window, sent_at_s, retry_after_s, now_s):
            return True
        if self.more_from_s is None or not self.more_from_s <= sent_at_s < window.since_s + window.length_s:
            return False
        if self.more_until_s > now_s:
            window.most = max(window.most, self._sent_since_served() - self._sent_after(sent_at_s))
            self.settle(window.most / window.length_s)
            self.more_until_s, self.tries = 0.0, None
        return True

    def _is_told_more(self, window: Window, sent_at_s: float, retry_after_s: float, now_s: float) -> bool:
        """Whether a refusal tells when the window is over that began when calls were served again."""
        if self.welcome_s is None or sent_at_s <= self.known_at_s:
            return False
        served = self._sent_since_served() - self._sent_after(sent_at_s)
        is_long = window.ends_s is not None or _soonest_s(retry_after_s) >= LONG_S
        if not is_long or served < FULL * window.most:
            return False
        welcome_s, lasts_s = now_s + retry_after_s, now_s + retry_after_s - self.resumed_at_s
        self.known_at_s, self.welcome_s = now_s, None
        self.more_until_s, self.tries = 0.0, None
        window.most = served
        if window.ends_s is None and _is_as_long(lasts_s, window.length_s):
            window.fill(now_s)
        else:
            window.length_s = usual_length_s(lasts_s)
            window.forget_after(now_s)
            window.end_at(welcome_s, now_s)
        self.settle(window.most / window.length_s)
        return True

    def _sent_since_served(self) -> float:
        return self.history.sum_after(self.history_began_s)

    def _sent_since(self, instant_s: float) -> float:
        """From that instant on."""
        return together([self.past, self.history]).sum_after(instant_s - ROUNDING_S)

    def note_refused(self, sent_at_s: float) -> None:
        self.trace.refuse(sent_at_s)
        self.unexplained += 1

    def explain(
        self, window: Window | None, retry_after_s: float, now_s: float, *, sent_at_s: float = -math.inf
    ) -> Explained | None:
        """The window that explains what was served and refused; calls are held to it from now on.

        It is asked ever more seldom while there is none: what is refused by chance has no explanation.
        """
        if self.is_suspicion or self.unexplained < self.asked_in_vain / ASKED_AGAIN:
            return None
        found = explained(
            self.trace,
            now_s,
            told=_told_between(retry_after_s, now_s),
            unanswered_s=self._refused_within_s(),
            tried_s=window.length_s if window is not None and sent_at_s > self.known_at_s else 0.0,
        )
        self.unexplained, self.asked_in_vain = 0, self.asked_in_vain + 1
        if found is None or (window is not None and found.is_as(window)):
            return found
        self.asked_in_vain = 0
        self.settle(found.most / found.length_s)
        self._begin_history(now_s)
        self.known_at_s, self.gently_until_s = now_s, now_s + max(GENTLY_FOR_S, GENTLY_FOR * found.length_s)
        self.try_at_s = self.out_at_s = self.more_from_s = self.welcome_s = None
        self.tries, self.is_filling, self.more_until_s = None, False, 0.0
        return found

    # -- while nothing is served

    def _block(self, now_s: float) -> None:
        self.blocked_at_s = self.refused_try_s = now_s
        self.welcome_s = self.tries = None
        self.aimed_s = self.gently_until_s = 0.0
        self._begin_history(now_s)

    def _begin_history(self, now_s: float) -> None:
        self.past, self.history = together([self.past, self.history]), History()
        self.history_began_s = now_s

    def _try_again(self, retry_after_s: float, now_s: float) -> None:
        is_whole = float(retry_after_s).is_integer()
        if retry_after_s > (ROUNDED_S if is_whole else 0.0):
            latest_s, soonest_s = now_s + retry_after_s, now_s + _soonest_s(retry_after_s)
            if self.welcome_s is not None or soonest_s >= now_s + LONG_S:
                self.welcome_s = latest_s
            self.refused_try_s = soonest_s - LATE_S
            self.try_at_s = min(self._end_after_s(soonest_s), latest_s)
        elif self.welcome_s is not None and self.welcome_s > now_s:
            self.try_at_s = self.welcome_s
        elif self.blocked_at_s == now_s:
            self.try_at_s = now_s + max(FIRST_TRY_S, self._refused_within_s(), self._telling_s())
        else:
            blocked_s = now_s - self.blocked_at_s
            end_s = self._end_after_s(now_s + SOONEST * blocked_s)
            is_soon = blocked_s > SHORTEST_S and end_s < now_s + LATEST * blocked_s
            is_end = is_soon or (self._is_no_bucket() and end_s < math.inf)
            if self.aimed_s > now_s:
                end_s, is_end = self.aimed_s, True
            self.try_at_s = self._asked_before(end_s, now_s) if is_end else now_s + 2 * blocked_s

    def _asked_before(self, end_s: float, now_s: float) -> float:
        """Before the end of the next window of a usual length, where it may have begun before us."""
        if not self._is_no_bucket():
            return end_s
        began_s = end_s - min(length_s for length_s, each_s in self._ends() if each_s == end_s)
        to_come = sum(each_s > end_s for _, each_s in self._ends())
        most = MOST_REFUSED * max(1, sum(map(bool, self.unheld)))
        left = int(max(most, SHARE_REFUSED * self.burst)) - self.refused_before - to_come
        self.aimed_s = end_s
        asks = asked_after_s(DEEPEST_S, now_s - began_s, max(0, left), MOST_LOST)
        return began_s + asks[0] if asks and began_s + asks[0] < end_s - NEAR_S else end_s

    def _end_after_s(self, instant_s: float) -> float:
        """When the next window of a usual length would be over."""
        return min((end_s for _, end_s in self._ends() if end_s >= instant_s), default=math.inf)

    def _ends(self) -> list[tuple[float, float]]:
        """Lengths that windows may have, and when what was sent first would be out of each."""
        sent, ends = self._sent(), []
        for length_s in USUAL_S:
            first_s = sent.first_after(self.blocked_at_s - length_s)
            if first_s is not None:
                ends.append((length_s, _over_s(first_s, length_s)))
        return ends

    def _is_no_bucket(self) -> bool:
        """Whether nothing came for longer than the deepest bucket takes that held so much."""
        return self.refused_try_s - self.blocked_at_s > self._next_within_s()

    def _next_within_s(self) -> float:
        """How long the deepest bucket that held what was sent takes for one call more."""
        return DEEPEST_S / max(1.0, self._sent().sum_after(self.blocked_at_s - DEEPEST_S))

    def _telling_s(self) -> float:
        """After how long a first try tells whether a bucket held so much, where that is soon."""
        if self.given_per_s is not None:
            return 0.0
        telling_s = TELLING * self._next_within_s()
        return telling_s if telling_s <= MOST_TELLING_S else 0.0

    def _sent(self) -> History:
        return together([*self.unheld.values(), self.past])

    def accepted(self, now_s: float) -> float | None:
        """When a try went out that was served, as far as can be told."""
        if self.out_at_s is None or now_s < self.out_at_s + self._refused_within_s() - ROUNDING_S:
            return None
        return self.out_at_s

    def resume(self, served_try_s: float) -> Full | None:
        """Calls are served again: the window that was full, if it was one."""
        blocked_s, sent = served_try_s - self.blocked_at_s, self._sent()
        self.trace.add_unheld(self.unheld.values())
        told = self._told(sent)
        is_no_bucket = self._is_no_bucket()
        lengths = [
            length_s
            for length_s, end_s in self._ends()
            if length_s not in RARE_S
            and self.blocked_at_s < self.refused_try_s < end_s <= served_try_s + LATE_S
            and (is_no_bucket or blocked_s >= LEAST_BLOCKED * length_s)
            and length_s >= LEAST_LENGTH_S
            and sent.most_within(length_s) <= NEARLY * sent.sum_after(self.blocked_at_s - length_s)
        ]
        self.try_at_s = self.out_at_s = None
        self.more_until_s, self.more_from_s = 0.0, None
        self.past, self.unheld = sent, {}
        was_refused = self.refused_try_s > self.blocked_at_s
        if was_refused and not self.has_filled and told is None and not lengths:
            self.per_s, self.tries = max(FILL_PER_S, self.burst / max(self.burst_s, 1.0)), 1
            self.has_filled = self.is_filling = True
        elif self.given_per_s is None:
            self.per_s = min(self.per_s, max(LEAST_PER_S, 1.0 / max(blocked_s, 0.01)))
        self.stepped_at_s, self.admitted_then = served_try_s, self.admitted
        self.resumed_at_s = served_try_s
        if told is None and not lengths:
            return None
        self.tries = 1
        return told or Full(lengths[0], self.blocked_at_s - lengths[0], None, sent)

    def _told(self, sent: History) -> Full | None:
        """The window that was full, where it was told when it is over."""
        first_s = sent.first_after(self.blocked_at_s - DEEPEST_S)
        if self.welcome_s is None or first_s is None:
            return None
        for began_s in (self.resumed_at_s, first_s):
            lasted_s = self.welcome_s - began_s
            for length_s in USUAL_S:
                if length_s > LONG_S and _is_as_long(lasted_s, length_s):
                    return Full(length_s, began_s - ROUNDING_S, None, sent)
        return Full(DEEPEST_S, first_s - ROUNDING_S, self.welcome_s, sent)  # the next refusal tells how long

    def settle(self, per_s: float) -> None:
        """It is known what comes back when: nothing more is tried for a while."""
        self.per_s = self.given_per_s = self.least_per_s = self.most_per_s = per_s
        self.is_settled = True

    def unsettle(self, now_s: float) -> None:
        """That was long ago: more is tried again."""
        self.is_settled = False
        self.stepped_at_s, self.admitted_then = now_s, self.admitted

    # -- growth

    def _grow(self, now_s: float) -> None:
        if self.is_filling and now_s < self.resumed_at_s + FILLS_FOR_S:
            return
        passed_s = now_s - self.stepped_at_s
        if self.given_per_s is None or self.per_s < SEARCHED_BELOW * self.given_per_s:
            if passed_s * self.per_s * LEAST_USED <= 1.0:
                self.per_s *= min(2 ** (max(0.0, passed_s) / SEARCH_DOUBLES_S), MOST_AT_ONCE)
            self.stepped_at_s, self.admitted_then = max(now_s, self.stepped_at_s), self.admitted
            return
        if passed_s < self._step_s(self.given_per_s):
            return
        used = (self.admitted - self.admitted_then) / (self.per_s * passed_s)
        self.stepped_at_s, self.admitted_then = now_s, self.admitted
        if used >= LEAST_USED:
            self.per_s = self._grown(self.given_per_s)

    def _step_s(self, near_per_s: float) -> float:
        step_s = max(STEP_S, STEP_GAIN / self._growth() / self.per_s)
        if near_per_s > self.per_s * 1.0001 or self.beyond:
            return step_s
        sure = SURE / self._uncertain()
        return max(step_s, self.stay * STAY_S * min(1.0, sure), self.stay * STAY_REQUESTS * sure / self.per_s)

    def _growth(self) -> float:
        return min(self._uncertain(), MOST_GROWTH)

    def _grown(self, near_per_s: float) -> float:
        if self.per_s < near_per_s * 0.9999:
            return min(self.per_s * (1 + self._growth()), near_per_s)
        self.beyond += 1
        return self.per_s * (1 + min(self._growth() * self.beyond, MOST_GROWTH))


def _over_s(began_s: float, length_s: float) -> float:
    """When a window is surely over that began with a call that was sent then."""
    return began_s + length_s + min(LATE_S, MOST_SLACK * length_s)


def _soonest_s(retry_after_s: float) -> float:
    """From when on calls may be welcome that are told to come after so long."""
    return retry_after_s - (DATED_S if float(retry_after_s).is_integer() else 0.0)


def _told_between(retry_after_s: float, now_s: float) -> tuple[float, float] | None:
    """When calls are welcome again, as far as it is told: at the earliest and at the latest."""
    if retry_after_s <= ROUNDED_S and float(retry_after_s).is_integer():
        return None
    return now_s + _soonest_s(retry_after_s) - LATE_S, now_s + retry_after_s + LATE_S


def _is_as_long(lasted_s: float, length_s: float) -> bool:
    """Whether a window of that length may have lasted so long, as far as was told."""
    return LEAST_OF * length_s <= lasted_s <= length_s + DATED_S + LATE_S
