"""How long the agents of an experiment take in one order or another."""

from __future__ import annotations

import pytest

from evalve.experiments.ordering import Order
from evalve.planning.durations import AgentTime, order_lines, order_s, orders_of, work_off

BASELINES = [AgentTime("claude", 100.0), AgentTime("gpt", 60.0), AgentTime("mini", 40.0)]
ATLAS = AgentTime("atlas", 120.0)
TIMES = {one.name: one for one in [*BASELINES, ATLAS]}
NAMES = ("claude", "gpt", "mini", "atlas")


@pytest.mark.parametrize(
    ("order", "takes_s"),
    [
        (Order((NAMES,), at_once=1), 320.0),
        (Order((NAMES,)), 120.0),
        (Order((("claude", "gpt", "mini"), ("atlas",))), 220.0),
        (Order((NAMES,), at_once=2), 220.0),  # claude | gpt, mini; then atlas
    ],
)
def test_phases_add_up_and_agents_beside_each_other_do_not(order: Order, takes_s: float) -> None:
    assert order_s(order, TIMES) == takes_s


def test_agents_of_one_key_wait_for_each_other_at_its_limit() -> None:
    times = {
        "claude": AgentTime("claude", 100.0, {"anthropic": 90.0}),
        "atlas": AgentTime("atlas", 120.0, {"anthropic": 80.0, "openai": 10.0}),
        "gpt": AgentTime("gpt", 60.0, {"openai": 50.0}),
    }

    assert order_s(Order((("claude", "atlas", "gpt"),)), times) == 170.0
    assert order_s(Order((("claude", "gpt"),)), times) == 100.0


def test_lanes_are_worked_off_beside_each_other() -> None:
    assert work_off([5.0, 4.0, 3.0], 2) == 7.0
    assert work_off([5.0, 4.0, 3.0], 8) == 5.0
    assert work_off([], 3) == 0.0


def test_the_three_orders_are_told_and_those_in_lanes_come_after_the_others() -> None:
    orders = orders_of([*BASELINES, ATLAS], Order((NAMES,)), has_phases=False, in_lanes=["atlas"])

    assert [(one.name, one.duration_s) for one in orders] == [
        ("one by one", 320.0),
        ("phases: claude, gpt, mini; atlas", 220.0),
        ("all at once", 120.0),
    ]


def test_phases_of_the_file_are_those_that_are_told() -> None:
    said = Order((("atlas", "claude"), ("gpt", "mini")))

    orders = orders_of([*BASELINES, ATLAS], said, has_phases=True, in_lanes=["atlas"])

    assert [(one.name, one.duration_s) for one in orders][1] == ("phases: atlas, claude; gpt, mini", 180.0)


def test_what_is_not_known_is_said() -> None:
    orders = orders_of(
        [AgentTime("a", None), AgentTime("b", 1.0)], Order((("a", "b"),)), has_phases=False, in_lanes=[]
    )

    lines = list(order_lines(orders, [AgentTime("a", None), AgentTime("b", 1.0)], {"a": 1_000, "b": 2}))

    assert [one.duration_s for one in orders] == [None, None]
    assert lines[2].split() == ["a", "1,000", "not", "known"]
    assert "--latency-s" in lines[-1]
