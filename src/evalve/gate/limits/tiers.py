"""What a provider's tiers allow a minute, by families of models. Pure.

They are where a run starts from: where an answer's headers state less, the lower holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Models with the same figures."""

    models: str
    """A pattern that their names begin with, dates or not."""
    keys: tuple[str, ...]
    """What the figures are, as they are named in `evalve.yaml`."""
    tiers: Mapping[str, tuple[int, ...]]
    """Empty where only answers state them."""


def tiers_of(provider: str) -> list[str]:
    """The names of a provider's tiers; none where there are no presets for it."""
    families = reversed(FAMILIES.get(provider, ()))  # the last is for all other models, and has all tiers
    return list(dict.fromkeys(tier for family in families for tier in family.tiers))


def tier_figures(provider: str, model: str, tier: str) -> dict[str, float]:
    """A minute, by key; empty where the tier has no figures for the model."""
    for family in FAMILIES.get(provider, ()):
        if re.match(family.models, model):
            figures = zip(family.keys, family.tiers.get(tier, ()), strict=False)
            return {key: float(figure) for key, figure in figures}
    return {}


def batch_figures(provider: str, tier: str) -> dict[str, int]:
    """Requests of one batch, and of all that have not ended, by key; empty where no figures are known."""
    figures = BATCHES.get(provider, {}).get(tier)
    return {} if figures is None else dict(zip(("batch_size", "batch_queue"), figures, strict=True))


BATCHES: dict[str, dict[str, tuple[int, int]]] = {
    "anthropic": {
        "1": (100_000, 100_000),
        "2": (100_000, 200_000),
        "3": (100_000, 300_000),
        "4": (100_000, 500_000),
        "start": (100_000, 200_000),
        "build": (100_000, 300_000),
        "scale": (100_000, 500_000),
    },
}
"""OpenAI's queue is counted in tokens of each model, and a batch that does not fit fails by itself: it is
waited for without figures."""

_ANTHROPIC = ("rpm", "itpm", "otpm")
_OPENAI = ("rpm", "tpm")

FAMILIES: dict[str, tuple[Family, ...]] = {
    "anthropic": (
        Family(
            r"claude-(?:fable|mythos)",  # tiers 1 to 4 ended before these
            _ANTHROPIC,
            {
                "start": (1_000, 500_000, 100_000),
                "build": (2_000, 1_500_000, 300_000),
                "scale": (4_000, 4_000_000, 800_000),
            },
        ),
        Family(
            r"",
            _ANTHROPIC,
            {
                "1": (50, 30_000, 8_000),
                "2": (1_000, 450_000, 90_000),
                "3": (2_000, 800_000, 160_000),
                "4": (4_000, 2_000_000, 400_000),
                "start": (1_000, 2_000_000, 400_000),
                "build": (5_000, 5_000_000, 1_000_000),
                "scale": (10_000, 10_000_000, 2_000_000),
            },
        ),
    ),
    "openai": (
        Family(
            r"gpt-4(?:o|\.1)-(?:mini|nano)",
            _OPENAI,
            {
                "1": (500, 200_000),
                "2": (5_000, 2_000_000),
                "3": (5_000, 4_000_000),
                "4": (10_000, 10_000_000),
                "5": (30_000, 150_000_000),
            },
        ),
        Family(
            r"gpt-4(?:o|\.1)|gpt-5(?:\.\d+)?-pro",
            _OPENAI,
            {
                "1": (500, 30_000),
                "2": (5_000, 450_000),
                "3": (5_000, 800_000),
                "4": (10_000, 2_000_000),
                "5": (10_000, 30_000_000),
            },
        ),
        Family(r"gpt-[34]|chatgpt-4|o\d", _OPENAI, {}),  # each with figures of its own, lower than the rest
        Family(
            r"gpt-.+-nano",
            _OPENAI,
            {
                "1": (500, 200_000),
                "2": (5_000, 2_000_000),
                "3": (5_000, 4_000_000),
                "4": (10_000, 10_000_000),
                "5": (30_000, 180_000_000),
            },
        ),
        Family(
            r"gpt-.+-(?:mini|luna)",
            _OPENAI,
            {
                "1": (500, 500_000),
                "2": (5_000, 2_000_000),
                "3": (5_000, 4_000_000),
                "4": (10_000, 10_000_000),
                "5": (30_000, 180_000_000),
            },
        ),
        Family(
            r"",
            _OPENAI,
            {
                "1": (500, 500_000),
                "2": (5_000, 1_000_000),
                "3": (5_000, 2_000_000),
                "4": (10_000, 4_000_000),
                "5": (15_000, 40_000_000),
            },
        ),
    ),
}
"""Of several families that fit, the first.

Anthropic's tiers 1 to 4 are those before June 2026. OpenAI's figures are of September 2025, when those of
GPT-5 were raised; newer names of its tiers have none here, because no figures of them could be confirmed.
Requests with long contexts have others, which are not in here.
"""
