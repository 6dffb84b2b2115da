"""What a trace keeps, how it is bounded, and what it never shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evalve.records import Artefact
from evalve.traces import Trace

STARTED_S = 1_700_000_000.25


def call(trace: Trace, **said: Any) -> None:
    """A whole answer to a short request, where nothing else is said."""
    trace.call(
        **{
            "provider": "anthropic",
            "model": "claude-x",
            "endpoint": "/v1/messages",
            "request": b'{"messages": []}',
            "answer": b'{"content": []}',
            "status": 200,
            "problem": None,
            "cached": False,
            "streamed": False,
            "tries": 1,
            "started_s": STARTED_S,
            "wall_s": 0.5,
            "usage": {"input_tokens": 3},
            "cost_usd": 0.25,
            **said,
        }
    )


def stored(trace: Trace) -> list[dict[str, Any]]:
    """The events as they come back from a store."""
    text = trace.to_json()
    assert text is not None
    events: list[dict[str, Any]] = json.loads(text)
    return events


def without_instants(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key != "at"} for event in events]


def test_events_are_kept_in_order_with_their_instants() -> None:
    trace = Trace()

    trace.add("note", text="begins")
    trace.add("tool_call", name="search", arguments={"q": "x"}, result=[1, None])

    assert without_instants(stored(trace)) == [
        {"kind": "note", "text": "begins"},
        {"kind": "tool_call", "name": "search", "arguments": {"q": "x"}, "result": [1, None]},
    ]
    assert all(event["at"].endswith("+00:00") for event in stored(trace))
    assert trace.events() == stored(trace)


def test_a_trace_without_events_is_nothing() -> None:
    assert Trace().to_json() is None
    assert Trace().events() == []


def test_a_call_has_request_and_answer_as_texts_and_what_it_came_to() -> None:
    trace = Trace()

    call(trace, answer='{"text": "é"}'.encode(), tries=2)

    assert stored(trace) == [
        {
            "kind": "call",
            "at": "2023-11-14T22:13:20.250+00:00",
            "provider": "anthropic",
            "model": "claude-x",
            "endpoint": "/v1/messages",
            "request": '{"messages": []}',
            "answer": '{"text": "é"}',
            "status": 200,
            "problem": None,
            "cached": False,
            "streamed": False,
            "tries": 2,
            "wall_s": 0.5,
            "usage": {"input_tokens": 3},
            "cost_usd": 0.25,
        }
    ]


def test_a_call_without_an_answer_says_its_problem() -> None:
    trace = Trace()

    call(trace, answer=None, status=None, problem="no connection", usage=None, cost_usd=None)

    (event,) = stored(trace)
    assert (event["answer"], event["status"], event["problem"]) == (None, None, "no connection")


def test_data_is_copied_when_the_event_is_added() -> None:
    trace = Trace()
    messages = [{"role": "user"}]

    trace.add("turn", messages=messages)
    messages.append({"role": "assistant"})

    assert without_instants(stored(trace)) == [{"kind": "turn", "messages": [{"role": "user"}]}]


def test_data_that_json_cannot_hold_is_written_as_text() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    trace = Trace()

    trace.add("note", text=Broken(), ratio=float("nan"))

    assert without_instants(stored(trace)) == [
        {"kind": "note", "text": "<Broken whose repr raised RuntimeError>", "ratio": "nan"}
    ]


def test_data_named_like_an_events_own_parts_is_kept_beside_them() -> None:
    trace = Trace()

    trace.add("step", kind="inner", at="home")

    assert without_instants(stored(trace)) == [{"kind": "step", "kind_": "inner", "at_": "home"}]


def test_a_long_text_is_cut_with_a_note_that_says_how_much_is_missing() -> None:
    trace = Trace()

    trace.add("note", text="a" * 28_345)
    trace.add("tool_call", arguments={"lines": ["b" * 16_001, "short"]})
    call(trace, request=b"c" * 20_000, answer="é".encode() * 10_000)

    note, tool_call, made = stored(trace)
    assert note["text"] == "a" * 16_000 + "… 12,345 more characters"
    assert tool_call["arguments"]["lines"] == ["b" * 16_000 + "… 1 more character", "short"]
    assert made["request"] == "c" * 16_000 + "… 4,000 more characters"
    assert made["answer"] == "é" * 8_000 + "… 2,000 more characters"


def test_a_text_of_just_the_bound_is_whole() -> None:
    trace = Trace()

    trace.add("note", text="a" * 16_000)

    assert stored(trace)[0]["text"] == "a" * 16_000


def test_an_event_of_very_many_values_is_kept_as_the_beginning_of_its_text() -> None:
    trace = Trace()

    trace.add("state", numbers=list(range(100_000)))

    (event,) = stored(trace)
    assert event["data"].startswith('{"numbers":[0,1,2,')
    assert event["data"].endswith(" more characters")


def test_a_full_trace_ends_with_how_many_events_were_left_out() -> None:
    trace = Trace()

    for _ in range(40):
        trace.add("note", text="a" * 10_000)

    events = stored(trace)
    assert len(trace.to_json() or "") <= 256_000
    assert [event["kind"] for event in events] == ["note"] * 25 + ["left_out"]
    assert events[-1]["events"] == 15
    assert events[-1]["text"] == "15 more events were left out: a trace has at most 256 kB"


def test_nothing_follows_what_was_left_out() -> None:
    trace = Trace()
    for _ in range(26):
        trace.add("note", text="a" * 10_000)

    trace.add("note", text="small")

    assert stored(trace)[-1]["events"] == 2


def test_the_bound_holds_for_calls_whose_texts_grow_when_they_are_written() -> None:
    trace = Trace()

    for _ in range(20):
        call(trace, request="é".encode() * 5_000)

    events = stored(trace)
    assert len(trace.to_json() or "") <= 256_000
    assert len(events) - 1 + events[-1]["events"] == 20


def test_a_waiting_attempt_holds_no_more_than_its_bound_of_large_calls() -> None:
    trace = Trace()

    for _ in range(100):
        call(trace, request=b"a" * 1_000_000)

    events = stored(trace)
    assert [event["kind"] for event in events] == ["call"] * 15 + ["left_out"]
    assert events[-1]["events"] == 85


def test_threads_add_to_one_trace_without_losing_events() -> None:
    trace = Trace()

    def work() -> None:
        for number in range(100):
            trace.add("note", text=number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(stored(trace)) == 400


def test_a_trace_takes_over_the_events_of_another_one() -> None:
    here = Trace()
    elsewhere = Trace(tell=here.take_over)
    here.add("note", text="before")
    elsewhere.add("note", text="there")
    call(elsewhere)

    assert here.events()[1:] == elsewhere.events()


def test_texts_that_another_trace_has_cut_say_how_much_was_cut() -> None:
    here = Trace()

    Trace(tell=here.take_over).add("note", text="a" * 40_000)

    assert here.events()[0]["text"] == "a" * 16_000 + "… 24,000 more characters"


def test_what_another_trace_left_out_stays_counted() -> None:
    here = Trace()
    elsewhere = Trace(tell=here.take_over)
    for _ in range(30):
        elsewhere.add("note", text="a" * 10_000)

    here.leave_out(elsewhere.left_out)
    here.add("note", text="one more")

    assert here.events()[-1]["events"] == 6


# -- keys

KEY = "sk-ant-api03-Zm9vYmFyYmF6cXV4"


def test_known_keys_never_appear_in_a_trace() -> None:
    trace = Trace(secrets=("correct horse battery",))

    trace.add("note", text="uses correct horse battery")
    call(trace, request=b'{"messages": "correct horse battery"}', problem="refused correct horse battery")

    assert "correct horse" not in (trace.to_json() or "")
    assert stored(trace)[0]["text"] == "uses ***"
    assert stored(trace)[1]["problem"] == "refused ***"


def test_what_looks_like_a_key_does_not_appear_in_notes_and_errors() -> None:
    trace = Trace()

    trace.add("note", text=f"first line\n{KEY}")
    call(trace, status=401, answer=json.dumps({"error": f"bad key: {KEY}"}).encode())

    assert "Zm9vYmFy" not in (trace.to_json() or "")


def test_words_that_begin_like_a_key_stay_as_they_are() -> None:
    trace = Trace()
    text = "a risk-based-assessment-of-2024-and-later with sk-learn and skateboarding-competitions"

    trace.add("note", text=text)

    assert stored(trace)[0]["text"] == text


def test_no_half_of_a_key_is_left_where_a_text_is_cut() -> None:
    trace = Trace(secrets=("correct horse battery",))

    trace.add("note", text="a" * 15_990 + "correct horse battery" + "b" * 1000)

    assert "correct" not in (trace.to_json() or "")


# -- files


class Keeper:
    """Keeps nothing, and knows what it was asked to keep."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str]] = []

    def __call__(self, source: Path, *, name: str) -> Artefact:
        content = source.read_bytes()
        self.asked.append((content, name))
        return Artefact(f"hash-of-{content.decode()}", len(content), name)


def only(events: list[dict[str, Any]]) -> Mapping[str, Any]:
    (event,) = without_instants(events)
    return event


def test_a_file_is_kept_as_it_is_now(tmp_path: Path) -> None:
    keeper = Keeper()
    trace = Trace(keep_file=keeper)
    path = tmp_path / "plan.txt"
    path.write_text("draft")

    trace.file(path)
    path.write_text("later")

    assert only(stored(trace)) == {
        "kind": "file",
        "name": "plan.txt",
        "hash": "hash-of-draft",
        "size_bytes": 5,
    }
    assert trace.artefacts == ("hash-of-draft",)
    assert keeper.asked == [(b"draft", "plan.txt")]


def test_a_file_may_be_kept_under_another_name(tmp_path: Path) -> None:
    keeper = Keeper()
    (tmp_path / "tmp123").write_text("x")

    Trace(keep_file=keeper).file(str(tmp_path / "tmp123"), name="answer.txt")

    assert keeper.asked == [(b"x", "answer.txt")]


def test_equal_files_have_one_hash_and_names_of_their_own(tmp_path: Path) -> None:
    trace = Trace(keep_file=Keeper())
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")

    trace.file(tmp_path / "a")
    trace.file(tmp_path / "b")

    assert trace.artefacts == ("hash-of-x", "hash-of-x")
    assert [event["name"] for event in stored(trace)] == ["a", "b"]


def test_a_file_that_is_too_large_is_not_kept_and_the_event_says_so(tmp_path: Path) -> None:
    keeper = Keeper()
    trace = Trace(keep_file=keeper)
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(10_000_001)

    trace.file(path)

    assert only(stored(trace)) == {
        "kind": "file",
        "name": "large.bin",
        "problem": f"not kept: 10,000,001 bytes are more than 10 MB ({path})",
    }
    assert (keeper.asked, trace.artefacts) == ([], ())


def test_the_files_of_one_attempt_have_a_bound_together(tmp_path: Path) -> None:
    trace = Trace(keep_file=lambda source, *, name: Artefact(name, 0, name))
    path = tmp_path / "large.bin"
    with path.open("wb") as file:
        file.truncate(10_000_000)

    for number in range(6):
        trace.file(path, name=str(number))

    assert trace.artefacts == ("0", "1", "2", "3", "4")
    assert "the files of one attempt would be more than 50 MB" in stored(trace)[-1]["problem"]


@pytest.mark.parametrize(
    ("path", "why"), [("missing", "No such file or directory"), (".", "it is no file")], ids=str
)
def test_what_cannot_be_read_is_an_event_that_says_why(tmp_path: Path, path: str, why: str) -> None:
    trace = Trace(keep_file=Keeper())

    trace.file(tmp_path / path)

    assert only(stored(trace))["problem"].startswith(f"not kept: {why} (")


def test_a_file_that_another_process_has_had_kept_is_one_of_the_attempts(tmp_path: Path) -> None:
    here = Trace(keep_file=Keeper())
    elsewhere = Trace(keep_file=here.keep_file, tell=here.take_over)
    (tmp_path / "plan.txt").write_text("x")

    elsewhere.file(tmp_path / "plan.txt")

    assert only(stored(here)) == {"kind": "file", "name": "plan.txt", "hash": "hash-of-x", "size_bytes": 1}
    assert here.artefacts == ("hash-of-x",)
