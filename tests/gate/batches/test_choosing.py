"""Live or in batches: every reason, with its words."""

from __future__ import annotations

import pytest

from evalve.gate.batches.choosing import Prospect, choose


@pytest.mark.parametrize(
    ("prospect", "in_batches", "reason"),
    [
        (Prospect(None), False, "only reading the dataset tells how many samples there are"),
        (Prospect(53), False, "53 calls are few: a batch is worth waiting for from 100 on"),
        (Prospect(5000), True, "5,000 calls; a batch takes mostly 60 min; half price"),
        (
            Prospect(5000, live_usd=10.0),
            True,
            "5,000 calls; a batch takes mostly 60 min; 5.00 instead of 10.00 USD",
        ),
        (Prospect(200, live_usd=0.02), False, "a batch would save 0.0100 USD, and take 60 min"),
        (
            Prospect(5000, live_usd=10.0, deadline_s=1800.0),
            False,
            "the deadline is in 30 min, and a batch takes mostly 60 min",
        ),
        (
            Prospect(5000, rounds=3, deadline_s=7200.0),
            False,
            "the deadline is in 2.0 h, and 3 rounds of batches take mostly 3.0 h",
        ),
        (
            Prospect(5000, live_usd=10.0, deadline_s=7200.0),
            True,
            "5,000 calls; a batch takes mostly 60 min, though it may be a day; 5.00 instead of 10.00 USD",
        ),
        (
            Prospect(90, live_s=9000.0, deadline_s=7200.0),
            True,
            "live it would take 2.5 h, longer than the deadline; a batch takes mostly 60 min; half price",
        ),
    ],
)
def test_size_price_and_deadline_decide(prospect: Prospect, in_batches: bool, reason: str) -> None:
    choice = choose(prospect)
    assert (choice.in_batches, choice.reason) == (in_batches, reason)
