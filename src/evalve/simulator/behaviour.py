"""All settings of the simulator, as one frozen record for Python, JSON, YAML and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from evalve.errors import OptionError
from evalve.simulator.batches.settings import Batches
from evalve.simulator.draws import Latency, OutputLength, above_zero, at_least_zero, share
from evalve.simulator.faults import Faults
from evalve.simulator.habits import SCALES_S, Headers, RefuseAtRandom, RetryAfter
from evalve.simulator.limits import Limits, one_of
from evalve.simulator.scripts import Script

OutputCharging = Literal["produced", "max_tokens"]
OpenAICharging = Literal["max", "sum"]


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
    """How prompts are kept, from the first token of the answer that wrote them.

    Anthropic's are those up to a `cache_control` block; OpenAI and Gemini keep every prompt of at least
    `automatic_minimum_tokens` by themselves, and say how much of a later one was read from there.
    """

    ttl_s: float = 300.0
    minimum_tokens: int = 0
    automatic_minimum_tokens: int = 1024

    def __post_init__(self) -> None:
        above_zero("prompt_cache.ttl_s", self.ttl_s)
        at_least_zero("prompt_cache.minimum_tokens", self.minimum_tokens)
        above_zero("prompt_cache.automatic_minimum_tokens", self.automatic_minimum_tokens)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How the simulated provider behaves.

    `models` maps a model's name, or a pattern with `*`, to its limits; the models of one pattern share one
    pool, all other models have `limits`, each for itself. `other_traffic` is the share of every rate that
    other users of the key take. `output_charging` is Anthropic's rule, today's or that of before 2026;
    `openai_charging` is max(max_tokens, estimate) or their sum, and with `openai_settles` the charge is
    corrected by the actual usage when the answer is complete. `headers` is the scale on which limits are
    stated; Gemini never states any. Without `retry_after` a refusal says when to come back as its API does.
    Without `keys`, any key or none will do.
    """

    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    models: Mapping[str, Limits] = field(default_factory=dict)
    latency: Latency = field(default_factory=Latency)
    output: OutputLength = field(default_factory=OutputLength)
    faults: Faults = field(default_factory=Faults)
    ramp: Ramp | None = None
    spend_cap: SpendCap | None = None
    headers: Headers = "window"
    retry_after: RetryAfter | None = None
    refuse_at_random: RefuseAtRandom | None = None
    prompt_cache: PromptCache = field(default_factory=PromptCache)
    other_traffic: float = 0.0
    clock_skew_s: float = 0.0
    output_charging: OutputCharging = "produced"
    openai_charging: OpenAICharging = "max"
    openai_settles: bool = False
    answers: Script | None = None
    keys: frozenset[str] | None = field(default=None, repr=False)
    batches: Batches = field(default_factory=Batches)
    stream_chunk_tokens: int = 8
    remember_requests: int = 1000

    def __post_init__(self) -> None:
        share("other_traffic", self.other_traffic)
        if self.other_traffic == 1:
            raise OptionError("other_traffic is 1; other users must leave something of the limits")
        above_zero("stream_chunk_tokens", self.stream_chunk_tokens)
        at_least_zero("remember_requests", self.remember_requests)
        one_of("output_charging", self.output_charging, get_args(OutputCharging))
        one_of("openai_charging", self.openai_charging, get_args(OpenAICharging))
        one_of("headers", self.headers, get_args(Headers))
        if self.retry_after is not None:
            one_of("retry_after", self.retry_after, get_args(RetryAfter))
        if self.headers in SCALES_S and not any(
            limits.states_any for limits in (self.limits, *self.models.values())
        ):
            raise OptionError(
                f"headers is {self.headers!r} and there is nothing to state: set limits.requests_per_minute, "
                "or a limit on tokens"
            )
