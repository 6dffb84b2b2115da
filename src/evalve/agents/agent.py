"""An agent that is a program: one run, from what is asked to the verdict."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalve.agents.confinement import lacking
from evalve.agents.preparing import Prepared, Preparing, Services
from evalve.agents.recording import agent_seen, calls_seen, record_run, refuse_if_overspent
from evalve.agents.settings import AgentSettings
from evalve.agents.spec import AgentRun, AgentSpec, AgentTask, Ending, Event, Fault, Reading
from evalve.agents.supervising import CannotRun, Watch
from evalve.agents.transcript import Transcript, end_of, mask
from evalve.agents.verdict import fault_of, with_last_call
from evalve.contracts import SAMPLE, GatewayLease, RunningAgent, SampleContext, admitted
from evalve.errors import AgentError
from evalve.records import ToolCall
from evalve.secrecy import without_lent_passwords, without_secrets

_OF_MACHINE = (errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ENOSPC)


_MOST_TOOL_CALLS = 10_000
"""Of a run's own; the trace has its bounds, and the output is kept besides."""


class Agent:
    """Runs a program for a prompt, in a directory. `await agent(prompt, workspace)` is all that most need."""

    def __init__(self, spec: AgentSpec, settings: AgentSettings, services: Services) -> None:
        self.spec = spec
        self._settings = settings
        self._services = services
        self._preparing = Preparing(spec, settings, services)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def recommended_concurrency(self) -> int:
        return self.spec.recommended_concurrency

    @property
    def settings(self) -> dict[str, Any]:
        """What tells one agent from another, in plain values: part of what an evaluation is made of."""
        told = self._settings
        return {
            "agent": self.name,
            "model": told.model,
            "command": list(told.command),
            "arguments": list(told.arguments),
        }

    async def __call__(
        self,
        prompt: str,
        workspace: str | os.PathLike[str],
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> AgentRun:
        """Run it once. Raises `AgentError` where there is no answer that could be scored."""
        return await self.run(task_of(prompt, workspace, model=model, timeout_s=timeout_s))

    async def run(self, task: AgentTask) -> AgentRun:
        """The same for a task. Cancelled, it ends the program, and all that it started, before it returns."""
        asked_s = time.monotonic()
        context = SAMPLE.get() or SampleContext("", "", "", 0, 1)
        seen_before = calls_seen(context)
        if task.gateway is None and not self._settings.gateway:
            refuse_if_overspent(context)
        async with AsyncExitStack() as stack:
            if task.gateway is None and self._services.gateway is not None and self._settings.gateway:
                lease = await stack.enter_async_context(self._services.gateway(context))
                task = replace(task, gateway=lease)
            folder = await asyncio.to_thread(self._services.folders.make, context)
            stack.push_async_callback(asyncio.to_thread, self._services.folders.remove, folder)
            prepared = await asyncio.to_thread(self._preparing.prepare, task, folder)
            place = await stack.enter_async_context(admitted(self.name))
            with agent_seen(context, RunningAgent(self.name, context.sample_id)) as seen:
                place.memory_bytes = lambda: seen.memory_bytes
                try:
                    run, fault = await self._held(prepared, context, seen, asked_s, task.gateway)
                except asyncio.CancelledError:  # a deadline: what it has said until then is wanted most
                    await asyncio.to_thread(_keep_output, prepared, context)
                    raise
            place.peak_bytes = run.peak_memory_bytes
            if prepared.version is not None:
                run = replace(run, version=await asyncio.wrap_future(prepared.version))
            is_metered = task.gateway is not None and calls_seen(context) > seen_before
            record_run(context, run, fault, is_metered=is_metered)
            await asyncio.to_thread(_keep_output, prepared, context)
        if fault is not None:
            raise AgentError(fault.message, failure_class=fault.failure_class, run=run)
        return run

    def missing(self) -> str | None:
        """What is not there that it needs, in words; `None` where it can start."""
        if self._preparing.found_program() is not None:
            return lacking(self._settings.confine)
        program = self._preparing.program()
        install = f"; install it with {self.spec.install}" if self.spec.install else ""
        return f"agent {self.name!r}: the program {program!r} is not installed, or not on PATH{install}"

    async def _held(
        self,
        prepared: Prepared,
        context: SampleContext,
        seen: RunningAgent,
        asked_s: float,
        gateway: GatewayLease | None,
    ) -> tuple[AgentRun, Fault | None]:
        """Held by the supervisor until it ends; then what it came to, and what is wrong with it."""

        calls: list[ToolCall] = []

        def note(event: Event) -> None:
            seen.doing = event.kind
            if event.kind == "tool_call" and len(calls) < _MOST_TOOL_CALLS:
                calls.append(ToolCall(str(event.data.get("name")), event.data.get("arguments")))
            if context.trace is not None:
                context.trace.add(event.kind, **event.data)

        reader = self.spec.reader()
        transcript = Transcript(prepared.stdout, reader, note)
        try:
            with context.elsewhere():
                ending = await self._services.supervisor.run(
                    prepared.order, _watching(seen, transcript), telling_still=context.telling_still
                )
        except CannotRun as error:
            raise self._cannot_run(error) from None
        transcript.end()
        reading, stderr = reader.reading(), without_secrets(end_of(prepared.stderr), prepared.secrets)
        waited_s = max(0.0, (seen.started_s or time.monotonic()) - asked_s)
        run = replace(self._run(prepared, reading, ending, stderr, waited_s), tool_calls=tuple(calls))
        order = prepared.order
        limits_s = {"startup": order.startup_s, "silence": order.silence_s, "total": order.total_s}
        fault = fault_of(self.spec, reading, ending, stderr, limits_s=limits_s)
        if fault is not None:
            if gateway is not None and ending.by not in ("memory", "asked"):
                fault = with_last_call(fault, gateway.last_error())
            fault = replace(fault, message=without_secrets(fault.message, prepared.secrets))
        return run, fault

    def _run(
        self, prepared: Prepared, reading: Reading, ending: Ending, stderr: str, waited_s: float
    ) -> AgentRun:
        model, cost_usd = reading.model or prepared.model, reading.cost_usd
        if cost_usd is None and reading.usage is not None and model is not None:
            cost_usd = self._services.price(model, reading.usage)
        return AgentRun(
            agent=self.name,
            answer=without_lent_passwords(reading.answer),
            exit_code=ending.exit_code,
            turns=reading.turns,
            usage=reading.usage,
            cost_usd=cost_usd,
            model=model,
            cpu_s=ending.cpu_s,
            peak_memory_bytes=ending.peak_memory_bytes,
            output_bytes=ending.output_bytes,
            waited_s=waited_s,
            ran_s=ending.ran_s,
            confinement=prepared.level,
            # a namespace ends with its first process, and takes a moment for it
            survivors=0 if prepared.level == "bubblewrap" else ending.survivors,
            stderr=stderr,
        )

    def _cannot_run(self, error: CannotRun) -> AgentError:
        said = self.missing() if error.errno == errno.ENOENT else None
        message = said or f"{self.name}: {error}"
        return AgentError(message, failure_class="infrastructure" if error.errno in _OF_MACHINE else "code")


def task_of(
    prompt: str, workspace: str | os.PathLike[str], *, model: str | None, timeout_s: float | None
) -> AgentTask:
    """A run in a directory that is given as evalve lends it, or as a path."""
    return AgentTask(prompt, Path(os.fspath(workspace)).absolute(), model=model, timeout_s=timeout_s)


def _watching(seen: RunningAgent, transcript: Transcript) -> Watch:
    def started() -> None:
        seen.started_s = time.monotonic()

    def output(output_bytes: int) -> None:
        seen.output_bytes = output_bytes
        transcript.follow()

    def measured(cpu_s: float, memory_bytes: int, output_bytes: int) -> None:
        seen.cpu_s, seen.memory_bytes = cpu_s, memory_bytes
        if output_bytes != seen.output_bytes:
            output(output_bytes)

    return Watch(started, output, measured)


def _keep_output(prepared: Prepared, context: SampleContext) -> None:
    """Its output becomes files of the sample, without keys."""
    if context.trace is None:
        return
    for path in (prepared.stdout, prepared.stderr):
        if path.exists() and path.stat().st_size:
            mask(path, prepared.secrets)
            context.trace.file(path, path.name)
