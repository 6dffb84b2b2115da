"""An agent that is an async function of the person's own, in this process."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from evalve.agents.agent import task_of
from evalve.agents.preparing import Services
from evalve.agents.recording import agent_seen, record_run
from evalve.agents.settings import AgentSettings
from evalve.agents.spec import AgentRun, AgentTask, Fault
from evalve.contracts import SAMPLE, RunningAgent, SampleContext
from evalve.errors import AgentError, OptionError


class FunctionAgent:
    """Calls `await function(prompt, workspace)`, or `await function(task)` where it takes one argument."""

    name = "python"
    recommended_concurrency = 10

    def __init__(self, settings: AgentSettings, services: Services) -> None:
        self._settings = settings
        self._services = services
        self._function = _function(settings.function)
        self._takes_task = _is_called_with_one(self._function)

    @property
    def settings(self) -> dict[str, Any]:
        function = self._function
        return {"agent": self.name, "model": self._settings.model, "function": function.__qualname__}

    def missing(self) -> None:
        return None

    async def __call__(
        self,
        prompt: str,
        workspace: str | os.PathLike[str],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> AgentRun:
        return await self.run(task_of(prompt, workspace, model=model, timeout_s=timeout_s))

    async def run(self, task: AgentTask) -> AgentRun:
        context = SAMPLE.get() or SampleContext("", "", "", 0, 1)
        timeout_s = task.timeout_s or self._settings.timeout_s
        task = replace(task, model=task.model or self._settings.model)
        async with AsyncExitStack() as stack:
            lend = self._services.gateway if self._takes_task and self._settings.gateway else None
            if task.gateway is None and lend is not None:
                task = replace(task, gateway=await stack.enter_async_context(lend(context)))
            started_s = time.monotonic()
            with agent_seen(context, RunningAgent(self.name, context.sample_id, started_s)):
                answer = await self._answered(task, timeout_s)
            run = answer if isinstance(answer, AgentRun) else self._run(answer, task)
            run = replace(run, ran_s=time.monotonic() - started_s)
        fault = None if run.answer.strip() else Fault("agent", f"{self._function.__qualname__}: empty answer")
        record_run(context, run, fault, is_metered=True)
        if fault is not None:
            raise AgentError(fault.message, run=run)
        return run

    async def _answered(self, task: AgentTask, timeout_s: float | None) -> Any:
        arguments = (task,) if self._takes_task else (task.prompt, task.directory)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                return await self._function(*arguments)
        except TimeoutError:
            if not deadline.expired():
                raise
            said = f"{self._function.__qualname__} ran for {timeout_s:g} s without an end (timeout_s)"
            raise AgentError(said, failure_class="timeout") from None

    def _run(self, answer: Any, task: AgentTask) -> AgentRun:
        if not isinstance(answer, str):
            raise AgentError(
                f"{self._function.__qualname__} returned {type(answer).__name__}, "
                "where a text or an AgentRun is needed",
                failure_class="code",
            )
        return AgentRun(agent=self.name, answer=answer, model=task.model)


def _function(said: Callable[..., Any] | str | None) -> Callable[..., Any]:
    if said is None:
        raise OptionError("agent 'python' needs its function, as in function: package.module:solve")
    function = _imported(said) if isinstance(said, str) else said
    if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (an object that is called)
    ):
        raise OptionError(f"agent 'python': {said!r} is no async function: write it with `async def`")
    return function


def _imported(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"agent 'python': function {text!r} cannot be imported: {error}") from error


def _is_called_with_one(function: Callable[..., Any]) -> bool:
    needed = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return len(needed) == 1
