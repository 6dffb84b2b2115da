"""What an attempt leaves behind as it goes: events in order, bounded in size, without keys."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, Protocol

from evalve.clock import utc_text
from evalve.errors import EvalveError
from evalve.jsontext import from_json, to_json
from evalve.records import Artefact
from evalve.secrecy import without_secrets

TEXT_BYTES = 16_000
ATTEMPT_BYTES = 256_000
FILE_BYTES = 10_000_000
ATTEMPT_FILE_BYTES = 50_000_000

_EVENT_BYTES = 64_000
"""One event with more texts than this is kept as one text, or it alone would fill a trace."""
_ENVELOPE_BYTES = 300
"""About what an event takes besides its texts; the last one, which says what is missing, takes less."""
_LONGEST_KEY = 500
_LOCK = threading.Lock()  # one for all: a lock for each of 100,000 waiting samples would not be free


class NotKept(Exception):
    """Why a file is not kept."""


class KeepFile(Protocol):
    """Keeps a file by its content; any thread may ask for it."""

    def __call__(self, source: Path, *, name: str) -> Artefact: ...


_Call = tuple[tuple[Any, ...], bytes | str, bytes | str | None]
"""A call as it came (see `_CALL_PARTS`), its request and its answer: decoded only when it is written."""
_CALL_PARTS = (
    "provider",
    "model",
    "endpoint",
    "status",
    "problem",
    "cached",
    "streamed",
    "tries",
    "at",
    "wall_s",
    "usage",
    "cost_usd",
    "role",
)


class Trace:
    """The events of one attempt, all its tries included. Any thread may add to it."""

    # in the class, because most attempts leave nothing, and each of them makes a trace
    _entries: tuple[str | _Call, ...] | list[str | _Call] = ()
    _hashes: tuple[str, ...] = ()
    _file_bytes = 0
    _size_bytes = 0
    _left_out = 0

    def __init__(
        self,
        *,
        keep_file: KeepFile | None = None,
        secrets: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Without `keep_file`, files are not kept. `tell` is told the JSON of each event as it comes."""
        self._keep_file = keep_file
        self._secrets = secrets
        self._tell = tell

    @property
    def artefacts(self) -> tuple[str, ...]:
        """The hashes of the files that were kept, as often as they were."""
        return self._hashes

    def add(self, kind: str, /, **data: Any) -> None:
        """Note an event. Its data is copied: what becomes of a list afterwards is another event's."""
        self._add(kind, data, utc_text(time.time()))

    def call(
        self,
        *,
        provider: str,
        model: str,
        endpoint: str,
        request: bytes,
        answer: bytes | None,
        status: int | None,
        problem: str | None,
        cached: bool,
        streamed: bool,
        tries: int,
        started_s: float,
        wall_s: float,
        usage: Mapping[str, int] | None,
        cost_usd: float | None,
        role: str = "",
    ) -> None:
        """Note a call of the gate. `started_s` is what `time.time()` said when it began."""
        parts = (
            provider,
            model,
            endpoint,
            status,
            problem,
            cached,
            streamed,
            tries,
            started_s,
            wall_s,
            usage,
            cost_usd,
            role,
        )
        asked, answered = self._held(request), None if answer is None else self._held(answer)
        self._keep((parts, asked, answered), len(asked) + len(answered or ()))

    def file(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a file as it is now, by its content. One that cannot be kept is an event that says why."""
        self._add_file(str(Path(path).absolute()), name, utc_text(time.time()))

    def take_over(self, event_json: str) -> None:
        """Add what another trace has told, from another process for one. Its texts were cut there."""
        self._keep_text(without_secrets(event_json, self._secrets))

    def go_on_from(self, events: Sequence[Mapping[str, Any]], artefacts: tuple[str, ...]) -> None:
        """Begin with what was recorded of the attempt before."""
        for event in events:
            if event.get("kind") == "left_out":
                self.leave_out(int(event.get("events", 1)))
            else:
                self.take_over(to_json(event))
        self._hashes = artefacts

    def leave_out(self, count: int) -> None:
        """Count events that found no room in another trace."""
        with _LOCK:
            self._left_out += count

    @property
    def left_out(self) -> int:
        """How many events found no room."""
        return self._left_out

    def events(self) -> list[dict[str, Any]]:
        """The events as plain values: `kind`, `at` (UTC) and what belongs to the kind."""
        return [from_json(text) for text in self._written()]

    def to_json(self) -> str | None:
        """`None` where nothing happened."""
        if not self._entries and not self._left_out:
            return None
        texts = self._written()
        return f"[{','.join(texts)}]" if texts else None

    # -- adding

    def _add(self, kind: str, data: Mapping[str, Any], at: str) -> None:
        text = self._event_json(kind, data, at)
        if len(text) > TEXT_BYTES:  # otherwise no text in it can be too long
            text = self._event_json(kind, self._cut_inside(from_json(to_json(data))), at)
        if len(text) > _EVENT_BYTES:
            text = self._event_json(kind, {"data": self._cut(to_json(data))}, at)
        self._keep_text(text)

    def _event_json(self, kind: str, data: Mapping[str, Any], at: str) -> str:
        own = {f"{key}_" if key in ("kind", "at") else key: value for key, value in data.items()}
        return without_secrets(to_json({**own, "kind": kind, "at": at}), self._secrets)

    def _cut_inside(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._cut(value)
        if isinstance(value, list):
            return [self._cut_inside(item) for item in value]
        if isinstance(value, dict):
            return {self._cut(key): self._cut_inside(item) for key, item in value.items()}
        return value

    def _cut(self, text: str) -> str:
        """The text's beginning, and how much is missing."""
        if len(text.encode("utf-8", "surrogatepass")) <= TEXT_BYTES:
            return text
        # masked before it is cut, so that no half of a key is left
        beginning = without_secrets(text[: TEXT_BYTES + _LONGEST_KEY], self._secrets)
        kept = beginning.encode("utf-8", "surrogatepass")[:TEXT_BYTES].decode("utf-8", "ignore")
        more = len(text) - len(kept)
        return f"{kept}… {more:,} more character{'' if more == 1 else 's'}"

    def _held(self, raw: bytes) -> bytes | str:
        """The bytes themselves, which costs nothing; of long ones a part, because a sample may wait long."""
        return raw if len(raw) <= TEXT_BYTES else self._cut(raw.decode("utf-8", "replace"))

    def _keep_text(self, text: str) -> None:
        self._keep(text, len(text) - _ENVELOPE_BYTES)

    def _keep(self, entry: str | _Call, texts_bytes: int) -> None:
        with _LOCK:
            size_bytes = self._size_bytes + _ENVELOPE_BYTES + max(0, texts_bytes)
            # nothing follows what was left out: a trace is whole up to its last event
            if self._left_out or size_bytes > ATTEMPT_BYTES:
                self._left_out += 1
                return
            self._size_bytes = size_bytes
            if isinstance(self._entries, tuple):
                self._entries = []
            self._entries.append(entry)
        if self._tell is not None:
            self._tell(self._text_of(entry))

    # -- files

    def keep_file(self, source: Path, *, name: str) -> Artefact:
        """Keep a file for whoever notes the event; `NotKept` says why it cannot be."""
        try:
            return self._kept(source, name)
        except (OSError, ValueError, EvalveError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            raise NotKept(why or str(error)) from error

    def _add_file(self, path: str, name: str | None, at: str) -> None:
        named = name or Path(path).name
        try:
            kept = self.keep_file(Path(path), name=named)
            self._add("file", {"name": named, "hash": kept.hash, "size_bytes": kept.size_bytes}, at)
        except NotKept as why:  # the sample goes on without it
            self._add("file", {"name": named, "problem": f"not kept: {why} ({path})"}, at)

    def _kept(self, path: Path, name: str) -> Artefact:
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise NotKept("it is no file")
        if size_bytes > FILE_BYTES:
            raise NotKept(f"{size_bytes:,} bytes are more than {FILE_BYTES // 1_000_000} MB")
        if self._keep_file is None:
            raise NotKept("nobody keeps files here")
        with _LOCK:
            if self._file_bytes + size_bytes > ATTEMPT_FILE_BYTES:
                most = ATTEMPT_FILE_BYTES // 1_000_000
                raise NotKept(f"the files of one attempt would be more than {most} MB")
            self._file_bytes += size_bytes
        kept = self._keep_file(path, name=name)
        with _LOCK:
            self._hashes = (*self._hashes, kept.hash)
        return kept

    # -- writing

    def _written(self) -> list[str]:
        """The JSON of every event, the last of them about those that found no room."""
        with _LOCK:
            entries, left_out = tuple(self._entries), self._left_out
        texts: list[str] = []
        size_bytes = _ENVELOPE_BYTES
        for place, entry in enumerate(entries):
            text = self._text_of(entry)
            size_bytes += len(text) + 1
            if size_bytes > ATTEMPT_BYTES:  # escaping made it larger than was reckoned with
                left_out += len(entries) - place
                break
            texts.append(text)
        if left_out:
            texts.append(self._event_json("left_out", _left_out(left_out), utc_text(time.time())))
        return texts

    def _text_of(self, entry: str | _Call) -> str:
        return entry if isinstance(entry, str) else self._call_json(entry)

    def _call_json(self, call: _Call) -> str:
        parts, request, answer = call
        event = dict(zip(_CALL_PARTS, parts, strict=True))
        event["kind"] = "call"
        if not event["role"]:  # the sample itself
            del event["role"]
        event["at"] = utc_text(event["at"])
        # the long texts are put behind the rest, which saves a copy of them
        request_json = encode_basestring_ascii(_decoded(request))
        answer_json = "null" if answer is None else encode_basestring_ascii(_decoded(answer))
        text = f'{to_json(event)[:-1]},"request":{request_json},"answer":{answer_json}}}'
        # a key that nobody knows of can only come back in an error; looking for one costs 30 µs a call
        status = event["status"]
        is_error = event["problem"] is not None or status is None or status >= 400
        return without_secrets(text, self._secrets, look_alikes=is_error)


def _left_out(count: int) -> dict[str, Any]:
    events = "1 more event was" if count == 1 else f"{count:,} more events were"
    return {"events": count, "text": f"{events} left out: a trace has at most {ATTEMPT_BYTES // 1000} kB"}


def _decoded(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
