"""Why a call got no answer, told so that a person knows what to do."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import NoReturn

from evalve.errors import MissingKey, ModelError, StreamBroken
from evalve.gate.doors.naming import Target
from evalve.gate.messages import Call, Dialect, Problem, Reply, Request, SendError, StreamedReply, Withheld
from evalve.secrecy import SHORTEST_SECRET

NOT_AN_ANSWER = Problem("no_answer", "what came does not have the form of an answer")


def refused(target: Target, dialect: Dialect, reply: Reply) -> ModelError:
    """For a final answer that is an error, or no answer at all."""
    problem = reply.problem or dialect.problem(reply) or NOT_AN_ANSWER
    return _error(ModelError, target, problem, reply.status)


def unsent(target: Target, error: SendError) -> ModelError:
    """For a request that the gate has given up on."""
    if isinstance(error, Withheld):
        return _error(ModelError, target, Problem("permanent", str(error)))
    told = f"no answer came: {error}"
    if not error.reached and target.provider.name != "local":
        told += f"; is {target.base_url} the right address, and can it be reached from here?"
    return _error(ModelError, target, replace(error.as_problem(), message=told))


def broken_off(target: Target, dialect: Dialect, call: Call, error: bytes | SendError | None) -> ModelError:
    """For a stream that began and did not end; `error` is the provider's last event, or what was noticed."""
    problem: Problem | None = None
    if isinstance(error, bytes):
        problem = dialect.problem(Reply(200, {}, error), call)
    if problem is None:
        why = f": {error}" if isinstance(error, SendError) else ""
        problem = Problem("connection", f"the stream broke off before its end{why}")
    worth_another_try = problem.kind not in ("permanent", "spent")
    return _error(StreamBroken if worth_another_try else ModelError, target, problem)


def _error(
    failure: type[ModelError], target: Target, problem: Problem, status: int | None = None
) -> ModelError:
    who = "" if problem.message.startswith(f"{target.name} ") else f"{target.name}: "
    told = f"{who}{problem.message}{_advice(target, problem)}"
    if target.api_key and len(target.api_key) >= SHORTEST_SECRET:  # "none", for one, is a word
        told = told.replace(target.api_key, "[key]")
    return failure(told, kind=problem.kind, status=problem.status or status, model=target.model)


def _advice(target: Target, problem: Problem) -> str:
    variable = target.provider.key_variable
    if problem.kind == "spent":
        return "; the account has reached what it may spend: raise its limit or add credit, then run again"
    match problem.status:
        case 401 | 403 if variable:
            return f"; check the API key in {variable} (or api_key=) and what it may use"
        case 404:
            return f"; does {target.base_url} have a model called {target.model!r}?"
        case 413:
            return "; make the prompt or its attachments smaller"
    return ""


class KeylessSender:
    """Stands in where there is no key: what is cached needs none, the rest is told before it is sent."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def send(self, request: Request) -> Reply:
        self._refuse()

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedReply]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        target = self._target
        told = f"{target.name} needs an API key: set {target.provider.key_variable}, or give api_key="
        raise MissingKey(told, model=target.model)
