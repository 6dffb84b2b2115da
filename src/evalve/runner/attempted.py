"""What has happened to one attempt so far: its tries, its times, its scores or its failure."""

from __future__ import annotations

import sysconfig
import time
import traceback
from collections.abc import Mapping
from typing import Any

from evalve.clock import utc_text
from evalve.contracts import TRACEBACK_ELSEWHERE, CallLog
from evalve.errors import EvalveError, LenderError
from evalve.jsontext import RAISED_BY_VALUES
from evalve.records import Failure, Outcome, Try
from evalve.runner.failing import failure_class_of, is_skip, skip_reason
from evalve.runner.retries import Tried
from evalve.runner.scoring import Scored, ScoreWriter, to_scored
from evalve.runner.surroundings import AttemptSurroundings
from evalve.traces import Trace


class Attempted:
    """What has happened so far. What most attempts never use has its beginning in the class."""

    started_at = ""
    status: Outcome = "failed"
    scored: Scored | None = None
    scores_json = "[]"
    failure: Failure | None = None
    error: BaseException | None = None
    tries = 0
    infrastructure_failures = 0
    working_s = 0.0
    worked_before_s = 0.0
    """In an earlier run, which got the answer that only lacks scores."""
    waited_s = 0.0
    may_retry = True
    try_is_open = False
    lent: dict[str, Any] | None = None
    answer: Any = None
    """What was answered, where the function says so (`SampleContext.answer`)."""
    lost_calls: Mapping[Any, Any] = {}
    """Of the last try: calls that failed for good."""
    _still_before_s = 0.0
    _try_began_s = 0.0
    _call_began_s = 0.0
    _try_started_at = ""

    def __init__(self, now_s: float, surroundings: AttemptSurroundings, trace: Trace | None) -> None:
        self.surroundings = surroundings
        self.trace = trace
        self.first_started_s = self.ended_s = now_s
        self.history: list[Try] = []
        self.calls = CallLog()

    def begin_try(self, now_s: float) -> None:
        self.tries += 1
        if self.tries > 1:
            self.scored = self.failure = self.error = None
            self.status, self.scores_json = "failed", "[]"
        self.try_is_open = True
        self._try_began_s = self.ended_s = now_s
        self.begin_call(now_s)
        self._try_started_at = utc_text(time.time())
        if self.tries == 1:
            self.started_at = self._try_started_at

    def begin_call(self, now_s: float) -> None:
        """The function starts: with its try, or later, when the try has been lent what it needs."""
        self._call_began_s = now_s
        self._still_before_s = self.surroundings.stood_still_s

    def end_call(self, now_s: float) -> None:
        """Only the time in which the function did something is work."""
        self.ended_s = now_s
        self.working_s = self.worked_s(now_s)

    def worked_s(self, now_s: float) -> float:
        """How long it has worked, the call that is under way included."""
        still_s = self.surroundings.stood_still_s - self._still_before_s
        return self.working_s + max(0.0, now_s - self._call_began_s - still_s)

    def take(self, value: Any, writer: ScoreWriter) -> None:
        """Accept what the function returned, or what a retry policy put in its place."""
        try:
            self.scored = to_scored(value)
            self.scores_json = writer.to_json(self.scored.scores)
            self.status, self.failure = "done", None
        except (
            EvalveError
        ) as error:  # nothing that is a score, or one that names a metric that does not exist
            self.status, self.scored, self.scores_json = "failed", None, "[]"
            self.failure = Failure(
                type(error).__name__, str(error), failure_class=failure_class_of(error, made_calls=False)
            )

    def fail(self, error: BaseException) -> None:
        self.scored, self.scores_json, self.error = None, "[]", error
        if is_skip(error):
            self.status, self.may_retry = "skipped", False
            self.failure = Failure("Skipped", _message(skip_reason(error)))
            return
        self.status = "failed"
        raised = error.__cause__ if isinstance(error, LenderError) and error.__cause__ is not None else error
        text = _callers_of_ours(raised) if isinstance(raised, EvalveError) else _traceback(raised)
        made_calls = bool(self.calls.requests or self.calls.cached)
        failure_class = failure_class_of(error, made_calls=made_calls)
        self.infrastructure_failures += failure_class == "infrastructure"
        self.failure = Failure(type(error).__name__, _message(error), text, failure_class)

    @property
    def lacks_scores(self) -> bool:
        return self.scored is not None and any(score.value is None for score in self.scored.scores)

    @property
    def keeps_answer(self) -> bool:
        """Whether the next try scores what was answered: the failure is neither the agent's nor about it.

        What was answered in a state that somebody else has changed is not to be trusted."""
        failure = self.failure
        return (
            self.answer is not None
            and failure is not None
            and failure.failure_class not in ("answer", "agent")
            and failure.kind != LenderError.__name__
        )

    def give_up(self) -> None:
        """The run stops before the next try: the last error stands, and a later run tries again."""
        self.status, self.scored, self.scores_json = "failed", None, "[]"
        if self.failure is None:
            self.failure = Failure(
                "Interrupted", "the run was stopped before the next try", failure_class="infrastructure"
            )

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
    except RAISED_BY_VALUES as broken:  # a broken __str__ of a person's class must not lose the record
        return f"its message cannot be read: __str__ raised {type(broken).__name__}"


def _traceback(error: BaseException) -> str:
    elsewhere: str | None = getattr(error, TRACEBACK_ELSEWHERE, None)
    return elsewhere or "".join(traceback.format_exception(_below_the_runner(error)))


def _callers_of_ours(error: BaseException) -> str:
    """The lines of the person's that led to an error of ours: they say where; our frames say nothing more."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _is_machinery(frame.filename)]
    if not theirs:
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(theirs)]
    return "".join([*lines, *traceback.format_exception_only(error)])


def _is_machinery(filename: str) -> bool:
    return filename.startswith((_PACKAGE, _STANDARD_LIBRARY, "<")) or "/site-packages/" in filename


def _below_the_runner(error: BaseException) -> BaseException:
    """The same error with a traceback that starts in the person's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return error.with_traceback(trace)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OUR_FOLDERS) or "/asyncio/" in filename


_PACKAGE = __file__.rpartition("/runner/")[0]
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_OUR_FOLDERS = (f"{_PACKAGE}/runner/", f"{_PACKAGE}/engines/", f"{_PACKAGE.rpartition('/')[0]}/doteval/")
