"""The variables of the environment that evalve reads, and what one that it does not read may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from evalve.options import OPTIONS

PREFIX = "EVALVE_"
LIMITS = "EVALVE_LIMITS_"
"""Then a provider or a host, `_`, and one of the keys."""
LIMIT_KEYS = (
    "TIER",
    "RPM",
    "ITPM",
    "OTPM",
    "TPM",
    "CONCURRENCY",
    "BURST_S",
    "ACCOUNT",
    "BATCH_SIZE",
    "BATCH_QUEUE",
)
CONFIG = "EVALVE_CONFIG"
"""The file that stands in for the project's `evalve.yaml`; what `--config` sets."""
KNOWN = (
    *(option.env for option in OPTIONS),
    CONFIG,
    "EVALVE_AGENT",
    "EVALVE_BATCH_LINGER_S",
    "EVALVE_CACHE_DIR",
    "EVALVE_CACHE_SIZE",
    "EVALVE_CASSETTES",
    "EVALVE_GATEWAY_BEHIND",
    "EVALVE_LIMITS_STATE",
    "EVALVE_PRICES",
    "EVALVE_STATE_DIR",
)


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence about each variable that is set, begins with `EVALVE_` and changes nothing."""
    unknown = [name for name in sorted(environ) if environ[name] and _is_ours(name) and not _is_known(name)]
    return [f"{name} is no variable of evalve and changes nothing{_hint(name)}" for name in unknown]


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _is_known(name: str) -> bool:
    return name in KNOWN or _is_limit(name)


def _is_limit(name: str) -> bool:
    """Whatever the host is: only its server knows whether it exists."""
    said = name.removeprefix(LIMITS)
    return said != name and any(said.endswith(f"_{key}") and said != f"_{key}" for key in LIMIT_KEYS)


def _hint(name: str) -> str:
    words = name.removeprefix(LIMITS).split("_") if name.startswith(LIMITS) else []
    if len(words) > 1:
        near = _near_limit(words)
        return near or f"; a limit's name ends with one of {', '.join(LIMIT_KEYS)}"
    near = _near(name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in _EXAMPLES])
    return near and f"; did you mean {PREFIX}{near}?"


def _near_limit(words: list[str]) -> str:
    """With the host as it is written and the nearest key, which may be two words."""
    for length in (2, 1):
        near = _near("_".join(words[-length:]), LIMIT_KEYS) if len(words) > length else ""
        if near:
            return f"; did you mean {LIMITS}{'_'.join([*words[:-length], near])}?"
    return ""


def _near(word: str, known: Sequence[str]) -> str:
    """Compared without what all names begin with, or every one would be near."""
    return next(iter(difflib.get_close_matches(word, known, n=1)), "")


_EXAMPLES = (*KNOWN, *(f"{LIMITS}{host}_{key}" for host in ("ANTHROPIC", "OPENAI") for key in LIMIT_KEYS))
