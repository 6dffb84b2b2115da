"""One call of a sample whose calls go in batches: what it waits for, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from evalve.contracts import SampleContext
from evalve.gate.accounts import Account
from evalve.gate.batches.asked import Asked, Delivery
from evalve.gate.batches.runs import RunBatches
from evalve.gate.batches.shapes import PRICE_SHARE
from evalve.gate.estimates import Estimates
from evalve.gate.messages import Call, Dialect, Problem, Reply, Request, SendError
from evalve.gate.metering import Meter
from evalve.gate.outcomes import Outcome


class BatchedCall:
    """It is answered from the cache, where the batch's answers are before anybody hears of them."""

    __slots__ = ("_account", "_asked", "_batches", "_estimates", "_meter", "_sample")

    def __init__(
        self,
        asked: Asked,
        batches: RunBatches,
        sample: SampleContext,
        account: Account,
        meter: Meter,
        estimates: Estimates,
    ) -> None:
        self._asked = asked
        self._batches = batches
        self._sample = sample
        self._account = account
        self._meter = meter
        self._estimates = estimates

    def may_wait(self) -> bool:
        """Whether a batch takes it; why not, is told."""
        return self._batches.takes(self._asked.call, self._asked.request)

    def delivered(self) -> Awaitable[Delivery]:
        return self._batches.answer(self._asked)

    def found(self, cached: Reply) -> Outcome | None:
        """An answer for which the sample has waited in an earlier run; `None` where it is anybody's."""
        asked = self._asked
        found = self._batches.found(asked.attempt, asked.place, asked.key)
        if not found:
            return None
        return self._paid(replace(cached, cached=False), is_counted=found == "counted")

    def outcome(self, came: Delivery, answer: Reply | None) -> Outcome | None:
        """`None` where the call is to be made by itself after all; `answer` is what the cache has."""
        if came.fate == "cancelled":
            told = f"the request was cancelled with its batch {came.batch}; run again to ask anew"
            # somebody has ended it there: no mistake in what was asked
            return Outcome(error=SendError(told, reached=True), problem=Problem("server", told))
        if came.fate == "failed" and came.reply is not None:
            reply = came.reply
            problem = reply.problem = self._asked.dialect.problem(reply, self._asked.call) or _refused(came)
            self._meter.sent(self._account, self._sample, 0.0)
            return Outcome(reply, problem=problem)
        if came.fate != "answer" or answer is None:
            return None  # what was collected is gone from the cache, or there is nothing: it goes live
        return self._paid(answer)

    def _paid(self, answer: Reply, *, is_counted: bool = False) -> Outcome:
        """What it cost is counted by the run that has it first, and by the sample that is recorded with it.

        These are not always one: a sample may be stopped, and replayed in a later run.
        """
        asked, sample = self._asked, self._sample
        account = self._account.counted_before() if is_counted else self._account
        self._batches.given(asked.key)
        sample.when_recorded(partial(self._batches.was_recorded, asked.key))
        self._meter.sent(account, sample, 0.0)
        usage = asked.dialect.usage(asked.call, answer.body)
        cost_usd = None
        if usage is None:
            self._meter.used_unknown(account, sample)
        else:
            self._estimates.observe(asked.call, usage, sample.evaluation, None)
            cost_usd = self._meter.used(account, sample, asked.call, usage, price_share=PRICE_SHARE)
        return Outcome(answer, usage=usage, cost_usd=cost_usd)


def asked_by(sample: SampleContext, key: str, request: Request, call: Call, dialect: Dialect) -> Asked:
    """With whose it is, and which of its calls: the same when the sample is replayed."""
    names = (sample.experiment, sample.evaluation_key, sample.sample_id, str(sample.repeat))
    attempt = hashlib.blake2b("\x1f".join(names).encode(errors="replace"), digest_size=12).hexdigest()
    place = sum(sample.calls.ordinals.values()) + len(sample.calls.ordinals)
    name = sample.experiment or sample.evaluation
    return Asked(key, request, call, dialect, attempt, place, name)


def _refused(came: Delivery) -> Problem:
    assert came.reply is not None
    told = came.reply.body.decode(errors="replace")
    return Problem("permanent", f"it was refused in {came.batch}: {told}", came.reply.status)
