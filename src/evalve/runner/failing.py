"""Whose a failure is, told by the error that a sample ended with."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from subprocess import TimeoutExpired

from evalve.errors import (
    AgentError,
    AnswerError,
    EvalveError,
    InfrastructureError,
    Locked,
    ModelError,
    NotFound,
    SampleTimeout,
    StorageError,
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
        "http",
        "httpcore",
        "httpcore2",
        "httpx",
        "httpx2",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "requests",
        "ssl",
        "urllib",
        "urllib3",
    }
)
_REFUSED_STATUSES = frozenset({400, 401, 403, 404, 405, 406, 410, 411, 412, 413, 414, 415, 422, 431})
"""The provider works, and says that the request, its key or its model is wrong. 402 is not among them: the
account has nothing left to spend."""
_MISUSES = frozenset(
    # of the packages above, but about how they are used: nobody was asked
    {
        "CookieConflict",
        "CredentialsError",
        "InvalidHeader",
        "InvalidSchema",
        "InvalidURL",
        "LocalProtocolError",
        "MissingSchema",
        "NoCredentialsError",
        "NonHttpUrlClientError",
        "ParamValidationError",
        "UnsupportedProtocol",
        "WorkloadIdentityError",
        "_AmbiguousModuleClientUsageError",
    }
)
_ROOTS_OF_SDKS = frozenset({"AnthropicError", "GroqError", "OpenAIError"})
"""Raised as they are for a client that cannot be made: without a key, for one."""
_NOTHING_WAS_SENT = "evalve sent nothing"
"""What an SDK is answered for a call that the budget or the cache mode does not allow."""
_CUT_OFF = frozenset({"ContentFilterFinishReasonError", "LengthFinishReasonError"})
_UNREADABLE = frozenset(
    {
        "json.JSONDecodeError",
        "jsonschema.ValidationError",
        "langchain_core.OutputParserException",
        "msgspec.DecodeError",
        "pydantic_core.ValidationError",
        "yaml.YAMLError",
    }
)
_SKIPS = frozenset({("builtins", "Skipped"), ("_pytest.outcomes", "XFailed"), ("unittest.case", "SkipTest")})
"""Modules and names; pytest says of some of its outcomes that they were built in."""
_MOST_TELLING_FIRST: tuple[FailureClass, ...] = (
    # what broke farthest from the person's code explains the rest; a mistake in it comes again next time
    "infrastructure",
    "provider",
    "timeout",
    "agent",
    "answer",
    "code",
)


def is_skip(error: BaseException) -> bool:
    """`pytest.skip(…)` or `unittest.SkipTest`: the sample does not apply, and is neither right nor wrong.

    So it is with `pytest.xfail(…)`: the sample is known to fail, and ends before there is anything to score.
    """
    return all(
        any((c.__module__, c.__name__) in _SKIPS for c in type(one).__mro__) for one in _members(error)
    )


def skip_reason(error: BaseException) -> BaseException:
    """The error whose message is the reason: where tasks of a group skip, that of the first."""
    return next(_members(error))


def failure_class_of(error: BaseException, *, made_calls: bool) -> FailureClass:
    """`made_calls` says whether a model was asked: then text that cannot be read is what it answered.

    Of several errors at once, the most telling counts. An error of which nothing is known is of its cause's
    class, where it was raised `from` one, and otherwise the code's.
    """
    found = {_class_of_one(one, made_calls) for one in _members(error)}
    return next(each for each in _MOST_TELLING_FIRST if each in found)


def may_be_about_answers(error: BaseException, failure_class: FailureClass) -> bool:
    """Whether another answer might have helped: neither the network nor the gate has failed."""
    if failure_class in ("answer", "agent"):
        return True
    if failure_class != "code":
        return False
    return not any(
        isinstance(one, EvalveError) or _is_of_provider(one)
        for member in _members(error)
        for one in _with_what_was_handled(member)
    )


def _with_what_was_handled(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that were being handled when it was raised, named with `from` or not."""
    met: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in met:
        met.add(id(step))
        yield from _members(step)
        step = step.__cause__ or step.__context__


def _is_of_provider(error: BaseException) -> bool:
    """By the package that raised it or, of an SDK that we do not know, by the HTTP that its error carries."""
    own = vars(error)  # a property may raise
    carried = (own.get("response"), own.get("request"))
    return any(
        kind.__module__.partition(".")[0] in _OF_PROVIDERS
        for one in (error, *carried)
        for kind in type(one).__mro__
    )


def _members(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, of groups in it too; otherwise the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _members(member)
    else:
        yield error


def _class_of_one(error: BaseException, made_calls: bool) -> FailureClass:
    met: set[int] = set()  # a chain of causes can be made to bite its tail
    known = _known_class(error, made_calls)
    while known is None and error.__cause__ is not None and id(error) not in met:
        met.add(id(error))
        error = error.__cause__
        if isinstance(error, BaseExceptionGroup):
            return failure_class_of(error, made_calls=made_calls)
        known = _known_class(error, made_calls)
    return known or "code"


def _known_class(error: BaseException, made_calls: bool) -> FailureClass | None:
    if isinstance(error, EvalveError):
        return _class_of_ours(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _MACHINE_ERRNOS):
        return "infrastructure"
    if isinstance(error, TimeoutExpired) or (type(error) is TimeoutError and error.errno is None):
        return "timeout"  # one that has an errno is the network's
    kinds = type(error).__mro__
    if _is_of_provider(error):
        return _class_of_call(error)
    if is_network_error(error):
        return "provider"
    if made_calls and any(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in _UNREADABLE for kind in kinds
    ):
        return "answer"
    return None


def _class_of_ours(error: EvalveError) -> FailureClass:
    match error:
        case InfrastructureError():
            return "infrastructure"
        case AnswerError():
            return "answer"
        case AgentError():
            return error.failure_class
        case SampleTimeout():
            return "timeout"
        case ModelError():
            return _class_of_model_error(error)
        case NotFound() | Locked():
            return "code"
        case StorageError():
            return "infrastructure"
    return "code"


def _class_of_model_error(error: ModelError) -> FailureClass:
    """`permanent` is what asking again cannot change: a wrong request, a missing key, a call not allowed."""
    failed_there = error.status not in (None, 200, *_REFUSED_STATUSES)
    return "provider" if error.kind != "permanent" or failed_there else "code"


def _class_of_call(error: BaseException) -> FailureClass:
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _CUT_OFF:
        return "answer"
    if names & _MISUSES or type(error).__name__ in _ROOTS_OF_SDKS or _NOTHING_WAS_SENT in _text(error):
        return "code"
    status = _status_of(error)
    if status is not None:
        return "code" if status in _REFUSED_STATUSES else "provider"
    is_misuse = isinstance(error, TypeError | ValueError | RuntimeError | LookupError)
    return (
        "code" if is_misuse and not is_network_error(error) and "JSONDecodeError" not in names else "provider"
    )


def _status_of(error: BaseException) -> int | None:
    """The HTTP status, wherever the package keeps it."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 100 <= value < 600:
                return value
    return None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ says nothing, and must not lose the record
        return ""
