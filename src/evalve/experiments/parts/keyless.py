"""A key that is missing is missing for all samples: the first call that needs it stops the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from evalve.contracts import SAMPLE
from evalve.errors import MissingKey
from evalve.records import Result

Evaluate = Callable[..., Awaitable[Result]]


def stops_without_key(evaluate: Evaluate) -> Evaluate:
    """Not before that call: what is in the cache needs no key."""

    @wraps(evaluate)
    async def evaluate_or_stop(*task: Any, **values: Any) -> Result:
        try:
            return await evaluate(*task, **values)
        except MissingKey as error:
            if (sample := SAMPLE.get()) is not None:
                sample.stop_run(str(error))
            raise

    return evaluate_or_stop
