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
