"""Cassettes: readable, stable, safe to publish, and replayed as they were."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from evalve.gate.cache.cassettes import Cassettes
from evalve.gate.cache.entries import Entry
from evalve.gate.messages import Usage

KEY = "ab" * 32
ENTRY = Entry(
    200,
    {"content-type": "application/json", "request-id": "req_1"},
    b'{"id":"msg_1","content":[{"text":"gr\\u00fcn","type":"text"}]}',
    "anthropic",
    "claude",
    usage=Usage(3, 4),
)


def test_a_cassette_is_easy_to_read(tmp_path: Path) -> None:
    Cassettes(tmp_path / "new").record(KEY, ENTRY)

    (path,) = (tmp_path / "new").iterdir()
    assert path.name == f"{KEY}.json"
    assert (
        path.read_text("utf-8")
        == f"""{{
  "key": "{KEY}",
  "provider": "anthropic",
  "model": "claude",
  "status": 200,
  "headers": {{
    "content-type": "application/json",
    "request-id": "req_1"
  }},
  "usage": {{
    "input_tokens": 3,
    "output_tokens": 4,
    "cache_read_tokens": 0,
    "cache_write_tokens": 0
  }},
  "body": {{
    "id": "msg_1",
    "content": [
      {{
        "text": "grün",
        "type": "text"
      }}
    ]
  }}
}}
"""
    )


def test_recording_what_was_replayed_gives_the_same_file(tmp_path: Path) -> None:
    cassettes = Cassettes(tmp_path)
    cassettes.record(KEY, ENTRY)
    first = (tmp_path / f"{KEY}.json").read_bytes()
    replayed = cassettes.get(KEY)
    assert replayed is not None

    cassettes.record(KEY, replayed)

    assert (tmp_path / f"{KEY}.json").read_bytes() == first
    assert json.loads(replayed.body) == json.loads(ENTRY.body)
    assert replayed.usage == Usage(3, 4)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"event: a\ndata: {}\n\nevent: b\r\n\r\n",
        b"\xff\x00",
        b'{"n": NaN}',
        b'{"t":"\\ud800"}',
        b'"x"',
        b"1",
    ],
    ids=["empty", "stream", "binary", "nan", "surrogate", "string", "number"],
)
def test_any_body_comes_back(tmp_path: Path, body: bytes) -> None:
    cassettes = Cassettes(tmp_path)
    cassettes.record(KEY, Entry(200, {}, body))

    got = cassettes.get(KEY)

    assert got is not None
    assert got.body == body


def test_no_header_that_names_a_person_or_lets_them_in_is_written(tmp_path: Path) -> None:
    headers = {
        "authorization": "Bearer SECRET",
        "x-api-key": "SECRET",
        "set-cookie": "SECRET",
        "anthropic-organization-id": "SECRET",
        "openai-project": "SECRET",
        "content-type": "text/plain",
    }
    Cassettes(tmp_path).record(KEY, Entry(200, headers, b"x"))

    assert "SECRET" not in (tmp_path / f"{KEY}.json").read_text()


@pytest.mark.parametrize("key", ["../../etc/passwd", "", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"])
def test_only_a_key_can_name_a_file(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="is not a cache key"):
        Cassettes(tmp_path).record(key, ENTRY)


def test_what_was_never_recorded_is_missing(tmp_path: Path) -> None:
    cassettes = Cassettes(tmp_path / "nowhere")

    assert cassettes.get(KEY) is None
    assert not cassettes.has(KEY)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"key": "other"}',
        f'{{"key": "{KEY}"}}',
        f'{{"key": "{KEY}", "status": 200, "usage": null, "headers": [], "body": 1}}',
    ],
    ids=["not JSON", "no object", "another key", "fields missing", "wrong field"],
)
def test_a_cassette_that_cannot_be_read_is_a_miss_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / f"{KEY}.json").write_text(text)

    assert Cassettes(tmp_path).get(KEY) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert (tmp_path / f"{KEY}.json").exists()
