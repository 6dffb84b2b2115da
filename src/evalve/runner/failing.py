"""Whose a failure is, told by the error that a sample ended with."""

from __future__ import annotations

import errno

from evalve.errors import (
    AgentError,
    AnswerError,
    InfrastructureError,
    LocalUnavailable,
    MissingKey,
    ModelError,
    SampleTimeout,
)
from evalve.records import FailureClass
from evalve.runner.retries import is_network_error

_MACHINE_ERRNOS = frozenset(
    {errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS}
)
_OF_PROVIDERS = frozenset(
    # packages that call models: what they raise is about the call, known without importing them
    {
        "aiohttp",
        "anthropic",
        "botocore",
        "cohere",
        "google",
        "groq",
        "httpcore",
        "httpcore2",
        "httpx",
        "httpx2",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "requests",
        "urllib3",
    }
)
_SKIPS = frozenset(
    # pytest calls its own a builtin, for the sake of tracebacks
    {("builtins", "Skipped"), ("unittest.case", "SkipTest")}
)
_UNREADABLE = frozenset(
    {"json.decoder.JSONDecodeError", "pydantic_core.ValidationError", "jsonschema.ValidationError"}
)


def is_skip(error: BaseException) -> bool:
    """`pytest.skip(…)` or `unittest.SkipTest`: the sample does not apply, and is neither right nor wrong."""
    return any((c.__module__, c.__name__) in _SKIPS for c in type(error).__mro__)


def failure_class_of(error: BaseException, *, made_calls: bool) -> FailureClass:
    """`made_calls` says whether a model was asked: then text that cannot be read is what it answered."""
    if isinstance(error, InfrastructureError | MemoryError):
        return "infrastructure"
    if isinstance(error, AnswerError):
        return "answer"
    if isinstance(error, AgentError):
        return "agent"
    if isinstance(error, MissingKey | LocalUnavailable):
        return "code"  # the set-up's, and there before anyone was asked
    if isinstance(error, ModelError):
        return "provider"
    if isinstance(error, SampleTimeout) or type(error) is TimeoutError:
        return "timeout"
    if isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS:
        return "infrastructure"
    if is_network_error(error) or _comes_from(error, _OF_PROVIDERS):
        return "provider"
    if made_calls and any(_name(c) in _UNREADABLE for c in type(error).__mro__):
        return "answer"
    return "code"


def _comes_from(error: BaseException, packages: frozenset[str]) -> bool:
    return any(c.__module__.partition(".")[0] in packages for c in type(error).__mro__)


def _name(kind: type) -> str:
    package = kind.__module__ if kind.__module__.startswith("json.") else kind.__module__.partition(".")[0]
    return f"{package.lstrip('_')}.{kind.__name__}"
