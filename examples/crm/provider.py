"""Simulated models: `python provider.py evalve run crm` runs a command with them in place of the real ones.

Without a command it serves until Ctrl-C, and prints what to export. Agents err as simulated/slips.py says,
the teacher objects to the errors that it notices, the judge is right. Which turn a request is about,
and which ids there are, is read from the request, as a model would do it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from simulated.dialogue import calls_in, events_in, events_of
from simulated.script import Place, Step, is_right, next_step, place_of
from simulated.slips import is_noticed, slip

import evalve
from evalve.simulator import Answer, Behaviour, Latency, Limits, Simulator, ToolCall

PORT = 8720
OBJECTION = (
    "Look again at what was asked for: make exactly the calls that it needs, and say what came of them."
)
_PART = re.compile(r"<(question|reference|response)-(\w+)>\n(.*?)\n</\1-\2>", re.DOTALL)
_PROPOSAL = "\n\nThe assistant is about to "


def answered(ask: Any) -> Answer | str | None:
    """What the model says: to whoever offers tools as agent, otherwise as judge or teacher."""
    if ask.tools:
        place = place_of(events_of(ask.body["messages"]))
        is_corrected = OBJECTION in ask.prompt
        return None if place is None else _as_agent(ask.model, place, is_corrected=is_corrected)
    parts = {name: text for name, _, text in _PART.findall(ask.prompt)}
    if "response" in parts:
        return _as_judge(parts)
    transcript, _, proposal = ask.prompt.partition(_PROPOSAL)
    place = place_of(events_in(transcript))
    return None if place is None else _as_teacher(ask.model, place, proposal)


def _as_agent(model: str, place: Place, *, is_corrected: bool) -> Answer:
    """A student that is corrected does it right."""
    error = None if is_corrected else slip(model, place.row["conversation_id"], place.expected)
    step = next_step(place, error)
    return Answer(step.reply, tool_calls=tuple(ToolCall(name, given) for name, given in step.calls))


def _as_teacher(model: str, place: Place, proposal: str) -> str:
    """One who is asked before there is a proposal (`teaching: guide`) helps where he would have noticed."""
    proposed = Step(list(calls_in(proposal)), proposal.removeprefix("reply: "))
    is_wrong = not proposal or not is_right(place, proposed)
    is_seen = is_noticed(model, place.row["conversation_id"], place.expected)
    return OBJECTION if is_wrong and is_seen else "APPROVED"


def _as_judge(parts: dict[str, str]) -> str:
    """By the words: a reply that says all that the reference says is right."""
    said, wanted = (set(re.findall(r"\w+", parts[name].lower())) for name in ("response", "reference"))
    is_same = wanted <= said
    reason = "It says what the reference says." if is_same else "It does not say what the reference says."
    return json.dumps({"reason": reason, "verdict": "yes" if is_same else "no"})


def behaviour(latency_s: float, requests_per_minute: float | None = None) -> Behaviour:
    limits = Limits(requests_per_minute=requests_per_minute, depth_s=1.0)
    return Behaviour(answers=answered, latency=Latency(latency_s), limits=limits)


def variables(url: str) -> dict[str, str]:
    """What leads clients here; the keys are none."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "simulated",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "simulated",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, help=f"{PORT}, or any other if somebody has that")
    parser.add_argument("--latency-s", type=float, default=0.05, help="of every answer (0.05)")
    parser.add_argument("--requests-per-minute", type=float, help="for each model (no limit)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND …")
    asked = parser.parse_args()
    behaves = behaviour(asked.latency_s, asked.requests_per_minute)
    for port in (asked.port,) if asked.port is not None else (PORT, 0):
        with suppress(evalve.OptionError), Simulator(behaves, port=port).start_in_thread() as provider:
            return _run(asked.command, provider) if asked.command else _serve(provider)
    parser.error(f"port {asked.port} is taken; leave --port out, or say another one")


def _run(command: list[str], provider: Any) -> int:
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal tells the command, too, which decides
    try:
        ended = subprocess.run(command, env={**os.environ, **variables(provider.url)}, check=False)
    except FileNotFoundError:
        print(f"provider.py: there is no command {command[0]!r}; is the environment active?", file=sys.stderr)
        return 127
    if provider.stats.requests:
        print(_told(provider.stats), file=sys.stderr)
    return ended.returncode


def _serve(provider: Any) -> int:
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    told = " ".join(f"{name}={value}" for name, value in variables(provider.url).items())
    print(f"export {told}", flush=True)
    over.wait()
    print(_told(provider.stats), flush=True)
    return 0


def _told(seen: Any) -> str:
    tokens = f"{seen.input_tokens:,} + {seen.output_tokens:,} tokens"
    return f"simulated models: {seen.completed:,} answers, {seen.refused:,} refusals, {tokens}"


if __name__ == "__main__":
    raise SystemExit(main())
