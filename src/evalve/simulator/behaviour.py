"""All settings of the simulator, as one frozen record for Python, JSON, YAML and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from evalve.errors import OptionError
from evalve.options import suggestion
from evalve.simulator.answers import Script
from evalve.simulator.draws import Latency, OutputLength, above_zero, at_least_zero, share
from evalve.simulator.faults import Faults

Dimension = Literal["requests", "input_tokens", "output_tokens", "tokens", "count_tokens"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
OutputCharging = Literal["produced", "max_tokens"]
OpenAICharging = Literal["max", "sum"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one model pool for one key; None is no limit.

    OpenAI's wire format is held to requests and (combined) tokens, Gemini's to requests and input tokens,
    Anthropic's to all; there, tokens are a workspace's limit on input and output together. `depth_s` says
    how many seconds of its rate a bucket holds, for all dimensions or by name.
    """

    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    tokens_per_minute: float | None = None
    count_tokens_per_minute: float | None = None
    concurrency: int | None = None
    depth_s: float | Mapping[str, float] = 60.0

    def __post_init__(self) -> None:
        for dimension in DIMENSIONS:
            above_zero(f"limits.{dimension}_per_minute", self.per_minute(dimension))
        above_zero("limits.concurrency", self.concurrency)
        if isinstance(self.depth_s, Mapping):
            for name, depth_s in self.depth_s.items():
                if name not in DIMENSIONS:
                    raise OptionError(
                        f"limits.depth_s has no dimension {name!r}{suggestion(name, DIMENSIONS)}"
                    )
                above_zero(f"limits.depth_s.{name}", depth_s)
        else:
            above_zero("limits.depth_s", self.depth_s)

    def per_minute(self, dimension: Dimension) -> float | None:
        value: float | None = getattr(self, f"{dimension}_per_minute")
        return value

    def depth_of(self, dimension: Dimension) -> float:
        """Seconds of its rate that a dimension's bucket holds."""
        return self.depth_s.get(dimension, 60.0) if isinstance(self.depth_s, Mapping) else self.depth_s


@dataclass(frozen=True, slots=True)
class Ramp:
    """Admits, in each interval, at most `factor` times the requests of the interval before, or `floor`."""

    factor: float = 2.0
    interval_s: float = 10.0
    floor_requests: int = 10

    def __post_init__(self) -> None:
        for name in ("factor", "interval_s", "floor_requests"):
            above_zero(f"ramp.{name}", getattr(self, name))


@dataclass(frozen=True, slots=True)
class SpendCap:
    """Refuses everything after so many dollars or admitted calls, for all keys together."""

    usd: float | None = None
    calls: int | None = None
    input_usd_per_million: float = 3.0
    output_usd_per_million: float = 15.0

    def __post_init__(self) -> None:
        for name in ("usd", "calls", "input_usd_per_million", "output_usd_per_million"):
            at_least_zero(f"spend_cap.{name}", getattr(self, name))


@dataclass(frozen=True, slots=True)
class PromptCache:
    """How Anthropic's `cache_control` blocks are kept: from the first token of the answer that wrote them."""

    ttl_s: float = 300.0
    minimum_tokens: int = 0

    def __post_init__(self) -> None:
        above_zero("prompt_cache.ttl_s", self.ttl_s)
        at_least_zero("prompt_cache.minimum_tokens", self.minimum_tokens)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the simulated provider behaves.

    `models` maps a model's name, or a pattern with `*`, to its limits; the models of one pattern share one
    pool, all other models have `limits`, each for itself. `other_traffic` is the share of every rate that
    other users of the key take. `output_charging` is Anthropic's rule, today's or that of before 2026;
    `openai_charging` is max(max_tokens, estimate) or their sum, and with `openai_settles` the charge is
    corrected by the actual usage when the answer is complete. Without `keys`, any key or none will do.
    """

    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    models: Mapping[str, Limits] = field(default_factory=dict)
    latency: Latency = field(default_factory=Latency)
    output: OutputLength = field(default_factory=OutputLength)
    faults: Faults = field(default_factory=Faults)
    ramp: Ramp | None = None
    spend_cap: SpendCap | None = None
    prompt_cache: PromptCache = field(default_factory=PromptCache)
    other_traffic: float = 0.0
    clock_skew_s: float = 0.0
    output_charging: OutputCharging = "produced"
    openai_charging: OpenAICharging = "max"
    openai_settles: bool = False
    answers: Script | None = None
    keys: frozenset[str] | None = field(default=None, repr=False)
    stream_chunk_tokens: int = 8
    remember_requests: int = 1000

    def __post_init__(self) -> None:
        share("other_traffic", self.other_traffic)
        if self.other_traffic == 1:
            raise OptionError("other_traffic is 1; other users must leave something of the limits")
        above_zero("stream_chunk_tokens", self.stream_chunk_tokens)
        at_least_zero("remember_requests", self.remember_requests)
        _one_of("output_charging", self.output_charging, get_args(OutputCharging))
        _one_of("openai_charging", self.openai_charging, get_args(OpenAICharging))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OptionError(f"{name} is {value!r}; it is one of {', '.join(known)}")
