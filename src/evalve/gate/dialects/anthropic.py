"""Anthropic's Messages: what a request costs, what an answer used, what headers and errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from evalve.gate.dialects.answer_forms import begins, ends, misfit, misfit_of_stream, unreadable
from evalve.gate.dialects.answer_parts import (
    DONE,
    THROTTLED,
    ParsedOnce,
    Refusal,
    amazon_name,
    body_text,
    broken,
    events_from_the_end,
    exhausted,
    first_event,
    is_stream,
    kind_by_status,
    kind_in_200,
    kind_of,
    mapping_at,
    moved_to,
    problem_of,
    safe_text,
)
from evalve.gate.dialects.google_errors import retry_delay_s
from evalve.gate.dialects.headers import count, seconds_until
from evalve.gate.dialects.hosts import provider_at
from evalve.gate.dialects.request_parts import (
    address,
    counted,
    input_bytes,
    json_object,
    key_hash,
    undated,
    whole_number,
)
from evalve.gate.dialects.stated_limits import names_a_limit, stated_limits
from evalve.gate.messages import Call, Cost, Dimension, Problem, ProblemKind, Reply, Request, Stated, Usage

POOLS = {
    "claude-opus-4-5": "claude-opus-4.5-4.8",
    "claude-opus-4-6": "claude-opus-4.5-4.8",
    "claude-opus-4-7": "claude-opus-4.5-4.8",
    "claude-opus-4-8": "claude-opus-4.5-4.8",
    "claude-sonnet-4-5": "claude-sonnet-4.5-4.6",
    "claude-sonnet-4-6": "claude-sonnet-4.5-4.6",
}
"""Models that draw on one limit; every other has its own."""

TOKEN_ROUNDING = 500.0
"""`remaining` of tokens is rounded to the nearest thousand."""

_COUNTED_AS_INPUT = ("system", "messages", "tools", "output_config", "output_format")
_LIMIT_HEADERS: tuple[tuple[Dimension, str, float], ...] = (
    ("requests", "anthropic-ratelimit-requests-", 0.0),
    ("input_tokens", "anthropic-ratelimit-input-tokens-", TOKEN_ROUNDING),
    ("output_tokens", "anthropic-ratelimit-output-tokens-", TOKEN_ROUNDING),
)
_FAST_LIMIT_HEADERS: tuple[tuple[Dimension, str, float], ...] = (
    _LIMIT_HEADERS[0],
    ("input_tokens", "anthropic-fast-input-tokens-", TOKEN_ROUNDING),
    ("output_tokens", "anthropic-fast-output-tokens-", TOKEN_ROUNDING),
)
KIND_BY_TYPE: dict[str, ProblemKind] = {
    **THROTTLED,
    "overloaded_error": "overload",
    "rate_limit_error": "rate_limit",
    "billing_error": "spent",
    "api_error": "server",
    "timeout_error": "server",
}
_SPENT_TEXT = re.compile(r"API usage limits|credit balance is too low|spend(?:ing)? limit", re.IGNORECASE)
_REFUSALS: tuple[tuple[re.Pattern[str], Refusal], ...] = (
    (re.compile(r"concurrent (?:connections|requests)", re.IGNORECASE), "concurrency"),
    (re.compile(r"\bacceleration\b|\bramp", re.IGNORECASE), "ramp"),
    (re.compile(r"input tokens", re.IGNORECASE), "input_tokens"),
    (re.compile(r"output tokens", re.IGNORECASE), "output_tokens"),
    (re.compile(r"tokens per", re.IGNORECASE), "tokens"),
    (re.compile(r"requests per|number of requests", re.IGNORECASE), "requests"),
)
"""Wording that may change: a hint where the answer has no code."""


class AnthropicDialect:
    """`POST …/v1/messages`, on Anthropic's host or any that speaks its format.

    Batches and `count_tokens` have limits of their own and pass untouched.
    """

    name = "anthropic"
    meaning_headers = frozenset({"anthropic-version", "anthropic-beta"})

    def __init__(self) -> None:
        self._parsed = ParsedOnce()

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        if not path.endswith("/v1/messages"):
            return None
        body = json_object(request)
        model = body.get("model") if body is not None else None
        if body is None or not isinstance(model, str) or not model:
            return None
        return self.call_in(body, host=host, model=model, key_hash=key_hash(request.headers, request.url))

    def call_in(self, body: Mapping[str, Any], *, host: str, model: str, key_hash: str) -> Call:
        """The call that a body asks for, wherever its model is named."""
        return Call(
            provider=self.name if provider_at(host) == self.name else host,
            host=host,
            model=model,
            pool=pool_of(model) + ("+fast" if body.get("speed") == "fast" else ""),
            key_hash=key_hash,
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=whole_number(body.get("max_tokens")),
            streams=bool(body.get("stream")),
            dialect=self.name,
            endpoint="messages",
        )

    def booked(self, call: Call, *, input_tokens: float, output_tokens: float) -> Cost:
        """`max_tokens` does not count: output is charged as it is produced, so the expectation is booked."""
        return _cost(input_tokens, output_tokens)

    def charged(self, call: Call, usage: Usage) -> Cost:
        """Reading a cache is free of input limits; writing one is not."""
        return _cost(usage.input_tokens + usage.cache_write_tokens, usage.output_tokens)

    def usage(self, call: Call, body: bytes) -> Usage | None:
        if is_stream(body):
            return _usage_of_stream(body)
        parsed = self._parsed(body)
        said = parsed.get("usage") if isinstance(parsed, dict) else None
        return usage_of_claude(said) if isinstance(said, dict) else None

    def stated(self, headers: Mapping[str, str]) -> dict[Dimension, Stated]:
        """Priority-tier headers are left out: past that tier a request is served from the standard limits."""
        if not names_a_limit(headers):
            return {}
        names = _FAST_LIMIT_HEADERS if "anthropic-fast-input-tokens-limit" in headers else _LIMIT_HEADERS
        stated = {
            dimension: said
            for dimension, prefix, rounding in names
            if (said := _stated(headers, prefix, rounding)) is not None
        }
        total = _stated(headers, "anthropic-ratelimit-tokens-", TOKEN_ROUNDING)
        if total is not None and not _repeats(total, stated):
            stated["tokens"] = total
        return stated or stated_limits(headers)  # of a proxy, or of another's server

    def begins(self, call: Call, data: bytes) -> bool:
        return begins(call, data)

    def ends(self, data: bytes) -> bool:
        return ends(data)

    def problem(self, reply: Reply, call: Call | None = None) -> Problem | None:
        who = call.provider if call is not None else self.name
        if not 200 <= reply.status < 300:
            return self._problem_of_error(who, reply, self._parsed(reply.body))
        if is_stream(reply.body):
            return self._problem_of_stream(who, reply, call)
        parsed = self._parsed(reply.body)
        if parsed is None:
            return unreadable(who, call, reply)
        if isinstance(parsed, dict) and parsed.get("type") == "error":
            return self._problem_of_error(who, reply, parsed)
        return misfit(call, reply, parsed)

    def _problem_of_stream(self, who: str, reply: Reply, call: Call | None) -> Problem | None:
        events = _events_from_the_end(reply.body)
        last = next(events, None)
        kind = last.get("type") if isinstance(last, dict) else None
        if kind == "error":
            return self._problem_of_error(who, reply, last)
        if kind != "message_stop":
            return broken(reply, "its stream has no message_stop")
        return misfit_of_stream(call, reply, events)

    def _problem_of_error(self, who: str, reply: Reply, parsed: Any) -> Problem:
        error = parsed.get("error") if isinstance(parsed, dict) else None
        error = error if isinstance(error, dict) else {}
        type_, code = str(error.get("type") or amazon_name(reply.headers, parsed)), _error_code(error)
        text = str(error.get("message") or body_text(reply.body))
        is_in_200 = 200 <= reply.status < 300
        kind = kind_in_200(type_) if is_in_200 else kind_by_status(reply.status)
        kind = kind_of(KIND_BY_TYPE.get(type_), kind, reply.status)
        if code == "enforced_spend_limit_reached" or (
            kind in ("permanent", "rate_limit") and _SPENT_TEXT.search(text)
        ):
            kind = "spent"
        said = f"{who} answered {reply.status} {code or type_}".rstrip() + moved_to(reply)
        said = safe_text(f"{said}: {text}")
        refusal = self._refusal(reply, code, text) if kind == "rate_limit" else None
        return problem_of(kind, reply, said, refusal, retry_delay_s(error))

    def _refusal(self, reply: Reply, code: str, text: str) -> Refusal | None:
        if code == "ramp_limit_exceeded":
            return "ramp"
        for pattern, refusal in _REFUSALS:
            if pattern.search(text):
                return refusal
        return exhausted(self.stated(reply.headers))


@lru_cache(maxsize=1024)
def pool_of(model: str) -> str:
    """The name of the limit that a model draws on."""
    return POOLS.get(undated(model), undated(model))


def _cost(input_tokens: float, output_tokens: float) -> Cost:
    return {
        "requests": 1.0,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "tokens": input_tokens + output_tokens,  # for servers that limit only the sum
    }


def usage_of_claude(said: Mapping[str, Any]) -> Usage:
    """What was written to the prompt cache for an hour stands beside the sum of all that was written."""
    long = counted(mapping_at(said, "cache_creation").get("ephemeral_1h_input_tokens")) or 0
    return Usage(
        input_tokens=counted(said.get("input_tokens")) or 0,
        output_tokens=counted(said.get("output_tokens")) or 0,
        cache_read_tokens=counted(said.get("cache_read_input_tokens")) or 0,
        cache_write_tokens=max(counted(said.get("cache_creation_input_tokens")) or 0, long),
        long_cache_write_tokens=long,
    )


def _events_from_the_end(body: bytes) -> Iterator[Any]:
    """Without OpenAI's `[DONE]`, which vLLM and some proxies send after the last."""
    return (event for event in events_from_the_end(body) if event != DONE)


def _usage_of_stream(body: bytes) -> Usage | None:
    """`message_start` has the input, the last `message_delta` the final counts, which hold over the first."""
    events = _events_from_the_end(body)
    last = next(events, None)
    if not isinstance(last, dict) or last.get("type") != "message_stop":
        return None
    final = next((e for e in events if isinstance(e, dict) and e.get("type") == "message_delta"), {})
    first = first_event(body)
    message = first.get("message") if isinstance(first, dict) else None
    started = message.get("usage") if isinstance(message, dict) else None
    ended = final.get("usage")
    said = {**(started if isinstance(started, dict) else {})}
    said.update({k: v for k, v in ended.items() if v is not None} if isinstance(ended, dict) else {})
    return usage_of_claude(said) if said else None


def _stated(headers: Mapping[str, str], prefix: str, rounding: float) -> Stated | None:
    limit = count(headers, prefix + "limit") or None
    remaining = count(headers, prefix + "remaining")
    if limit is None and remaining is None:
        return None
    full_in_s = seconds_until(headers, prefix + "reset")
    return Stated(limit, remaining, rounding, full_in_s, is_dated=full_in_s is not None)


def _repeats(total: Stated, stated: Mapping[Dimension, Stated]) -> bool:
    """Whether the limit on all tokens is just one of the two others or their sum, or a workspace's own."""
    apart = [stated[name].per_minute or 0.0 for name in ("input_tokens", "output_tokens") if name in stated]
    return bool(apart) and total.per_minute in (None, *apart, sum(apart))


def _error_code(error: Mapping[str, Any]) -> str:
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else error.get("error_code")
    return code if isinstance(code, str) else ""
