"""What a model's name means: which provider, spoken to how, where, and with whose key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from evalve.errors import OptionError
from evalve.gate.doors.misuse import is_sendable_key, shown
from evalve.options import suggestion
from evalve.secrecy import Secret, discreet, secret

LOCAL_URL = "http://local/v1"
"""Stands for the embedded server, whose port is another every time: answers are cached under this."""
LOCAL_MODEL = "smollm2-135m-instruct-q4_1"

_HOW = "write 'anthropic/MODEL', 'openai/MODEL', 'openai-compatible/MODEL@http://HOST:PORT/v1', or 'local'"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's wire format, usual address, and the variables that people set for it."""

    name: str
    wire: Literal["anthropic", "openai"]
    base_url: str | None
    url_variable: str | None
    key_variable: str | None
    needs_key: bool
    example: str

    @property
    def is_embedded(self) -> bool:
        return self.base_url == LOCAL_URL


PROVIDERS = {
    each.name: each
    for each in (
        Provider(
            "anthropic",
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            needs_key=True,
            example="anthropic/claude-sonnet-5",
        ),
        Provider(
            "openai",
            "openai",
            "https://api.openai.com/v1",
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            needs_key=True,
            example="openai/gpt-5-mini",
        ),
        # a variable of its own: OpenAI's key must not go to whatever server is named
        Provider(
            "openai-compatible",
            "openai",
            None,
            None,
            "OPENAI_COMPATIBLE_API_KEY",
            needs_key=False,
            example="openai-compatible/MODEL@http://127.0.0.1:8080/v1",
        ),
        Provider("local", "openai", LOCAL_URL, None, None, needs_key=False, example="local"),
    )
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where calls to a model go."""

    name: str
    """As the person wrote it."""
    provider: Provider
    model: str
    base_url: str
    api_key: Secret | None = field(default=None, repr=False)

    @property
    def lacks_key(self) -> bool:
        return self.provider.needs_key and not self.api_key

    @property
    def is_usual_address(self) -> bool:
        return self.base_url == self.provider.base_url


def target_of(
    name: str,
    *,
    environ: Mapping[str, str],
    api_key: str | None = None,
    base_url: str | None = None,
) -> Target:
    """What a name stands for; arguments win over the environment."""
    name, base_url, api_key = discreet(name), discreet(base_url), secret(api_key)
    _check_texts(name=name, base_url=base_url, api_key=api_key)
    word, slash, model = map(discreet, name.strip().partition("/"))
    provider = PROVIDERS.get(word)
    if provider is not None and not model and not provider.is_embedded:
        raise OptionError(f"{name!r} lacks the name of a model; write it as in {provider.example!r}")
    if provider is None:
        raise OptionError(f"{name!r} does not name a model{_hint(name, word)}; {_HOW}")
    if word == "local":
        if slash or api_key or base_url:
            raise OptionError(f"{name!r}: the embedded model is just 'local', without address or key")
        return Target(str(name), provider, LOCAL_MODEL, LOCAL_URL)
    named_url: str | None = None
    if word == "openai-compatible":
        model, named_url = _model_and_url(model)
    url = discreet(base_url or named_url or _set(environ, provider.url_variable) or provider.base_url)
    if url is None or not model:
        raise OptionError(f"{name!r} does not say which model at which address; {_HOW}, or give base_url=")
    problem = _problem_with(url)
    if problem:
        raise OptionError(f"{name!r}: {problem}")
    key = secret((api_key or "").strip() or _set(environ, provider.key_variable))
    if key and not is_sendable_key(key):
        source = "api_key=" if api_key else provider.key_variable
        raise OptionError(
            f"{name!r}: the key in {source} has a line break or another character in it that no key has; "
            "copy it anew"
        )
    return Target(str(name), provider, str(model), url.rstrip("/"), Secret(key) if key else None)


def _check_texts(*, name: object, base_url: object, api_key: object) -> None:
    if not isinstance(name, str):
        raise OptionError(f"a model's name is a text, as in 'anthropic/claude-sonnet-5'; got {shown(name)}")
    if base_url is not None and not isinstance(base_url, str):
        raise OptionError(f"{name!r}: base_url= needs a text, as in 'http://HOST'; got {shown(base_url)}")
    if api_key is not None and not isinstance(api_key, str):
        raise OptionError(f"{name!r}: api_key= needs a text, not a {type(api_key).__name__}")


def _model_and_url(text: str) -> tuple[str, str | None]:
    """`NAME@http://…`; a name may have an `@` of its own."""
    for scheme in ("@http://", "@https://"):
        model, found, rest = text.rpartition(scheme)
        if found:
            return model, discreet(scheme[1:] + rest)
    return text, None


def _set(environ: Mapping[str, str], variable: str | None) -> str | None:
    """An empty variable counts as not set, as the providers' own clients have it."""
    return (environ.get(variable) or "").strip() or None if variable else None


def _problem_with(url: str) -> str:
    """Why it is no address to send to; told, not raised, because what it consists of may be secret."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that does not close
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{url!r} is not an address; it must begin with http:// or https:// and a host"
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return f"{url!r} has a port that cannot be; ports are numbers from 1 to 65535"
    if parts.username or parts.password or parts.query:
        return (
            f"an address has no user, password or query in it, and that of {parts.hostname} has; "
            "give the key as api_key="
        )
    return ""


def _hint(name: str, word: str) -> str:
    if word.startswith("claude"):
        return f"; did you mean 'anthropic/{name}'?"
    if word.startswith(("gpt", "chatgpt", "o1", "o3", "o4")):
        return f"; did you mean 'openai/{name}'?"
    return suggestion(word, PROVIDERS)
