"""Calls through `evalve.model`, as a program: `python -m bench.calling JSON` waits for a line, then calls."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import evalve
from evalve.errors import ModelError
from evalve.gating import house

MODEL = "anthropic/claude-sonnet-4-5"


async def call_all(
    url: str, *, calls: int, window: int, prompt_bytes: int = 400, named: str = "question"
) -> dict[str, Any]:
    """Every call has a prompt of its own; lengths vary by half around `prompt_bytes`."""
    model = evalve.model(MODEL, base_url=url, api_key="key")
    numbers = iter(range(calls))
    began_s = time.monotonic()
    failures: list[str] = []

    async def work() -> None:
        for number in numbers:
            try:
                await model.generate(prompt_of(number, prompt_bytes, named))
            except ModelError as error:
                failures.append(str(error))

    await asyncio.gather(*(work() for _ in range(window)))
    await house().sender.aclose()
    return {"failures": failures, "took_s": time.monotonic() - began_s, **house().account.totals()}


def prompt_of(number: int, prompt_bytes: int, named: str) -> str:
    size = prompt_bytes // 2 + number * 7919 % (prompt_bytes + 1)
    return f"{named} {number} ".ljust(size, "x")


if __name__ == "__main__":
    house()
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asyncio.run(call_all(**json.loads(sys.argv[1])))))
