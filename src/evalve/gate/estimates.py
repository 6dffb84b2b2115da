"""How many tokens a call will take, guessed from its bytes and corrected by what calls really took."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalve.gate.messages import Call, Usage

BYTES_PER_TOKEN = 3.5
BYTES_PER_TOKEN_SINCE_OPUS_4_7 = 3.0
CONSTANT_TOKENS = 20.0
PRIOR_OUTPUT_TOKENS = 1024.0
CAUTION = 1.05
CAUTIOUS_CALLS = 20
MOST_INPUT = 1.3
"""Of what is expected, at the least, for a bound: estimates are off a little."""
_MARGIN_KEPT = 0.98

_KEPT = 0.99
"""An observation's weight falls by this with each that follows: about the last hundred count."""
_SMOOTHING = 0.05
_PRIOR_BYTES = 500.0
_PRIOR_CALLS = 0.25
"""The prior slope weighs like one call of so many bytes, the prior constant like a quarter of a call."""
_MOST_KEYS = 4096
_CLAUDE = re.compile(r"claude-[a-z]+-(\d{1,2})(?:-(\d{1,2}))?(?!\d)")


@dataclass(slots=True)  # not frozen: there is one for every call, and freezing triples its cost
class Expected:
    """Tokens that a call is expected to be charged for."""

    input_tokens: float
    output_tokens: float


class Estimates:
    """Per model, tokens = slope × bytes + constant; per kind of call and model, the length of answers.

    `key` names the kind of call: an evaluation, or a prompt template within it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inputs: dict[str, _InputLine] = {}
        self._habits: dict[tuple[str, str], _Habit] = {}

    def expected(self, call: Call, key: str = "") -> Expected:
        line = self._inputs.get(call.model)
        if line is None:
            line = self._new_line(call.model)
        slope, constant = line.fit
        input_tokens = slope * call.input_bytes + constant
        if line.calls < CAUTIOUS_CALLS:
            input_tokens *= CAUTION
        habit = self._habits.get((key, call.model))
        limit = call.max_output_tokens
        if habit is None:
            prior = PRIOR_OUTPUT_TOKENS
            return Expected(input_tokens, prior if limit is None or limit > prior else float(limit))
        output_tokens = habit.expected_tokens
        if limit is not None and limit < output_tokens:
            output_tokens = float(limit)
        return Expected(input_tokens * habit.charged_share, output_tokens)

    def at_most(self, call: Call, key: str = "") -> Expected | None:
        """What the text of a call may be charged for; `None` where nothing bounds its answer."""
        if call.max_output_tokens is None:
            return None
        line = self._inputs.get(call.model) or self._new_line(call.model)
        slope, constant = line.fit
        # no text has more tokens than bytes; that holds until answers to such calls have shown how many it
        # has, for digits or Chinese have twice as many for a byte as English that another evaluation asked
        is_shown = line.calls and (key, call.model) in self._habits
        most = slope * call.input_bytes * line.margin if is_shown else float(call.input_bytes)
        return Expected(most + constant * line.margin, float(call.max_output_tokens))

    def observe(
        self, call: Call, usage: Usage, key: str = "", charged_input_tokens: float | None = None
    ) -> None:
        """Learn from an answer. `charged_input_tokens` is what counts against limits, where that is less:

        the share of input that is read from a provider's cache is then expected to be free again.
        """
        total = usage.total_input_tokens
        share = 1.0
        if charged_input_tokens is not None and total > 0:
            share = min(1.0, charged_input_tokens / total)
        with self._lock:
            line = self._inputs.get(call.model) or self._new_line(call.model)
            if total > 0:
                line.observe(float(call.input_bytes), float(total))
            habit = self._habits.get((key, call.model))
            if habit is None:
                if len(self._habits) >= _MOST_KEYS:
                    del self._habits[next(iter(self._habits))]
                habit = self._habits[key, call.model] = _Habit()
            habit.observe(float(usage.output_tokens), share)

    def _new_line(self, model: str) -> _InputLine:
        return self._inputs.setdefault(model, _InputLine(prior_slope(model)))

    def to_plain(self) -> dict[str, Any]:
        """For a store: plain JSON values."""
        with self._lock:
            return {
                "inputs": {model: line.numbers() for model, line in self._inputs.items() if line.calls},
                "habits": [[*names, *habit.numbers()] for names, habit in self._habits.items()],
            }

    @classmethod
    def from_plain(cls, plain: Any) -> Estimates:
        """What `to_plain` gave. Anything else is ignored: estimates are learnt again within a few calls."""
        estimates = cls()
        inputs = plain.get("inputs") if isinstance(plain, Mapping) else None
        habits = plain.get("habits") if isinstance(plain, Mapping) else None
        for model, numbers in inputs.items() if isinstance(inputs, Mapping) else ():
            if isinstance(model, str) and _are_numbers(numbers, 7):
                estimates._new_line(model).restore(numbers)
        for row in habits if isinstance(habits, list) else ():
            if isinstance(row, list) and len(row) == 6 and _are_numbers(row[2:], 4):
                estimates._habits[str(row[0]), str(row[1])] = _Habit(*row[2:])
        return estimates


def prior_slope(model: str) -> float:
    """Tokens per byte before anything is known; Claude's tokenizer changed with Opus 4.7."""
    found = _CLAUDE.search(model)
    if found and (int(found[1]), int(found[2] or 0)) >= (4, 7):
        return 1 / BYTES_PER_TOKEN_SINCE_OPUS_4_7
    return 1 / BYTES_PER_TOKEN


class _InputLine:
    """A fading least-squares line, held by its prior.

    The sums are kept rather than a covariance (recursive least squares): with calls all of one size, as in
    most evaluations, a forgetting covariance grows without bound.
    """

    __slots__ = ("_prior_slope", "_w", "_x", "_xx", "_xy", "_y", "calls", "fit", "margin")

    def __init__(self, slope: float) -> None:
        self._prior_slope = slope
        self._w = self._x = self._y = self._xx = self._xy = 0.0
        self.calls = 0
        self.fit = (slope, CONSTANT_TOKENS)
        self.margin = MOST_INPUT
        """How much more than the line says a call may take, as calls showed."""

    def observe(self, size_bytes: float, tokens: float) -> None:
        slope, constant = self.fit
        off = tokens / max(1.0, slope * size_bytes + constant) * MOST_INPUT
        self.margin = max(MOST_INPUT, self.margin * _MARGIN_KEPT, off if self.calls else 0.0)
        self.calls += 1
        self._w = self._w * _KEPT + 1
        self._x = self._x * _KEPT + size_bytes
        self._y = self._y * _KEPT + tokens
        self._xx = self._xx * _KEPT + size_bytes * size_bytes
        self._xy = self._xy * _KEPT + size_bytes * tokens
        self._solve()

    def _solve(self) -> None:
        held = _PRIOR_BYTES * _PRIOR_BYTES
        w, xx = self._w + _PRIOR_CALLS, self._xx + held
        y, xy = self._y + _PRIOR_CALLS * CONSTANT_TOKENS, self._xy + held * self._prior_slope
        slope = (w * xy - self._x * y) / (w * xx - self._x * self._x)
        constant = (y - slope * self._x) / w
        if constant < 0:
            slope, constant = xy / xx, 0.0
        if slope < 0:
            slope, constant = 0.0, y / w
        self.fit = (slope, constant)  # one tuple, read without the lock

    def numbers(self) -> list[float]:
        return [self.calls, self._w, self._x, self._y, self._xx, self._xy, self.margin]

    def restore(self, numbers: list[float]) -> None:
        calls, self._w, self._x, self._y, self._xx, self._xy, self.margin = numbers
        self.calls = int(calls)
        self._solve()


class _Habit:
    """Mean and spread of answers' lengths, and how much of the input is charged."""

    __slots__ = ("_calls", "_mean", "_variance", "charged_share", "expected_tokens")

    def __init__(
        self, calls: float = 0, mean: float = 0.0, variance: float = 0.0, charged_share: float = 1.0
    ) -> None:
        self._calls = calls
        self._mean = mean
        self._variance = variance
        self.charged_share = charged_share
        self._settle()

    def observe(self, output_tokens: float, charged_share: float) -> None:
        self._calls += 1
        weight = max(1 / self._calls, _SMOOTHING)
        off = output_tokens - self._mean
        self._mean += weight * off
        if self._calls == 1:
            self._variance = (output_tokens / 2) ** 2  # one answer says nothing about the spread
        else:
            self._variance = (1 - weight) * (self._variance + weight * off * off)
        self.charged_share += 0.2 * (charged_share - self.charged_share)
        self._settle()

    def _settle(self) -> None:
        calls = min(max(self._calls, 1), 1 / _SMOOTHING)
        self.expected_tokens = self._mean + math.sqrt(max(self._variance, 0.0) / calls)

    def numbers(self) -> list[float]:
        return [self._calls, self._mean, self._variance, self.charged_share]


def _are_numbers(values: Any, length: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == length
        and all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values)
    )
