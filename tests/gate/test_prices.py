"""What a call costs, and that an unknown price is not zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.gate.messages import Usage
from evalve.gate.prices import prices_from, read_prices

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        ("claude-opus-5-5", Usage(MILLION, MILLION), 24.0),
        ("claude-haiku-4-5-20251001", Usage(MILLION, 0), 1.0),
        ("claude-sonnet-4-6", Usage(0, 0, MILLION, MILLION), 0.3 + 3.75),
        ("claude-sonnet-4-6", Usage(0, 0, 0, 2 * MILLION, MILLION), 3.75 + 6.0),
        ("gpt-4o-2024-08-06", Usage(1000, 500, 2000), 0.0025 + 0.005 + 0.0025),
        ("gpt-4o-mini", Usage(MILLION, 0), 0.15),
        ("text-embedding-3-small", Usage(MILLION), 0.02),
    ],
)
def test_a_known_model_costs_what_its_provider_says(model: str, usage: Usage, usd: float) -> None:
    assert prices_from(None, {}).cost(model, usage) == pytest.approx(usd)


@pytest.mark.parametrize(
    "model",
    ["SmolLM2-135M", "gpt-5.6-sol", "gpt-4o-audio-preview", "gpt-5-pro", "claude-opus-6", "claude", ""],
)
def test_a_model_whose_name_only_begins_like_a_known_one_has_no_price(model: str) -> None:
    assert prices_from(None, {}).cost(model, Usage(10, 10)) is None


def test_a_rate_that_is_not_known_makes_the_cost_unknown_only_where_it_is_needed() -> None:
    prices = prices_from(None, {})

    assert prices.cost("claude-sonnet-5-5", Usage(MILLION, 0)) == 2.0
    assert prices.cost("claude-sonnet-5-5", Usage(MILLION, 0, cache_read_tokens=1)) is None


def test_a_prompt_beyond_the_priced_length_has_no_price() -> None:
    prices = prices_from(None, {})

    assert prices.cost("claude-haiku-5-5", Usage(100_000)) == pytest.approx(0.01)
    assert prices.cost("claude-haiku-5-5", Usage(99_000, cache_read_tokens=1_001)) is None


def test_the_price_of_a_cache_that_is_written_for_an_hour_can_be_said() -> None:
    prices = prices_from({"m": {"input": 1, "output": 1, "cache_write": 2, "cache_write_1h": 5}}, {})

    assert prices.cost("m", Usage(0, 0, 0, MILLION, MILLION)) == 5.0


def test_a_model_is_free_only_where_a_person_says_so() -> None:
    prices = prices_from({"SmolLM2*": {"input": 0, "output": 0}}, {})

    assert prices.cost("SmolLM2-135M-Instruct", Usage(500, 500, 10)) == 0.0


def test_a_person_s_price_holds_over_the_shipped_one() -> None:
    prices = prices_from({"gpt-4o": {"input": 1, "output": 1}}, {})

    assert prices.cost("gpt-4o-2024-08-06", Usage(MILLION, MILLION)) == 2.0


def test_without_cache_rates_cached_input_costs_as_much_as_other_input() -> None:
    prices = prices_from({"mine": {"input": 2, "output": 0}}, {})

    assert prices.cost("mine", Usage(0, 0, MILLION, MILLION)) == 4.0


@pytest.mark.parametrize(
    "text", ['{"models": {"mine": {"input": 3, "output": 0}}}', "mine: {input: 3, output: 0}"]
)
def test_the_file_of_the_environment_holds_over_the_project_s(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)

    prices = prices_from({"mine": {"input": 1, "output": 0}}, {"EVALVE_PRICES": str(path)})

    assert prices.cost("mine", Usage(MILLION)) == 3.0


def test_of_several_beginnings_the_longest_counts() -> None:
    prices = prices_from({"my-*": {"input": 1, "output": 0}, "my-big-*": {"input": 5, "output": 0}}, {})

    assert prices.cost("my-big-one", Usage(MILLION)) == 5.0
    assert prices.cost("my-small-one", Usage(MILLION)) == 1.0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"m": {"inptu": 1}},
            "prices.m: unknown key 'inptu'; did you mean 'input'? "
            "(known: input, output, cache_read, cache_write, cache_write_1h, up_to_input_tokens)",
        ),
        ({"m": {"input": 1}}, "prices.m: output is missing; a price needs input and output"),
        (
            {"m": {"input": -1, "output": 1}},
            "prices.m.input: needs USD per million tokens, 0 or more; got -1",
        ),
        (
            {"m": {"input": True, "output": 1}},
            "prices.m.input: needs USD per million tokens, 0 or more; got True",
        ),
        ({"m": 4}, "prices.m must have input and output; got 4"),
        ([1], "prices must be a mapping of models to prices; got list"),
    ],
)
def test_a_mistake_is_named(section: Any, message: str) -> None:
    with pytest.raises(OptionError) as error:
        read_prices(section, "prices")

    assert str(error.value) == message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"EVALVE_PRICES=.*missing\.json cannot be read"):
        prices_from(None, {"EVALVE_PRICES": str(tmp_path / "missing.json")})


def test_the_shipped_table_says_how_old_it_is() -> None:
    prices = prices_from(None, {})
    path = Path(__file__).parents[2] / "src" / "evalve" / "gate" / "prices.json"

    assert prices.as_of == json.loads(path.read_text())["as_of"] == "2026-11-15"
