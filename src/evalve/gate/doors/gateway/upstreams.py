"""Where the gateway sends calls to: providers by name, their addresses and their real keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from evalve.errors import OptionError
from evalve.gate.doors.naming import LOCAL_URL
from evalve.secrecy import Secret, without_credentials

LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider that the gateway reaches under a name."""

    name: str
    base_url: str
    api_key: Secret | None = field(default=None, repr=False)
    key_header: str | None = None
    """Where the key belongs; `None` for the header in which the client sent its own."""
    key_variable: str | None = None
    """Where a person puts the key; `None` where none is needed."""
    version: str = ""
    """What a path begins with, if the client has left it out."""
    address_variable: str | None = None
    """What its address is made of and is not set: nobody can call it, and all others can be called."""

    def url_for(self, path: str, query: str) -> str:
        """The address of what a client asked for under the upstream's prefix."""
        url = joined(self.base_url, path if not self.version else _versioned(path, self.version))
        return f"{url}?{query}" if query else url


@dataclass(frozen=True, slots=True)
class KnownProvider:
    """A provider whose clients read their address from the environment."""

    name: str
    usual_url: str
    url_variables: tuple[str, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()
    """Variables that may have a key, and the header that each belongs in."""
    suffix: str = ""
    """What its clients expect at the end of a base URL."""
    version: str = ""
    takes_bare_host: bool = False
    """Whether the variable may have a host alone, with the usual port unless it says another."""


KNOWN = (
    KnownProvider(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_BASE_URL",),
        (("ANTHROPIC_API_KEY", "x-api-key"), ("ANTHROPIC_AUTH_TOKEN", "authorization")),
    ),
    KnownProvider(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        (("OPENAI_API_KEY", "authorization"),),
        suffix="/v1",
    ),
    KnownProvider(
        "gemini",
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_GEMINI_BASE_URL",),
        (("GEMINI_API_KEY", "x-goog-api-key"), ("GOOGLE_API_KEY", "x-goog-api-key")),
        version="/v1beta",
    ),
    KnownProvider("azure", "", ("AZURE_OPENAI_ENDPOINT",), (("AZURE_OPENAI_API_KEY", "api-key"),)),
    KnownProvider("groq", "https://api.groq.com", ("GROQ_BASE_URL",), (("GROQ_API_KEY", "authorization"),)),
    KnownProvider("cohere", "https://api.cohere.com", ("CO_API_URL",), (("CO_API_KEY", "authorization"),)),
    KnownProvider(
        "cerebras",
        "https://api.cerebras.ai",
        ("CEREBRAS_BASE_URL",),
        (("CEREBRAS_API_KEY", "authorization"),),
    ),
    KnownProvider("ollama", "http://127.0.0.1:11434", ("OLLAMA_HOST",), takes_bare_host=True),
    KnownProvider(LOCAL, LOCAL_URL),
)


def upstreams_from(environ: Mapping[str, str], models: Any = None) -> dict[str, Upstream]:
    """The known providers as the environment has them, and over them those that `models:` defines."""
    found = {one.name: upstream for one in KNOWN if (upstream := _from_environment(one, environ))}
    return found | {upstream.name: upstream for upstream in _from_models(models, environ)}


def _from_environment(known: KnownProvider, environ: Mapping[str, str]) -> Upstream | None:
    urls = [environ[name].strip() for name in known.url_variables if environ.get(name, "").strip()]
    url = urls[0] if urls else known.usual_url
    if not url:
        return None
    if known.takes_bare_host and "://" not in url:
        url = _with_usual_port(url, known.usual_url)
    key = next(((name, header) for name, header in known.keys if environ.get(name, "").strip()), None)
    variable, header = key or (known.keys[0] if known.keys else (None, None))
    return Upstream(
        known.name,
        _checked(known.name, url),
        Secret(environ[key[0]].strip()) if key is not None else None,
        header,
        variable if url == known.usual_url else None,
        known.version,
    )


def _with_usual_port(host: str, usual_url: str) -> str:
    usual = urlsplit(usual_url)
    parts = urlsplit(f"//{usual.hostname}{host}" if host.startswith(":") else f"//{host}")
    port = "" if parts.port else f":{usual.port}"
    return f"{usual.scheme}://{parts.netloc}{port}{parts.path}"


def _from_models(models: Any, environ: Mapping[str, str]) -> Iterator[Upstream]:
    """Entries of `models:` that say where they are; the others are known providers' or agents."""
    for name, entry in (models if isinstance(models, Mapping) else {}).items():
        url = entry.get("base_url") if isinstance(entry, Mapping) else None
        if isinstance(url, str) and url:
            if unset := _unset(url, environ):
                yield Upstream(str(name), "", address_variable=unset)
                continue
            said = entry.get("api_key")
            key = _filled_in(said, environ) if isinstance(said, str) else ""
            yield Upstream(
                str(name),
                _checked(str(name), _filled_in(url, environ)),
                Secret(key) if key else None,
                key_variable=None if key else _unset(said, environ),
            )


_VARIABLE = re.compile(r"\$\{(\w+)\}")


def _unset(text: Any, environ: Mapping[str, str]) -> str | None:
    """The first variable that a text names and that is not set."""
    return next((name for name in _VARIABLE.findall(str(text)) if not environ.get(name)), None)


def _filled_in(text: str, environ: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: environ.get(found[1], ""), str(text)).strip()


def _checked(name: str, url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(
            f"the address of {name!r} must begin with http:// or https:// and a host;"
            f" got {without_credentials(url)!r}"
        )
    return url.rstrip("/")


def joined(base_url: str, path: str) -> str:
    """A base URL and what follows it; what both have, as in `…/v1` and `/v1/messages`, is there once."""
    parts = urlsplit(base_url)
    base = [part for part in parts.path.split("/") if part]
    asked = path.split("/")[1:]
    for length in range(min(len(base), len(asked)), 0, -1):
        if base[-length:] == asked[:length]:
            asked = asked[length:]
            break
    return f"{parts.scheme}://{parts.netloc}/" + "/".join([*base, *asked])


_HAS_VERSION = re.compile(r"/v\d\w*/|/upload/")


def _versioned(path: str, version: str) -> str:
    return path if path == "/" or _HAS_VERSION.match(path) else version + path
