"""Real processes with one key: they share its limits and its answers, also when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 120
PROGRAM = """
import asyncio, sys
from evalve import gating

url, prefix, calls, window = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    model = gating.model("anthropic/claude-test", api_key="sk-test", base_url=url)
    print("ready", flush=True)
    sys.stdin.readline()
    places = asyncio.Semaphore(window)

    async def ask(number):
        async with places:
            answer = await model.generate(f"{prefix} {number}", max_tokens=20)
        print(number, answer.text, flush=True)

    await asyncio.gather(*(ask(number) for number in range(calls)))

asyncio.run(main())
"""

ASK_ONCE = """
import sys
from evalve import gating

model = gating.model("anthropic/claude-test", api_key="sk-test", base_url=sys.argv[1])
print(model.generate_sync("hello").text)
"""


class Provider:
    """The simulator in its own process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/_simulator/stats", timeout=PATIENCE_S) as answer:
            stats: dict[str, Any] = json.load(answer)
        return stats

    def prompts(self) -> list[str]:
        """In the order in which they came."""
        address = f"{self.url}/_simulator/requests?limit=1000"
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return [json.loads(seen["body"])["messages"][0]["content"] for seen in json.load(answer)]


@contextmanager
def a_provider(*flags: str) -> Iterator[Provider]:
    process = subprocess.Popen(
        [sys.executable, "-m", "evalve.simulator", *flags], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield Provider(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


class Client:
    """A process that asks a model."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout

    def wait_until_ready(self) -> None:
        assert self._stdout.readline() == "ready\n"

    def go(self) -> None:
        self._stdin.write("go\n")
        self._stdin.flush()

    def next_answers(self, count: int) -> list[str]:
        return [self._stdout.readline().strip() for _ in range(count)]

    def kill(self) -> list[str]:
        """SIGKILL, and the answers that it had told until then."""
        self._process.send_signal(signal.SIGKILL)
        return self.rest()

    def rest(self) -> list[str]:
        out, _ = self._process.communicate(timeout=PATIENCE_S)
        return out.splitlines()


class Place:
    """Directories for state and cache, and the processes that share them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("EVALVE_", "ANTHROPIC"))
        }
        self._environment["EVALVE_STATE_DIR"] = str(folder / "state")
        self._environment["EVALVE_CACHE_DIR"] = str(folder / "cache")

    def waiting(self) -> list[str]:
        """What processes that waited for a place have left."""
        return [path.name for path in (self._folder / "state" / "limits.waiting").iterdir()]

    def start(
        self, provider: Provider, prefix: str, *, calls: int, window: int, **environment: str
    ) -> Client:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, provider.url, prefix, str(calls), str(window)],
            cwd=self._folder,
            env={**self._environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(_end, process)
        return Client(process)

    def ask_once(self, provider: Provider, *flags: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *flags, "-c", ASK_ONCE, provider.url],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path, stack)


LIMITS = {"EVALVE_LIMITS_ANTHROPIC_RPM": "1200", "EVALVE_LIMITS_ANTHROPIC_BURST_S": "1"}
PROVIDED = ("--requests-per-minute", "1200", "--latency-s", "0.1", "--depth-s")


@pytest.mark.parametrize(
    ("limits", "depth_s", "most_refused"),
    [
        pytest.param(
            LIMITS, "3", 0, id="configured"
        ),  # a busy machine delays calls, so that they come together
        pytest.param({}, "1", 8, id="learnt"),  # alone, each would be refused half of its calls
    ],
)
def test_four_processes_share_one_keys_limit_and_a_killed_one_takes_nothing_along(
    limits: dict[str, str], depth_s: str, most_refused: int, place: Place
) -> None:
    with a_provider(*PROVIDED, depth_s) as provider:
        clients = [place.start(provider, f"client {n}", calls=20, window=20, **limits) for n in range(4)]
        for client in clients:
            client.wait_until_ready()
        for client in clients:
            client.go()

        clients[0].next_answers(5)
        clients[0].kill()
        answers = [client.rest() for client in clients[1:]]
        stats = provider.stats()

    assert [len(each) for each in answers] == [20, 20, 20]
    assert sum(stats["refusals"].values()) <= most_refused
    assert 65 <= stats["completed"] <= 80


def test_a_concurrency_limit_is_shared_and_a_killed_processes_places_are_free(place: Place) -> None:
    limits = {"EVALVE_LIMITS_ANTHROPIC_CONCURRENCY": "4"}
    with a_provider("--concurrency", "8", "--latency-s", "0.2") as provider:
        clients = [place.start(provider, f"client {n}", calls=12, window=12, **limits) for n in range(3)]
        for client in clients:
            client.wait_until_ready()
        for client in clients:
            client.go()

        clients[0].next_answers(1)
        clients[0].kill()
        answers = [client.rest() for client in clients[1:]]
        stats = provider.stats()

    assert [len(each) for each in answers] == [12, 12]
    assert stats["refusals"] == {}
    # what the killed one had under way goes on at the provider for a moment
    assert stats["peak_concurrency"] <= 8


def test_two_processes_progress_alike_under_a_shared_concurrency_limit(place: Place) -> None:
    limits = {"EVALVE_LIMITS_ANTHROPIC_CONCURRENCY": "4"}
    with a_provider("--concurrency", "4", "--latency-s", "0.1") as provider:
        early, late = (
            place.start(provider, name, calls=60, window=20, **limits) for name in ("early", "late")
        )
        for client in (early, late):
            client.wait_until_ready()
        early.go()
        early.next_answers(8)
        late.go()
        answers = [len(early.rest()), len(late.rest())]
        stats, came = provider.stats(), [prompt.split()[0] for prompt in provider.prompts()]

    assert answers == [60 - 8, 60]
    assert (stats["refusals"], stats["requests"]) == ({}, 120)
    assert stats["peak_concurrency"] == 4
    # from when the late one had evened out until the early one had sent its last
    both = came[came.index("late") + 8 : len(came) - came[::-1].index("early")]
    assert abs(both.count("early") - both.count("late")) <= 0.3 * len(both) + 2
    assert place.waiting() == []


def test_after_kill_9_a_second_run_pays_for_at_most_a_window_more_than_was_missing(place: Place) -> None:
    with a_provider("--latency-s", "0.05") as provider:
        first = place.start(provider, "question", calls=60, window=10)
        first.wait_until_ready()
        first.go()
        told = [*first.next_answers(30), *first.kill()]

        second = place.start(provider, "question", calls=60, window=10)
        second.wait_until_ready()
        second.go()
        answers = second.rest()
        after = provider.stats()["requests"]

    assert len(answers) == 60
    assert set(told) <= set(answers)
    assert 60 <= after <= 60 + 10  # what was under way when it was killed


def test_two_processes_that_ask_the_same_pay_once(place: Place) -> None:
    with a_provider("--latency-s", "0.5") as provider:
        clients = [place.start(provider, "the same", calls=3, window=3) for _ in range(2)]
        for client in clients:
            client.wait_until_ready()
        for client in clients:
            client.go()
        one, other = (sorted(client.rest()) for client in clients)
        stats = provider.stats()

    assert one == other
    assert (len(one), stats["requests"]) == (3, 3)


def test_a_process_leaves_nothing_open_when_it_ends(place: Place) -> None:
    with a_provider() as provider:
        paid = place.ask_once(provider, "-W", "always::ResourceWarning")
        kept = place.ask_once(provider, "-W", "always::ResourceWarning")

    assert paid.stdout == kept.stdout
    assert (paid.stderr, kept.stderr) == ("", "")
