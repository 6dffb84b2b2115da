"""One line for each sample that is running: which, for how long, what it waits for, what it takes."""

from __future__ import annotations

from collections.abc import Iterator

from evalve.contracts import RunningAgent, RunningSample, Tally
from evalve.show import figures
from evalve.show.live.status_line import Style, columns, duration, shortened
from evalve.show.tables import visible

LONGEST_ID = 32
MOST_SAMPLES = 20


def worker_lines(tally: Tally, *, now_s: float, style: Style, width: int | None = None) -> list[str]:
    """The longest running first. `width` is the terminal's; `None` for a log, where lines may be long."""
    # `list` at once: the runner's thread adds and removes while another one shows
    running, left_out = list(tally.running.values()), 0
    if len(running) > MOST_SAMPLES:
        running, left_out = running[:MOST_SAMPLES], len(running) - MOST_SAMPLES
    agents = {agent.sample_id: agent for agent in list(tally.agents.values())}
    names = [shortened(visible(_name(one)), LONGEST_ID, style) for one in running]
    longest = max(map(columns, names), default=0)
    lines = [f"  {tally.decided}"] if tally.decided else []
    for one, name in zip(running, names, strict=True):
        told = "  ".join(_told(one, agents.get(one.sample_id), now_s))
        lines.append(f"  {name}{' ' * (longest - columns(name))}  {told}")
    if left_out:
        lines.append(f"  + {left_out} more")
    return lines if width is None else [shortened(line, width, style) for line in lines]


def _name(one: RunningSample) -> str:
    return f"{one.sample_id} #{one.repeat}" if one.repeat else one.sample_id


def _told(one: RunningSample, agent: RunningAgent | None, now_s: float) -> Iterator[str]:
    yield f"{duration(now_s - one.started_s):>7}"
    waits_for = one.waits_for()
    yield f"waiting: {waits_for}" if waits_for else "running"
    if agent is None:
        return
    yield agent.agent
    if agent.started_s is None:
        yield "starting"
        return
    yield f"cpu {agent.cpu_s:.1f} s"
    yield figures.size(agent.memory_bytes)
    if agent.output_bytes:
        yield f"{figures.size(agent.output_bytes)} of output"
    if agent.doing:
        yield visible(agent.doing)
