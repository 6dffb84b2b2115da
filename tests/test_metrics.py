"""Metrics: how they are named, declared and found."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any

import pytest

import doteval.metrics
from evalve import metrics
from evalve.errors import DeclarationError
from evalve.metrics import (
    accuracy,
    count,
    lookup,
    mean,
    metric,
    names,
    pass_at,
    pass_hat,
    resolve,
)


def test_a_metric_its_call_and_its_name_are_the_same() -> None:
    assert resolve(accuracy) == resolve(accuracy()) == resolve("accuracy") == (accuracy,)


def test_a_list_of_any_kinds_keeps_its_order() -> None:
    assert names(list(resolve(["mean", accuracy, (count(), "sum")]))) == ["mean", "accuracy", "count", "sum"]


def test_nothing_is_no_metric() -> None:
    assert resolve(None) == resolve([]) == ()


def test_built_in_metrics_compute_on_plain_values() -> None:
    assert accuracy([True, False, True, True]) == 0.75
    assert mean([0.1] * 10) == 0.1
    assert metrics.sum([1, 2.5]) == 3.5
    assert count([1, "x", None]) == 2


def test_values_that_are_no_finite_numbers_are_left_out_not_counted_as_zero() -> None:
    assert mean([1.0, None, float("nan"), "nan", 3.0, 10**400]) == 2.0
    assert accuracy([None]) is None


def test_pass_metrics_compute_over_the_runs_of_one_sample() -> None:
    assert pass_at(2)([True, False, False, False]) == 0.5
    assert pass_hat(2)([True, True, True, False]) == 0.5
    assert pass_at(3)([True, True]) is None


def test_pass_metrics_are_found_by_name() -> None:
    (found,) = resolve("pass@5")
    assert (found.name, found.kind, found.k) == ("pass@5", "pass_at", 5)
    (found,) = resolve("pass^2")
    assert (found.name, found.kind, found.k) == ("pass^2", "pass_hat", 2)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3"])
def test_a_pass_metric_needs_a_number_of_runs(k: Any) -> None:
    with pytest.raises(DeclarationError, match=r"pass_at\(k\) needs a whole number of runs"):
        pass_at(k)


def test_a_pass_metric_without_its_k_is_told_so() -> None:
    with pytest.raises(DeclarationError, match=r"pass_at needs the number of runs, as in pass_at\(3\)"):
        resolve(pass_at)


def test_an_unknown_name_suggests_a_known_one() -> None:
    with pytest.raises(DeclarationError, match=r"there is no metric 'acuracy'; did you mean 'accuracy'\?"):
        resolve("acuracy")


def test_an_unknown_stored_name_is_none() -> None:
    assert lookup("somebody_elses") is None


def test_what_is_no_metric_is_refused() -> None:
    with pytest.raises(DeclarationError, match="got 3"):
        resolve(3)


def test_a_function_of_values_becomes_a_metric() -> None:
    @metric
    def worst_value(values: list[float]) -> float:
        return min(values)

    assert worst_value([3, 1, 2]) == 1
    assert resolve("worst_value") == resolve(worst_value()) == (worst_value,)
    assert worst_value.kind == "other"


def test_a_function_that_returns_the_function_of_values_becomes_a_metric() -> None:
    @metric
    def best_value() -> Callable[[list[float]], float]:
        def calculate(scores: list[float]) -> float:
            return max(scores)

        return calculate

    assert best_value([3, 1, 2]) == 3
    assert resolve(best_value()) == resolve("best_value") == (best_value,)


def test_a_factory_with_parameters_makes_variants_that_are_told_apart_by_name() -> None:
    @metric
    def share_above(threshold: float = 0.5) -> Callable[[list[float]], float]:
        return lambda values: sum(value > threshold for value in values) / len(values)

    strict = share_above(0.9)

    assert share_above.compute([0.6, 0.95]) == 1.0
    assert (strict.name, strict.compute([0.6, 0.95])) == ("share_above(0.9)", 0.5)
    assert resolve("share_above(0.9)") == (strict,)


def test_a_factory_with_a_required_parameter_makes_variants_too() -> None:
    @metric
    def nth(place: int) -> Callable[[list[float]], float]:
        return lambda values: values[place]

    assert nth(1).name == "nth(1)"
    assert nth(1).compute([5, 6, 7]) == 6


def test_a_metric_can_be_given_a_name() -> None:
    @metric(name="the middle")
    def middle(values: list[float]) -> float:
        return statistics.median(values)

    assert middle.name == "the middle"
    assert resolve("the middle") == (middle,)


def test_declaring_a_name_again_replaces_it_as_when_a_notebook_cell_is_run_again() -> None:
    @metric(name="again")
    def first(values: list[float]) -> float:
        return 1.0

    @metric(name="again")
    def second(values: list[float]) -> float:
        return 2.0

    assert resolve("again") == (second,)


def test_a_plain_function_serves_as_a_metric_under_its_own_name() -> None:
    (found,) = resolve(statistics.median)
    assert (found.name, found([3, 1, 2])) == ("median", 2)


def test_a_built_in_function_serves_as_a_metric() -> None:
    (found,) = resolve(max)
    assert (found.name, found([3, 1, 2])) == ("max", 3)


@pytest.mark.parametrize("name", ["accuracy", "pass@3"])
def test_a_metric_may_not_take_the_name_of_a_built_in_one(name: str) -> None:
    message = f"'{re.escape(name)}' is a metric of evalve's own"
    with pytest.raises(DeclarationError, match=message):
        metric(name=name)(lambda values: 0.0)


def test_a_metric_needs_a_name() -> None:
    with pytest.raises(DeclarationError, match="a metric needs a name"):
        resolve(lambda values: 0.0)


def test_a_function_of_two_things_is_no_metric() -> None:
    with pytest.raises(DeclarationError) as caught:

        @metric
        def distance(values: list[float], others: list[float]) -> float:
            return 0.0

    assert str(caught.value) == (
        f"{__file__}:{caught.traceback[0].lineno + 1}: the metric 'distance' has 2 required parameters; "
        "it takes one, the list of values"
    )


def test_a_factory_that_returns_a_number_is_told_what_to_return() -> None:
    with pytest.raises(DeclarationError, match="'seven' takes no values, so it must return the function"):

        @metric
        def seven() -> int:
            return 7


def test_names_are_given_for_whatever_a_score_carries() -> None:
    assert names((accuracy, "elsewhere")) == ["accuracy", "elsewhere"]
    assert names("mean") == ["mean"]
    assert names(mean) == ["mean"]
    assert names(()) == names(None) == []


def test_doteval_has_the_same_metrics() -> None:
    assert doteval.metrics.accuracy is accuracy


def test_doteval_enters_a_metric_that_is_declared_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doteval.metrics, "registry", {})

    longest = doteval.metrics.metric(name="longest", higher_is_better=False)(max)

    assert (longest.name, longest.higher_is_better, longest([1.0, 3.0])) == ("longest", False, 3.0)
    assert doteval.metrics.registry == {"longest": longest}


# -- direction -----------------------------------------------------------------------------------------


def test_a_metric_may_be_better_the_lower_it_is() -> None:
    lower = metrics.mean(higher_is_better=False)

    assert (lower.name, lower.stored_name, lower.higher_is_better) == ("mean", "mean:lower", False)
    assert (metrics.mean.stored_name, metrics.mean.higher_is_better) == ("mean", True)
    assert lower([1.0, 2.0]) == 1.5


def test_the_direction_of_ones_own_metric_is_declared_with_it_and_kept_by_its_variants() -> None:
    @metrics.metric(higher_is_better=False)
    def worst_above(floor: float = 0.0) -> Any:
        return lambda values: max([floor, *values])

    assert worst_above.stored_name == "worst_above:lower"
    assert worst_above(2.0).stored_name == "worst_above(2.0):lower"


def test_a_stored_name_says_the_direction() -> None:
    found = metrics.lookup("accuracy:lower")

    assert found is not None
    assert (found.name, found.higher_is_better) == ("accuracy", False)
    assert metrics.names([metrics.mean(higher_is_better=False), "count"]) == ["mean:lower", "count"]
