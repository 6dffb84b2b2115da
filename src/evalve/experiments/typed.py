"""What was typed after `evalve run`: experiments, options, and keys in place of what the file says."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from evalve.errors import OptionError
from evalve.experiments.file.document import parsed_text
from evalve.experiments.file.keys import EVALUATORS, EXPERIMENT, NAMES, OF_MODELS, PHASES, TEXT, Key
from evalve.experiments.ordering import phases_in_text
from evalve.experiments.overriding import read_model_key
from evalve.options import OPTIONS, Option, Options, parse_text, parse_texts, suggestion


@dataclass(frozen=True, slots=True)
class Said:
    """What was typed after `evalve run`."""

    names: list[str]
    options: Options
    keys: Mapping[str, Any]
    """Keys of experiments, in place of what the file says."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """How the flag of each key was written."""
    of_models: Mapping[str, Any] = field(default_factory=dict)
    """Keys of models, in place of what their entries say."""
    output_dir: Path | None = None


def parsed(arguments: Sequence[str]) -> Said:
    """From the words of the command line; `OptionError` for one that is unknown or cannot be."""
    parser = _Parser(prog="evalve run", allow_abbrev=False, add_help=False)
    parser.add_argument("names", nargs="+")
    for option in OPTIONS:
        names = _spellings(option)
        for word in option.words:
            flags = [f"{name}={word}" for name in names]
            parser.add_argument(*flags, dest=option.field, action="append_const", const=word)
        if option.is_switch:
            parser.add_argument(*names, dest=option.field, action="store_true", default=None)
        elif option.bare:
            parser.add_argument(*names, dest=option.field, action="append_const", const=option.bare)
        else:
            parser.add_argument(*names, dest=option.field, action="append", metavar=option.metavar)
    for key in _flags():
        parser.add_argument(*_key_spellings(key), dest=f"key {key.name}", action="append")
    for name in OF_MODELS:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=f"model {name}")
    parser.add_argument("--output-dir")
    said, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        hint = suggestion(unknown[0].partition("=")[0], known) or "; `evalve run --help` names them"
        raise OptionError(f"unknown option {unknown[0]!r} for an experiment of evalve.yaml{hint}")
    options = {
        option.field: _value(option, getattr(said, option.field), _typed(arguments, _spellings(option)))
        for option in OPTIONS
    }
    typed = {key.name: _typed(arguments, _key_spellings(key)) for key in _flags()}
    keys = {
        key.name: _read(key, texts, typed[key.name])
        for key in _flags()
        if (texts := getattr(said, f"key {key.name}"))
    }
    of_models = {name: getattr(said, f"model {name}") for name in OF_MODELS}
    return Said(
        said.names,
        Options(**options),
        keys,
        typed,
        {name: read_model_key(name, text) for name, text in of_models.items() if text is not None},
        None if said.output_dir is None else Path(said.output_dir).expanduser(),
    )


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in a sentence, without a page of options above it."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; `evalve run --help` names the options")


def _spellings(option: Option) -> list[str]:
    names = dict.fromkeys((option.name, *option.aliases, option.field.replace("_", "-")))
    return [f"--{prefix}{name}" for name in names for prefix in ("", "evalve-")]


def _key_spellings(key: Key) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in (key.name, *key.aliases)]


def _typed(arguments: Sequence[str], spellings: Sequence[str]) -> str:
    """How a flag was written, for messages about its value: the last time counts."""
    written = [flag for argument in arguments if (flag := argument.partition("=")[0]) in spellings]
    return written[-1] if written else spellings[0]


def _flags() -> list[Key]:
    """The keys of experiments that have no option of their own."""
    return [key for key in EXPERIMENT.keys if key.name not in ("extends", "description")]


def _read(key: Key, texts: Sequence[str], flag: str) -> Any:
    """What a flag says, as YAML writes it; several times, or with commas, where a list may stand."""
    if key.kind in (NAMES, EVALUATORS):
        value: Any = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    elif key.kind is TEXT:
        value = texts[-1]
    elif key.kind is PHASES:
        value = phases_in_text(";".join(texts))
    else:
        value = parsed_text(texts[-1])
    if not key.kind.accepts(value):
        raise OptionError(f"{flag}: needs {key.kind.words}; got {texts[-1]!r}")
    return value


def _value(option: Option, given: Any, flag: str) -> Any:
    if given is None or option.is_switch:
        return given
    if option.many:
        return parse_texts(option, given, said_by=flag)
    return parse_text(option, given[-1], said_by=flag)
