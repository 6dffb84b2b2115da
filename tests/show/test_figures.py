"""Numbers as people read them."""

from __future__ import annotations

import pytest

from evalve.show import figures


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.000"),
        (0.9996, "0.9996"),
        (0.99996, "0.99996"),
        (0.9994, "0.999"),
        (-0.9996, "-0.9996"),
        (1.0004, "1.0004"),
        (2.9999, "3.000"),
        (0.5, "0.500"),
    ],
)
def test_only_what_is_one_reads_as_one(number: float, text: str) -> None:
    assert figures.value(number) == text


def test_the_ends_of_a_tiny_interval_are_told_apart_from_zero() -> None:
    assert figures.interval(-1.5e-06, 4.25e-05) == "[-1.5e-06, 4.25e-05]"


MADE = {"requests": 4, "retries": 1, "input_tokens": 30, "output_tokens": 8, "cost_usd": 0.5}


def test_calls_that_passed_ungated_are_counted_at_the_end() -> None:
    assert figures.calls({**MADE, "ungated": 2}) == (
        "3 calls; 30 + 8 tokens; 0.5000 USD; 1 retries; 2 calls passed ungated"
    )


def test_where_all_calls_passed_ungated_nothing_else_is_told() -> None:
    assert figures.calls({"requests": 0, "ungated": 1}) == "1 call passed ungated"


def test_calls_of_a_judge_stand_apart() -> None:
    made = {"requests": 3, "cost_usd": 0.5, "judge.requests": 1, "judge.cost_usd": 0.25}

    assert list(figures.calls_by_role(made)) == [
        ("calls", "3 calls; 0 + 0 tokens; 0.5000 USD"),
        ("judge", "1 call; 0 + 0 tokens; 0.2500 USD"),
    ]


def test_parts_of_the_samples_own_calls_stand_below_them() -> None:
    made = {"requests": 5, "cached": 1, "cost_usd": 0.75}
    made |= {"student.requests": 3, "student.cached": 1, "student.cost_usd": 0.25}
    made |= {"judge.requests": 1, "judge.cached": 0, "judge.cost_usd": 0.25}
    made |= {"teacher.requests": 2, "teacher.cached": 0, "teacher.cost_usd": 0.5}

    assert list(figures.calls_by_role(made)) == [
        ("calls", "6 calls, 1 of them cached; 0 + 0 tokens; 0.7500 USD"),
        ("  student", "4 calls, 1 of them cached; 0 + 0 tokens; 0.2500 USD"),
        ("  teacher", "2 calls; 0 + 0 tokens; 0.5000 USD"),
        ("judge", "1 call; 0 + 0 tokens; 0.2500 USD"),
    ]


def test_own_calls_in_no_role_are_told_where_others_have_one() -> None:
    made = {"requests": 5, "cached": 0, "teacher.requests": 2, "teacher.cached": 0}

    assert list(figures.calls_by_role(made)) == [
        ("calls", "5 calls; 0 + 0 tokens; 0.0000 USD"),
        ("  teacher", "2 calls; 0 + 0 tokens; 0.0000 USD"),
        ("  others", "3 calls; 0 + 0 tokens; 0.0000 USD"),
    ]


def test_an_end_of_a_differences_interval_that_is_not_zero_does_not_read_as_zero() -> None:
    assert figures.interval_of_difference(-0.3, -0.11) == "[-0.30, -0.11]"
    assert figures.interval_of_difference(-0.3, -0.0021) == "[-0.300, -0.002]"
    assert figures.interval_of_difference(0.0004, 0.2) == "[0.0004, 0.2000]"
    assert figures.interval_of_difference(-0.00121, 0.0000312) == "[-0.00121, 3.12e-05]"
    assert figures.interval_of_difference(0.0, 0.2) == "[0.00, 0.20]"
    assert figures.interval_of_difference(-1.17e-17, 0.106) == "[0.00, 0.11]"
