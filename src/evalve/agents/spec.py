"""What an agent is, what it is asked and what it came to: the values of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from evalve.contracts import GatewayLease
from evalve.records import FailureClass, ToolCall

Argument = str | tuple[str, ...]
"""A text with `{placeholders}`, or several that are left out together where one has no value."""

Confinement = Literal["bubblewrap", "landlock", "none"]
"""What keeps an agent from reading and writing elsewhere."""

EndedBy = Literal["itself", "startup", "silence", "total", "asked", "memory"]
"""Why a process ended: by itself, because a clock ran out, because it was asked to, or for its memory."""


class Event(NamedTuple):
    """Something that an agent did, for the trace of its sample."""

    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the agent itself counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    requests: int = 0
    """Calls to its model, where it tells; 0 where it does not."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run has no answer that could be scored."""

    failure_class: FailureClass
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What an agent's output says, when it has been read to its end."""

    answer: str = ""
    has_ended: bool = True
    """Whether the agent said itself that it has ended, where its format has such an event."""
    turns: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    fault: Fault | None = None
    """What the output itself calls an error, also where the program ends as if nothing had happened."""


class Reader(Protocol):
    """Reads one run's standard output line by line. Pure: it keeps what it needs, and nothing else."""

    def line(self, text: str) -> Iterable[Event]: ...
    def reading(self) -> Reading: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended, and what it took."""

    exit_code: int | None
    """Negative for a signal, as Python writes it; `None` where it never started."""
    by: EndedBy = "itself"
    ran_s: float = 0.0
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    output_bytes: int = 0
    left_out_bytes: int = 0
    """Of the output, what was more than is kept."""
    survivors: int = 0
    """Processes that it left behind, and that were ended."""


Verdict = Callable[[Reading, Ending, str], Fault | None]
"""From what was read, how it ended and the end of its standard error: why there is no answer, or `None`."""


def _no_fault(reading: Reading, ending: Ending, stderr: str) -> Fault | None:
    return None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """An agent as data. What `verdict.py` says of every agent comes first; `verdict` adds to it."""

    name: str
    command: tuple[Argument, ...]
    """With the placeholders of `filling.py`; `{arguments}` stands for those that a person adds."""
    reader: Callable[[], Reader]
    verdict: Verdict = _no_fault
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set for every run; with the placeholders of the command."""
    allowed: tuple[str, ...] = ()
    """Variables that it is given from evalve's own environment, beside those that every program needs."""
    keys: tuple[str, ...] = ()
    """The same for its credentials: given only where no gateway is lent."""
    home_variable: str | None = None
    home_folder: str = ""
    """What the home variable names, inside the run's own home."""
    home_files: Mapping[str, str] = field(default_factory=dict)
    """Written into that folder before the start; with placeholders."""
    gateway_environment: Mapping[str, str] = field(default_factory=dict)
    """Set where a gateway is lent; with the placeholders base_url and token."""
    gateway_files: Mapping[str, str] = field(default_factory=dict)
    """Written into the home folder where a gateway is lent; with placeholders."""
    upstream: str | None = None
    """The provider whose wire it speaks: `anthropic`, `openai`, `gemini`."""
    version_command: tuple[str, ...] = ()
    recommended_concurrency: int = 10
    startup_s: float | None = None
    """How long it may take until its first output."""
    silence_s: float | None = None
    """How long it may say nothing after that."""
    grace_s: float = 5.0
    """How long it may take to end when it is asked to."""
    install: str = ""
    """What a person types who does not have the program."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One run: what to do, and where."""

    prompt: str
    directory: Path
    """Its workspace: the current directory of the program."""
    home: Path | None = None
    """For its configuration, which nobody else has; `None` for one that lasts as long as the run."""
    gateway: GatewayLease | None = None
    model: str | None = None
    timeout_s: float | None = None
    """From the real start of its process."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables for this run alone; none of their values is shown."""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """What a run came to. Its events are in the sample's trace, its output is among the sample's files."""

    agent: str
    answer: str
    exit_code: int | None = None
    turns: int | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    version: str | None = None
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    output_bytes: int = 0
    waited_s: float = 0.0
    """From being asked for to the real start."""
    ran_s: float = 0.0
    confinement: Confinement = "none"
    survivors: int = 0
    stderr: str = ""
    """The end of it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What its output says that it called, in that order."""

    def __str__(self) -> str:
        return self.answer
