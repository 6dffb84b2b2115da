"""What a key has used of a pool of models: buckets, places, growth, prompts in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from evalve.simulator.asks import Ask
from evalve.simulator.behaviour import PromptCache, Ramp
from evalve.simulator.ledger import Ledger
from evalve.simulator.tokens import count_bytes

_STEP_TOKENS = 128
"""OpenAI's cache counts in steps of this many."""
_MOST_PREFIXES = 100_000


@dataclass(frozen=True, slots=True)
class InputUsage:
    """Input tokens: those counted anew, those written to the prompt cache, those read from it.

    `hour_tokens` are those of the written ones that are kept for an hour. `cached_tokens` are those of the
    fresh ones that an automatic cache had: cheaper, and counted as fresh.
    """

    fresh_tokens: int
    written_tokens: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    hour_tokens: int = 0

    @property
    def charged_tokens(self) -> int:
        """What counts against a limit on input: reading from the cache does not."""
        return self.fresh_tokens + self.written_tokens


class Account:
    """What one key has used of one pool of models."""

    def __init__(self, ledger: Ledger, now_s: float) -> None:
        self.ledger = ledger
        self.in_flight = 0
        self._ramp_started_s = now_s
        self._ramp_before = 0
        self._ramp_now = 0
        self._prefixes: dict[bytes, float] = {}

    def ramp_wait_s(self, ramp: Ramp, now_s: float) -> float | None:
        """Seconds until the next interval, if this one has taken its part."""
        passed = int((now_s - self._ramp_started_s) // ramp.interval_s)
        if passed:
            self._ramp_before = self._ramp_now if passed == 1 else 0
            self._ramp_now = 0
            self._ramp_started_s += passed * ramp.interval_s
        if self._ramp_now < max(ramp.floor_requests, ramp.factor * self._ramp_before):
            return None
        return self._ramp_started_s + ramp.interval_s - now_s

    def count_for_ramp(self) -> None:
        self._ramp_now += 1

    def input_usage(
        self, ask: Ask, cache: PromptCache, now_s: float
    ) -> tuple[InputUsage, dict[bytes, float]]:
        """What the input is charged as, and which prefixes its answer leaves in the cache for how long."""
        total = ask.input_tokens
        if ask.api != "anthropic":
            return self._automatic_usage(ask, total, cache, now_s)
        if not any(part.cached_up_to_here for part in ask.parts):
            return InputUsage(total), {}
        read = marked = hour = size_bytes = 0
        prefixes: dict[bytes, float] = {}
        running = hashlib.blake2b(digest_size=16)
        for part in ask.parts:
            running.update(f"{part.size_bytes}:{part.text}".encode("utf-8", "surrogatepass"))
            size_bytes += part.size_bytes
            if part.cached_up_to_here and count_bytes(size_bytes) >= cache.minimum_tokens:
                before, marked = marked, min(total, count_bytes(size_bytes))
                hour += (marked - before) if part.for_an_hour else 0
                prefixes[running.digest()] = cache.ttl_s * (12 if part.for_an_hour else 1)
                if self._prefixes.get(running.digest(), 0.0) > now_s:
                    read, hour = marked, 0
        return InputUsage(total - marked, marked - read, read, hour_tokens=hour), prefixes

    def _automatic_usage(
        self, ask: Ask, total: int, cache: PromptCache, now_s: float
    ) -> tuple[InputUsage, dict[bytes, float]]:
        if total < cache.automatic_minimum_tokens:
            return InputUsage(total), {}
        cached = size_bytes = 0
        prefixes: dict[bytes, float] = {}
        running = hashlib.blake2b(digest_size=16)
        for part in ask.parts:
            running.update(f"{part.size_bytes}:{part.text}".encode("utf-8", "surrogatepass"))
            size_bytes += part.size_bytes
            if count_bytes(size_bytes) >= cache.automatic_minimum_tokens:
                prefixes[running.digest()] = cache.ttl_s
                if self._prefixes.get(running.digest(), 0.0) > now_s:
                    cached = min(total, count_bytes(size_bytes) // _STEP_TOKENS * _STEP_TOKENS)
        return InputUsage(total, cached_tokens=cached), prefixes

    def keep_prefixes(self, prefixes: Mapping[bytes, float], now_s: float) -> None:
        if len(self._prefixes) + len(prefixes) > _MOST_PREFIXES:
            self._prefixes.clear()
        for prefix, ttl_s in prefixes.items():
            self._prefixes[prefix] = now_s + ttl_s
