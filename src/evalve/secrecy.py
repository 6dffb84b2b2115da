"""What nobody should see in an error, a log or a debugger: keys, passwords in addresses, the environment.

pytest prints the arguments of the functions that an error passed, and with `-l` their variables too, so
it is not enough that no message of ours has a key in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar, cast

T = TypeVar("T")

MASK = "***"

_PUBLIC_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "openai-beta",
        "user-agent",
    }
)
"""Every other header may be a gateway's key."""

_USER_IN_URL = re.compile(r"(?<=//)[^\s?#]*@")
_USER_WITHOUT_SCHEME = re.compile(r"[^\s/@?#]+:[^\s/@?#]*@")
_AFTER_PATH = re.compile(r"([?#])\S+")


class Secret(str):
    """A text that goes where it must as it is, and shows itself as something else.

    `str()` gives the text, because that is how HTTP libraries write a header.
    """

    __slots__ = ("_shown",)
    _shown: str

    def __new__(cls, text: str, shown: str = MASK) -> Secret:
        made = super().__new__(cls, text)
        made._shown = shown
        return made

    def __repr__(self) -> str:
        return repr(self._shown)

    def __format__(self, spec: str) -> str:
        return format(self._shown, spec)


class Environment(Mapping[str, str]):
    """Variables whose values are not shown."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def __getitem__(self, name: str) -> str:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return f"<an environment of {len(self)} variables>"


def secret(key: T) -> T:
    """A key that is not shown; what is no text is left for others to refuse."""
    return cast(T, Secret(key)) if isinstance(key, str) else key


def discreet(text: T) -> T:
    """A name or an address that shows neither the user, the password nor the query in it."""
    return cast(T, Secret(text, shown=without_credentials(text))) if isinstance(text, str) else text


def without_credentials(text: str) -> str:
    """Also of what is no address, because a person made a mistake in it."""
    for pattern in (_USER_IN_URL, _USER_WITHOUT_SCHEME):
        text = pattern.sub(f"{MASK}@", text)
    return _AFTER_PATH.sub(rf"\1{MASK}", text)


def discreet_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The same headers, and what may be a key among their values is not shown."""
    return {
        name: value if str(name).lower() in _PUBLIC_HEADERS else secret(value)
        for name, value in headers.items()
    }
