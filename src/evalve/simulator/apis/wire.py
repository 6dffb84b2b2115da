"""What a wire format must say for itself, so that one server speaks several."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from time import gmtime, strftime
from typing import Any, Literal, Protocol

from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import Output
from evalve.simulator.asks import Ask
from evalve.simulator.habits import RetryAfter, Statement, retry_after_headers, retry_after_s
from evalve.simulator.limits import Dimension
from evalve.simulator.provider import Refusal

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
FailureKind = Literal["invalid", "key", "not_found", "too_big", "error", "overloaded"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is an error."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Events:
    """A stream: what comes with the first token, the pieces of the answer, what comes after the last."""

    opening: bytes
    pieces: list[bytes]
    closing: bytes
    content_type: str = "text/event-stream; charset=utf-8"


class Api(Protocol):
    """One provider's wire format."""

    request_id_header: str
    request_id_in_errors: bool

    def key(self, headers: Mapping[str, str]) -> str: ...

    def read(self, body: Mapping[str, Any], digest: int) -> Ask: ...

    def limit_headers(self, stated: Mapping[Dimension, Statement], *, epoch_s: float) -> dict[str, str]: ...

    def refusal(
        self, refusal: Refusal, ask: Ask, *, retry_after: RetryAfter | None, epoch_s: float
    ) -> Failure:
        """`retry_after` None: as this API's provider says when to come back."""

    def failure(self, kind: FailureKind, message: str = "") -> Failure: ...

    def whole(self, ask: Ask, output: Output, usage: InputUsage, call_id: str) -> dict[str, Any]: ...

    def events(
        self, ask: Ask, output: Output, usage: InputUsage, call_id: str, *, chunk_tokens: int
    ) -> Events: ...

    def error_event(self) -> bytes: ...


class CountingApi(Api, Protocol):
    """One that can be asked for the size of a prompt, too."""

    def read_for_count(self, body: Mapping[str, Any], digest: int) -> Ask: ...

    def count_body(self, ask: Ask) -> dict[str, Any]: ...


def told_to_wait(
    body: Mapping[str, Any], wait_s: float | None, kind: RetryAfter, *, epoch_s: float
) -> Failure:
    """A 429 that says in its headers when to come back, if anybody knows."""
    if wait_s is None or not math.isfinite(wait_s):
        return Failure(429, body)
    headers = retry_after_headers(kind, wait_s, epoch_s=epoch_s)
    return Failure(429, body, headers, retry_in_s=retry_after_s(kind, wait_s, epoch_s=epoch_s))


def encoded(value: Any) -> bytes:
    return _ENCODE(value).encode()


def pieces_of(text: str, characters: int) -> list[str]:
    return [text[start : start + characters] for start in range(0, len(text), characters)]


@lru_cache(maxsize=4096)
def rfc3339(epoch_s: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(epoch_s))


def rfc3339_exact(epoch_s: float) -> str:
    """To the millisecond, where whole seconds would say nothing."""
    milliseconds = math.ceil(epoch_s * 1000 - 1e-3)
    return f"{rfc3339(milliseconds // 1000)[:-1]}.{milliseconds % 1000:03d}Z"


@lru_cache(maxsize=64)
def http_date(epoch_s: int) -> str:
    return formatdate(epoch_s, usegmt=True)
