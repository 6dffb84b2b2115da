"""OpenAI's Chat Completions, Responses and Embeddings, also as the many compatible servers speak them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, TypeGuard

from evalve.gate.dialects.answer_forms import (
    begins,
    ends,
    misfit,
    misfit_of_stream,
    no_answer,
    unreadable,
)
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
    is_stream,
    kind_by_status,
    kind_in_200,
    kind_of,
    mapping_at,
    moved_to,
    problem_of,
    safe_text,
)
from evalve.gate.dialects.google_errors import refuses_key, retry_delay_s
from evalve.gate.dialects.headers import go_duration_s
from evalve.gate.dialects.hosts import provider_at
from evalve.gate.dialects.request_parts import (
    account_hash,
    address,
    counted,
    input_bytes,
    json_object,
    undated,
    whole_number,
)
from evalve.gate.dialects.stated_limits import stated_limits
from evalve.gate.messages import Call, Cost, Dimension, Problem, ProblemKind, Reply, Request, Stated, Usage

_PATHS = ("/chat/completions", "/responses", "/embeddings", "/completions")
_COUNTED_AS_INPUT = (
    "messages",
    "input",
    "instructions",
    "prompt",
    "tools",
    "functions",
    "response_format",
    "text",
)
_MAX_OUTPUT = ("max_completion_tokens", "max_tokens", "max_output_tokens")
UNNAMED = "default"
"""The model of a request that names none."""
_PROMPTS = frozenset({"messages", "prompt", "input"})
_ANSWERED_AS_CHAT = ("/agents/completions", "/fim/completions")
_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/")
_SPENT = frozenset(
    {
        "insufficient_quota",
        "credit_balance_exhausted",
        "organization_spend_limit_exceeded",
        "project_spend_limit_exceeded",
        "organization_usage_limit_exceeded",
        "billing_hard_limit_reached",
        "billing_not_active",
    }
)
_KIND_BY_CODE: dict[str, ProblemKind] = {
    **THROTTLED,
    "RESOURCE_EXHAUSTED": "rate_limit",  # Google's
    "UNAVAILABLE": "overload",
    "rate_limit_exceeded": "rate_limit",
    "slow_down": "rate_limit",
    "server_is_overloaded": "overload",
    "overloaded_error": "overload",
    "server_error": "server",
    "internal_error": "server",
}
_TOO_LARGE = re.compile(r"Limit:? ([\d,]+).*?Requested:? ([\d,]+)", re.IGNORECASE | re.DOTALL)
_TRY_AGAIN = re.compile(r"try again in ((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)", re.IGNORECASE)
_REFUSALS: tuple[tuple[re.Pattern[str], Refusal], ...] = (
    (re.compile(r"tokens per|\bTP[MD]\b", re.IGNORECASE), "tokens"),
    (re.compile(r"requests per|\bRP[MD]\b", re.IGNORECASE), "requests"),
)
_GIVEN_UP = ("error", "abort")
"""Finish reasons of OpenRouter's and vLLM's with which an answer is none."""
_NOT_DONE = ("cancelled", "failed", "in_progress", "queued")
_CONCURRENCY = re.compile(r"concurren|simultaneous", re.IGNORECASE)
_TAIL = 5
"""Events at the end of a stream: usage stands in the last chunk or, with some servers, shortly before it."""


class OpenAIDialect:
    """Text endpoints of OpenAI and of any host with the same paths.

    What is answered with a number to fetch the answer under passes untouched: background responses, and xAI's
    deferred completions.
    """

    name = "openai"
    meaning_headers = frozenset({"openai-beta"})

    def __init__(self) -> None:
        self._parsed = ParsedOnce()

    def read(self, request: Request) -> Call | None:
        host, path = address(request.url)
        if not path.endswith(_PATHS):
            return None
        body = json_object(request)
        if body is None or body.get("background") is True or body.get("deferred") is True:
            return None
        model = body.get("model") or body.get("agent_id") or _deployment(path) or _unnamed(path, body)
        if not isinstance(model, str) or not model:
            return None
        named = account_hash(request, path)
        return self.call_in(body, host=host, model=model, key_hash=named, endpoint=_endpoint(path))

    def call_in(
        self, body: Mapping[str, Any], *, host: str, model: str, key_hash: str, endpoint: str
    ) -> Call:
        """The call that a body asks for, wherever its model is named."""
        return Call(
            provider=self.name if provider_at(host) == self.name else host,
            host=host,
            model=model,
            pool=undated(model),
            key_hash=key_hash,
            input_bytes=sum([input_bytes(body[name]) for name in _COUNTED_AS_INPUT if name in body]),
            max_output_tokens=0 if endpoint == "embeddings" else _max_output_tokens(body),
            streams=bool(body.get("stream")),
            dialect=self.name,
            endpoint=endpoint,
        )

    def booked(self, call: Call, *, input_tokens: float, output_tokens: float) -> Cost:
        """The whole of `max_tokens` is reserved; documented is the larger of both, and the sum is safe."""
        reserved = call.max_output_tokens if call.max_output_tokens is not None else output_tokens
        return _cost(input_tokens, output_tokens, tokens=input_tokens + reserved)

    def charged(self, call: Call, usage: Usage) -> Cost:
        """Cached input counts like any other."""
        tokens = usage.total_input_tokens + usage.output_tokens
        return _cost(usage.total_input_tokens, usage.output_tokens, tokens=tokens)

    def usage(self, call: Call, body: bytes) -> Usage | None:
        if is_stream(body):
            return _usage_of_stream(body)
        return _usage(self._parsed(body))

    def stated(self, headers: Mapping[str, str]) -> dict[Dimension, Stated]:
        return stated_limits(headers)

    def begins(self, call: Call, data: bytes) -> bool:
        return begins(call, data)

    def ends(self, data: bytes) -> bool:
        return ends(data)

    def problem(self, reply: Reply, call: Call | None = None) -> Problem | None:
        who = call.provider if call is not None else self.name
        if not 200 <= reply.status < 300:
            error = _error_in(self._parsed(reply.body))
            if not error and (name := amazon_name(reply.headers, self._parsed(reply.body))):
                error = {"type": name}
            return self._problem_of_error(who, reply, error)
        if is_stream(reply.body):
            return self._problem_of_stream(who, reply, call)
        parsed = self._parsed(reply.body)
        if parsed is None:
            return unreadable(who, call, reply)
        error = _error_in(parsed) or _error_in_choices(parsed)
        if error:
            return self._problem_of_error(who, reply, error)
        return _unfinished(who, reply, parsed) or misfit(call, reply, parsed)

    def _problem_of_stream(self, who: str, reply: Reply, call: Call | None) -> Problem | None:
        events = events_from_the_end(reply.body)
        last = next(events, None)
        before = next(events, None) if last == DONE else last
        error = _error_in(before) or _error_in_last_choices(reply.body)
        if error:
            return self._problem_of_error(who, reply, error)
        if not _has_end(reply.body):
            return broken(reply, "its stream has no end")
        if last == DONE and _never_finished(reply.body):
            return broken(reply, "its stream ends, but no choice in it has a finish_reason")
        response = before.get("response") if isinstance(before, dict) else None
        return _unfinished(who, reply, response) or misfit_of_stream(call, reply, chain((before,), events))

    def _problem_of_error(self, who: str, reply: Reply, error: Mapping[str, Any]) -> Problem:
        type_ = str(error.get("type") or error.get("status") or "")  # the second is Google's
        code = str(error.get("code") or "")
        text = str(error.get("message") or body_text(reply.body))
        kind = kind_by_status(reply.status)
        if 200 <= reply.status < 300:  # proxies put the status of who they asked into a 200
            kind = kind_by_status(int(code)) if code.isdecimal() else kind_in_200(type_, code)
        kind = kind_of(_KIND_BY_CODE.get(code) or _KIND_BY_CODE.get(type_), kind, reply.status)
        if code in _SPENT or type_ in _SPENT:
            kind = "spent"
        elif kind == "rate_limit" and _can_never_fit(text):
            kind = "permanent"
        named = code if code and code != str(reply.status) else type_
        said = f"{who} answered {reply.status} {named}".rstrip() + moved_to(reply)
        said = safe_text(f"{said}: {text}")
        if kind != "rate_limit":
            is_wrong_key = code == "invalid_api_key" or refuses_key(error)
            return problem_of(kind, reply, said, refuses_key=is_wrong_key)
        hinted = _TRY_AGAIN.search(text)
        return problem_of(
            kind,
            reply,
            said,
            self._refusal(reply, type_, code, text),
            go_duration_s(hinted[1].lower()) if hinted else retry_delay_s(error),
        )

    def _refusal(self, reply: Reply, type_: str, code: str, text: str) -> Refusal | None:
        if "slow_down" in (type_, code):
            return "ramp"
        if _CONCURRENCY.search(text):
            return "concurrency"
        if type_ == "requests" or type_ == "tokens":
            return "requests" if type_ == "requests" else "tokens"
        for pattern, refusal in _REFUSALS:
            if pattern.search(text):
                return refusal
        return exhausted(self.stated(reply.headers))


def _cost(input_tokens: float, output_tokens: float, *, tokens: float) -> Cost:
    """Input and output apart, too: a compatible server may limit them so."""
    return {"requests": 1.0, "tokens": tokens, "input_tokens": input_tokens, "output_tokens": output_tokens}


def _endpoint(path: str) -> str:
    """Mistral's agents and its completion of code answer as a chat does."""
    if path.endswith(_ANSWERED_AS_CHAT):
        return "chat/completions"
    return next(each for each in _PATHS if path.endswith(each))[1:]


def _unnamed(path: str, body: Mapping[str, Any]) -> str:
    """A server that has but one model needs no name for it; without a prompt it is no call.

    Many have a path that ends with `/responses`: there, only a stored prompt stands for a model.
    """
    if path.endswith("/responses"):
        return UNNAMED if isinstance(body.get("prompt"), dict) else ""
    return UNNAMED if not _PROMPTS.isdisjoint(body) else ""


def _deployment(path: str) -> str | None:
    """Azure names the model in the path."""
    found = _DEPLOYMENT.search(path)
    return found[1] if found else None


def _max_output_tokens(body: Mapping[str, Any]) -> int | None:
    limits = [limit for name in _MAX_OUTPUT if (limit := whole_number(body.get(name))) is not None]
    return min(limits) * (whole_number(body.get("n")) or 1) * _prompts(body) if limits else None


def _prompts(body: Mapping[str, Any]) -> int:
    """Completions answer a list of prompts at once, each at length; a list of numbers is one prompt."""
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or any(isinstance(each, int) for each in prompt):
        return 1
    return len(prompt) or 1


def _usage(parsed: Any) -> Usage | None:
    """Both spellings: prompt and completion tokens, or input and output tokens.

    A stream of Groq's has them beside, also where it was not asked for them.
    """
    said = mapping_at(parsed, "usage") or mapping_at(parsed, "x_groq", "usage")
    total = counted(said.get("prompt_tokens", said.get("input_tokens")))
    details = said.get("prompt_tokens_details") or said.get("input_tokens_details")
    cached = counted(details.get("cached_tokens")) if isinstance(details, dict) else None
    if total is None:
        return None
    cached = min(cached or 0, total)
    output = counted(said.get("completion_tokens", said.get("output_tokens")))
    return Usage(input_tokens=total - cached, output_tokens=output or 0, cache_read_tokens=cached)


def _usage_of_stream(body: bytes) -> Usage | None:
    if not _has_end(body):
        return None
    for event in islice(events_from_the_end(body), _TAIL):
        usage = _usage(event.get("response") if _is_last_of_response(event) else event)
        if usage is not None:
            return usage
    return None


def _has_end(body: bytes) -> bool:
    """Whether a stream says that it is whole: many servers leave `[DONE]` out after the last choice ended."""
    for event in islice(events_from_the_end(body), _TAIL):
        if event == DONE or _is_last_of_response(event):
            return True
        choices = event.get("choices") if isinstance(event, dict) else ()
        if choices != [] and choices is not None:
            return _is_finished(choices)
    return False


def _is_finished(choices: Any) -> bool:
    if not isinstance(choices, list):
        return False
    return all(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _is_last_of_response(event: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(event, dict) and event.get("type") in (
        "response.completed",
        "response.incomplete",
        "response.failed",
    )


def _error_in(parsed: Any) -> Mapping[str, Any]:
    """The error of a body or an event, wherever it stands; empty where there is none."""
    if isinstance(parsed, list) and len(parsed) == 1:
        parsed = parsed[0]  # as Google's compatible address answers
    if not isinstance(parsed, dict):
        return {}
    if parsed.get("type") == "error" and "error" not in parsed:
        return parsed
    inner = parsed.get("response") if parsed.get("type") == "response.failed" else parsed
    error = inner.get("error") if isinstance(inner, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _error_in_choices(parsed: Any) -> Mapping[str, Any]:
    """Proxies put the error of who they asked beside an empty choice, or say only that it was given up."""
    choices = parsed.get("choices") if isinstance(parsed, dict) else None
    for choice in choices if isinstance(choices, list) else []:
        if not isinstance(choice, dict):
            continue
        error, finish = choice.get("error"), choice.get("finish_reason")
        if isinstance(error, dict) and error:
            return error
        if error or finish in _GIVEN_UP:
            said = error if isinstance(error, str) else f"its answer ends with finish_reason {finish!r}"
            return {"message": said}
    return {}


def _error_in_last_choices(body: bytes) -> Mapping[str, Any]:
    events = islice(events_from_the_end(body), _TAIL)
    return next((error for event in events if (error := _error_in_choices(event))), {})


def _never_finished(body: bytes) -> bool:
    """Whether a stream has choices, and none of them came to its end: its server was cut off itself."""
    has_choices = False
    for event in events_from_the_end(body):
        choices = event.get("choices") if isinstance(event, dict) else None
        if isinstance(choices, list) and choices:
            has_choices = True
            if any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices):
                return False
    return has_choices


def _unfinished(who: str, reply: Reply, parsed: Any) -> Problem | None:
    """A response that is still being made, was cancelled, or has failed without saying why."""
    status = parsed.get("status") if isinstance(parsed, dict) and "output" in parsed else None
    return no_answer(who, f"has the status {status!r}", reply) if status in _NOT_DONE else None


def _can_never_fit(text: str) -> bool:
    """A request larger than the limit itself is refused however long one waits."""
    found = _TOO_LARGE.search(text)
    if found is None:
        return False
    limit, requested = (int(number.replace(",", "") or 0) for number in found.groups())
    return requested > limit
