"""The simulator as a process: flags and a file in, one line with the URL out, statistics at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from evalve.errors import OptionError
from evalve.simulator.batches.settings import CrashPoint
from evalve.simulator.behaviour import Behaviour, OpenAICharging, OutputCharging
from evalve.simulator.draws import LengthKind
from evalve.simulator.faults import FAULTS
from evalve.simulator.habits import Headers, RetryAfter
from evalve.simulator.limits import Window
from evalve.simulator.reading import read_behaviour, read_file, read_plain
from evalve.simulator.server import Simulator

_FLAGS: tuple[tuple[str, str, type, str], ...] = (
    ("requests-per-minute", "limits.requests_per_minute", float, "requests a minute, for each model and key"),
    ("input-tokens-per-minute", "limits.input_tokens_per_minute", float, "input tokens a minute (Anthropic)"),
    (
        "output-tokens-per-minute",
        "limits.output_tokens_per_minute",
        float,
        "output tokens a minute (Anthropic)",
    ),
    ("tokens-per-minute", "limits.tokens_per_minute", float, "input and output tokens a minute together"),
    ("count-tokens-per-minute", "limits.count_tokens_per_minute", float, "requests to count tokens a minute"),
    ("window", "limits.window", str, "how limits are counted: in buckets (default) or in windows"),
    ("window-s", "limits.window_s", float, "the time that a limit is for: 1 is a second's limit (60)"),
    ("depth-s", "limits.depth_s", float, "seconds of its rate that a bucket holds (as many as --window-s)"),
    (
        "headers",
        "headers",
        str,
        "what headers state: the truth, for --window-s (window, the default), as if it were counted over "
        "another time, or nothing",
    ),
    (
        "retry-after",
        "retry_after",
        str,
        "how refusals say when to come back: in whole seconds, exactly, in retry-after-ms, as an HTTP date, "
        "or not at all (default: as the provider does)",
    ),
    ("refuse-at-random", "refuse_at_random.share", float, "refuse this share, whatever the limits say"),
    ("refuse-at-random-for-s", "refuse_at_random.for_s", float, "only so long; then all is well again"),
    (
        "refuse-at-random-wait-s",
        "refuse_at_random.wait_s",
        float,
        "when such refusals say to come back (0.5)",
    ),
    ("concurrency", "limits.concurrency", int, "requests at the same time"),
    ("latency-s", "latency.median_s", float, "seconds that every answer takes"),
    ("latency-sigma", "latency.sigma", float, "spread of the latency, lognormal"),
    ("per-output-token-s", "latency.per_output_token_s", float, "seconds more for each output token"),
    ("first-token-s", "latency.first_token_s", float, "seconds until a stream's first token"),
    ("output", "output.kind", str, "how long answers are"),
    ("output-tokens", "output.tokens", int, "length of answers in tokens"),
    ("output-sigma", "output.sigma", float, "spread of the answers' length, lognormal"),
    ("output-share", "output.share", float, "length of answers as a share of max_tokens"),
    ("ramp-factor", "ramp.factor", float, "admit so many times the requests of the interval before"),
    ("ramp-interval-s", "ramp.interval_s", float, "length of that interval"),
    ("ramp-floor-requests", "ramp.floor_requests", int, "requests that an interval always admits"),
    ("spend-cap-usd", "spend_cap.usd", float, "refuse everything after so many dollars"),
    ("spend-cap-calls", "spend_cap.calls", int, "refuse everything after so many calls"),
    ("other-traffic", "other_traffic", float, "share of every limit that others use"),
    ("clock-skew-s", "clock_skew_s", float, "seconds by which the provider's clock is wrong"),
    ("batch-delay-s", "batches.delay_s", float, "seconds until a batch has ended (1)"),
    ("batch-errored", "batches.errored", float, "share of a batch's requests that fail"),
    ("batch-expired", "batches.expired", float, "share of a batch's requests that expire"),
    ("batch-missing", "batches.missing", float, "share of a batch's requests that have no result"),
    ("batch-expires-after-s", "batches.expires_after_s", float, "what is not done then expires (86400)"),
    ("batch-queue-limit", "batches.queue_limit", int, "requests in batches that have not ended"),
    ("batch-largest", "batches.largest", int, "requests in one batch (as the provider has it)"),
    ("batch-crash-point", "batches.crash_point", str, "where the first answer is withheld, to kill a client"),
    ("hang-s", "faults.hang_s", float, "seconds that a hung answer hangs"),
    ("output-charging", "output_charging", str, "Anthropic's rule"),
    ("openai-charging", "openai_charging", str, "OpenAI's rule"),
    ("remember-requests", "remember_requests", int, "how many of the latest requests are kept"),
    ("seed", "seed", int, "of all that is drawn"),
)
"""Each flag, the setting that it is, its type, its help."""
_CHOICES = {
    path: "|".join(get_args(choices))
    for path, choices in {
        "limits.window": Window,
        "headers": Headers,
        "retry_after": RetryAfter,
        "output.kind": LengthKind,
        "batches.crash_point": CrashPoint,
        "output_charging": OutputCharging,
        "openai_charging": OpenAICharging,
    }.items()
}
_HIGHEST_PORT = 65535


def main(argv: Sequence[str] | None = None, *, ready: Callable[[str], None] = lambda url: None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. `ready` is told the URL once it serves."""
    parser = command_line()
    said = parser.parse_args(argv)
    try:
        behaviour = behaviour_from(said)
        asyncio.run(_serve(behaviour, port=said.port, ready=ready))
    except OptionError as error:
        sys.stderr.write(f"evalve simulate: {error}\n")
        return 4  # pytest's code of wrong usage, as everywhere
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evalve simulate",
        description="A provider that behaves like one: Anthropic Messages, OpenAI Chat Completions and "
        "Responses, batches of them, and Gemini's generateContent with limits, latency and faults, on "
        "127.0.0.1. "
        "Flags override the file.",
    )
    parser.add_argument("--port", type=_port, default=0, help="port to serve on (default: any free one)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as JSON or YAML")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="what the model says, as JSON or YAML: texts or turns"
    )
    for flag, path, kind, text in _FLAGS:
        metavar = _CHOICES.get(path, kind.__name__.upper())
        parser.add_argument(f"--{flag}", dest=path, type=kind, metavar=metavar, help=text)
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND=P", help=f"probability of {', '.join(FAULTS)}"
    )
    parser.add_argument("--key", action="append", default=[], help="a valid API key (default: all are valid)")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _HIGHEST_PORT:
        raise argparse.ArgumentTypeError(
            f"needs a port, 1 to {_HIGHEST_PORT}, or 0 for any free one; got {text!r}"
        )
    return int(text)


def behaviour_from(said: argparse.Namespace) -> Behaviour:
    """The file's settings with those of the flags over them."""
    plain = read_file(said.config) if said.config is not None else {}
    given = {path: value for _, path, _, _ in _FLAGS if (value := getattr(said, path)) is not None}
    if "output.tokens" in given:
        given = {"output.kind": "fixed", **given}  # whoever gives a length wants it
    for path, value in given.items():
        _put(plain, path.split("."), value)
    if said.answers is not None:
        plain["answers"] = read_plain(said.answers)
    for fault in said.fault:
        kind, _, probability = fault.partition("=")
        try:
            _put(plain, ["faults", "probabilities", kind], float(probability))
        except ValueError as error:
            raise OptionError(
                f"--fault {fault!r}: write it as KIND=PROBABILITY, such as error=0.05"
            ) from error
    if said.key:
        plain["keys"] = said.key
    return read_behaviour(plain)


def _put(plain: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        inner = plain.get(name)
        plain[name] = dict(inner) if isinstance(inner, dict) else {}
        plain = plain[name]
    plain[path[-1]] = value


async def _serve(behaviour: Behaviour, *, port: int, ready: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with Simulator(behaviour, port=port) as simulator:
        _say({"url": simulator.url})
        ready(simulator.url)
        await stopped.wait()
        stats = simulator.stats.as_dict()
    _say(stats)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
