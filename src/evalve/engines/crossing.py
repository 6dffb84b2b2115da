"""What crosses to a worker process and back: the messages, and how values and errors are packed for it.

Both ends are ours: the messages travel over a private socket between this process and its own child, and
nothing that comes from a file or a network is ever read here. So pickle may be used, and only here.
"""

from __future__ import annotations

import ast
import io
import pickle
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType, TracebackType
from typing import Any, NamedTuple

from evalve import metrics
from evalve.contracts import TRACEBACK_ELSEWHERE, CallLog
from evalve.errors import CrossingError, ResultError
from evalve.metrics import Metric
from evalve.options import Options
from evalve.records import Artefact

RUN_HERE = "run it in this process (engine='auto', without --engine processes)"


# -- messages


class Place(NamedTuple):
    """Where a worker finds a module, and the function in it."""

    module: str
    file: str | None
    qualname: str = ""


class Packed(NamedTuple):
    """A value as bytes, with the files of the modules that it needs: not all can be found by their names."""

    data: bytes
    modules: dict[str, str]


class Opening(NamedTuple):
    """What a worker is told once."""

    parent_pid: int
    sys_path: list[str]
    sys_argv: list[str]
    function: Place
    main: Place
    """Of the program that runs: classes that it defines are pickled as members of `__main__`."""
    options: Options
    arguments: dict[str, Packed]
    leading: dict[str, Packed]


class Ready(NamedTuple):
    """The worker has everything that it was told."""


class NotReady(NamedTuple):
    """What the worker lacks, in words."""

    reason: str


class Work(NamedTuple):
    """One try of one sample."""

    number: int
    experiment: str
    evaluation: str
    sample_id: str
    repeat: int
    try_number: int
    ordinals: dict[str, int]
    leaves_trace: bool
    values: dict[str, Packed]


class WaitBegins(NamedTuple):
    """The sample waits for what is not its own work."""

    work: int
    wait: int
    reason: str


class WaitEnds(NamedTuple):
    """It goes on."""

    work: int
    wait: int


class EndWait(NamedTuple):
    """To the worker: what is waited for will not come, because the run stops."""

    work: int
    wait: int


class CallBegins(NamedTuple):
    """The sample calls a provider, or a call goes on that has waited."""

    work: int


class CallEnds(NamedTuple):
    """The call has ended, or waits. What the calls of the try came to so far comes along, as events do."""

    work: int
    calls: CallLog


class KeepFile(NamedTuple):
    """The sample leaves a file, which it may change or remove as soon as it is told that it is kept."""

    work: int
    file: int
    path: str
    name: str


class FileKept(NamedTuple):
    """To the worker: what became of the file."""

    work: int
    file: int
    artefact: Artefact | None
    problem: str = ""


class Event(NamedTuple):
    """The sample leaves an event. It comes at once: of a process that is killed, nothing comes later."""

    work: int
    event_json: str


class Warned(NamedTuple):
    """The worker's evalve warns of something, during a sample or between two."""

    logger: str
    level: int
    text: str


class StopRun(NamedTuple):
    """The sample has found out that no call can succeed any more."""

    work: int
    reason: str
    drops_sample: bool


class Reserve(NamedTuple):
    """A call is to be set aside for in the run's budget. `ahead` is the gate's, as it is."""

    work: int
    number: int
    ahead: Any


class Withdraw(NamedTuple):
    """It waits for that no longer."""

    work: int
    number: int


class Reserved(NamedTuple):
    """To the worker: the call may go, or why it may not."""

    work: int
    number: int
    refusal: Exception | None


class Release(NamedTuple):
    """The call is over. What the calls of the try came to so far comes along, so that it is counted first."""

    work: int
    ahead: Any
    is_unknown: bool
    calls: CallLog


class Unread(NamedTuple):
    """Nobody reads what the call answers, or somebody does again."""

    work: int
    ahead: Any
    is_unread: bool


class PackedError(NamedTuple):
    """An error, so that it has the same class and message in another process."""

    whole: bytes | None
    """The error itself, where it can be restored from that."""
    base: bytes
    """Its class, or else the nearest of its classes that can be found by name."""
    module: str
    qualname: str
    message: str
    args: bytes | None
    attributes: dict[str, bytes]
    traceback: str


class Answer(NamedTuple):
    """What one try came to."""

    work: int
    value: bytes | None
    error: PackedError | None
    calls: CallLog
    events_left_out: int
    """How many found no room in the trace; the others have come before."""


# -- values


def packed_arguments(values: Mapping[str, Any], what: str) -> dict[str, Packed]:
    """Each value by its name; `CrossingError` names the one that cannot cross. `what` says whose they are."""
    found = {}
    for name, value in values.items():
        try:
            found[name] = packed(value)
        except Exception as error:  # pickling runs whatever the value's class says
            raise CrossingError(cannot_cross(name, type(value), what, error)) from error
    return found


def cannot_cross(name: str, kind: type | None, what: str, error: BaseException) -> str:
    its_kind = "" if kind is None else f" ({kind.__module__}.{kind.__qualname__})"
    return (
        f"{what}: the argument {name!r}{its_kind} cannot be handed to a worker process:"
        f" {_short(error)}. Hand over plain values and make it of them inside the function,"
        f" make it at the top of the module, or {RUN_HERE}"
    )


def packed(value: Any) -> Packed:
    data, modules = _dumped(value)
    files = {name: file for name in modules if (file := _file_of(name)) is not None}
    return Packed(data, files)


def dumped(value: Any) -> bytes:
    return _dumped(value)[0]


def loaded(data: bytes, module_for: Callable[[str], str] = lambda name: name) -> Any:
    """`module_for` makes sure that a module is there, and says under which name."""
    return _Unpickler(data, module_for).load()


def packed_value(value: Any, evaluation: str) -> bytes:
    """What the function returned, on its way back."""
    try:
        return dumped(value)
    except Exception as error:  # pickling runs whatever the value's class says
        raise ResultError(
            f"{evaluation} returned {type(value).__module__}.{type(value).__qualname__}, which cannot be"
            f" brought back from its worker process: {_short(error)}. Return scores and plain values,"
            f" or {RUN_HERE}"
        ) from error


def _dumped(value: Any) -> tuple[bytes, set[str]]:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    pickler.dump(value)
    return buffer.getvalue(), pickler.modules


def _file_of(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


class _Pickler(pickle.Pickler):
    """Notes the modules whose classes and functions occur. Metrics go by name: both sides declare them."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL)
        self.modules: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Metric):
            return _metric, (value.name,)
        named = value if isinstance(value, type | FunctionType) else type(value)
        if isinstance(named.__module__, str):
            self.modules.add(named.__module__)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, module_for: Callable[[str], str]) -> None:
        super().__init__(io.BytesIO(data))
        self._module_for = module_for

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(self._module_for(module), name)


def _metric(name: str) -> Metric:
    """The metric of that name; a variant such as `share_above(0.9)` is made anew of its factory."""
    found = metrics.lookup(name)
    if found is not None:
        return found
    base, parenthesis, _ = name.partition("(")
    factory = metrics.lookup(base)
    if not parenthesis or factory is None:
        raise LookupError(f"the metric {name!r} is declared in the worker only: declare it in the module")
    call = ast.parse(f"_{name[len(base) :]}", mode="eval").body
    assert isinstance(call, ast.Call)
    args = [ast.literal_eval(argument) for argument in call.args]
    more = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    variant: Metric = factory(*args, **more)
    return variant


# -- errors


def packed_error(error: BaseException, own_folders: Iterable[str] = ()) -> PackedError:
    """`own_folders` hold frames that say nothing about the error, where they are the outermost ones."""
    kind = type(error)
    error = error.with_traceback(_below(error.__traceback__, tuple(own_folders)))
    base = next(one for one in kind.__mro__ if _dumped_or_none(one) is not None)
    return PackedError(
        whole=_restorable(error),
        base=dumped(base),
        module=kind.__module__,
        qualname=kind.__qualname__,
        message=_message(error),
        args=_dumped_or_none(error.args),
        attributes={
            name: data for name, value in vars(error).items() if (data := _dumped_or_none(value)) is not None
        },
        traceback="".join(traceback.format_exception(error)),
    )


def restored_error(sent: PackedError, module_for: Callable[[str], str]) -> BaseException:
    """The error with its own class; where that cannot be had, one of the same name, base and message."""
    error = _whole(sent, module_for)
    if error is None:
        error = _remade(sent, module_for)
    setattr(error, TRACEBACK_ELSEWHERE, sent.traceback)
    return error


def _whole(sent: PackedError, module_for: Callable[[str], str]) -> BaseException | None:
    if sent.whole is None:
        return None
    try:
        error = loaded(sent.whole, module_for)
    except Exception:  # a class that only the worker has: the next best is made of it
        return None
    return error if isinstance(error, BaseException) else None


def _remade(sent: PackedError, module_for: Callable[[str], str]) -> BaseException:
    try:
        base = loaded(sent.base, module_for)
    except Exception:  # as above
        base = Exception
    args = _loaded_or(sent.args, (sent.message,), module_for)
    name = sent.qualname.rpartition(".")[2]
    if (base.__module__, base.__qualname__) != (sent.module, sent.qualname):
        base = type(name, (base,), {"__module__": sent.module, "__qualname__": sent.qualname})
    error: BaseException = base.__new__(base, *args)
    for attribute, data in sent.attributes.items():
        setattr(error, attribute, _loaded_or(data, None, module_for))
    if _message(error) != sent.message:
        error.__class__ = type(
            name,
            (base,),
            {
                "__module__": sent.module,
                "__qualname__": sent.qualname,
                "__str__": lambda _: sent.message,
            },
        )
    return error


def _restorable(error: BaseException) -> bytes | None:
    """Many errors can be written and not read, because their `__init__` takes other arguments."""
    try:
        data = dumped(error)
        again = loaded(data)
    except Exception:  # pickling runs whatever the error's class says
        return None
    return data if type(again) is type(error) and _message(again) == _message(error) else None


def _loaded_or(data: bytes | None, otherwise: Any, module_for: Callable[[str], str]) -> Any:
    try:
        return otherwise if data is None else loaded(data, module_for)
    except Exception:  # what only the worker can read is left out
        return otherwise


def _dumped_or_none(value: Any) -> bytes | None:
    try:
        return dumped(value)
    except Exception:  # pickling runs whatever the value's class says
        return None


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # a person's own __str__
        return f"its message cannot be read: __str__ raised {type(broken).__name__}"


def _below(trace: TracebackType | None, own_folders: tuple[str, ...]) -> TracebackType | None:
    while (
        trace is not None
        and trace.tb_next is not None
        and trace.tb_frame.f_code.co_filename.startswith(own_folders)
    ):
        trace = trace.tb_next
    return trace
