"""What evalve knows about a sample: the values that travel between its rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Outcome = Literal["done", "failed", "skipped"]
"""`skipped`: the function called `pytest.skip`, which is neither a result nor a failure."""

Status = Outcome | Literal["answered"]
"""`answered`: there is an answer, and no score yet. It counts as nothing; where its run was ended, the next
one only scores it."""

FailureClass = Literal["code", "answer", "agent", "provider", "timeout", "infrastructure"]
"""Whose a failure is: the evaluation's own code, what the model answered, the agent under test, the
provider, the deadline, or what evalve and the machine lend."""

FAILURE_CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)


def classes_in_words(failures: Mapping[str, int]) -> str:
    """`2 provider, 1 timeout`, the most frequent first; `provider` where all are of one class."""
    # `list` first: the runner's thread may count while another one shows
    counted = sorted(((-count, name) for name, count in list(failures.items()) if count))
    if len(counted) == 1:
        return counted[0][1]
    return ", ".join(f"{-count} {name}" for count, name in counted)


def failed_in_words(failed: int, failures: Mapping[str, int]) -> str:
    """`3 failed (2 provider, 1 timeout)`."""
    classes = classes_in_words(failures)
    return f"{failed} failed ({classes})" if classes else f"{failed} failed"


UNSCORED = "unscored"
"""Under this key the metadata of a score without a value says why."""


MISS_COUNTS = "miss_counts"
"""Under this key the metadata of a score says how many things of each kind are wrong."""

GROUPED_BY = ("tool", "turn")
"""Under these keys the metadata of a score says what it is about: `show` has a table by each."""


class Score:
    """A named value from an evaluator; `metadata` is the caller's to fill."""

    __slots__ = ("metadata", "metrics", "name", "value")

    def __init__(
        self,
        name: str,
        value: Any,
        metrics: Any = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.value = value
        self.metrics = metrics
        self.metadata: dict[str, Any] = dict(metadata) if metadata else {}

    @classmethod
    def unscored(
        cls, name: str, reason: str, metrics: Any = (), metadata: Mapping[str, Any] | None = None
    ) -> Score:
        """A score without a value, where an evaluator cannot tell: it enters no metric, and is not wrong."""
        return cls(name, None, metrics, {**(metadata or {}), UNSCORED: reason})

    def __repr__(self) -> str:
        return f"Score({self.name!r}, {self.value!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Score):
            return NotImplemented
        return (self.name, self.value, self.metadata) == (other.name, other.value, other.metadata)

    __hash__ = None  # type: ignore[assignment]  # mutable


class Result:
    """What an evaluation function may return: scores, and optionally the prompt and the response."""

    __slots__ = ("error", "metadata", "prompt", "response", "scores")

    def __init__(
        self,
        *scores: Any,
        prompt: Any = None,
        response: Any = None,
        model_response: Any = None,
        error: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> None:
        # `scores=` arrives in `named`, because the positional ones already have that name
        more = named.pop("scores", None)
        if named:
            raise TypeError(f"Result() got unexpected keyword arguments: {', '.join(sorted(named))}")
        self.scores: list[Any] = [*scores]
        if isinstance(more, Mapping) or (more is not None and not isinstance(more, Iterable)):
            self.scores.append(more)
        elif more is not None:
            self.scores.extend(more)
        self.prompt = prompt
        self.response = response if response is not None else model_response
        self.error = error
        """Why there is nothing to score, in the function's own words: the sample has failed."""
        self.metadata: dict[str, Any] = dict(metadata) if metadata else {}
        """What is to be kept with each of its scores."""

    @property
    def model_response(self) -> Any:
        return self.response

    def __repr__(self) -> str:
        scores = ", ".join(map(repr, self.scores))
        return f"Result({scores}, prompt={self.prompt!r}, response={self.response!r})"


class AnswerOnly(Result):
    """A result that is meant to have no score: its response is scored later, or by people."""

    __slots__ = ()


@dataclass(slots=True)
class ToolCall:
    """A tool that a model called, or should call."""

    name: str
    arguments: Any = None
    """By name; the model's own text where that is not JSON. Expected ones, if `None`, are not compared."""
    id: str = ""
    unparsed: bool = False
    """The arguments are not JSON."""


@dataclass(slots=True)
class Sample:
    """One row of a dataset. Not frozen: one is made per row, and frozen ones cost three times as much."""

    id: str
    index: int
    values: dict[str, Any]
    """The columns that the function takes, by name."""
    row_json: str
    """The whole row, as it is stored."""
    row_hash: int | None = None
    """Of its content, where the row names its own id: only then can the one change without the other."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a sample broke. A failure is never a zero."""

    kind: str
    """The exception's class name."""
    message: str
    traceback: str = ""
    failure_class: FailureClass = "code"

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


@dataclass(frozen=True, slots=True)
class Try:
    """One call of the evaluation function for an attempt."""

    started_at: str
    wall_s: float
    error: str | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that an attempt left, kept once for all that have the same content."""

    hash: str
    """SHA-256 of the content, in hexadecimal digits."""
    size_bytes: int
    name: str
    """What its attempt calls it."""


@dataclass(slots=True)
class Record:
    """What is stored of one sample and repeat. Not frozen for the same reason as `Sample`."""

    experiment: str
    evaluation: str
    sample_id: str
    index: int
    repeat: int
    status: Status
    scores: list[Score]
    failure: Failure | None
    prompt: Any
    response: Any
    row: Any
    started_at: str
    wall_s: float
    """From the first start to the end, waiting included."""
    working_s: float
    """The time that the function ran, waiting between tries excluded."""
    tries: int
    history: list[Try] = field(default_factory=list)
    """Every try, those of earlier runs included; empty where the one try succeeded."""
    calls: dict[str, Any] | None = None
    """What its calls to models came to: requests, cached, tokens, cost_usd, waited_s; `None` without any."""
    lent: dict[str, Any] | None = None
    """What lenders noted about what they lent, by argument: the path of a kept workspace, for one."""
    id: int = 0
    """Of the record in its store; 0 where it comes from none."""

    @property
    def ok(self) -> bool:
        return self.status == "done"

    def score(self, name: str) -> Score:
        """The score of this name; which names there are, where it has none."""
        for score in self.scores:
            if score.name == name:
                return score
        names = ", ".join(score.name for score in self.scores) or "none"
        raise LookupError(
            f"{self.evaluation}: sample {self.sample_id} has no score {name!r}; its scores: {names}"
        )

    @property
    def error(self) -> str | None:
        """`ValueError: no digits`; `None` where the sample is done or was skipped."""
        return str(self.failure) if self.status == "failed" and self.failure else None

    @property
    def dataset_row(self) -> dict[str, Any]:
        """The row by column."""
        return self.row if isinstance(self.row, dict) else {}

    @property
    def item_id(self) -> int:
        """Where the row stands in the dataset."""
        return self.index

    @property
    def result(self) -> Result:
        """What the function returned, with all scores that came of it."""
        return Result(*self.scores, prompt=self.prompt, response=self.response, error=self.error)

    @property
    def model_response(self) -> Any:
        return self.response

    @property
    def failure_class(self) -> FailureClass | None:
        """Whose the failure is; `None` where the sample is done or was skipped."""
        return self.failure.failure_class if self.status == "failed" and self.failure else None
