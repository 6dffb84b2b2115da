"""What `compare` says about two experiments on the samples that they share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.comparison.comparing import compare_across, compare_experiments, expect_pairs
from evalve.show.comparison.regressions import Check, regression_check
from evalve.show.comparison.text import check_text, comparison_json, comparison_text
from evalve.storage import open_store
from evalve.summary import summarise
from recorded import done, failed, record, skipped


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def text(store: Store, limit: int | None = 20, **how: Any) -> list[str]:
    return list(comparison_text(compare_experiments(store, "a", "b", **how), limit=limit, width=100))


def check(store: Store, a: str = "a", b: str = "b", **how: Any) -> Check:
    return regression_check([compare_experiments(store, a, b, **how)], usage_counts=bool(how))


def plain_of(store: Store) -> Any:
    compared = [compare_experiments(store, "a", "b")]
    return json.loads(comparison_json(compared, regression_check(compared)))


def test_shared_samples_are_paired_and_what_changed_is_named(store: Store) -> None:
    both_right = [done(f"s{number}", exact_match=True) for number in range(4)]
    record(store, "a", *both_right, done("x", exact_match=False), done("y", exact_match=True), failed("z"))
    record(store, "b", *both_right, done("x", exact_match=True), done("y", exact_match=False), wall_s=1.0)

    assert text(store) == [
        "A  a",
        "B  b",
        "",
        "eval_math",
        "  evaluator        A      B  B - A [95% interval]      p  test           pairs",
        "  ───────────  ─────  ─────  ────────────────────  ─────  ─────────────  ─────",
        "  exact_match  0.833  0.833  0.000 [-0.62, 0.62]   1.000  exact McNemar      6",
        "",
        "  exact_match: 1 fixed, 1 broken",
        "    fixed   x",
        "    broken  y",
        "    differences smaller than 0.927 would likely be missed with so many pairs",
        "",
        "  less is better      A      B  B - A [95% interval]      p  test       pairs",
        "  ──────────────  ─────  ─────  ────────────────────  ─────  ─────────  ─────",
        "  time_s          0.500  0.500  0.000                 1.000  sign-flip      6",
        "",
        "  A: 1 of 7 samples failed (code); 0.50 s wall, 3.50 s working, speed-up ×7.0",
        "  B: 0 of 6 samples failed; 1.00 s wall, 3.00 s working, speed-up ×3.0",
    ]


def test_what_failed_and_what_was_skipped_is_said_of_both_sides(store: Store) -> None:
    both = [done("s0", exact_match=True), done("s1", exact_match=True)]
    record(store, "a", *both, failed("s2", failure_class="provider"), failed("s3", failure_class="answer"))
    record(store, "b", *both, skipped("s2"), failed("s3", failure_class="infrastructure"))

    lines = text(store)

    assert lines[-2].startswith("  A: 2 of 4 samples failed (1 answer, 1 provider); ")
    assert lines[-1].startswith("  B: 1 of 3 samples failed (infrastructure), 1 skipped; ")


def test_a_terminal_of_80_columns_has_the_table_without_the_name_of_the_test(store: Store) -> None:
    scores = {"exact_match": True, "citation_match": False}
    record(store, "a", *(done(f"s{number}", **scores) for number in range(6)))
    record(store, "b", *(done(f"s{number}", **scores) for number in range(6)))

    compared = compare_experiments(store, "a", "b")
    lines = list(comparison_text(compared, limit=20, width=80))

    assert lines[4] == "  evaluator           A      B  B - A [95% interval]      p  Holm p  pairs"
    assert max(map(len, lines)) <= 80


def test_long_lists_of_changed_samples_are_cut_unless_all_are_asked_for(store: Store) -> None:
    record(store, "a", *(done(f"s{number}", exact_match=False) for number in range(5)))
    record(store, "b", *(done(f"s{number}", exact_match=True) for number in range(5)))

    assert "    fixed   s0, s1, … and 3 more (--full)" in text(store, limit=2)
    assert "    fixed   s0, s1, s2, s3, s4" in text(store, limit=None)


def test_numbers_are_higher_and_lower_and_the_largest_changes_are_named_first(store: Store) -> None:
    record(store, "a", *(done(f"s{number}", quality=0.5) for number in range(4)))
    qualities = (0.6, 0.9, 0.45, 0.2)
    record(store, "b", *(done(f"s{number}", quality=value) for number, value in enumerate(qualities)))

    lines = text(store, limit=1)

    assert "  quality: 2 higher, 2 lower" in lines
    assert "    higher  s1, … and 1 more (--full)" in lines
    assert "    lower   s3, … and 1 more (--full)" in lines
    plain = plain_of(store)
    (evaluator,) = plain["evaluations"][0]["evaluators"]
    assert (evaluator["fixed"], evaluator["broken"]) == (["s1", "s0"], ["s3", "s2"])


def test_samples_and_evaluations_that_only_one_side_has_are_told(store: Store) -> None:
    record(store, "a", done("s0", exact_match=True), done("s1", exact_match=True))
    record(store, "b", done("s0", exact_match=True))
    record(store, "b", done("s0", exact_match=True), name="eval_new")

    lines = text(store)

    assert "  exact_match: 0 fixed, 0 broken, 1 scored only in A" in lines
    assert lines[-1] == "only in B: eval_new"


def test_an_evaluation_whose_file_was_moved_is_paired_by_its_name(store: Store) -> None:
    record(store, "a", done("s0", exact_match=True), file="old.py")
    record(store, "b", done("s0", exact_match=True), file="new.py")

    assert [one.label for one in compare_experiments(store, "a", "b").evaluations] == ["eval_math"]


def test_evaluations_of_one_name_in_two_files_are_paired_by_file(store: Store) -> None:
    for experiment in ("a", "b"):
        record(store, experiment, done("s0", exact_match=True), file="one.py")
        record(store, experiment, done("s0", exact_match=True), file="two.py")

    labels = [one.label for one in compare_experiments(store, "a", "b").evaluations]

    assert labels == ["one.py::eval_math", "two.py::eval_math"]


def test_nothing_shared_is_an_error_that_says_what_each_has(store: Store) -> None:
    record(store, "a", done("s0", exact_match=True))
    record(store, "b", done("s1", exact_match=True))
    record(store, "c", done("s0", exact_match=True), name="eval_other")

    with pytest.raises(NotFound, match="no sample was scored in both 'a' and 'b'"):
        expect_pairs([compare_experiments(store, "a", "b")])
    with pytest.raises(NotFound, match="'a' has eval_math, 'c' has eval_other"):
        expect_pairs([compare_experiments(store, "a", "c")])


def test_a_regression_is_worse_beyond_chance(store: Store) -> None:
    record(store, "a", *(done(f"s{number}", exact_match=True) for number in range(10)))
    record(store, "b", *(done(f"s{number}", exact_match=False) for number in range(10)))
    record(
        store, "c", done("s0", exact_match=False), *(done(f"s{n}", exact_match=True) for n in range(1, 10))
    )

    assert compare_experiments(store, "a", "b").regressions == [("eval_math", "exact_match")]
    assert compare_experiments(store, "a", "c").regressions == []
    assert compare_experiments(store, "b", "a").regressions == []


def test_json_has_the_same_numbers(store: Store) -> None:
    record(store, "a", done("s0", exact_match=True), done("s1", exact_match=False))
    record(store, "b", done("s0", exact_match=True), done("s1", exact_match=True))

    plain = plain_of(store)

    (evaluation,) = plain["evaluations"]
    (evaluator,) = evaluation["evaluators"]
    assert (plain["a"], plain["b"], evaluation["evaluation"]) == ("a", "b", "eval_math")
    assert (evaluator["mean_a"], evaluator["mean_b"], evaluator["difference"]) == (0.5, 1.0, 0.5)
    assert (evaluator["fixed"], evaluator["broken"], evaluator["test"]) == (["s1"], [], "exact McNemar")
    assert evaluation["a"]["done"] == 2
    assert evaluator["regression"] is False


# -- variants ------------------------------------------------------------------------------------------


def of_model(store: Store, experiment: str, model: str, *right: bool, level: str | None = None) -> None:
    variant = {"model": model} | ({"level": level} if level else {})
    name = f"eval_math[{'-'.join(variant.values())}]"
    samples = [done(f"s{number}", exact_match=value) for number, value in enumerate(right)]
    record(store, experiment, *samples, name=name, variant=variant)


def test_two_models_pair_up_by_function_and_row(store: Store) -> None:
    of_model(store, "a", "anthropic/one", True, True, False)
    of_model(store, "b", "openai/two", True, False, False)

    (evaluation,) = compare_experiments(store, "a", "b").evaluations

    assert evaluation.label == "eval_math: A [anthropic/one], B [openai/two]"
    assert (evaluation.scores[0].n_paired, evaluation.scores[0].broken) == (3, ("s1",))


def test_variants_under_another_model_pair_up_by_their_other_parameters(store: Store) -> None:
    for level in ("easy", "hard"):
        of_model(store, "a", "gpt-4", True, level=level)
        of_model(store, "b", "gpt-5-mini", True, level=level)

    compared = compare_experiments(store, "a", "b")

    assert [one.label for one in compared.evaluations] == [
        "eval_math: A [gpt-4-easy], B [gpt-5-mini-easy]",
        "eval_math: A [gpt-4-hard], B [gpt-5-mini-hard]",
    ]
    assert (compared.only_in_a, compared.only_in_b) == ([], [])


def test_a_variant_is_not_paired_with_another_one_where_both_sides_share_some(store: Store) -> None:
    for experiment, levels in (("a", ("easy", "medium")), ("b", ("easy", "hard"))):
        for level in levels:
            of_model(store, experiment, "gpt", True, level=level)

    compared = compare_experiments(store, "a", "b")

    assert [one.label for one in compared.evaluations] == ["eval_math[gpt-easy]"]
    assert (compared.only_in_a, compared.only_in_b) == (["eval_math[gpt-medium]"], ["eval_math[gpt-hard]"])


def test_the_variants_inside_one_experiment_are_compared_across_a_parameter(store: Store) -> None:
    for model, right in (("one", True), ("two", True), ("three", False)):
        for level in ("easy", "hard"):
            of_model(store, "a", model, *[right] * 8, level=level)

    two, three = compare_across(store, "a", "model")

    assert (two.a, two.b) == ("a, model=one", "a, model=two")
    assert (three.a, three.b) == ("a, model=one", "a, model=three")
    assert [one.label for one in three.evaluations] == [
        "eval_math: A [one-easy], B [three-easy]",
        "eval_math: A [one-hard], B [three-hard]",
    ]
    assert two.regressions == []
    # four comparisons are judged together: 4 * 2 / 2^8
    assert [each.p_adjusted for one in three.evaluations for each in one.scores] == [0.03125, 0.03125]
    assert len(three.regressions) == 2


def test_a_parameter_that_no_variant_has_is_an_error_that_says_which_there_are(store: Store) -> None:
    of_model(store, "a", "one", True, level="easy")
    of_model(store, "a", "one", True, level="hard")

    with pytest.raises(
        NotFound, match="no evaluation has variants by a parameter 'size'; there is: level, mo"
    ):
        compare_across(store, "a", "size")
    with pytest.raises(NotFound, match="all variants have model=one"):
        compare_across(store, "a", "model")


# -- what has changed ------------------------------------------------------------------------------------


def test_rows_that_changed_under_their_ids_are_said_and_left_out(store: Store) -> None:
    same = [done(f"s{number}", exact_match=True, also={"row_hash": 1}) for number in range(8)]
    record(store, "a", *same, done("x", exact_match=True, also={"row_hash": 1}))
    record(store, "b", *same, done("x", exact_match=False, also={"row_hash": 2}))

    (evaluation,) = compare_experiments(store, "a", "b").evaluations

    assert (list(evaluation.changed_rows), evaluation.scores[0].n_paired) == (["x"], 8)
    assert "  1 row changed under the same id, left out: x" in text(store)


def test_an_evaluation_whose_code_differs_is_said_and_left_out(store: Store) -> None:
    for experiment, prompt in (("a", "Add."), ("b", "Add up.")):
        record(
            store,
            experiment,
            done("s0", exact_match=True),
            fingerprint={"method": "1", "constant PROMPT": prompt},
        )

    assert text(store)[3:] == [
        "eval_math",
        "  its code differs: constant PROMPT",
        "  left out; --accept-changes compares it all the same",
    ]
    assert check(store) == Check("insufficient", ["eval_math: left out, because its code differs"])
    assert text(store, accept_changes=True)[4] == "  its code differs: constant PROMPT"
    assert "  exact_match: 0 fixed, 0 broken" in text(store, accept_changes=True)


def test_code_that_was_recorded_in_another_way_cannot_be_compared_and_counts_as_the_same(
    store: Store,
) -> None:
    record(store, "a", done("s0", exact_match=True), fingerprint={"method": "1", "function f": "x"})
    record(store, "b", done("s0", exact_match=True), fingerprint={"method": "2", "function f": "y"})

    assert not compare_experiments(store, "a", "b").evaluations[0].is_left_out


# -- the regression check --------------------------------------------------------------------------------


def all_right(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [done(f"s{number}", exact_match=True) for number in range(start, count)]


def test_two_whole_runs_without_a_difference_pass(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *all_right(40))

    assert check(store) == Check("pass", ())


def test_b_that_breaks_on_most_samples_fails(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *all_right(4), *(failed(f"s{number}") for number in range(4, 40)))

    assert check(store) == Check("fail", ["eval_math: B breaks on 36 samples that A completed"])


def test_b_that_breaks_on_everything_fails(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *(failed(f"s{number}") for number in range(40)))

    assert check(store).outcome == "fail"


def test_one_failure_in_many_is_no_regression(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *all_right(39), failed("s39"))

    assert check(store).outcome == "pass"


def test_missing_rows_are_insufficient(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *all_right(8))

    assert check(store) == Check(
        "insufficient",
        ["eval_math: exact_match lacks 32 of 40 samples in B, which could hide that it is worse"],
    )


def test_an_evaluation_of_which_all_rows_changed_is_insufficient(store: Store) -> None:
    for experiment, row_hash in (("a", 1), ("b", 2)):
        right = experiment == "a"
        changed = [done(f"s{n}", exact_match=right, also={"row_hash": row_hash}) for n in range(40)]
        record(store, experiment, *changed)
        record(store, experiment, *all_right(40), name="eval_other")

    assert check(store) == Check(
        "insufficient", ["eval_math: exact_match has no pairs, because its rows have changed"]
    )
    expect_pairs([compare_experiments(store, "a", "b", evaluation="eval_math")])


def test_a_row_that_changed_and_that_b_has_not_scored_is_missing_once(store: Store) -> None:
    lost = [done(f"x{n}", exact_match=True, also={"row_hash": 1}) for n in range(10)]
    record(store, "a", *all_right(40), *lost)
    record(store, "b", *all_right(40), *(failed(f"x{n}", row_hash=2) for n in range(10)))

    assert check(store).reasons == [
        "eval_math: exact_match lacks 10 of 50 samples in B, which could hide that it is worse"
    ]


def test_a_missing_evaluator_is_insufficient(store: Store) -> None:
    record(store, "a", *(done(f"s{n}", exact_match=True, polite=True) for n in range(40)))
    record(store, "b", *all_right(40))

    assert check(store) == Check("insufficient", ["eval_math: polite is missing in B"])


def test_a_missing_evaluation_is_insufficient(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "a", *all_right(40), name="eval_other")
    record(store, "b", *all_right(40))

    assert check(store) == Check("insufficient", ["eval_other is missing in B"])


def test_nothing_in_common_is_insufficient(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *all_right(40), name="eval_other")

    assert check(store) == Check("insufficient", ["eval_math is missing in B"])


def test_a_difference_that_all_samples_have_is_no_absence_of_one(store: Store) -> None:
    record(store, "a", *(done(f"s{number}", length=number / 4) for number in range(12)))
    record(store, "b", *(done(f"s{number}", length=number / 4 + 1) for number in range(12)))

    assert (
        "    all differ by the same, so that nothing is known about which difference would be found"
        in text(store)
    )


def test_too_few_pairs_to_show_anything_are_insufficient(store: Store) -> None:
    record(store, "a", *all_right(5))
    record(store, "b", *all_right(5))

    assert check(store) == Check(
        "insufficient",
        [
            "too few pairs: 5 pairs of exact_match could show no difference, even if all of them changed",
        ],
    )
    assert "    too few pairs: no difference could be shown, even if all of them changed" in text(store)


def test_a_small_evaluation_beside_a_large_one_matters_only_where_it_is_worse(store: Store) -> None:
    for experiment in ("a", "b", "c"):
        record(store, experiment, *all_right(40))
    record(store, "a", *all_right(3), name="eval_small")
    record(store, "b", *all_right(3), name="eval_small")
    record(store, "c", *all_right(2), done("s2", exact_match=False), name="eval_small")

    assert check(store).outcome == "pass"
    assert check(store, "a", "c") == Check(
        "insufficient",
        [
            "eval_small: exact_match is worse in B, but 3 pairs of exact_match could show no difference "
            "among 2 comparisons, even if all of them changed"
        ],
    )


def test_a_small_evaluation_of_which_b_broke_on_too_many_to_tell_is_insufficient(store: Store) -> None:
    for experiment, broken in (("a", 0), ("b", 4)):
        record(store, experiment, *all_right(40))
        small = [*all_right(5 - broken), *(failed(f"s{n}") for n in range(5 - broken, 5))]
        record(store, experiment, *small, name="eval_small")

    assert check(store) == Check(
        "insufficient",
        ["eval_small: exact_match lacks 4 of 5 samples in B, which could hide that it is worse"],
    )


def test_what_only_b_has_is_no_reason_against_it(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *(done(f"s{n}", exact_match=True, polite=True) for n in range(40)))
    record(store, "b", *all_right(40), name="eval_new")

    assert check(store).outcome == "pass"


def test_the_outcome_and_its_reasons_end_the_text_and_are_in_the_json(store: Store) -> None:
    record(store, "a", *all_right(40))
    record(store, "b", *(done(f"s{number}", exact_match=False) for number in range(40)))

    assert list(check_text(check(store))) == [
        "",
        "regression check: fail",
        "  eval_math: exact_match is worse in B by 1.000",
    ]
    plain = plain_of(store)
    assert (plain["outcome"], plain["reasons"]) == ("fail", ["eval_math: exact_match is worse in B by 1.000"])


def test_p_is_adjusted_over_all_evaluations(store: Store) -> None:
    for number in range(4):
        record(store, "a", *all_right(7), name=f"eval_{number}")
        broken = [done(f"s{n}", exact_match=number != 0) for n in range(7)]
        record(store, "b", *broken, name=f"eval_{number}")

    first = compare_experiments(store, "a", "b").evaluations[0].scores[0]

    # 2 / 2^7 alone, four times that among four
    assert (first.p_value, first.p_adjusted, first.is_regression) == (0.015625, 0.0625, False)


# -- time, tokens and cost -------------------------------------------------------------------------------


def priced(sample_id: str, *, tokens: int, wall_s: float, cached: int = 0) -> dict[str, Any]:
    calls = {
        "requests": 1,
        "cached": cached,
        "input_tokens": tokens,
        "output_tokens": 10,
        "cost_usd": tokens / 1e6,
    }
    return done(sample_id, exact_match=True, wall_s=wall_s, also={"calls": calls})


def test_time_tokens_and_cost_are_compared_and_less_is_better(store: Store) -> None:
    record(store, "a", *(priced(f"s{n}", tokens=100 + n, wall_s=6.0 + n / 10) for n in range(10)))
    record(store, "b", *(priced(f"s{n}", tokens=900 + n, wall_s=1.5 + n / 20) for n in range(10)))

    time_s, tokens, cost_usd = compare_experiments(store, "a", "b").evaluations[0].usage

    assert (time_s.evaluator, time_s.is_worse, len(time_s.fixed)) == ("time_s", False, 10)
    assert (tokens.evaluator, tokens.difference, tokens.is_regression) == ("tokens", 800.0, True)
    assert (cost_usd.evaluator, cost_usd.is_regression) == ("cost_usd", True)


def test_what_samples_take_fails_a_check_only_where_that_is_asked_for(store: Store) -> None:
    record(store, "a", *(priced(f"s{n}", tokens=100 + n, wall_s=1.0) for n in range(20)))
    record(store, "b", *(priced(f"s{n}", tokens=900 + n, wall_s=1.0) for n in range(20)))

    assert check(store).outcome == "pass"
    assert check(store, usage_counts=True) == Check(
        "fail", ["eval_math: tokens is worse in B by 800.0", "eval_math: cost_usd is worse in B by 0.0008"]
    )


def test_samples_that_the_cache_answered_say_nothing_about_time_and_cost(store: Store) -> None:
    record(store, "a", *(priced(f"s{n}", tokens=100, wall_s=6.0) for n in range(10)))
    record(store, "b", *(priced(f"s{n}", tokens=100, wall_s=0.1, cached=int(n < 4)) for n in range(10)))

    (evaluation,) = compare_experiments(store, "a", "b").evaluations

    assert (evaluation.cached, evaluation.usage[0].n_paired) == (4, 6)
    assert plain_of(store)["evaluations"][0]["cached"] == 4
    assert "  without 4 samples that the cache answered" in text(store)


def test_what_the_cache_answered_is_insufficient_for_a_check_of_what_samples_take(store: Store) -> None:
    record(store, "a", *(priced(f"s{n}", tokens=100 + n, wall_s=1.0) for n in range(20)))
    record(store, "b", *(priced(f"s{n}", tokens=0, wall_s=0.0, cached=1) for n in range(20)))

    assert check(store).outcome == "pass"
    assert check(store, usage_counts=True) == Check(
        "insufficient",
        ["eval_math: time, tokens and cost have too few pairs, because the cache answered 20 samples"],
    )
    assert "  time, tokens and cost are not compared: the cache answered 20 samples" in text(store)


def test_a_cost_that_only_a_has_is_insufficient_for_a_check_of_what_samples_take(store: Store) -> None:
    priced_in_a = [priced(f"s{n}", tokens=100 + n, wall_s=1.0) for n in range(20)]
    record(store, "a", *priced_in_a)
    for sample in priced_in_a:
        sample["calls"] = {**sample["calls"], "unpriced": 1}
    record(store, "b", *priced_in_a)

    assert check(store, usage_counts=True) == Check("insufficient", ["eval_math: cost_usd is missing in B"])


def test_show_and_compare_weigh_a_sample_with_failed_repeats_the_same(store: Store) -> None:
    samples = [
        *(done("s0", repeat=repeat, exact_match=True) for repeat in range(3)),
        done("s1", repeat=0, exact_match=False),
        *(failed("s1", repeat=repeat) for repeat in (1, 2)),
    ]
    evaluation_id = record(store, "a", *samples)
    record(store, "b", *samples)

    (shown,) = summarise(lambda: store.observations(evaluation_id))
    compared = compare_experiments(store, "a", "b").evaluations[0].scores[0]

    assert (shown.value, compared.mean_a, compared.mean_b) == (0.5, 0.5, 0.5)


def test_a_function_stands_for_all_of_its_variants(store: Store) -> None:
    of_model(store, "a", "one", True)
    of_model(store, "b", "two", True)
    for experiment in ("a", "b"):
        record(store, experiment, done("s0", exact_match=True), name="eval_other")

    compared = compare_experiments(store, "a", "b", evaluation="eval_math")

    assert [one.label for one in compared.evaluations] == ["eval_math: A [one], B [two]"]
