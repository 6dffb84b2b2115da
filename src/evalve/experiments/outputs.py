"""`--output-dir`: for each agent a file of records, a log and a status, while it runs and afterwards."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalve import processes
from evalve.clock import utc_text
from evalve.contracts import Progress, Tally
from evalve.errors import EvalveError, OptionError
from evalve.experiments.running import Ended, Planned, exit_code
from evalve.show.exports.exporting import export_evaluations
from evalve.show.live.logs import TimedLines, log_progress

_LOG = logging.getLogger(__name__)

STATUS = "status.json"


class OutputFolder:
    """One folder, into which several runs may write, each about agents of its own."""

    def __init__(
        self, path: Path, planned: Sequence[Planned], summary: Callable[[Sequence[Ended]], Iterable[str]]
    ) -> None:
        """`summary` says what became of evaluations, for the end of a log."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"--output-dir: {path} cannot be made: {error.strerror}") from None
        self.path = path
        self._summary = summary
        self._agents: dict[str, _Agent] = {}
        several = len({one.runnable.spec.experiment for one in planned}) > 1
        for one in planned:
            label = f"{one.runnable.spec.experiment}-{one.agent}" if several else one.agent
            name = file_name(label)
            agent = self._agents.setdefault(name, _Agent(label, one.runnable.spec.experiment))
            if agent.label != label:
                raise OptionError(
                    f"--output-dir: {agent.label!r} and {label!r} would write into one file, {name}"
                )
            agent.names.append(one.runnable.spec.name)
        self._by_key = {
            (agent.experiment, name): key for key, agent in self._agents.items() for name in agent.names
        }

    @contextmanager
    def opened(self, workers: Mapping[tuple[str, str], str]) -> Iterator[None]:
        """In the block, each agent has a log; what an earlier run wrote stays above."""
        try:
            self._open(workers)
            yield
        finally:
            for agent in self._agents.values():
                if agent.log_fd is not None:
                    os.close(agent.log_fd)

    def _open(self, workers: Mapping[tuple[str, str], str]) -> None:
        for name, agent in self._agents.items():
            try:
                agent.log_fd = os.open(
                    self.path / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644
                )
            except OSError as error:
                raise OptionError(f"--output-dir: {self.path}: {error.strerror}") from None
            own = {
                key: text
                for key, text in workers.items()
                if key in self._by_key and self._by_key[key] == name
            }
            agent.log = TimedLines(agent.log_fd, own)
            agent.progress = log_progress(agent.log)
        self._say({name: {"status": "waiting", "process": _this_process()} for name in self._agents})

    def progress(self, planned: Planned, progress: Progress) -> Progress:
        """What is told of that evaluation, on the terminal and in its agent's log."""
        agent = self._agent(planned)
        assert agent.progress is not None
        return _Both(progress, agent.progress)

    def begun(self, planned: Sequence[Planned]) -> None:
        agent = self._agent(planned[0])
        agent.started_at = utc_text(time.time())
        status = {"status": "running", "started_at": agent.started_at, "process": _this_process()}
        self._say({self._name(planned[0]): status})

    def ended(self, ended: Sequence[Ended]) -> None:
        """Write what there is of the agent: its records, the end of its log, its status."""
        planned = ended[0].planned
        name, agent = self._name(planned), self._agent(planned)
        file = self.path / f"{name}.jsonl"
        error = ""
        try:
            rows = export_evaluations(planned.store, planned.runnable.spec.experiment, _keys(ended), file)
        except (EvalveError, OSError) as raised:
            rows, error = 0, f"{file.name} could not be written: {raised}"
        if agent.log is not None:
            for line in (*self._summary(ended), *([error] if error else [])):
                agent.log.tell(line)
        self._say({name: {"started_at": agent.started_at, **_status(ended, error), "rows": rows}})

    def _agent(self, planned: Planned) -> _Agent:
        return self._agents[self._name(planned)]

    def _name(self, planned: Planned) -> str:
        return self._by_key[planned.runnable.spec.experiment, planned.runnable.spec.name]

    def _say(self, agents: Mapping[str, Mapping[str, Any]]) -> None:
        try:
            self._write(agents)
        except OSError as error:  # the run is worth more than its status
            _LOG.warning("--output-dir: %s could not be written: %s", self.path / STATUS, error)

    def _write(self, agents: Mapping[str, Mapping[str, Any]]) -> None:
        """Into the file that other terminals write too: theirs stays as it is."""
        with _alone(self.path):
            file = self.path / STATUS
            try:
                found = json.loads(file.read_text())
                said = {label: _as_it_is(entry) for label, entry in found["agents"].items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                said = {}
            for name, status in agents.items():
                said[self._agents[name].label] = {
                    "experiment": self._agents[name].experiment,
                    **status,
                    "output": f"{name}.jsonl",
                    "log": f"{name}.log",
                }
            beside = file.with_name(f".{STATUS}.{os.getpid()}")
            beside.write_text(json.dumps({"agents": said}, indent=2) + "\n")
            beside.replace(file)


@dataclass(slots=True)
class _Agent:
    label: str
    experiment: str
    names: list[str] = field(default_factory=list)
    """Of its evaluations."""
    log_fd: int | None = None
    log: TimedLines | None = None
    progress: Progress | None = None
    started_at: str | None = None


class _Both:
    """Progress that is told twice."""

    def __init__(self, first: Progress, second: Progress) -> None:
        self._told = (first, second)

    def started(self, tally: Tally) -> None:
        for one in self._told:
            one.started(tally)

    def note(self, text: str) -> None:
        for one in self._told:
            one.note(text)

    def finished(self, tally: Tally) -> None:
        for one in self._told:
            one.finished(tally)


def file_name(agent: str) -> str:
    """An agent's name as that of a file: `openai/gpt-5-mini` is `openai-gpt-5-mini`."""
    name = re.sub(r"[^\w.+@=-]+", "-", agent).strip("-.")
    return name or "agent"


def _keys(ended: Sequence[Ended]) -> list[str]:
    return [one.planned.runnable.spec.key for one in ended]


def _status(ended: Sequence[Ended], error: str) -> dict[str, Any]:
    """`done` and `failed` are samples; `success` is the share of conversations that went well."""
    outcomes = [one.outcome for one in ended if one.outcome is not None]
    errors = [str(one.error) for one in ended if one.error is not None] + ([error] if error else [])
    interrupted = any(outcome.interrupted for outcome in outcomes) or any(one.is_left_out for one in ended)
    code = exit_code(ended)
    metrics = {
        f"{metric.evaluator}.{metric.metric}": metric.value
        for outcome in outcomes
        for metric in outcome.metrics
    }
    return {
        "status": "interrupted" if interrupted else "broken" if errors else "failed" if code else "done",
        "exit_code": code,
        "interrupted": interrupted,
        "done": sum(outcome.info.done for outcome in outcomes),
        "failed": sum(outcome.info.failed for outcome in outcomes),
        "total": _total(ended),
        "success": next((value for name, value in metrics.items() if name.startswith("success.")), None),
        "scores": metrics,
        "problems": [problem for outcome in outcomes for problem in outcome.problems] + errors,
        "ended_at": utc_text(time.time()),
    }


def _this_process() -> dict[str, Any]:
    """By which a reader can tell whether it still runs."""
    pid = os.getpid()
    return {"pid": pid, "started": processes.started(pid), "where": processes.here()}


def _as_it_is(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What another run wrote about an agent; one that was killed before it could write its end is over."""
    own = dict(entry)
    process = own.get("process")
    if process is None or processes.lives(process["pid"], process["started"], process["where"]) is not False:
        return own
    del own["process"]
    told = "its process ended without a word, as after kill -9; the same command goes on"
    return {**own, "status": "interrupted", "exit_code": None, "interrupted": True, "problems": [told]}


def _total(ended: Sequence[Ended]) -> int | None:
    totals = [None if one.outcome is None else one.outcome.info.total for one in ended]
    return None if None in totals else sum(total or 0 for total in totals)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time; the lock is on the folder itself, and leaves nothing in it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
