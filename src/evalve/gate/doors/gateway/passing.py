"""What is no call to a model passes as it is: lists of models, files, counts of tokens."""

from __future__ import annotations

from contextvars import copy_context

from aiohttp import web
from aiohttp.web_request import BaseRequest

from evalve.contracts import SAMPLE, SampleContext
from evalve.gate.doors.gateway import words
from evalve.gate.doors.gateway.outgoing import handed_back
from evalve.gate.doors.transport import GateLike
from evalve.gate.messages import Request, Sender, SendError


async def pass_on(
    request: BaseRequest,
    outgoing: Request,
    sender: Sender,
    sample: SampleContext | None,
    told: GateLike | None,
) -> web.StreamResponse:
    """The provider's answer as it comes; the gate is told of what may be a call to a model after all."""
    if told is not None:
        context = copy_context()
        context.run(SAMPLE.set, sample)
        context.run(told.passed_by, outgoing.url)
    response: web.StreamResponse | None = None
    try:
        async with sender.stream(outgoing) as live:
            response = web.StreamResponse(status=live.status, headers=handed_back(live.headers, 200))
            await response.prepare(request)
            async for chunk in live.chunks:
                await response.write(chunk)
    except SendError as error:
        if response is None:
            status, message = words.unanswered(error)
            body = words.error_body(status, message, is_google=False)
            return web.Response(status=status, body=body, content_type="application/json")
        if request.transport is not None:
            request.transport.abort()
    return response
