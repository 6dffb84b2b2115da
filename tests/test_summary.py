"""From scores to values with intervals."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from scipy import stats

from evalve.contracts import Observation
from evalve.evaluators import exact_match
from evalve.metrics import Metric, accuracy, mean, metric, pass_at
from evalve.records import Score
from evalve.statistics import Interval, clustered_mean, clustered_proportion, wilson_interval
from evalve.summary import as_table, find, summarise
from evalve.tallies import MetricValue


def scored(name: str, *values: Any, metrics: Any = ()) -> list[Observation]:
    """One score per sample."""
    return [(f"s{index}", 0, [Score(name, value, metrics)]) for index, value in enumerate(values)]


def summary_of(
    observations: list[Observation], stored: Sequence[Mapping[str, Any]] = ()
) -> list[MetricValue]:
    return summarise(lambda: observations, stored)


def interval_of(value: MetricValue) -> Interval:
    assert value.low is not None
    assert value.high is not None
    return Interval(value.low, value.high)


def test_nothing_scored_has_no_metrics() -> None:
    assert summary_of([]) == []
    assert summary_of([("a", 0, [])]) == []


def test_a_share_of_bools_has_wilsons_interval() -> None:
    (value,) = summary_of(scored("exact_match", True, True, False, True, metrics=["accuracy"]))

    assert (value.evaluator, value.metric, value.value) == ("exact_match", "accuracy", 0.75)
    assert (value.observations, value.samples) == (4, 4)
    assert interval_of(value) == wilson_interval(3, 4)


def test_a_mean_of_numbers_has_the_t_interval() -> None:
    numbers = [0.2, 0.4, 0.9, 0.5]
    expected = stats.ttest_1samp(numbers, 0).confidence_interval(0.95)

    (value,) = summary_of(scored("similarity", *numbers, metrics=["mean"]))

    assert value.value == 0.5
    assert (value.low, value.high) == pytest.approx((expected.low, expected.high))


def test_scores_without_metrics_get_accuracy_for_bools_and_the_mean_for_numbers() -> None:
    assert as_table(summary_of(scored("right", True, False))) == {"right": {"accuracy": 0.5}}
    assert as_table(summary_of(scored("close", 1, 2))) == {"close": {"mean": 1.5}}


def test_bools_and_numbers_together_are_one_mean_whichever_comes_first() -> None:
    assert as_table(summary_of(scored("mixed", True, 0.5))) == {"mixed": {"mean": 0.75}}
    assert as_table(summary_of(scored("mixed", 0.5, True))) == {"mixed": {"mean": 0.75}}


def declared_by_turns(*specs: Any) -> list[Observation]:
    """One score a sample, right in the first only, each with its own way to declare its metrics."""
    return [(f"s{place}", 0, [Score("exact_match", place == 0, spec)]) for place, spec in enumerate(specs)]


@pytest.mark.parametrize(
    "specs",
    [
        [["accuracy"], (), (), ()],
        [(), (), (), ["accuracy"]],
        [(), "accuracy", accuracy, [accuracy, "accuracy"]],
    ],
)
def test_scores_of_one_name_are_one_evaluator_whether_they_declare_metrics_or_not(specs: list[Any]) -> None:
    (value,) = summary_of(declared_by_turns(*specs))

    assert (value.evaluator, value.metric, value.value) == ("exact_match", "accuracy", 0.25)
    assert (value.observations, value.samples) == (4, 4)
    assert interval_of(value) == wilson_interval(1, 4)


def test_a_number_among_scores_with_a_declared_metric_splits_nothing_off() -> None:
    observations = [("a", 0, [exact_match("4", "4")]), ("b", 0, [Score("exact_match", 0)])]

    assert as_table(summary_of(observations)) == {"exact_match": {"accuracy": 0.5}}


def test_the_metrics_of_an_evaluator_are_all_that_its_scores_declare_each_over_all_values() -> None:
    @metric
    def first_value(values: list[bool]) -> float:
        return values[0]

    observations = declared_by_turns((), ["mean"], ["first_value", "pass@1"], ["count", "mean", "sum"])

    values = summary_of(observations)

    assert as_table(values) == {
        "exact_match": {"mean": 0.25, "first_value": 1.0, "pass@1": 0.25, "count": 4.0, "sum": 1.0}
    }
    assert [(value.observations, value.samples) for value in values] == [(4, 4)] * 5


@pytest.mark.parametrize(
    ("specs", "readings"),
    [
        ([["accuracy"], ["accuracy"]], 1),
        ([(), ["accuracy"], ["mean", "sum"]], 1),
        ([["count"], ["accuracy"], ()], 1),
        ([(), ["count"]], 2),
        ([["accuracy"], ["pass@1"], ["count"]], 2),
    ],
)
def test_observations_are_read_again_only_where_sums_are_not_enough_for_a_metric_declared_late(
    specs: list[Any], readings: int
) -> None:
    read: list[list[Observation]] = []

    def observations() -> list[Observation]:
        read.append(declared_by_turns(*specs))
        return read[-1]

    summarise(observations)

    assert len(read) == readings


def test_text_without_a_metric_is_no_metric() -> None:
    assert summary_of(scored("label", "A", "B")) == []


def test_a_value_that_is_missing_is_unscored_and_not_wrong() -> None:
    (value,) = summary_of(scored("exact_match", True, None, "nan", float("nan"), metrics=["accuracy"]))

    assert (value.value, value.observations, value.samples) == (1.0, 1, 1)


def test_scores_without_a_value_are_counted() -> None:
    (value,) = summary_of(scored("judge", True, None, None, metrics=["accuracy"]))

    assert (value.value, value.unscored) == (1.0, 2)


def test_kappa_is_of_values_and_the_labels_beside_them() -> None:
    said = [(True, True), (True, True), (False, False), (False, True), (None, True), (True, None)]
    observations: list[Observation] = [
        (f"s{place}", 0, [Score("judge", value, ("accuracy", "kappa"), {"label": label})])
        for place, (value, label) in enumerate(said)
    ]

    accuracy, kappa = summarise(lambda: observations)

    assert accuracy.samples == 5
    assert (kappa.metric, kappa.value, kappa.observations, kappa.samples) == ("kappa", 0.5, 4, 4)
    assert kappa.low is not None
    assert kappa.low < 0 < 0.5 < (kappa.high or 0)


def test_kappa_without_labels_says_so() -> None:
    (value,) = summary_of(scored("judge", True, False, metrics=["kappa"]))

    assert (value.value, value.note) == (None, "no score has a label")


def test_an_evaluator_that_scored_nothing_has_no_value() -> None:
    (value,) = summary_of(scored("exact_match", None, None, metrics=["accuracy"]))

    assert (value.value, value.low, value.high, value.observations) == (None, None, None, 0)


def test_several_scores_of_one_name_in_a_sample_are_clustered() -> None:
    observations = [
        ("batch-1", 0, [Score("exact_match", right, ["accuracy"]) for right in (True, True, True)]),
        ("batch-2", 0, [Score("exact_match", right, ["accuracy"]) for right in (True, False, False)]),
        ("batch-3", 0, [Score("exact_match", right, ["accuracy"]) for right in (False, True)]),
    ]

    (value,) = summary_of(observations)

    # (1 + 1/3 + 1/2) / 3: every sample weighs the same, as it does in `compare`
    assert value.value == pytest.approx(11 / 18)
    assert (value.observations, value.samples) == (8, 3)
    assert interval_of(value) == clustered_proportion([(3, 3), (1, 3), (1, 2)]).interval


def test_repeats_of_a_sample_are_clustered() -> None:
    observations = [
        ("a", 0, [Score("quality", 1.5, ["mean"])]),
        ("a", 1, [Score("quality", 1.9, ["mean"])]),
        ("b", 0, [Score("quality", 1.2, ["mean"])]),
        ("b", 1, [Score("quality", 1.3, ["mean"])]),
        ("c", 0, [Score("quality", 2.0, ["mean"])]),
    ]

    (value,) = summary_of(observations)

    # 1.7, 1.25 and 2.0
    assert value.value == pytest.approx(1.65)
    assert (value.observations, value.samples) == (5, 3)
    assert interval_of(value) == clustered_mean([(3.4, 2), (2.5, 2), (2.0, 1)]).interval


def test_one_repeated_sample_has_a_value_and_no_interval() -> None:
    (value,) = summary_of([("a", 0, [Score("x", True)]), ("a", 1, [Score("x", False)])])

    assert (value.value, value.low, value.high) == (0.5, None, None)


def test_accuracy_of_numbers_above_one_is_their_mean_with_the_t_interval() -> None:
    (value,) = summary_of(scored("stars", 3, 4, 5, metrics=["accuracy"]))

    assert value.value == 4.0
    assert interval_of(value) == clustered_mean([(3, 1), (4, 1), (5, 1)]).interval


def test_accuracy_of_ones_and_zeros_has_wilsons_interval() -> None:
    (value,) = summary_of(scored("right", 1, 0, 1.0, metrics=["accuracy"]))

    assert interval_of(value) == wilson_interval(2, 3)


def test_sum_and_count_have_no_interval() -> None:
    total, number = summary_of(scored("tokens", 10, 20, 30, metrics=["sum", "count"]))

    assert (total.metric, total.value, total.low, total.samples) == ("sum", 60.0, None, 3)
    assert (number.metric, number.value, number.low, number.samples) == ("count", 3.0, None, 3)


def test_pass_at_k_averages_over_samples_with_enough_runs() -> None:
    runs = {"a": [True, False, False, False], "b": [True, True, True, True], "c": [True]}
    observations = [
        (sample_id, repeat, [Score("solved", right, ["pass@2", "pass^2"])])
        for sample_id, results in runs.items()
        for repeat, right in enumerate(results)
    ]

    at_least_one, both = summary_of(observations)

    assert (at_least_one.metric, at_least_one.value, at_least_one.samples) == ("pass@2", 0.75, 2)
    assert (both.metric, both.value, both.samples) == ("pass^2", 0.5, 2)


def test_pass_at_k_without_enough_runs_is_undefined_and_says_why() -> None:
    (value,) = summary_of(scored("solved", True, True, metrics=[pass_at(3)]))

    assert (value.metric, value.value, value.note) == ("pass@3", None, "no sample has 3 scored runs")


def test_pass_at_k_with_just_k_runs_each_has_wilsons_interval() -> None:
    (value,) = summary_of(scored("solved", True, False, True, metrics="pass@1"))

    assert value.value == pytest.approx(2 / 3)
    assert interval_of(value) == wilson_interval(2, 3)


def test_ones_own_metric_sees_every_value_once_in_order() -> None:
    seen: list[Any] = []

    @metric
    def spread_seen(values: list[float]) -> float:
        seen.extend(values)
        return max(values) - min(values)

    observations = [
        ("a", 0, [Score("x", 3, ["spread_seen"]), Score("x", 1, ["spread_seen"])]),
        ("b", 0, [Score("x", 7, ["spread_seen"])]),
    ]

    (value,) = summary_of(observations)

    assert seen == [3, 1, 7]
    assert (value.metric, value.value, value.observations, value.samples) == ("spread_seen", 6.0, 3, 2)


def test_a_metric_that_raises_hides_no_other_result() -> None:
    @metric
    def divides(values: list[float]) -> float:
        return 1 / 0

    right, broken = summary_of(scored("x", True, False, metrics=["accuracy", "divides"]))

    assert right.value == 0.5
    assert (broken.value, broken.note) == (None, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("returned", "note"),
    [
        (float("inf"), "it returned inf, which is no number"),
        (float("nan"), "it returned nan, which is no number"),
        ("high", "it returned 'high', which is no number"),
        ("0.5", "it returned '0.5', which is no number"),
        (None, "it returned None, which is no number"),
    ],
)
def test_a_metric_that_is_not_a_number_has_no_value_and_says_why(returned: Any, note: str) -> None:
    (value,) = summary_of(scored("x", 1, metrics=Metric("own", lambda values: returned)))

    assert (value.value, value.note) == (None, note)


def test_a_metric_that_raises_without_a_message_is_noted_by_its_kind() -> None:
    def unfinished(values: list[float]) -> float:
        raise NotImplementedError

    (value,) = summary_of(scored("x", 1, metrics=Metric("unfinished", unfinished)))

    assert value.note == "NotImplementedError"


def test_a_name_that_nobody_declared_keeps_its_stored_value() -> None:
    stored = MetricValue("judge", "from_another_file", 0.4, 0.3, 0.5, 7, 7)

    values = summary_of(scored("judge", 1, 2, metrics=["from_another_file", "mean"]), [stored.to_plain()])

    assert values[0] == stored
    assert values[1].value == 1.5


def test_a_name_that_nobody_declared_nor_stored_has_no_value_and_says_so() -> None:
    (value,) = summary_of(scored("judge", 1, 2, metrics=["from_another_file"]))

    assert (value.value, value.observations) == (None, 2)
    assert value.note == "no metric 'from_another_file' is declared here"


def test_live_scores_and_stored_ones_give_the_same() -> None:
    live = [("a", 0, [exact_match("4", "4")]), ("b", 0, [exact_match("5", "4")])]

    assert summary_of(live) == summary_of(scored("exact_match", True, False, metrics=["accuracy"]))


def test_a_metric_named_twice_counts_once() -> None:
    (value,) = summary_of(scored("x", True, False, metrics=["accuracy", accuracy]))

    assert value.observations == 2


def test_evaluators_come_in_the_order_in_which_they_first_appear() -> None:
    observations = [
        ("a", 0, [Score("second", True), Score("first", True)]),
        ("b", 0, [Score("first", True), Score("third", 1, ["sum"]), Score("second", False)]),
    ]

    assert as_table(summary_of(observations)) == {
        "second": {"accuracy": 0.5},
        "first": {"accuracy": 1.0},
        "third": {"sum": 1.0},
    }


def test_a_value_survives_being_written_and_read() -> None:
    value = MetricValue("x", "accuracy", 0.5, 0.1, 0.9, 10, 5)

    assert value.to_plain() == {
        "evaluator": "x",
        "metric": "accuracy",
        "value": 0.5,
        "low": 0.1,
        "high": 0.9,
        "observations": 10,
        "samples": 5,
    }
    assert MetricValue.from_plain(value.to_plain()) == value
    noted = MetricValue("x", "mine", None, note="it raised")
    assert MetricValue.from_plain(noted.to_plain()) == noted


VALUES = [
    MetricValue("exact_match", "accuracy", 0.9),
    MetricValue("exact_match", "count", 10),
    MetricValue("contains", "accuracy", 0.8),
    MetricValue("mean", "sum", 3.0),
    MetricValue("latency", "mean", 1.0),
]


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("exact_match.accuracy", [0]),
        ("exact_match.count", [1]),
        ("accuracy", [0, 2]),
        ("exact_match", [0]),
        ("contains", [2]),
        ("mean", [3, 4]),
        ("unheard_of", []),
        ("contains.count", []),
    ],
)
def test_a_gates_name_is_a_metric_an_evaluator_or_both(name: str, places: list[int]) -> None:
    assert find(VALUES, name) == [VALUES[place] for place in places]


def test_a_gate_finds_an_evaluator_whose_name_has_a_dot() -> None:
    values = [MetricValue("team.judge", "mean", 0.5)]

    assert find(values, "team.judge") == find(values, "team.judge.mean") == values


def test_a_gate_whose_name_means_two_things_means_both() -> None:
    values = [MetricValue("team", "judge", 0.9), MetricValue("team.judge", "mean", 0.1)]

    assert find(values, "team.judge") == values


def test_a_hundred_thousand_samples_are_summarised_quickly_and_in_flat_memory() -> None:
    def observations() -> Iterator[Observation]:
        for index in range(100_000):
            yield (f"s{index}", 0, [Score("exact_match", index % 4 == 0, ["accuracy"])])

    started_s = time.process_time()
    (value,) = summarise(observations)
    used_s = time.process_time() - started_s
    tracemalloc.start()
    summarise(observations)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert value.value == 0.25
    assert used_s < 1.5  # 0.15 s on an idle machine; the margin is for busy ones
    assert peak_bytes < 200_000


def test_a_sample_of_which_repeats_failed_weighs_as_much_as_another() -> None:
    observations = [
        *(("a", repeat, [Score("match", True, ["accuracy"])]) for repeat in range(3)),
        ("b", 1, [Score("match", False, ["accuracy"])]),
    ]

    (value,) = summary_of(observations)

    assert (value.value, value.observations, value.samples) == (0.5, 4, 2)


def test_ones_and_zeros_have_the_interval_of_a_proportion() -> None:
    (value,) = summary_of([(str(number), 0, [Score("score", int(number < 9))]) for number in range(10)])

    assert (value.metric, value.value) == ("mean", 0.9)
    assert interval_of(value) == wilson_interval(9, 10)


def test_a_value_knows_that_less_is_better() -> None:
    lower = mean(higher_is_better=False)
    (value,) = summary_of([("a", 0, [Score("latency", 2.5, (lower,))])])
    (stored,) = summary_of([("a", 0, [Score("latency", 2.5, ("mean:lower",))])])

    assert (value.metric, value.value, value.higher_is_better) == ("mean", 2.5, False)
    assert stored == value
    assert MetricValue.from_plain(value.to_plain()) == value


def test_the_interval_of_pass_at_k_does_not_widen_when_results_improve() -> None:
    def low(right_of_five: int) -> float:
        runs = [[True] * 5] * 19 + [[True] * right_of_five + [False] * (5 - right_of_five)]
        (value,) = summary_of(
            [
                (str(sample), repeat, [Score("x", right, (pass_at(3),))])
                for sample, of_sample in enumerate(runs)
                for repeat, right in enumerate(of_sample)
            ]
        )
        return interval_of(value).low

    lows = [low(right) for right in range(6)]

    assert lows == sorted(lows)
    assert lows[-1] == pytest.approx(0.873, abs=1e-3)


def test_the_interval_of_pass_at_k_lies_within_zero_and_one() -> None:
    runs = [[True, True, False]] * 9 + [[False, False, True]]
    (value,) = summary_of(
        [
            (str(sample), repeat, [Score("x", right, (pass_at(2),))])
            for sample, of_sample in enumerate(runs)
            for repeat, right in enumerate(of_sample)
        ]
    )

    assert value.value == pytest.approx(29 / 30)
    assert 0.5 < interval_of(value).low < 29 / 30 < interval_of(value).high <= 1.0
