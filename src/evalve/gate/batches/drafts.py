"""A batch that is being gathered: its requests on disk, little of them in memory."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from evalve.gate.batches.shapes import Api, Lane
from evalve.gate.batches.store import BatchRow, BatchStore, RequestRow

_PREFIX = "evb_"
_STRAY_AFTER_S = 2 * 86_400.0


def new_intent() -> str:
    """Our name for a batch; the ids of its requests begin with it."""
    return _PREFIX + secrets.token_hex(6)


def custom_id(intent: str, number: int) -> str:
    return f"{intent}-{number}"


def number_in(custom: str, intent: str) -> int | None:
    """Of a request of this batch; `None` of any other."""
    name, _, number = custom.rpartition("-")
    return int(number) if name == intent and number.isdecimal() else None


@dataclass(slots=True)
class Draft:
    """Not yet promised to anybody: a process that dies here has lost nothing."""

    lane: Lane
    api: Api
    store: BatchStore
    name: str
    intent: str = field(default_factory=new_intent)
    requests: list[RequestRow] = field(default_factory=list)
    size_bytes: int = 0
    last_added_s: float = 0.0
    is_closed: bool = False
    _file: BinaryIO | None = None

    def is_full_with(self, body: bytes, largest: int | None = None) -> bool:
        most = min(self.api.largest, largest or self.api.largest)
        too_large = self.size_bytes + len(body) + 256 > self.api.largest_bytes
        return bool(self.requests) and (len(self.requests) >= most or too_large)

    def add(self, request: RequestRow, body: bytes, now_s: float) -> None:
        if self._file is None:
            path = self.store.draft_path(self.intent)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        line = self.api.line(self.lane, custom_id(self.intent, request.number), body)
        self._file.write(line + b"\n")
        self.size_bytes += len(line) + 2
        self.requests.append(request)
        self.last_added_s = now_s

    def promised(
        self, is_wanted: Callable[[str], bool], *, digest: str = "", answered: Sequence[RequestRow] = ()
    ) -> BatchRow | None:
        """Store the intent with every request that somebody still wants; `None` where nobody wants any.

        `answered` belong to it as well, and are not sent.
        """
        wanted = [request for request in self.requests if is_wanted(request.key)]
        if self._file is not None:
            self._file.close()
        draft = self.store.draft_path(self.intent)
        if not wanted:
            draft.unlink(missing_ok=True)
            return None
        self._write_body(draft, {request.number for request in wanted})
        batch = BatchRow(
            self.intent, self.lane, "intent", len(wanted), self.name, digest, created_s=time.time()
        )
        self.store.add(batch, [*wanted, *answered])
        draft.unlink(missing_ok=True)
        self.requests = []  # they are on disk, and may be many
        return batch

    def _write_body(self, draft: Path, numbers: set[int]) -> None:
        before, between, behind = self.api.framing()
        path = self.store.body_path(self.intent)
        with (
            draft.open("rb") as lines,
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as body,
        ):
            body.write(before)
            is_first = True
            for request, line in zip(self.requests, lines, strict=True):
                if request.number in numbers:
                    body.write(line[:-1] if is_first else between + line[:-1])
                    is_first = False
            body.write(behind)
            body.flush()
            os.fsync(body.fileno())


def lines_in(path: Path) -> Iterator[bytes]:
    """The requests of a body file, one JSON object each."""
    with path.open("rb") as file:
        for line in file:
            text = line.strip().rstrip(b",")
            if text.startswith(b'{"custom_id"'):
                yield text


def remove_strays(store: BatchStore) -> None:
    """Files of drafts whose process has died, and bodies that are collected."""
    folder = store.path.parent / "batches"
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _STRAY_AFTER_S:
            row = store.batch(path.stem)
            if row is None or row.state == "collected":
                path.unlink(missing_ok=True)


def digest_of(bodies: Iterable[bytes]) -> str:
    hashed = hashlib.sha256()
    for body in bodies:
        hashed.update(len(body).to_bytes(8, "big"))
        hashed.update(body)
    return hashed.hexdigest()
