"""Every error that evalve raises on purpose.

EvalveError
├── DeclarationError      an evaluation or dataset is written wrongly: names file and line
├── OptionError           an option from the command line, environment or YAML has a bad value
├── DatasetError          rows cannot be read, or lack what the evaluation needs
├── CrossingError         something cannot be handed to a worker process: names the argument
├── ResultError           an evaluation function returned something that is not a score
├── SampleTimeout         a sample ran longer than its `timeout_s`
├── AnswerError           a model's answer cannot be used; raise it in an evaluation
├── AgentError            the agent under test gave no answer; raise it in an evaluation
├── ToolError             a tool of a conversation refuses: its agent is told why; raise it in a tool
├── InfrastructureError   what evalve or the machine provides broke, not what is evaluated: tried again
│   ├── LenderError       something could not be lent to an attempt, or not be taken back
│   │   └── LaneLost      what the samples of a lane leave to each other was lost: not tried again
│   └── WorkerDied        the process that ran the sample ended before it answered
├── StrategyError         a concurrency strategy broke its contract
├── StorageError          the store cannot be opened, read or written
│   ├── NotFound          no experiment of that name
│   └── Locked            another run holds the experiment
├── ExperimentChanged     the stored experiment was made by another function
└── ModelError            a call to a model got no usable answer
    ├── MissingKey        there is no API key to send it with
    ├── LocalUnavailable  the embedded model is not installed or does not start
    └── StreamBroken      an answer broke off in the middle; also a ConnectionError

KeyboardInterrupt
└── Interrupted           the person stopped the run; what was done is saved
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalve.records import FailureClass


class EvalveError(Exception):
    """Base of everything below; its message says what happened, to which thing, and what to do."""


class DeclarationError(EvalveError):
    """An evaluation or dataset is written wrongly."""


class OptionError(EvalveError):
    """An option has a value that it cannot have."""


class DatasetError(EvalveError):
    """Rows cannot be read, or lack what the evaluation needs."""


class CrossingError(EvalveError):
    """Something cannot be handed to a worker process."""


class ResultError(EvalveError):
    """An evaluation function returned something that is not a score."""


class SampleTimeout(EvalveError):
    """A sample ran longer than its `timeout_s`."""


class AnswerError(EvalveError):
    """A model's answer cannot be used: an evaluation raises it where no score would be true."""


class AgentError(EvalveError):
    """The agent under test gave no answer: an evaluation raises it where no score would be true.

    `failure_class` says whose that is: the agent's own, unless the provider behind it, a clock or the machine
    is to blame. `run` is what it came to so far, where evalve ran it.
    """

    def __init__(
        self, message: str = "", *, failure_class: FailureClass = "agent", run: object | None = None
    ) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.run = run


class ToolError(EvalveError):
    """A tool refuses a call: what it did is undone, and the agent is told the message."""


class InfrastructureError(EvalveError):
    """What evalve or the machine provides broke. The sample is tried again, three times in all."""


class ProcessDied(InfrastructureError):
    """The process that ran a sample died, more than once."""


class LenderError(InfrastructureError):
    """Something could not be lent to an attempt, or not be taken back."""


class LaneLost(LenderError):
    """What the samples of a lane leave to each other was lost: those that follow cannot begin. Final."""


class WorkerDied(InfrastructureError):
    """The process that ran the sample ended before it answered."""


class StrategyError(EvalveError):
    """A concurrency strategy broke its contract."""


class StorageError(EvalveError):
    """The store cannot be opened, read or written."""


class NotFound(StorageError):
    """No experiment of that name."""


class Locked(StorageError):
    """Another run holds the experiment."""


class ExperimentChanged(EvalveError):
    """The stored experiment was made by another function."""


class ModelError(EvalveError):
    """A call got no usable answer, and calling again now would not help.

    What was worth another try has been tried again by the gate, so this is final for the sample too.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "permanent",
        status: int | None = None,
        model: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.model = model


class MissingKey(ModelError):
    """A call must be sent, and there is no API key to send it with."""


class StreamBroken(ModelError, ConnectionError):
    """An answer broke off after its beginning was passed on.

    Only the sample can start over, so this one is a connection error for its retries.
    """


class LocalUnavailable(ModelError):
    """The embedded model is not installed or does not start."""


class Interrupted(KeyboardInterrupt):
    """The person stopped the run; what was done is saved. Passes `except Exception`, as Ctrl-C does."""
