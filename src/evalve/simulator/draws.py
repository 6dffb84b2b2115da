"""What varies from call to call, drawn from a seed: how long an answer takes and how long it is.

Every draw depends on the seed, the request's content and how often that content was seen, never on the order
in which different requests arrive: a run with sixteen workers draws what a run with one draws.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal, get_args

from evalve.errors import OptionError

LengthKind = Literal["answer", "fixed", "max_tokens", "lognormal"]


@dataclass(frozen=True, slots=True)
class Latency:
    """A constant base, or with `sigma` a lognormal one around its median, plus time per output token.

    A stream's first token comes after `first_token_s`, or after the base where that is not given; the other
    tokens follow evenly until the whole time has passed.
    """

    median_s: float = 0.0
    sigma: float = 0.0
    per_output_token_s: float = 0.0
    first_token_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("median_s", "sigma", "per_output_token_s", "first_token_s"):
            at_least_zero(f"latency.{name}", getattr(self, name))

    def times_s(self, output_tokens: int, draw: Draw) -> tuple[float, float]:
        """Seconds until the first token and until the last."""
        base_s = self.median_s
        if self.sigma and base_s:
            base_s *= math.exp(self.sigma * draw.of("latency").gauss(0.0, 1.0))
        total_s = base_s + self.per_output_token_s * output_tokens
        first_s = base_s if self.first_token_s is None else min(self.first_token_s, total_s)
        return first_s, total_s


@dataclass(frozen=True, slots=True)
class OutputLength:
    """How many tokens an unscripted answer has; never more than the request's own maximum.

    `answer`: as many as its short text has. `fixed`: `tokens`. `max_tokens`: this `share` of the request's
    maximum. `lognormal`: around the median `tokens` with `sigma`; equal requests get equal lengths.
    """

    kind: LengthKind = "answer"
    tokens: int = 16
    sigma: float = 0.5
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(LengthKind):
            raise OptionError(f"output.kind is {self.kind!r}; it is one of {', '.join(get_args(LengthKind))}")
        at_least_zero("output.tokens", self.tokens)
        at_least_zero("output.sigma", self.sigma)
        share("output.share", self.share)

    def tokens_for(self, max_tokens: int | None, draw: Draw) -> int | None:
        """The length wanted, or None where the answer's own text decides."""
        if self.kind == "answer":
            return None
        if self.kind == "max_tokens":
            return max(1, round(self.share * (max_tokens if max_tokens is not None else self.tokens)))
        if self.kind == "fixed":
            return self.tokens
        return max(1, round(self.tokens * math.exp(self.sigma * draw.of_content("length").gauss(0.0, 1.0))))


@dataclass(frozen=True, slots=True)
class Draw:
    """Randomness for one request: its content, and how often that was seen before."""

    seed: int
    content: int
    seen_before: int

    def of(self, purpose: str) -> random.Random:
        """Another one each time the same request comes, so that a retry may fare better."""
        return random.Random(f"{self.seed}:{purpose}:{self.content}:{self.seen_before}")

    def of_content(self, purpose: str) -> random.Random:
        """The same one each time the same request comes."""
        return random.Random(f"{self.seed}:{purpose}:{self.content}")


def at_least_zero(name: str, value: float | None) -> None:
    if value is not None and not (_is_number(value) and value >= 0):
        raise OptionError(f"{name} is {value!r}; it must be a number of at least 0")


def above_zero(name: str, value: float | None) -> None:
    if value is not None and not (_is_number(value) and value > 0):
        raise OptionError(f"{name} is {value!r}; it must be a number above 0, or absent for no limit")


def share(name: str, value: float) -> None:
    if not (_is_number(value) and 0 <= value <= 1):
        raise OptionError(f"{name} is {value!r}; it must be a number from 0 to 1")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
