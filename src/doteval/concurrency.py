"""doteval's concurrency strategies are evalve's."""

from __future__ import annotations

from evalve.concurrency import (
    Adaptive,
    AdaptiveStrategy,
    AsyncConcurrencyStrategy,
    Batch,
    BatchStrategy,
    Sequential,
    SequentialStrategy,
    SlidingWindow,
    SlidingWindowStrategy,
)

__all__ = [
    "Adaptive",
    "AdaptiveStrategy",
    "AsyncConcurrencyStrategy",
    "Batch",
    "BatchStrategy",
    "Sequential",
    "SequentialStrategy",
    "SlidingWindow",
    "SlidingWindowStrategy",
]
