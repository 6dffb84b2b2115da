"""Events from bytes that are split anywhere: server-sent, one JSON value a line, Amazon's frames."""

from __future__ import annotations

import pytest

from evalve.gate.events import ServerEvents

SSE = b'event: a\ndata: {"n": 1}\n\n: a comment\n\ndata: {"n":\ndata: 2}\n\ndata: [DONE]\n\n'
DATA = [b'{"n": 1}', b'{"n":\n2}', b"[DONE]"]


def events_in(body: bytes, size: int) -> list[bytes]:
    events = ServerEvents()
    came = [event for at in range(0, len(body), size) for event in events.feed(body[at : at + size])]
    return [*came, *events.end()]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_line_may_end_in_any_way_and_chunks_anywhere(line_end: bytes, size: int) -> None:
    assert events_in(SSE.replace(b"\n", line_end), size) == DATA


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_lines_of_json_are_events(size: int) -> None:
    assert events_in(b'\n{"n": 1}\r\n\r\n{"n": "}"}\n{"n": 3}', size) == [
        b'{"n": 1}',
        b'{"n": "}"}',
        b'{"n": 3}',
    ]


def test_json_on_several_lines_is_one_event_at_its_end() -> None:
    events = ServerEvents()

    assert events.feed(b'{\n  "n": 1,\n  "m": {}\n}\n') == []
    assert events.end() == [b'{\n  "n": 1,\n  "m": {}\n}']


def test_the_last_blank_line_may_be_missing() -> None:
    assert events_in(b"data: 1\n\ndata: 2", 3) == [b"1", b"2"]


def test_what_is_no_frame_gives_no_event() -> None:
    assert events_in(b"\0\0\0\x01" + b"\0" * 100, 9) == []
