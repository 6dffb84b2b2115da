"""Recorded tracebacks, cut to a person's own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import evalve
from evalve.show.frames import own_frames, own_place

_EVALVE = Path(evalve.__file__).parent / "evaluators" / "match.py"
_TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/ann/evals/eval_math.py", line 12, in eval_math
    return score(text)
           ^^^^^^^^^^^
  File "{_EVALVE}", line 3, in evaluate
    value = function(text)
  File "/home/ann/.venv/lib/python3.12/site-packages/pkg/parse.py", line 7, in parse
    return json.loads(text)
  File "{json.__file__}", line 346, in loads
    return _default_decoder.decode(s)
json.decoder.JSONDecodeError: Expecting value: line 1
    a second line of the message"""


def test_frames_of_evalve_packages_and_python_are_left_out() -> None:
    assert own_frames(_TRACEBACK) == [
        "Traceback (most recent call last):",
        '  File "/home/ann/evals/eval_math.py", line 12, in eval_math',
        "    return score(text)",
        "           ^^^^^^^^^^^",
        "json.decoder.JSONDecodeError: Expecting value: line 1",
        "    a second line of the message",
    ]


_OF_A_GROUP = f"""\
  + Exception Group Traceback (most recent call last):
  |   File "/home/ann/evals/eval_math.py", line 14, in eval_math
  |     async with asyncio.TaskGroup() as group:
  |   File "{json.__file__}", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/home/ann/evals/prices.py", line 3, in price
    |     return known[name]
    |            ~~~~~^^^^^^
    |   File "{_EVALVE}", line 3, in evaluate
    |     value = function(text)
    | KeyError: 'tea'
    +------------------------------------"""


def test_so_are_they_in_the_errors_of_a_group() -> None:
    assert own_frames(_OF_A_GROUP) == [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/home/ann/evals/eval_math.py", line 14, in eval_math',
        "  |     async with asyncio.TaskGroup() as group:",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "/home/ann/evals/prices.py", line 3, in price',
        "    |     return known[name]",
        "    |            ~~~~~^^^^^^",
        "    | KeyError: 'tea'",
        "    +------------------------------------",
    ]
    assert own_place(_OF_A_GROUP) == "/home/ann/evals/prices.py:3"


def test_the_place_is_the_last_line_that_a_person_wrote() -> None:
    assert own_place(_TRACEBACK) == "/home/ann/evals/eval_math.py:12"


def test_the_place_is_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert own_place(_TRACEBACK.replace("/home/ann", str(tmp_path))) == "evals/eval_math.py:12"


def test_without_a_frame_of_a_person_everything_is_shown() -> None:
    text = f'Traceback (most recent call last):\n  File "{_EVALVE}", line 3, in evaluate\nValueError: no'
    assert own_frames(text) == text.splitlines()
    assert own_place(text) is None
    assert own_place("") is None
