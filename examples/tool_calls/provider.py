"""The simulated model: it makes the expected calls, except where answers.yaml says what it gets wrong.

`python provider.py` serves it until Ctrl-C, for other programs; tests without a key start their own.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import threading
from typing import Any

import yaml
from suite import CASES, HERE, calls_in

from evalve.simulator import Answer, Behaviour, Latency, Limits, Simulator, ToolCall

SCRIPTED: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "answers.yaml").read_text(encoding="utf-8"))
_BY_REQUEST = {case.request: case for case in CASES}
_PART = re.compile(r"<(request|call)-(\w+)>\n(.*?)\n</\1-\2>", re.DOTALL)


def answered(ask: Any) -> Answer | str | None:
    """What it says: calls to whoever offers tools, a verdict to whoever asks by a rubric."""
    said = ask.body["messages"][0]["content"]
    content = said if isinstance(said, str) else said[0]["text"]
    if ask.tools:
        case = _BY_REQUEST.get(content)
        return None if case is None else _calls(case.id, case.calls)
    parts = {name: text for name, _, text in _PART.findall(content)}
    if "request" not in parts:
        return None
    is_right = _verdict(parts, of_arguments="Judge the arguments" in content)
    reason = "It does what is asked for." if is_right else "It does not do what is asked for."
    return json.dumps({"reason": reason, "verdict": "yes" if is_right else "no"})


def _calls(case_id: str, expected: list[dict[str, Any]]) -> Answer:
    script = SCRIPTED.get(case_id, {})
    calls = calls_in(script["calls"]) if "calls" in script else [] if "text" in script else expected
    said = script.get("text", "" if calls else "There is no need for a tool.")
    return Answer(said, tool_calls=tuple(ToolCall(call["name"], call["arguments"]) for call in calls))


def _verdict(parts: dict[str, str], *, of_arguments: bool) -> bool:
    """As a careful person would judge: by the tool alone, or by the arguments of that tool."""
    expected = _BY_REQUEST[parts["request"]].calls
    if "call" not in parts:
        return not expected
    call = json.loads(parts["call"])
    alike = [one for one in expected if one["name"] == call["name"]]
    if not of_arguments:
        return bool(alike)
    return any(_fits(call["arguments"], one["arguments"]) for one in alike)


def _fits(given: Any, expected: dict[str, Any]) -> bool:
    """A judge minds what is lacking or wrong, and not what is said in addition."""
    return isinstance(given, dict) and all(given.get(name) == value for name, value in expected.items())


def behaviour(latency_s: float, **per_minute: float | None) -> Behaviour:
    """Limits hold a second's worth, so that a short run meets them."""
    limits = Limits(**per_minute, depth_s=1.0)  # type: ignore[arg-type]
    return Behaviour(answers=answered, latency=Latency(latency_s), limits=limits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-s", type=float, default=0.2)
    parser.add_argument("--requests-per-minute", type=float)
    parser.add_argument("--input-tokens-per-minute", type=float)
    asked = parser.parse_args()
    behaves = behaviour(
        asked.latency_s,
        requests_per_minute=asked.requests_per_minute,
        input_tokens_per_minute=asked.input_tokens_per_minute,
    )
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    simulator = Simulator(behaves, port=asked.port)
    with simulator.start_in_thread() as provider:
        print(json.dumps({"url": provider.url}), flush=True)
        over.wait()
    seen = provider.stats
    told = {"completed": seen.completed, "refused": seen.refused, "answered_again": seen.answered_again}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
