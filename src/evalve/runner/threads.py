"""Threads that a sample starts act for that sample, so that what they call counts as its calls.

A context variable says whose a call is. `asyncio.to_thread` hands it on; executors and bare threads do not
(bare ones may from Python 3.14 on), and a sample's calls from there would be nobody's: missing in its record,
answered alike for every repeat, and unable to stop a run whose budget is spent.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from evalve.contracts import SAMPLE


def carry_samples_into_threads() -> None:
    """From now on, in this process. Where no sample is under way, threads begin as they always do."""
    if not _CARRYING:
        _CARRYING.append(True)
        ThreadPoolExecutor.submit = _carrying_submit(ThreadPoolExecutor.submit)  # type: ignore[method-assign]
        threading.Thread.start = _carrying_start(threading.Thread.start)  # type: ignore[assignment, method-assign]


_CARRYING: list[bool] = []


def _carrying_submit(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(submit)
    def carrying(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        if SAMPLE.get() is None:
            return submit(pool, fn, *args, **more)
        # the pool's thread serves other samples later: only the work is this one's, not the thread
        return Context().run(submit, pool, copy_context().run, fn, *args, **more)

    return carrying


def _carrying_start(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(start)
    def carrying(thread: threading.Thread) -> None:
        if SAMPLE.get() is not None:
            thread.run = functools.partial(copy_context().run, thread.run)  # type: ignore[method-assign]
        start(thread)

    return carrying
