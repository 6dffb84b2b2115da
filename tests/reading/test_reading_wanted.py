"""Which evaluations are run together, and how many of their samples may be in flight."""

from __future__ import annotations

from typing import Any

import pytest

import evalve
from evalve import ForEach, foreach
from evalve.concurrency import Adaptive, Batch, Sequential, SlidingWindow
from evalve.declare.foreach import as_called
from evalve.errors import DeclarationError
from evalve.options import Options
from evalve.reading.wanted import Wanted, fixtures_of, following, grouped, places_for


@foreach("number", [1])
async def plain(number: int, model: Any, judge: Any = None) -> bool:
    return True


def wanted(key: str, model: str | None = None) -> Wanted:
    return Wanted(key, as_called(plain), "", (), model)


A, B, C = wanted("a"), wanted("b"), wanted("c", "x")


def test_each_is_a_group_or_all_of_one_model_are() -> None:
    assert [group.members for group in grouped([A, B, C], together=False)] == [(A,), (B,), (C,)]
    assert [group.members for group in grouped([A, B, C], together=True)] == [(A, B), (C,)]


def test_who_helps_begins_behind_its_own() -> None:
    a, b, c = grouped([A, B, C], together=False)

    assert following([a, b, c], b) == [c, a]
    assert following([a, b], c) == [a, b]


def test_arguments_with_defaults_need_no_fixture() -> None:
    assert fixtures_of(plain) == ("model",)


@pytest.mark.parametrize(
    ("strategies", "options", "places"),
    [
        ([None, None], Options(), 10),
        ([None, SlidingWindow(3)], Options(), 10),
        ([None, SlidingWindow(3)], Options(max_concurrency=4), 4),
        ([Sequential(), Batch(7)], Options(), 7),
        ([None, Adaptive()], Options(), None),
        ([None], Options(max_concurrency="auto"), None),
        ([None], Options(throttle_s=0.5), None),
    ],
)
def test_places_are_the_widest_window_unless_one_finds_its_own(
    strategies: list[Any], options: Options, places: int | None
) -> None:
    evaluations = []
    for strategy in strategies:

        @ForEach(concurrency=strategy)("number", [1])
        async def eval_it(number: int) -> bool:
            return True

        evaluations.append((as_called(eval_it), options))

    assert places_for(evaluations) == places


def test_sync_functions_share_no_places() -> None:
    @foreach("number", [1])
    def eval_sync(number: int) -> bool:
        return True

    assert places_for([(as_called(eval_sync), Options())]) is None


def test_only_functions_with_foreach_can_be_read() -> None:
    class Evals:
        @foreach("number", [1])
        async def eval_in_class(self, number: int) -> bool:
            return True

    with pytest.raises(DeclarationError, match=r"reads\(len\): that is not an evaluation; decorate it"):
        evalve.reads(len)
    with pytest.raises(DeclarationError, match=r"eval_in_class.*and this is a method"):
        evalve.reads(Evals.eval_in_class)
