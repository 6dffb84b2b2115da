"""How long a window is whose end was told, and whether it ends for all at once."""

from __future__ import annotations

import pytest

from evalve.gate.limits.history import History
from evalve.gate.limits.told_window import Told, told_window


def sent(*amounts: tuple[float, float]) -> History:
    """So much at that instant, for each."""
    history = History()
    for at_s, amount in amounts:
        history.add(amount, at_s)
    return history


BURST = (sent((0.0, 100.0), (1.0, 0.0)), 1.0)
"""All that ten seconds hold at ten a second, at once; then one is refused."""


@pytest.mark.parametrize(
    ("log", "refused_s", "welcome_s", "is_whole", "told"),
    [
        (*BURST, 10.0, False, Told(10.0, None)),
        (*BURST, 6.3, False, Told(10.0, 6.3)),
        (*BURST, 7.0, True, Told(10.0, 7.0)),
        (*BURST, 10.5, True, Told(10.0, None)),
        (sent((0.0, 30.0), (0.5, 100.0), (2.0, 0.0)), 2.0, 10.3, False, Told(10.0, 10.3)),
        (sent((0.0, 600.0), (5.0, 0.0)), 5.0, 37.0, False, Told(60.0, 37.0)),
        (sent((0.0, 20.0), (1.0, 0.0)), 1.0, 37.0, False, Told(60.0, 37.0)),
        (sent((0.795, 100.0), (0.799, 2.0)), 0.797, 4.5, False, Told(10.0, 4.5)),
    ],
    ids=[
        "begun with the first call",
        "begun before",
        "begun before, in whole seconds",
        "begun with the first call, in whole seconds",
        "ended since the first call",
        "a minute, begun before",
        "others have used most of it",
        "full within one part of the log",
    ],
)
def test_a_window_is_as_long_as_what_was_served_in_it_takes(
    log: History, refused_s: float, welcome_s: float, is_whole: bool, told: Told
) -> None:
    assert told == told_window(
        log, 10.0, refused=0.0, sent_at_s=refused_s, welcome_s=welcome_s, is_whole=is_whole
    )
