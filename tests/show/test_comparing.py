"""What `compare` says about two experiments on the samples that they share."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from evalve.contracts import Store
from evalve.errors import NotFound
from evalve.show.comparing import compare_experiments, comparison_json, comparison_text
from evalve.storage import open_store
from recorded import done, failed, record, skipped


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store("memory://")
    yield opened
    opened.close()


def text(store: Store, limit: int | None = 20) -> list[str]:
    return list(comparison_text(compare_experiments(store, "a", "b"), limit=limit, width=80))


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
        "  exact_match  0.833  0.833  0.000 [-0.66, 0.66]   1.000  exact McNemar      6",
        "",
        "  exact_match: 1 fixed, 1 broken",
        "    fixed   x",
        "    broken  y",
        "    differences smaller than 0.723 would likely be missed with so many pairs",
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
    plain = json.loads(comparison_json(compare_experiments(store, "a", "b")))
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
        compare_experiments(store, "a", "b")
    with pytest.raises(NotFound, match="'a' has eval_math, 'c' has eval_other"):
        compare_experiments(store, "a", "c")


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

    plain = json.loads(comparison_json(compare_experiments(store, "a", "b")))

    (evaluation,) = plain["evaluations"]
    (evaluator,) = evaluation["evaluators"]
    assert (plain["a"], plain["b"], evaluation["evaluation"]) == ("a", "b", "eval_math")
    assert (evaluator["mean_a"], evaluator["mean_b"], evaluator["difference"]) == (0.5, 1.0, 0.5)
    assert (evaluator["fixed"], evaluator["broken"], evaluator["test"]) == (["s1"], [], "exact McNemar")
    assert evaluation["a"]["done"] == 2
    assert evaluator["regression"] is False
