"""A provider's batch API over the network: what is asked, and what its answers mean for us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from evalve.gate.batches.shapes import Api, Lane, Result, Seen
from evalve.gate.messages import Reply, Request, SendError, StreamedReply

_SOON_S = 5.0
_LONGEST_WAIT_S = 300.0
_NOT_NOW = (408, 409, 429, 529)
_TOO_MANY = 429
_NOT_FOUND = 404
_PURPOSE = {"purpose": "batch"}


class Network(Protocol):
    """What carries requests."""

    async def send(self, request: Request) -> Reply: ...

    async def send_file(
        self, request: Request, file: BinaryIO, *, form: Mapping[str, str] | None = None
    ) -> Reply: ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[StreamedReply]: ...


class Later(Exception):
    """Nothing has happened, and it may be tried again after some seconds; `None`: nobody says when."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class Uncertain(Exception):
    """A submission may have arrived, and nobody said so."""


class Refused(Exception):
    """The provider does not do it, and would not do it later."""

    def __init__(self, reply: Reply) -> None:
        text = reply.body[:500].decode(errors="replace").strip()
        super().__init__(f"HTTP {reply.status}: {text}")
        self.reply = reply


class Gone(Exception):
    """The provider does not know the batch, or keeps its results no longer."""


class Courier:
    """One lane's batches, with the credentials of whoever asks."""

    def __init__(self, network: Network, api: Api, lane: Lane, credentials: Mapping[str, str]) -> None:
        self._network = network
        self._api = api
        self._lane = lane
        self._credentials = dict(credentials)

    async def upload(self, path: Path) -> str:
        """The id of the uploaded file; empty where none is needed. Uploading costs nothing."""
        request = self._api.upload(self._lane)
        if request is None:
            return ""
        try:
            with path.open("rb") as file:
                reply = await self._network.send_file(self._signed(request), file, form=_PURPOSE)
        except SendError as error:
            raise Later(str(error)) from error
        return self._api.uploaded(_checked(reply))

    async def create(self, intent: str, file_id: str, path: Path) -> Seen:
        """`Uncertain` where it may have been created without our knowing."""
        request = self._signed(self._api.create(self._lane, intent=intent, file_id=file_id))
        try:
            if file_id:
                reply = await self._network.send(request)
            else:
                with path.open("rb") as file:
                    reply = await self._network.send_file(request, file)
        except SendError as error:
            if error.reached:
                raise Uncertain(str(error)) from error
            raise Later(str(error)) from error
        if reply.status >= 500 and reply.status != 529:
            raise Uncertain(f"HTTP {reply.status}")
        return self._api.seen(self._lane, _checked(reply))

    async def look(self, batch_id: str) -> Seen:
        return self._api.seen(self._lane, _checked(await self._asked(self._api.look(self._lane, batch_id))))

    async def cancel(self, batch_id: str) -> Seen:
        request = self._api.cancel(self._lane, batch_id)
        return self._api.seen(self._lane, _checked(await self._asked(request)))

    async def listed(self, *, since_s: float) -> list[Seen]:
        """The batches that were created since then."""
        found: list[Seen] = []
        after = ""
        while True:
            reply = _checked(await self._asked(self._api.listing(self._lane, after=after)))
            page, after = self._api.page(self._lane, reply)
            found += [seen for seen in page if seen.created_s >= since_s]
            if not after or any(seen.created_s < since_s for seen in page):
                return found

    async def results(self, seen: Seen) -> AsyncIterator[Result]:
        """All of them, in any order, as they come."""
        for url in seen.result_urls:
            request = Request("GET", url, dict(self._lane.headers), b"")
            try:
                async with self._network.stream(self._signed(request)) as reply:
                    if reply.status != 200:
                        body = b"".join([chunk async for chunk in reply.chunks])
                        _checked(Reply(reply.status, reply.headers, body))
                    async for line in _lines(reply.chunks):
                        yield self._api.result(line)
            except SendError as error:
                raise Later(str(error)) from error

    async def _asked(self, request: Request) -> Reply:
        try:
            return await self._network.send(self._signed(request))
        except SendError as error:
            raise Later(str(error)) from error

    def _signed(self, request: Request) -> Request:
        headers = {**request.headers, **self._credentials}
        return Request(request.method, request.url, headers, request.body)


def _checked(reply: Reply) -> Reply:
    if 200 <= reply.status < 300:
        return reply
    if reply.status in _NOT_NOW or reply.status >= 500:
        told = reply.body[:300].decode(errors="replace").strip()
        raise Later(f"HTTP {reply.status}: {told}", _retry_after_s(reply))
    if reply.status == _NOT_FOUND:
        raise Gone(Refused(reply))
    raise Refused(reply)


def _retry_after_s(reply: Reply) -> float | None:
    try:
        asked_s = float(reply.headers.get("retry-after", ""))
    except ValueError:
        return _SOON_S if reply.status == _TOO_MANY else None
    return min(max(0.0, asked_s), _LONGEST_WAIT_S)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest
