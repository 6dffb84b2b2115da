"""Raw rows from a source, a few at a time: directly, on a thread of their own, or on the event loop."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from evalve.declare.worker import CLOSE_WITHIN_S, SourceBroke, Worker

_HAND_OVER_S = 0.005
"""A chunk that took longer is handed over as it is, so that a slow source does not delay its first row."""

_logger = logging.getLogger(__name__)


class Pull(Protocol):
    """One pass over raw rows."""

    @property
    def size(self) -> int | None:
        """How many rows there are, where that is known."""

    async def take(self, at_most: int) -> list[Any]:
        """The next rows; none at the end. Raises `SourceBroke`."""

    async def close(self) -> None: ...


class PullDirectly:
    """From memory: nothing to wait for."""

    def __init__(self, rows: Iterable[Any], size: int) -> None:
        self.size: int | None = size
        self._iterator = iter(rows)

    async def take(self, at_most: int) -> list[Any]:
        try:
            return list(islice(self._iterator, at_most))
        except Exception as error:  # a dict that changed meanwhile
            raise SourceBroke(error) from error

    async def close(self) -> None:
        pass


class PullOnThread:
    """From any other iterator, which may block and may belong to the thread that it started on."""

    def __init__(
        self,
        worker: Worker,
        make: Callable[[], Iterator[Any]],
        *,
        now_s: Callable[[], float],
        size: int | None = None,
    ) -> None:
        self.size = size
        self._worker = worker
        self._make = make
        self._now_s = now_s
        self._iterator: Iterator[Any] | None = None
        self._broke: SourceBroke | None = None
        self._ended = False

    async def take(self, at_most: int) -> list[Any]:
        rows: list[Any] = []
        if not self._ended and self._broke is None:
            rows = await self._worker.run(lambda: self._pull(at_most))
        if not rows and self._broke is not None:
            raise self._broke
        return rows

    def _pull(self, at_most: int) -> list[Any]:
        rows: list[Any] = []
        try:
            if self._iterator is None:
                self._iterator = self._make()
            began_s = self._now_s()
            while len(rows) < at_most:
                rows.append(next(self._iterator))
                if self._now_s() - began_s > _HAND_OVER_S:
                    break
        except StopIteration:
            self._ended = True
        except BaseException as error:  # whatever it is, the loop must hear of it, not wait for ever
            self._broke = SourceBroke(error)
        return rows

    async def close(self) -> None:
        self._ended = True
        await self._worker.stop(self._close_iterator)

    def _close_iterator(self) -> None:
        iterator, self._iterator = self._iterator, None
        if inspect.isgenerator(iterator):
            try:
                iterator.close()
            except Exception:  # the rows were read: what cleaning up raises changes no result
                _logger.warning("closing %s raised", iterator.__qualname__, exc_info=True)


class PullOnLoop:
    """From an async iterator, awaited where the caller is."""

    def __init__(self, rows: Any, *, now_s: Callable[[], float]) -> None:
        self.size: int | None = None
        self._now_s = now_s
        self._rows = rows
        self._iterator: AsyncIterator[Any] | None = None
        self._broke: SourceBroke | None = None
        self._ended = False

    async def take(self, at_most: int) -> list[Any]:
        rows: list[Any] = []
        began_s = self._now_s()
        try:
            if self._iterator is None:
                self._iterator = aiter(self._rows)
            while len(rows) < at_most and not self._ended and self._broke is None:
                rows.append(await anext(self._iterator))
                if self._now_s() - began_s > _HAND_OVER_S:
                    break
        except StopAsyncIteration:
            self._ended = True
        except Exception as error:
            self._broke = SourceBroke(error)
        if not rows and self._broke is not None:
            raise self._broke
        return rows

    async def close(self) -> None:
        self._ended = True
        if not inspect.isasyncgen(self._iterator) or self._iterator.ag_running:
            return
        try:
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self._iterator.aclose()
        except Exception:  # as with other generators
            _logger.warning("closing %s raised", self._iterator.__qualname__, exc_info=True)


class PullFromCall:
    """From what a function returns, called at the first row; on the thread, unless it is async."""

    def __init__(
        self, worker: Worker, function: Callable[[], Any], open_result: Callable[[Any], Pull]
    ) -> None:
        self._worker = worker
        self._function = function
        self._open_result = open_result
        self._opened: Pull | None = None

    @property
    def size(self) -> int | None:
        return self._opened.size if self._opened is not None else None

    async def take(self, at_most: int) -> list[Any]:
        if self._opened is None:
            self._opened = await self._call()
        return await self._opened.take(at_most)

    async def _call(self) -> Pull:
        function = self._function
        is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        try:
            result = function() if is_async else await self._worker.run(function)
            if inspect.isawaitable(result):
                result = await result
            return self._open_result(result)
        except SourceBroke:
            raise
        except Exception as error:
            raise SourceBroke(error) from error

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
        await self._worker.stop()


class Kept:
    """The rows of a one-shot iterator, kept so that several passes can be made over it."""

    def __init__(self, pull: Pull) -> None:
        self.pull = pull
        self._rows: list[Any] = []
        self._lock = asyncio.Lock()

    async def take(self, start: int, at_most: int) -> list[Any]:
        async with self._lock:
            if start == len(self._rows):
                self._rows += await self.pull.take(at_most)
        return self._rows[start : start + at_most]


class PullKept:
    """One pass over kept rows: what others pulled already, then on from there."""

    def __init__(self, kept: Kept) -> None:
        self.size = kept.pull.size
        self._kept = kept
        self._position = 0

    async def take(self, at_most: int) -> list[Any]:
        rows = await self._kept.take(self._position, at_most)
        self._position += len(rows)
        return rows

    async def close(self) -> None:
        """The iterator stays open: another pass may go on with it."""
