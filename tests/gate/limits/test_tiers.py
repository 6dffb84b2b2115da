"""Which figures a tier has for which model."""

from __future__ import annotations

import re

import pytest

from evalve.gate.limits.tiers import FAMILIES, tier_figures, tiers_of

ALL_OF_OPENAI = {
    "gpt-5": [
        (500, 500_000),
        (5_000, 1_000_000),
        (5_000, 2_000_000),
        (10_000, 4_000_000),
        (15_000, 40_000_000),
    ],
    "gpt-5-mini": [
        (500, 500_000),
        (5_000, 2_000_000),
        (5_000, 4_000_000),
        (10_000, 10_000_000),
        (30_000, 180_000_000),
    ],
    "gpt-5-nano": [
        (500, 200_000),
        (5_000, 2_000_000),
        (5_000, 4_000_000),
        (10_000, 10_000_000),
        (30_000, 180_000_000),
    ],
    "gpt-4o": [(500, 30_000), (5_000, 450_000), (5_000, 800_000), (10_000, 2_000_000), (10_000, 30_000_000)],
    "gpt-4o-mini": [
        (500, 200_000),
        (5_000, 2_000_000),
        (5_000, 4_000_000),
        (10_000, 10_000_000),
        (30_000, 150_000_000),
    ],
}


@pytest.mark.parametrize("model", ALL_OF_OPENAI)
def test_a_tier_of_openai_stands_for_its_figures(model: str) -> None:
    found = [tier_figures("openai", model, tier) for tier in ("1", "2", "3", "4", "5")]

    assert found == [{"rpm": rpm, "tpm": tpm} for rpm, tpm in ALL_OF_OPENAI[model]]


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5.1-codex", "gpt-5"),
        ("gpt-5.6-sol", "gpt-5"),
        ("a-model-of-tomorrow", "gpt-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-5.4-mini", "gpt-5-mini"),
        ("gpt-5.1-codex-mini", "gpt-5-mini"),
        ("gpt-6-luna", "gpt-5-mini"),
        ("gpt-5.4-nano-2026-03-17", "gpt-5-nano"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        ("gpt-4.1-2025-04-14", "gpt-4o"),
        ("gpt-5-pro-2025-10-06", "gpt-4o"),
        ("gpt-5.2-pro", "gpt-4o"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("gpt-4.1-mini", "gpt-4o-mini"),
        ("gpt-4.1-nano-2025-04-14", "gpt-4o-mini"),
    ],
)
def test_a_model_of_openai_has_the_figures_of_its_family(model: str, family: str) -> None:
    assert tier_figures("openai", model, "5") == tier_figures("openai", family, "5")
    assert tier_figures("openai", model, "1") == tier_figures("openai", family, "1")


@pytest.mark.parametrize(
    "model", ["gpt-3.5-turbo", "gpt-4", "gpt-4-turbo", "chatgpt-4o-latest", "o3", "o4-mini"]
)
def test_a_model_whose_figures_are_its_own_has_none(model: str) -> None:
    assert tier_figures("openai", model, "2") == {}


def test_tiers_are_named_in_their_order() -> None:
    assert tiers_of("anthropic") == ["1", "2", "3", "4", "start", "build", "scale"]
    assert tiers_of("openai") == ["1", "2", "3", "4", "5"]
    assert tiers_of("127.0.0.1:8080") == []


@pytest.mark.parametrize("provider", FAMILIES)
def test_every_model_has_a_family_and_every_tier_all_its_figures(provider: str) -> None:
    families = FAMILIES[provider]

    assert re.match(families[-1].models, "whatever")
    assert all(len(figures) == len(family.keys) for family in families for figures in family.tiers.values())
