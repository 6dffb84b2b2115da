"""Lets evalve find out how many calls at once a service can take.

The service answers in 50 ms up to twenty calls at once and gets slower beyond that; nobody told the
strategy so. What it decided is in the run's report: run this file with python to print it.
"""

import asyncio

from evalve import ForEach, run
from evalve.concurrency import Adaptive

COMFORTABLE = 20


class Service:
    """Slower the more it is asked at once."""

    def __init__(self) -> None:
        self._busy = 0

    async def double(self, number: int) -> int:
        self._busy += 1
        try:
            await asyncio.sleep(0.05 * max(1.0, self._busy / COMFORTABLE))
        finally:
            self._busy -= 1
        return number * 2


service = Service()
foreach = ForEach(concurrency=Adaptive(initial_concurrency=2, max_concurrency=64, adaptation_interval=0.2))


@foreach("number", range(1500))
async def eval_doubling(number):
    return await service.double(number) == number * 2


if __name__ == "__main__":
    result = run(eval_doubling, experiment="adaptive", fresh=True)
    for decision in result.report["decisions"]:
        print(f"{decision['at_s']:5.1f} s  {decision['from']:>3} → {decision['to']:<3} {decision['reason']}")
