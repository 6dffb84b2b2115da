"""What a run leaves in its sample: figures in the record, an event in the trace, tokens in the account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from evalve.agents.spec import AgentRun, Fault, Usage
from evalve.contracts import AgentTotals, CallLog, RunningAgent, SampleContext
from evalve.errors import AgentError

AGENTS = "agents"
"""Under which `Record.lent` has the runs of a sample."""


@contextmanager
def agent_seen(context: SampleContext, agent: RunningAgent) -> Iterator[RunningAgent]:
    """In the block, whoever shows the run's tally sees the agent in it."""
    if context.tally is None:
        yield agent
        return
    context.tally.agents[id(agent)] = agent
    try:
        yield agent
    finally:
        del context.tally.agents[id(agent)]


def calls_seen(context: SampleContext) -> int:
    """How many calls the gate has seen of the sample."""
    return context.calls.requests + context.calls.cached + context.calls.ungated


def record_run(context: SampleContext, run: AgentRun, fault: Fault | None, *, is_metered: bool) -> None:
    """Where the gateway saw no call of it, what the agent says of its calls is counted."""
    plain = run_in_plain(run)
    context.lent.setdefault(AGENTS, []).append(plain)
    if context.tally is not None:
        context.tally.agent_totals = context.tally.agent_totals or AgentTotals()
        context.tally.agent_totals.add(_as_totals(run))
    if context.trace is not None:
        problem = {} if fault is None else {"problem": fault.message, "failure_class": fault.failure_class}
        context.trace.add("agent", **plain, **problem)
    if not is_metered and (run.usage is not None or run.cost_usd is not None):
        made = CallLog()
        for log in made.counting(context.role):
            log.add(_as_calls(run))
        context.calls.add(made)
        if context.account is not None:
            context.account.count_elsewhere(made)
            if reason := context.account.overspent():
                context.stop_run(reason)


def refuse_if_overspent(context: SampleContext) -> None:
    """Before an agent whose calls nobody here asks for: earlier ones may have used up the budget."""
    reason = "" if context.account is None else context.account.overspent()
    if reason:
        context.stop_run(reason, drops_sample=True)
        raise AgentError(reason, failure_class="provider")


def run_in_plain(run: AgentRun) -> dict[str, Any]:
    """Its figures, without its answer, which the evaluation scores, and its calls, which the trace has."""
    plain = {name: value for name, value in asdict(run).items() if value is not None}
    for name in ("answer", "stderr", "tool_calls"):
        plain.pop(name, None)
    for name in ("cpu_s", "waited_s", "ran_s"):
        plain[name] = round(plain[name], 3)
    return plain


def _as_totals(run: AgentRun) -> AgentTotals:
    return AgentTotals(
        runs=1,
        ran_s=run.ran_s,
        waited_s=run.waited_s,
        cpu_s=run.cpu_s,
        peak_memory_bytes=run.peak_memory_bytes,
        output_bytes=run.output_bytes,
        survivors=run.survivors,
        confinement={run.confinement: 1},
    )


def _as_calls(run: AgentRun) -> CallLog:
    usage = run.usage or Usage()
    return CallLog(
        requests=usage.requests or run.turns or 1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cost_usd=run.cost_usd or 0.0,
        unpriced=1 if run.cost_usd is None else 0,
    )
