"""What the simulator saw: counts that a test or a benchmark asserts on."""

from __future__ import annotations

from collections import Counter
from typing import Any

_EARLY_S = 0.01
"""A timer may fire this much too early without its owner having ignored anything."""
_MOST_BODIES = 500_000


class Stats:
    """Counts since the start or the last reset. Read it whenever you like; only the simulator writes.

    `requests` are those for an answer, admitted or not; requests to count tokens are `token_counts`.
    `refusals` (429) are by kind and `refused_dimensions` by the bucket that was short; `rejections` are the
    other 4xx. `completed` answers were sent whole. `retry_after_ignored` counts requests that came again
    with the same key and body before they were told to. `batched` requests came in `batches`, and
    `batched_again` are those that had come before, so or alone; `batch_results` are by what they came to, and
    `crash_points` those at which an answer was withheld.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.admitted = 0
        self.completed = 0
        self.abandoned = 0
        self.token_counts = 0
        self.retry_after_ignored = 0
        self.repeated_bodies = 0
        self.answered_again = 0
        self.peak_concurrency = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.input_tokens = 0
        self.cache_read_tokens = 0
        self.cache_written_tokens = 0
        self.output_tokens = 0
        self.first_request_s: float | None = None
        self.last_answer_s: float | None = None
        self.refusals: Counter[str] = Counter()
        self.refused_dimensions: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.batches = 0
        self.batched = 0
        self.batched_again = 0
        self.batch_results: Counter[str] = Counter()
        self.crash_points: Counter[str] = Counter()
        self.admitted_by_second: Counter[int] = Counter()
        self.requests_by_key: Counter[str] = Counter()
        self.requests_by_model: Counter[str] = Counter()
        self._seen: dict[int, int] = {}
        self._answered: set[int] = set()
        self._batched: set[int] = set()
        self._due_s: dict[tuple[str, int], float] = {}

    @property
    def refused(self) -> int:
        return sum(self.refusals.values())

    @property
    def elapsed_s(self) -> float | None:
        """From the first request to the last answer."""
        if self.first_request_s is None or self.last_answer_s is None:
            return None
        return self.last_answer_s - self.first_request_s

    def count_request(self, *, model: str, key_hash: str, digest: int, size_bytes: int, now_s: float) -> int:
        """Count a request that came, and say how often the same body came before."""
        self.requests += 1
        self.received_bytes += size_bytes
        self.requests_by_key[key_hash] += 1
        self.requests_by_model[model] += 1
        if self.first_request_s is None:
            self.first_request_s = now_s
        if self._due_s:
            due_s = self._due_s.pop((key_hash, digest), None)
            if due_s is not None and now_s < due_s - _EARLY_S:
                self.retry_after_ignored += 1
        seen_before = self._seen.get(digest, 0)
        if seen_before or len(self._seen) < _MOST_BODIES:
            self._seen[digest] = seen_before + 1
        if seen_before:
            self.repeated_bodies += 1
        return seen_before

    def count_admission(self, *, in_flight: int, now_s: float) -> None:
        self.admitted += 1
        self.peak_concurrency = max(self.peak_concurrency, in_flight)
        self.admitted_by_second[int(now_s - (self.first_request_s or 0.0))] += 1

    def count_refusal(
        self, kind: str, dimension: str | None, *, key_hash: str, digest: int, due_s: float | None
    ) -> None:
        self.refusals[kind] += 1
        if dimension is not None:
            self.refused_dimensions[dimension] += 1
        if due_s is not None and len(self._due_s) < _MOST_BODIES:
            self._due_s[key_hash, digest] = due_s

    def count_answer(self, *, digest: int, size_bytes: int, now_s: float) -> None:
        """Count an answer that was sent whole."""
        self.completed += 1
        self.sent_bytes += size_bytes
        self.last_answer_s = now_s
        if digest in self._answered or digest in self._batched:
            self.answered_again += 1
        elif len(self._answered) < _MOST_BODIES:
            self._answered.add(digest)

    def count_batched(self, digest: int) -> None:
        """Count a request that came in a batch."""
        self.batched += 1
        if digest in self._batched or digest in self._answered:
            self.batched_again += 1
        self._batched.add(digest)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        public = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        plain = {name: dict(value) if isinstance(value, Counter) else value for name, value in public.items()}
        return {
            **plain,
            "refused": self.refused,
            "elapsed_s": self.elapsed_s,
            "distinct_bodies": len(self._seen),
        }
