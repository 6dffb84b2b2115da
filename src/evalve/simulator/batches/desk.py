"""What both batch APIs do alike: take requests in, withhold answers, give every request what it came to."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from evalve.clock import Clock
from evalve.simulator.accounts import InputUsage
from evalve.simulator.answers import output_for
from evalve.simulator.apis.wire import Api, encoded
from evalve.simulator.asks import BadRequest, digest_of, hash_of_key
from evalve.simulator.batches.book import Batch, BatchedRequest, Book
from evalve.simulator.batches.settings import CrashPoint
from evalve.simulator.behaviour import Behaviour
from evalve.simulator.draws import Draw
from evalve.simulator.stats import Stats

_ANSWERS_IN_A_PIECE = 200


class BatchApi(Protocol):
    """One provider's batch API."""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """`None` where nothing of it is at that path."""


@dataclass(slots=True)
class Desk:
    """The simulator's parts that batches need."""

    behaviour: Callable[[], Behaviour]
    stats: Callable[[], Stats]
    clock: Clock
    book: Book

    def key_of(self, api: Api, request: web.BaseRequest) -> str:
        """The hashed key; `PermissionError` where it is not valid."""
        key, keys = api.key(request.headers), self.behaviour().keys
        if keys is not None and key not in keys:
            raise PermissionError("the key is not one of those that the behaviour names")
        return hash_of_key(key)

    async def reach(self, point: CrashPoint) -> None:
        """Withhold the answer here, the first time, until the client has gone."""
        stats = self.stats()
        if self.behaviour().batches.crash_point == point and not stats.crash_points[point]:
            stats.crash_points[point] += 1
            await self.clock.sleep(86_400.0)

    def take_in(self, batch: Batch) -> Batch:
        stats = self.stats()
        stats.batches += 1
        for request in batch.requests:
            stats.count_batched(request.digest)
        return self.book.add(batch)

    def count_ended(self, batch: Batch) -> None:
        if not batch.is_counted and batch.has_ended(self.clock.now_s()):
            batch.is_counted = True
            for fate, count in batch.counts().items():
                self.stats().batch_results[fate] += count

    def utc_s(self) -> float:
        return self.clock.utc_now().timestamp() + self.behaviour().clock_skew_s

    def answered(self, api: Api, batch: Batch, request: BatchedRequest) -> dict[str, Any]:
        """What the model says to one request; `BadRequest` where it cannot be understood."""
        behaviour = self.behaviour()
        if request.body.get("stream"):
            raise BadRequest("stream: is not supported in batches")
        ask = api.read(request.body, request.digest)
        draw = Draw(behaviour.seed, ask.digest, 0)
        ordinal = batch.requests.index(request) if isinstance(behaviour.answers, list | tuple) else 0
        try:
            output = output_for(
                ask, script=behaviour.answers, length=behaviour.output, ordinal=ordinal, draw=draw
            )
        except Exception as error:  # of a person's script: one request errs, the others have answers
            raise BadRequest(f"the script raised {type(error).__name__}: {error}") from error
        usage = InputUsage(ask.input_tokens)
        identity = f"{random.Random(f'{batch.id}/{request.custom_id}').getrandbits(48):012x}"
        return api.whole(ask, output, usage, identity)

    async def send_lines(
        self, request: web.BaseRequest, lines: Iterable[Mapping[str, Any]], count: int
    ) -> web.StreamResponse:
        """JSON lines as a file that is downloaded."""
        await self.reach("before_results")
        response = web.StreamResponse(headers={"content-type": "application/x-jsonl"})
        await response.prepare(request)
        sent = 0
        for piece, size in _pieces(lines):
            if sent < count / 2 <= sent + size and self._withholds("half_results"):
                lines_of_piece = piece.splitlines(keepends=True)
                await response.write(b"".join(lines_of_piece[: max(1, len(lines_of_piece) // 2)]))
                await self.reach("half_results")
            await response.write(piece)
            sent += size
        await response.write_eof()
        return response

    def _withholds(self, point: CrashPoint) -> bool:
        return self.behaviour().batches.crash_point == point and not self.stats().crash_points[point]


def _pieces(lines: Iterable[Mapping[str, Any]]) -> Iterator[tuple[bytes, int]]:
    piece: list[bytes] = []
    for line in lines:
        piece.append(encoded(line) + b"\n")
        if len(piece) == _ANSWERS_IN_A_PIECE:
            yield b"".join(piece), len(piece)
            piece = []
    if piece:
        yield b"".join(piece), len(piece)


def batched_request(custom_id: Any, body: Any, url: str = "") -> BatchedRequest:
    """One request; the same body has the same digest in a batch and alone, if it is written compactly."""
    if not isinstance(custom_id, str) or not custom_id:
        raise BadRequest("custom_id: Field required")
    if not isinstance(body, dict):
        raise BadRequest(f"{custom_id}: the request must be a JSON object")
    return BatchedRequest(custom_id, body, digest_of(encoded(body)), url)


def refuse_twins(requests: Iterable[BatchedRequest]) -> None:
    seen: set[str] = set()
    for request in requests:
        if request.custom_id in seen:
            raise BadRequest(f"custom_id {request.custom_id!r} occurs twice; they must be unique")
        seen.add(request.custom_id)


def parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body
