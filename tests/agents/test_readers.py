from __future__ import annotations

import pytest

from evalve.agents.readers import reader_of
from evalve.agents.spec import Event, Fault, Reading, Usage


def read(format: str, output: str, **how: str) -> Reading:
    reader = reader_of(format, **how)()
    for line in output.split("\n"):
        list(reader.line(line))
    return reader.reading()


def test_the_last_line_is_the_last_with_anything_in_it() -> None:
    assert read("last_line", "thinking\n 42 \n\n  \n").answer == "42"


def test_whole_is_everything() -> None:
    assert read("whole", "one\ntwo\n").answer == "one\ntwo"


def test_of_a_flood_the_whole_is_its_end() -> None:
    answer = read("whole", "\n".join(["x" * 1000] * 2000) + "\nend").answer
    assert len(answer) <= 1_000_000
    assert answer.endswith("\nend")


def test_json_is_read_from_its_first_brace_with_usage_cost_and_turns() -> None:
    output = 'warning: slow\n{"answer": "42", "turns": 3, "cost_usd": 0.5,\n "usage": {"input_tokens": 7}}\n'
    assert read("json", output) == Reading(answer="42", turns=3, cost_usd=0.5, usage=Usage(input_tokens=7))


def test_braces_in_a_warning_are_read_over() -> None:
    assert read("json", 'using {model}\n{"step": 1}\n{"answer": "42"}\n').answer == "42"
    cut_off = '{"steps": [\n  {"answer": "a guess"}\n'
    assert read("json", cut_off).fault is not None


def test_a_field_may_be_a_path_and_its_value_anything() -> None:
    assert read("json", '{"result": {"value": [1, 2]}}', field="result.value").answer == "[1, 2]"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("no braces", "its output has no JSON object in it"),
        ("{broken", "its output is no JSON"),
        ('{"other": 1}', "the JSON that it printed has no 'answer'"),
        ('{"error": "boom"}', "it reports an error: boom"),
    ],
)
def test_json_that_has_no_answer_is_the_agents_fault(output: str, said: str) -> None:
    fault = read("json", output).fault
    assert fault is not None
    assert fault.failure_class == "agent"
    assert said in fault.message


@pytest.mark.parametrize("amount", ["-5", "Infinity", "NaN", "true", '"free"', "1e999"])
def test_an_amount_that_cannot_be_is_not_taken(amount: str) -> None:
    said = '{"answer": "42", "turns": -1, "cost_usd": AMOUNT, "usage": {"input_tokens": AMOUNT}}'
    said = said.replace("AMOUNT", amount)
    assert read("json", said) == Reading(answer="42", usage=Usage())


def test_json_that_is_nested_too_deeply_is_no_answer() -> None:
    deep = '{"answer": ' * 100_000
    assert read("json", deep).fault is not None
    assert read("jsonl", f'{{"answer": "2"}}\n{deep}').answer == "2"


def test_of_json_lines_the_last_that_has_the_field_counts() -> None:
    assert read("jsonl", '{"answer": "1"}\nnoise\n{"answer": "2"}\n{"type": "bye"}').answer == "2"


def test_a_json_line_that_names_its_kind_is_an_event() -> None:
    reader = reader_of("jsonl")()
    assert list(reader.line('{"type": "step", "n": 1}')) == [Event("step", {"n": 1})]


def test_a_regex_takes_the_group_of_the_last_match() -> None:
    assert read("regex", "FINAL: 1\nFINAL: 2\nbye", pattern=r"^FINAL: (.*)$").answer == "2"


def test_a_regex_without_a_match_is_the_agents_fault() -> None:
    assert read("regex", "nothing", pattern="FINAL").fault == Fault(
        "agent", "nothing in its output matches 'FINAL'"
    )
