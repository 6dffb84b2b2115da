"""Peak memory of a run over 100,000 samples all of which are parked, as for a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import evalve
from bench.measuring import Figure, peak_memory_bytes
from bench.processes import own_folder, python
from evalve import ForEach
from evalve.concurrency import SlidingWindow

SAMPLES = 100_000
PARKED_FOR_S = 5.0


def measure() -> list[Figure]:
    """In a process of its own: its peak is that of nothing else."""
    with own_folder() as folder:
        peak_bytes = int(python("-m", "bench.parked", folder=folder))
    return [Figure("peak RSS with 100,000 samples to be parked", peak_bytes / 1e6, "MB", 200.0)]


def evaluate() -> None:
    def questions() -> Iterator[tuple[str, int]]:
        for number in range(SAMPLES):
            yield (
                f"question {number}, as long as many questions are, so that a row is not next to nothing",
                number,
            )

    @ForEach(concurrency=SlidingWindow(100))("question,number", questions)
    async def eval_parked(question: str, number: int) -> bool:
        await evalve.parked(asyncio.sleep(PARKED_FOR_S), "a batch")
        return number % 2 == 0

    result = asyncio.run(eval_parked(progress="off"))
    assert result.done == SAMPLES, result.done


if __name__ == "__main__":
    evaluate()
    print(peak_memory_bytes())
