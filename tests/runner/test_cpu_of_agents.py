"""What the agents of a run take."""

from __future__ import annotations

from evalve.contracts import AgentTotals, RunningAgent, Tally
from evalve.runner.usage import CpuOfAgents


def test_the_cores_that_agents_keep_busy_are_those_since_the_last_look() -> None:
    now_s = 100.0
    tally = Tally("x", "eval", started_s=0.0)
    cpu = CpuOfAgents(tally, now_s=lambda: now_s)
    first, second = RunningAgent("codex", "a", cpu_s=3.0), RunningAgent("codex", "b", cpu_s=1.0)
    tally.agents.update({1: first, 2: second})

    now_s = 102.0
    assert cpu.cores_used() == 2.0

    now_s = 104.0
    del tally.agents[1]
    tally.agent_totals = AgentTotals(cpu_s=3.5)
    second.cpu_s = 1.5
    assert cpu.cores_used() == 0.5

    now_s = 106.0
    assert cpu.cores_used() == 0.0
