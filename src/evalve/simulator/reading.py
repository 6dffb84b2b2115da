"""A Behaviour from plain data: a JSON or YAML file, a request body, the flags of the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from evalve.errors import OptionError
from evalve.options import suggestion
from evalve.simulator.batches.settings import Batches
from evalve.simulator.behaviour import Behaviour, PromptCache, Ramp, SpendCap
from evalve.simulator.draws import Latency, OutputLength
from evalve.simulator.faults import Faults
from evalve.simulator.habits import RefuseAtRandom
from evalve.simulator.limits import Limits
from evalve.simulator.scripts import read_script

T = TypeVar("T")
_RECORDS: dict[str, type[Any]] = {
    "limits": Limits,
    "latency": Latency,
    "output": OutputLength,
    "faults": Faults,
    "ramp": Ramp,
    "spend_cap": SpendCap,
    "prompt_cache": PromptCache,
    "refuse_at_random": RefuseAtRandom,
    "batches": Batches,
}


def read_behaviour(plain: Any) -> Behaviour:
    """The behaviour that plain data describes; every mistake is an OptionError that names its place."""
    values = _known_fields(Behaviour, plain, "behaviour")
    for name, record in _RECORDS.items():
        if values.get(name) is not None:
            values[name] = _record(record, values[name], name)
        else:
            values.pop(name, None)
    if "models" in values:
        models = _mapping(values["models"], "models")
        values["models"] = {
            str(model): _record(Limits, limits, f"models.{model}") for model, limits in models.items()
        }
    if "answers" in values:
        values["answers"] = read_script(values["answers"])
    if values.get("keys") is not None:
        if isinstance(values["keys"], str | Mapping):
            raise OptionError("keys must be a list of API keys")
        values["keys"] = frozenset(str(key) for key in values["keys"])
    return _built(Behaviour, values, "behaviour")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a JSON or YAML file, as plain data."""
    plain = read_plain(path)
    return dict(_mapping(plain if plain is not None else {}, str(path)))


def read_plain(path: Path) -> Any:
    """What a JSON or YAML file holds."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise OptionError(f"{path}: cannot be read as settings of the simulator: {error}") from error


def _record(record: type[T], plain: Any, name: str) -> T:
    if isinstance(plain, record):
        return plain
    values = _known_fields(record, plain, name)
    if record is Faults and values.get("schedule") is not None:
        if not isinstance(values["schedule"], list | tuple):
            raise OptionError("faults.schedule must be a list of faults, with null for none")
        values["schedule"] = tuple(values["schedule"])
    return _built(record, values, name)


def _built(record: type[T], values: Mapping[str, Any], name: str) -> T:
    try:
        return record(**values)
    except (TypeError, AttributeError, ValueError) as error:
        raise OptionError(f"{name}: a value has the wrong type: {error}") from error


def _known_fields(record: type[Any], plain: Any, name: str) -> dict[str, Any]:
    known = [field.name for field in dataclasses.fields(record)]
    for key in _mapping(plain, name):
        if key not in known:
            raise OptionError(f"{name} has no setting {key!r}{suggestion(str(key), known)}")
    return dict(plain)


def _mapping(plain: Any, name: str) -> Mapping[Any, Any]:
    if not isinstance(plain, Mapping):
        raise OptionError(f"{name} is {plain!r}; it must be a mapping")
    return plain
