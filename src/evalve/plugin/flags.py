"""The options on pytest's command line: under names that are ours alone, and short ones that are free."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.options import OPTIONS, Option, Options, parse_text, parse_texts


def with_our_trace(args: Sequence[str]) -> list[str]:
    """pytest has a switch `--trace` of its own: with `on` or `off` behind it, ours is meant."""
    return [
        "--evalve-trace" if word == "--trace" and value in ("on", "off") else word
        for word, value in zip_longest(args, args[1:])
    ]


def without_bare_concurrent(args: Sequence[str]) -> list[str]:
    """`--concurrent` is a switch in dotevals: without a number it asks for what async ones do anyway."""
    return [
        word
        for word, value in zip_longest(args, args[1:])
        if word != "--concurrent" or (value is not None and value.isdecimal())
    ]


def without_short_names(args: list[str], taken: set[str]) -> list[str]:
    """The arguments less what may be ours; a conftest.py may yet turn out to have a name for a switch."""
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in OPTIONS:
        for name in short_names(option, taken):
            for word in option.words:
                known.add_argument(f"{name}={word}", action="store_true")
            if option.is_switch or option.bare:
                known.add_argument(name, action="store_true")
            else:
                known.add_argument(name, nargs="?")
    try:
        return known.parse_known_args(args)[1]
    except argparse.ArgumentError:
        return args


def dest(option: Option) -> str:
    return f"evalve_{option.field}"


def attributes(option: Option) -> dict[str, Any]:
    if option.is_switch:
        return {"action": "store_const", "const": "true", "default": None, "help": option.help}
    if option.bare:
        return {"action": "store_const", "const": option.bare, "default": None, "help": option.help}
    action = "append" if option.many else "store"
    return {"action": action, "default": None, "metavar": option.metavar, "help": option.help}


def add_words(group: pytest.OptionGroup, option: Option, names: Sequence[str]) -> None:
    """`--batch=auto` as a name of its own: argparse would take what follows a bare `--batch` for a value."""
    for word in option.words:
        flags = [f"{name}={word}" for name in names]
        group.addoption(
            *flags,
            dest=dest(option),
            action="store_const",
            const=word,
            default=None,
            help=argparse.SUPPRESS,
        )


def short_names(option: Option, taken: set[str]) -> list[str]:
    return [f"--{name}" for name in (option.name, *option.aliases) if f"--{name}" not in taken]


def names_taken(parser: pytest.Parser) -> set[str]:
    return {name for group in _groups(parser) for option in group.options for name in option.names()}


def _groups(parser: pytest.Parser) -> Iterator[Any]:
    yield from parser._groups
    yield parser._anonymous


def said_on_command_line(config: pytest.Config) -> Options:
    """The options as pytest parsed them; a bad value is a usage error."""
    said: dict[str, Any] = {}
    for option in OPTIONS:
        given = config.getoption(dest(option), None)
        if given is None:
            continue
        flag = f"--{option.name}"
        try:
            said[option.field] = (
                parse_texts(option, given, said_by=flag)
                if option.many
                else parse_text(option, given, said_by=flag)
            )
        except OptionError as error:
            raise pytest.UsageError(str(error)) from None
    return Options(**said)
