"""`evalve.model`: ask a model, whichever provider it is from.

model = evalve.model("anthropic/claude-haiku-4-5")
answer = await model.generate("Say hello", max_tokens=20)
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Any, Protocol

from evalve.errors import OptionError
from evalve.gate.batches.shapes import BATCH_HEADER, PRICE_SHARE
from evalve.gate.dialects.answer_parts import is_stream, read_json
from evalve.gate.dialects.finding import recognised
from evalve.gate.doors.answers import Answer, TextDelta
from evalve.gate.doors.asks import Ask, Prompt
from evalve.gate.doors.failures import KeylessSender, broken_off, refused, unsent
from evalve.gate.doors.local import LocalSender, LocalServer
from evalve.gate.doors.misuse import check_headers, check_timeout, raw_options
from evalve.gate.doors.naming import Target, target_of
from evalve.gate.doors.streams import Flow, ModelStream
from evalve.gate.doors.wires import MISSHAPEN, wire_of
from evalve.gate.messages import Call, Reply, Request, Sender, SendError, StreamedReply, Usage

_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_NAMED = frozenset(field.name for field in fields(Ask)) - {"prompt", "options", "streams"}


class Exchanges(Protocol):
    """The gate, as far as a model needs it."""

    async def exchange(self, request: Request, sender: Sender) -> Reply: ...

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]: ...


@dataclass(frozen=True, slots=True)
class Connection:
    """What all models of a process call through."""

    gate: Exchanges
    sender: Sender
    sender_within: Callable[[float], Sender]
    """The sender with another timeout, in seconds, for each try."""
    price: Callable[[str, str, Usage], float | None]
    """Dollars for a provider, a model and its usage; `None` where unknown."""
    call_sync: Callable[[Coroutine[Any, Any, Any]], Any]
    """Runs a coroutine for code that is not async."""
    local: LocalServer


def open_model(
    name: str,
    *,
    connection: Connection,
    environ: Mapping[str, str],
    api_key: str | None = None,
    base_url: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Model:
    """The model of that name; `headers` are sent with every call."""
    if headers is not None:
        check_headers(headers)
    target = target_of(name, environ=environ, api_key=api_key, base_url=base_url)
    return Model(target, connection, headers=headers)


class Model:
    """A model that can be asked. Cheap to make; it holds nothing open."""

    def __init__(
        self, target: Target, connection: Connection, *, headers: Mapping[str, str] | None = None
    ) -> None:
        self.name = target.name
        self._target = target
        self._connection = connection
        self._wire = wire_of(target.provider)
        self._url = self._wire.url(target.base_url)
        own = {name.lower(): value for name, value in (headers or {}).items()}
        self._headers = {**self._wire.headers(target.api_key), **own}
        self._sender = self._prepared(connection.sender)

    async def generate(
        self,
        prompt: Prompt,
        *,
        system: str | list[Any] | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        max_tokens: int | None = 1024,
        temperature: float | None = None,
        response_schema: Mapping[str, Any] | None = None,
        stop: str | Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        **more: Any,
    ) -> Answer:
        """The model's answer to a text or to messages (see `Prompt`).

        `tool_choice` is `auto`, `any`, `none`, a tool's name, or the provider's own. `options`, and any
        further argument, go into the request's body as they are; an argument that is nearly one of these is
        refused. `timeout_s` is for each try. What gets no answer raises `ModelError`.
        """
        body = raw_options(options, more)
        ask = Ask(prompt, system, tools, tool_choice, max_tokens, temperature, response_schema, stop, body)
        request = self._request(self._whole(ask))
        try:
            reply = await self._connection.gate.exchange(request, self._sender_for(timeout_s))
        except SendError as error:
            raise unsent(self._target, error) from error
        return self._answer(reply)

    def generate_sync(self, prompt: Prompt, **asked: Any) -> Answer:
        """`generate` for code that is not async."""
        answer: Answer = self._connection.call_sync(self.generate(prompt, **asked))
        return answer

    def stream(
        self,
        prompt: Prompt,
        *,
        options: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        **asked: Any,
    ) -> ModelStream:
        """Like `generate`, with the text as it comes: iterate over it, best inside `async with`."""
        named = {name: asked.pop(name) for name in _NAMED & asked.keys()}
        ask = Ask(prompt, **named, options=raw_options(options, asked), streams=True)
        return ModelStream(self._events(self._request(ask), self._sender_for(timeout_s)))

    def call(self) -> Call:
        """Whose limits its calls are under."""
        understood = recognised(self._request(Ask("")))
        assert understood is not None  # what our own wires write, our dialects read
        return understood[1]

    def __repr__(self) -> str:
        place = "" if self._target.is_usual_address else f", base_url={self._target.base_url!r}"
        return f"Model({self.name!r}{place})"

    @property
    def lacks_key(self) -> bool:
        return self._target.lacks_key

    def request_for(
        self, prompt: Prompt, *, max_tokens: int | None = 1024, options: Any = None, **asked: Any
    ) -> Request:
        """What `generate` would send."""
        named = {name: asked.pop(name) for name in _NAMED & asked.keys()}
        ask = Ask(prompt, max_tokens=max_tokens, **named, options=raw_options(options, asked))
        return self._request(self._whole(ask))

    # -- one call

    def _whole(self, ask: Ask) -> Ask:
        if ask.options.get("stream"):
            raise OptionError(
                f"{self.name}: generate gives whole answers; for one as it comes, model.stream(…)"
            )
        return ask

    def _request(self, ask: Ask) -> Request:
        try:
            body = _encoded(self._wire.body(self._target.model, ask)).encode("ascii")
        except (TypeError, ValueError) as error:
            raise OptionError(f"{self.name}: the request cannot be written as JSON: {error}") from error
        return Request("POST", self._url, self._headers, body)

    def _sender_for(self, timeout_s: float | None) -> Sender:
        if timeout_s is None:
            return self._sender
        check_timeout(timeout_s)
        return self._prepared(self._connection.sender_within(timeout_s))

    def _prepared(self, sender: Sender) -> Sender:
        if self._target.provider.name == "local":
            return LocalSender(self._connection.local, sender)
        return KeylessSender(self._target) if self._target.lacks_key else sender

    def _answer(self, reply: Reply) -> Answer:
        if reply.problem is not None or not 200 <= reply.status < 300:
            raise refused(self._target, self._wire.dialect, reply)
        try:
            answer = self._wire.answer(read_json(reply.body))
        except MISSHAPEN as error:
            raise refused(self._target, self._wire.dialect, reply) from error
        share = PRICE_SHARE if BATCH_HEADER in reply.headers else 1.0
        return self._priced(answer, cached=reply.cached, price_share=share)

    def _priced(self, answer: Answer, *, cached: bool, price_share: float = 1.0) -> Answer:
        answer.cached = cached
        if answer.usage is not None:
            cost_usd = self._connection.price(self._target.provider.name, self._target.model, answer.usage)
            answer.cost_usd = None if cost_usd is None else cost_usd * price_share
        return answer

    # -- one stream

    async def _events(self, request: Request, sender: Sender) -> AsyncGenerator[TextDelta | Answer, None]:
        flow = Flow(self._wire.assembly())
        reply: StreamedReply | None = None
        try:
            async with self._connection.gate.stream(request, sender) as reply:
                is_whole = reply.problem is not None or not 200 <= reply.status < 300
                chunks = reply.chunks
                if is_whole or "json" in reply.headers.get("content-type", ""):
                    whole_reply = await _read_at_once(reply)
                    if is_whole or not is_stream(whole_reply.body):  # a server that does not stream
                        answer = self._answer(whole_reply)
                        yield TextDelta(answer.text)
                        yield answer
                        return
                    chunks = _one_chunk(whole_reply.body)  # one that streams under a wrong content type
                async for chunk in chunks:
                    for text in flow.texts(chunk):
                        yield TextDelta(text)
        except SendError as error:
            if reply is None:
                raise unsent(self._target, error) from error
            raise broken_off(self._target, self._wire.dialect, self.call(), flow.error or error) from error
        whole = flow.whole()
        if whole is None:
            raise broken_off(self._target, self._wire.dialect, self.call(), flow.error)
        yield self._priced(self._wire.answer(whole), cached=reply.cached)


async def _read_at_once(reply: StreamedReply) -> Reply:
    body = b"".join([chunk async for chunk in reply.chunks])
    return Reply(reply.status, reply.headers, body, reply.cached, reply.problem)


async def _one_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body
