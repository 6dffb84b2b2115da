"""Agents that are running, one line each: `--progress workers`."""

from __future__ import annotations

from evalve.contracts import RunningAgent, Tally
from evalve.show.figures import size
from evalve.show.status_line import Style, duration, shortened
from evalve.show.tables import visible

MOST_AGENTS = 20


def agent_lines(
    tally: Tally, *, now_s: float, width: int | None = None, style: Style | None = None
) -> list[str]:
    """The oldest first: whose it is, how long it runs, what it takes, what it did last."""
    agents = list(tally.agents.values())
    lines = [_line(agent, now_s) for agent in agents[:MOST_AGENTS]]
    if len(agents) > MOST_AGENTS:
        lines.append(f"  + {len(agents) - MOST_AGENTS} more")
    style = style or Style()
    return lines if width is None else [shortened(line, width, style) for line in lines]


def _line(agent: RunningAgent, now_s: float) -> str:
    if agent.started_s is None:
        return visible(f"  {agent.sample_id}  {agent.agent}  starting")
    parts = [
        f"  {agent.sample_id}",
        agent.agent,
        duration(now_s - agent.started_s),
        f"CPU {agent.cpu_s:.1f} s",
        size(agent.memory_bytes),
        f"{size(agent.output_bytes)} of output",
    ]
    if agent.doing:
        parts.append(f"last: {agent.doing}")
    return visible("  ".join(parts))
