"""A run of all agents that misbehave: `python -m bench.sandbox.campaign URL ROUNDS` tells what came of it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import evalve
from bench.sandbox.agents import AGENTS, SCHEMA, SEED, began_clean, began_clean_in_call
from evalve import ForEach
from evalve.concurrency import SlidingWindow

AT_ONCE = 6
DATABASES = 4


def campaign(url: str, rounds: int, agents: list[str] | None = None) -> Any:
    """What came of every agent, so many times each, in a random order that is always the same."""
    Path("schema.sql").write_text(SCHEMA)
    Path("seed.sql").write_text(SEED)
    lender = evalve.sandboxes.postgres("schema.sql", "seed.sql", url=url, size=DATABASES, lock_timeout_s=2)
    rows = [(f"{name} {number}", name) for name in agents or AGENTS for number in range(rounds)]
    random.Random(10).shuffle(rows)

    @ForEach(concurrency=SlidingWindow(AT_ONCE))("id,agent", rows)
    async def eval_faults(id: str, agent: str, db: Any = lender) -> Any:
        in_call = "call" in agent or "session" in agent
        wrong = await (began_clean_in_call(db) if in_call else began_clean(db))
        try:
            await AGENTS[agent](db)
        except ValueError:
            pass
        return evalve.Result(evalve.Score("clean", not wrong, [evalve.metrics.accuracy()]), response=wrong)

    # accepting: a sample at work when its process is killed twice would else be taken for what kills it
    return evalve.run(eval_faults, experiment="faults", progress="off", accept_changes=True)


if __name__ == "__main__":
    result = campaign(sys.argv[1], int(sys.argv[2]))
    told = {
        "done": result.done,
        "wrong": [record.response for record in result if record.response],
        "failed": [f"{record.sample_id}: {record.error}" for record in result if record.error],
        "notes": result.report["notes"],
    }
    print(json.dumps(told))
