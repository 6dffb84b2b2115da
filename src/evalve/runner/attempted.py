"""What has happened to one attempt so far: its tries, its times, its scores or its failure."""

from __future__ import annotations

import time
import traceback
from datetime import UTC, datetime
from typing import Any

from evalve.contracts import CallLog
from evalve.errors import EvalveError
from evalve.records import Failure, Try
from evalve.runner.retries import Tried
from evalve.runner.scoring import Scored, to_scored


class Attempted:
    """What has happened to one attempt so far."""

    __slots__ = (
        "_try_began_s",
        "_try_started_at",
        "_waited_before_s",
        "calls",
        "ended_s",
        "error",
        "failure",
        "first_started_s",
        "history",
        "may_retry",
        "scored",
        "started_at",
        "tries",
        "try_is_open",
        "waited_s",
        "working_s",
    )

    def __init__(self, now_s: float) -> None:
        self.first_started_s = self.ended_s = now_s
        self.started_at = ""
        self.scored: Scored | None = None
        self.failure: Failure | None = None
        self.error: BaseException | None = None
        self.history: list[Try] = []
        self.tries = 0
        self.working_s = 0.0
        self.waited_s = 0.0
        self.may_retry = True
        self.try_is_open = False
        self.calls = CallLog()
        self._waited_before_s = 0.0
        self._try_began_s = now_s
        self._try_started_at = ""

    def begin_try(self, now_s: float) -> None:
        self.tries += 1
        self.scored = self.failure = self.error = None
        self.try_is_open = True
        self._try_began_s = now_s
        self._waited_before_s = self.calls.waited_s
        self._try_started_at = utc_text(time.time())
        if self.tries == 1:
            self.started_at = self._try_started_at

    def end_try(self, now_s: float) -> None:
        self.ended_s = now_s
        waited_s = self.calls.waited_s - self._waited_before_s  # for limits, inside the function
        self.working_s += max(0.0, now_s - self._try_began_s - waited_s)

    def take(self, value: Any) -> None:
        """Accept what the function returned, or what a retry policy put in its place."""
        try:
            self.scored, self.failure = to_scored(value), None
        except EvalveError as error:
            self.scored, self.failure = None, Failure(type(error).__name__, str(error))

    def fail(self, error: BaseException) -> None:
        self.scored, self.error = None, error
        ours = isinstance(error, EvalveError)
        text = "" if ours else "".join(traceback.format_exception(_below_the_runner(error)))
        self.failure = Failure(type(error).__name__, _message(error), text)

    def give_up(self) -> None:
        """The run stops before the next try: the last error stands, and a later run tries again."""
        if self.failure is None:
            self.failure = Failure("Interrupted", "the run was stopped before the next try")

    def note_try(self, run_id: str, *, asked_again: bool = False) -> None:
        """Keep the try that just ended."""
        why = str(self.failure) if self.failure is not None else None
        if asked_again and why is None:
            why = "its result asked for another try"
        self.history.append(Try(self._try_started_at, self.ended_s - self._try_began_s, why, run_id))
        self.try_is_open = False

    def as_tried(self, value: Any) -> Tried:
        return Tried(self.tries, self.error, value, self.first_started_s, self.ended_s, self.waited_s)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # a broken __str__ of a person's class must not lose the record
        return f"its message cannot be read: __str__ raised {type(broken).__name__}"


def _below_the_runner(error: BaseException) -> BaseException:
    """The same error with a traceback that starts in the person's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return error.with_traceback(trace)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OUR_FOLDER) or "/asyncio/" in filename


_OUR_FOLDER = __file__.rpartition("/")[0]


def utc_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
