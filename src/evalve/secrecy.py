"""What nobody should see in an error, a log or a debugger: keys, passwords in addresses, the environment.

pytest prints the arguments of the functions that an error passed, and with `-l` their variables too, so
it is not enough that no message of ours has a key in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
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


_KEY = re.compile(r"\b(?:sk|pk|rk|ghp|gho|hf|xox[a-z]|AKIA|AIza)[-_]?[A-Za-z0-9_-]{12,}")
_KEY_IN_URL = re.compile(r"(?<=[?&])((?:api_?)?key|token|secret|password)=[^\s&'\"]+", re.IGNORECASE)
_OF_A_KEY = r"(?:\b|\w*_)(?:api_?key|access_?key|secret_?key|secret|token|password)"
_NAMED_KEY = re.compile(rf"({_OF_A_KEY}['\"]?\s*[=:]\s*)('[^']{{8,}}'|\"[^\"]{{8,}}\")", re.IGNORECASE)
_KEYS_NAME = re.compile(rf"^(?:{_OF_A_KEY}|key)$", re.IGNORECASE)
"""Not every name with `key` in it: `KEYWORDS` and `answer_key` belong to the evaluation."""
_LITERAL = re.compile(r"'[^']{8,}'|\"[^\"]{8,}\"")

_SALT, _ROUNDS, _DIGITS = b"evalve: what is masked in code", 5000, 6
"""Slow to try, and short: of every dictionary, thousands of passwords have the same digits."""
SHORTEST_SECRET = 8
_KEY_IN_DATA = re.compile(
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
    r"(?:(?:sk|pk|rk|ghp|gho|github_pat|hf|pgpw|xox[a-z])[-_]|AKIA|AIza)(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,}"
)
"""Stricter than in code, because data has words such as `risk-based`: long, with a digit, at a beginning.
`pgpw_` begins the passwords of databases that evalve lends."""
_LENT_PASSWORD = re.compile(r"pgpw_[0-9a-f]{32}")
_BEARER = re.compile(r"(\bbearer )(?=[^\s\"']*\d)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)


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


def is_name_of_key(name: str) -> bool:
    """Whether a variable of this name holds a key, a token or a password."""
    return _KEYS_NAME.search(name) is not None


def without_keys(code: str, name: str = "") -> str:
    """Source text without what looks like a key in it, or is named like one.

    What is only named like one (`STOP_TOKEN`) may be part of what the code does: the mask shows that it is
    another one, and not which.
    """
    if _KEYS_NAME.search(name.rpartition(" ")[2]):
        code = _LITERAL.sub(lambda found: _masked(found[0]), code)
    code = _NAMED_KEY.sub(lambda found: found[1] + _masked(found[2]), code)
    code = _KEY_IN_URL.sub(rf"\g<1>={MASK}", code)
    return _KEY.sub(MASK, _USER_IN_URL.sub(f"{MASK}@", code))


def _masked(literal: str) -> str:
    """A literal of Python's. One key in place of another is no change, so of a key nothing is told."""
    text = literal[1:-1]
    if text.startswith(MASK):
        return literal  # masked already
    if _KEY.search(text) or _KEY_IN_URL.search(text) or _USER_IN_URL.search(text):
        return repr(MASK)
    slow = hashlib.pbkdf2_hmac("sha256", text.encode("utf-8", "surrogatepass"), _SALT, _ROUNDS)
    return repr(f"{MASK} {slow.hex()[:_DIGITS]}")


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables that are named like keys, passwords and tokens, the longest first.

    Those that JSON writes in another way are there in that way too.
    """
    values = {variables[name] for name in variables if _is_name_of_key(name)}
    found = {
        written
        for value in values
        if len(value) >= SHORTEST_SECRET
        for written in (value, json.dumps(value)[1:-1])
    }
    return tuple(Secret(value) for value in sorted(found, key=lambda value: (-len(value), value)))


@lru_cache(maxsize=4096)
def _is_name_of_key(name: str) -> bool:
    """Asked of every variable for each evaluation."""
    return _KEYS_NAME.search(name) is not None


def without_lent_passwords(text: str) -> str:
    """What an agent says, as it said it, but for the password of a database that it was lent."""
    return _LENT_PASSWORD.sub(MASK, text)


def without_secrets(text: str, secrets: Sequence[str], *, look_alikes: bool = True) -> str:
    """Data without these secrets, and without what looks like a key. It may be JSON."""
    for one in secrets:
        if one in text:
            text = text.replace(one, MASK)
    if not look_alikes:
        return text
    return _BEARER.sub(rf"\g<1>{MASK}", _KEY_IN_DATA.sub(MASK, text))
