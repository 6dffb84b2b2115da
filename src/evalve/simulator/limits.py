"""What a key may use of a pool of models, and how that is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from evalve.errors import OptionError
from evalve.options import suggestion
from evalve.simulator.draws import above_zero

Dimension = Literal["requests", "input_tokens", "output_tokens", "tokens", "count_tokens"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
Window = Literal["bucket", "fixed", "sliding"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one model pool for one key; None is no limit.

    OpenAI's wire formats are held to requests and (combined) tokens, Gemini's to requests and input tokens,
    Anthropic's to all; there, tokens are a workspace's limit on input and output together.

    `window_s` is the time that a limit is for: 1,200 a minute with a `window_s` of 1 are 20 a second. How it
    is counted: a `bucket` refills all the time and holds `depth_s` seconds of its rate (all dimensions, or by
    name; as many as `window_s` unless given), a `fixed` window starts anew every `window_s`, a `sliding` one
    counts what came within the last `window_s`.
    """

    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    tokens_per_minute: float | None = None
    count_tokens_per_minute: float | None = None
    concurrency: int | None = None
    depth_s: float | Mapping[str, float] | None = None
    window: Window = "bucket"
    window_s: float = 60.0

    def __post_init__(self) -> None:
        for dimension in DIMENSIONS:
            above_zero(f"limits.{dimension}_per_minute", self.per_minute(dimension))
        above_zero("limits.concurrency", self.concurrency)
        above_zero("limits.window_s", self.window_s)
        if isinstance(self.depth_s, Mapping):
            for name, depth_s in self.depth_s.items():
                one_of("limits.depth_s has a dimension that", name, DIMENSIONS)
                above_zero(f"limits.depth_s.{name}", depth_s)
        else:
            above_zero("limits.depth_s", self.depth_s)
        one_of("limits.window", self.window, get_args(Window))
        self._refuse_what_does_not_fit()

    def _refuse_what_does_not_fit(self) -> None:
        if self.window == "bucket":
            return
        if self.depth_s is not None:
            raise OptionError(
                f"limits.depth_s is {self.depth_s!r} and limits.window is {self.window!r}: a window holds "
                "what its time allows. Set limits.window_s instead, or limits.window to 'bucket'"
            )
        if not self.states_any:
            raise OptionError(
                f"limits.window is {self.window!r} and nothing is limited: set limits.requests_per_minute, "
                "or a limit on tokens"
            )

    @property
    def states_any(self) -> bool:
        """Whether there is a limit by time."""
        return any(self.per_minute(dimension) is not None for dimension in DIMENSIONS)

    def per_minute(self, dimension: Dimension) -> float | None:
        value: float | None = getattr(self, f"{dimension}_per_minute")
        return value

    def depth_of(self, dimension: Dimension) -> float:
        """Seconds of its rate that a dimension's bucket or window holds."""
        depth_s = self.depth_s.get(dimension) if isinstance(self.depth_s, Mapping) else self.depth_s
        return self.window_s if depth_s is None else depth_s


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        near = suggestion(str(value), known)
        raise OptionError(f"{name} is {value!r}{near}; it is one of {', '.join(known)}")
