"""Peak memory over a million generated samples, beside that over ten thousand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from bench.measuring import Figure, peak_memory_bytes
from bench.processes import own_folder, python
from evalve import ForEach
from evalve.concurrency import SlidingWindow

FEW = 10_000
MANY = 1_000_000


def measure() -> list[Figure]:
    """One process each: the peak of a process never sinks."""
    few_mb, many_mb = _peak_mb(FEW), _peak_mb(MANY)
    return [
        Figure("peak RSS over 1,000,000 samples, above that over 10,000", many_mb - few_mb, "MB", 50.0),
        Figure("peak RSS over 10,000 samples", few_mb, "MB"),
        Figure("peak RSS over 1,000,000 samples", many_mb, "MB"),
    ]


def _peak_mb(samples: int) -> float:
    with own_folder() as folder:
        return int(python("-m", "bench.memory", str(samples), folder=folder)) / 1e6


def evaluate(samples: int) -> None:
    def numbers() -> Iterator[tuple[str, int]]:
        for number in range(samples):
            yield f"question {number}", number

    @ForEach(concurrency=SlidingWindow(100))("question,number", numbers)
    async def eval_even(question: str, number: int) -> bool:
        return number % 2 == 0

    result = asyncio.run(eval_even(progress="off"))
    assert result.done == samples, result.done


if __name__ == "__main__":
    evaluate(int(sys.argv[1]))
    print(peak_memory_bytes())
