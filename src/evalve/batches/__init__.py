"""Many requests at once, at half price, within a day; and the batches of this machine.

batch = evalve.batches.submit(requests)      # as providers write them, or {"model": …, "prompt": …}
for one in evalve.batches.results(batch): …  # waits; also in another process, also after a crash
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalve.batches.asking import results, results_async, submit, submit_async

__all__ = ["results", "results_async", "submit", "submit_async"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.asking"), name)
