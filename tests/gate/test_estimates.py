"""Tokens are guessed from bytes at first, and from experience soon."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evalve.gate.estimates import Estimates, prior_slope
from evalve.gate.messages import Call, Usage


def call(size_bytes: int = 3500, model: str = "gpt-4o", max_output_tokens: int | None = None) -> Call:
    return Call("openai", "h", model, model, "none", size_bytes, max_output_tokens, False)


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [
        ("gpt-4o", 3.5),
        ("claude-3-5-haiku-20241022", 3.5),
        ("claude-haiku-4-5-20251001", 3.5),
        ("claude-sonnet-4-20250514", 3.5),
        ("claude-opus-4-6", 3.5),
        ("claude-opus-4-7", 3.0),
        ("claude-opus-5", 3.0),
        ("claude-sonnet-5-5", 3.0),
        ("claude-fable-5-1", 3.0),
        ("claude-haiku-5-5", 3.0),
    ],
)
def test_the_first_guess_knows_claudes_newer_tokenizer(model: str, bytes_per_token: float) -> None:
    assert prior_slope(model) == pytest.approx(1 / bytes_per_token)


def test_the_first_guess_is_five_percent_too_high() -> None:
    assert Estimates().expected(call(3500)).input_tokens == pytest.approx((1000 + 20) * 1.05)


@pytest.mark.parametrize(("limit", "expected"), [(None, 1024.0), (8000, 1024.0), (300, 300.0), (0, 0.0)])
def test_the_first_guess_of_an_answer_is_bounded_by_max_tokens(limit: int | None, expected: float) -> None:
    assert Estimates().expected(call(max_output_tokens=limit)).output_tokens == expected


def test_the_caution_ends_after_twenty_calls() -> None:
    estimates = Estimates()
    for _ in range(19):
        estimates.observe(call(3500), Usage(input_tokens=1020))
    cautious = estimates.expected(call(3500)).input_tokens
    estimates.observe(call(3500), Usage(input_tokens=1020))

    assert cautious == pytest.approx(1071.0)
    assert estimates.expected(call(3500)).input_tokens == pytest.approx(1020.0)


def test_calls_of_one_size_are_learnt_within_a_few() -> None:
    estimates = Estimates()
    for _ in range(5):
        estimates.observe(call(400), Usage(input_tokens=90))

    assert estimates.expected(call(400)).input_tokens / 1.05 == pytest.approx(90, rel=0.15)


def test_calls_of_one_size_for_ever_do_not_spoil_the_guess_for_another() -> None:
    estimates = Estimates()
    for _ in range(20_000):
        estimates.observe(call(1000), Usage(input_tokens=305))

    assert estimates.expected(call(1000)).input_tokens == pytest.approx(305, rel=0.01)
    assert estimates.expected(call(2000)).input_tokens == pytest.approx(600, rel=0.05)


def test_the_line_is_found_from_calls_of_many_sizes() -> None:
    estimates, draw = Estimates(), random.Random(7)
    for _ in range(200):
        size = draw.randrange(200, 20_000)
        estimates.observe(call(size), Usage(input_tokens=round(size / 4.2 + 350)))

    for size in (300, 5_000, 50_000):
        assert estimates.expected(call(size)).input_tokens == pytest.approx(size / 4.2 + 350, rel=0.03)


def test_a_change_is_followed() -> None:
    estimates = Estimates()
    for tokens in [300] * 500 + [420] * 300:
        estimates.observe(call(1000), Usage(input_tokens=tokens))

    assert estimates.expected(call(1000)).input_tokens == pytest.approx(420, rel=0.03)


def test_an_estimate_is_never_negative() -> None:
    estimates = Estimates()
    for size, tokens in [(10_000, 10), (100, 5_000)] * 50:
        estimates.observe(call(size), Usage(input_tokens=tokens))

    assert estimates.expected(call(100_000)).input_tokens >= 0
    assert estimates.expected(call(0)).input_tokens >= 0


def test_tokens_read_from_a_cache_are_tokens_of_the_text() -> None:
    estimates = Estimates()
    for _ in range(30):
        estimates.observe(call(3500), Usage(input_tokens=20, cache_read_tokens=1000))

    assert estimates.expected(call(3500)).input_tokens == pytest.approx(1020, rel=0.01)


def test_what_is_not_charged_is_soon_not_expected() -> None:
    estimates = Estimates()
    for _ in range(30):
        usage = Usage(input_tokens=20, cache_read_tokens=1000)
        estimates.observe(call(3500), usage, "capitals", charged_input_tokens=20)

    assert estimates.expected(call(3500), "capitals").input_tokens < 50
    assert estimates.expected(call(3500), "another").input_tokens == pytest.approx(1020, rel=0.01)


def test_the_length_of_answers_is_the_mean_and_a_little_more() -> None:
    estimates = Estimates()
    for tokens in [80, 120] * 200:
        estimates.observe(call(), Usage(output_tokens=tokens), "capitals")

    assert 100 < estimates.expected(call(), "capitals").output_tokens < 110


def test_one_answer_leaves_room_for_longer_ones() -> None:
    estimates = Estimates()
    estimates.observe(call(), Usage(output_tokens=100))

    assert estimates.expected(call()).output_tokens == pytest.approx(150.0)


def test_an_answer_is_not_expected_beyond_max_tokens() -> None:
    estimates = Estimates()
    estimates.observe(call(), Usage(output_tokens=900))

    assert estimates.expected(call(max_output_tokens=50)).output_tokens == 50.0


def test_kinds_of_calls_and_models_are_kept_apart() -> None:
    estimates = Estimates()
    estimates.observe(call(), Usage(output_tokens=10), "capitals")

    assert estimates.expected(call(), "essays").output_tokens == 1024.0
    assert estimates.expected(call(model="gpt-5"), "capitals").output_tokens == 1024.0


def test_what_was_learnt_survives_as_json() -> None:
    estimates = Estimates()
    for size in range(100, 3000, 100):
        estimates.observe(call(size), Usage(input_tokens=size // 4, output_tokens=30), "capitals", size // 8)

    restored = Estimates.from_plain(json.loads(json.dumps(estimates.to_plain())))

    assert restored.expected(call(777), "capitals") == estimates.expected(call(777), "capitals")
    assert restored.to_plain() == estimates.to_plain()


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        "text",
        {"inputs": 3, "habits": 4},
        {"inputs": {"gpt-4o": [1, 2]}, "habits": [[1, 2], None]},
        {"inputs": {"gpt-4o": [1, "x", 2, 3, 4, 5]}, "habits": [["a", "gpt-4o", 1, float("nan"), 0, 1]]},
    ],
)
def test_a_broken_store_is_ignored(plain: Any) -> None:
    assert Estimates.from_plain(plain).expected(call(3500)) == Estimates().expected(call(3500))


def test_a_run_with_very_many_kinds_of_calls_keeps_only_the_latest() -> None:
    estimates = Estimates()
    for number in range(5000):
        estimates.observe(call(), Usage(output_tokens=10), f"kind {number}")

    assert len(estimates.to_plain()["habits"]) == 4096
    assert estimates.expected(call(), "kind 4999").output_tokens < 1024


def test_many_threads_may_learn_at_once() -> None:
    estimates = Estimates()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: estimates.observe(call(), Usage(input_tokens=1020)), range(2000)))

    assert estimates.to_plain()["inputs"]["gpt-4o"][0] == 2000


def test_before_any_answer_a_call_is_bounded_by_its_bytes() -> None:
    most = Estimates().at_most(call(3000, max_output_tokens=10))

    assert most is not None
    assert most.input_tokens >= 3000


def test_a_text_with_many_tokens_widens_the_bound_of_the_next() -> None:
    estimates = Estimates()
    for _ in range(50):
        estimates.observe(call(3000), Usage(input_tokens=750))
    estimates.observe(call(3000), Usage(input_tokens=2400))

    most = estimates.at_most(call(3000, max_output_tokens=10))

    assert most is not None
    assert most.input_tokens >= 2400


def test_what_another_evaluation_asked_does_not_bound_a_call() -> None:
    estimates = Estimates()
    estimates.observe(call(3000), Usage(input_tokens=750), "english")

    digits = estimates.at_most(call(3000, max_output_tokens=10), "digits")
    english = estimates.at_most(call(3000, max_output_tokens=10), "english")

    assert digits is not None and english is not None
    assert english.input_tokens < 1100 < 3000 <= digits.input_tokens


def test_how_far_answers_were_off_is_known_to_the_next_run() -> None:
    estimates = Estimates()
    for tokens in (750, 750, 2400):
        estimates.observe(call(3000), Usage(input_tokens=tokens), "mixed")

    restored = Estimates.from_plain(json.loads(json.dumps(estimates.to_plain())))

    asked = call(3000, max_output_tokens=10)
    assert restored.at_most(asked, "mixed") == estimates.at_most(asked, "mixed")


def test_without_max_tokens_nothing_bounds_a_call() -> None:
    assert Estimates().at_most(call(3000)) is None
