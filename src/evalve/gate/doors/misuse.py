"""Arguments that cannot be meant, told before anything is sent or paid."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from typing import Any

from evalve.errors import OptionError

_ARGUMENTS = (
    "prompt",
    "system",
    "tools",
    "tool_choice",
    "max_tokens",
    "temperature",
    "response_schema",
    "stop",
    "options",
    "timeout_s",
)
_AS_GOOD_AS_EQUAL = 0.85
"""`max_token` is 0.95 like `max_tokens`; `min_tokens`, which some servers know, is 0.8."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def shown(value: object) -> str:
    return f"{repr(value)[:80]} ({type(value).__name__})"


def raw_options(options: Mapping[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """What goes into the body as it is; a further argument that is probably misspelt is refused."""
    for name in more:
        near = misspelt(name)
        if near:
            raise OptionError(
                f"there is no argument {name!r}; did you mean {near!r}? "
                f"To send {name!r} to the provider all the same, say options={{{name!r}: …}}"
            )
    if options is None:
        return more
    given: object = options
    if not isinstance(given, Mapping):
        raise OptionError(f"options= needs a mapping of names to values, not {shown(given)}")
    return {**options, **more}


@lru_cache(maxsize=256)
def misspelt(name: str) -> str:
    """The argument that was probably meant; empty for what may be a provider's own."""
    if name.startswith("timeout"):
        return "timeout_s"
    return next(iter(difflib.get_close_matches(name, _ARGUMENTS, n=1, cutoff=_AS_GOOD_AS_EQUAL)), "")


def check_timeout(timeout_s: object) -> None:
    if not 0 < _number(timeout_s) < math.inf:
        raise OptionError(
            f"timeout_s= needs a number of seconds above 0, or None for the usual; got {shown(timeout_s)}"
        )


def check_tokens(name: str, tokens: object) -> None:
    if not 0 <= _number(tokens) < math.inf:
        raise OptionError(f"{name}= needs a number of tokens, 0 or more; got {shown(tokens)}")


def _number(value: object) -> float:
    """Not a number, which is within no bounds, for everything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    return float(value)


def check_headers(headers: object) -> None:
    """No value is shown: it may be a key."""
    if not isinstance(headers, Mapping):
        raise OptionError(f"headers= needs a mapping of names to texts, not a {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise OptionError(f"headers=: {name!r} cannot be the name of a header")
        if not isinstance(value, str):
            raise OptionError(f"headers=: {name!r} needs a text, not a {type(value).__name__}")
        if _CONTROL.search(value):
            raise OptionError(f"headers=: {name!r} has a line break or another control character in it")


def is_sendable_key(key: str) -> bool:
    return key.isascii() and not _CONTROL.search(key)
