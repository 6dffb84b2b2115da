"""Settings from Python, from plain data and from flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.simulator import Answer, Behaviour, Latency, Limits, OutputLength, ToolCall, read_behaviour
from evalve.simulator.command import behaviour_from, command_line
from evalve.simulator.draws import Draw


def test_plain_data_becomes_the_same_record_as_python() -> None:
    plain = {
        "limits": {"requests_per_minute": 60, "depth_s": {"requests": 1.0}},
        "models": {"claude-*": {"concurrency": 4}},
        "latency": {"median_s": 0.2},
        "answers": {"weather": {"tool_calls": [{"name": "look", "arguments": {"x": 1}}]}, "name": "Ada"},
        "keys": ["a"],
        "ramp": None,
    }
    assert read_behaviour(plain) == Behaviour(
        limits=Limits(requests_per_minute=60, depth_s={"requests": 1.0}),
        models={"claude-*": Limits(concurrency=4)},
        latency=Latency(median_s=0.2),
        answers={"weather": Answer(tool_calls=(ToolCall("look", {"x": 1}),)), "name": "Ada"},
        keys=frozenset({"a"}),
    )


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"limit": {}}, "did you mean 'limits'"),
        ({"limits": {"requests_per_minut": 1}}, "did you mean 'requests_per_minute'"),
        ({"limits": {"requests_per_minute": 0}}, "limits.requests_per_minute is 0"),
        ({"limits": {"requests_per_minute": "many"}}, "'many'"),
        ({"limits": {"depth_s": {"request": 1}}}, "did you mean 'requests'"),
        ({"latency": {"median_s": -1}}, "latency.median_s is -1"),
        ({"output": {"kind": "long"}}, "output.kind is 'long'"),
        ({"other_traffic": 1}, "must leave something"),
        ({"output_charging": "never"}, "output_charging is 'never'"),
        ({"answers": "text"}, "answers is 'text'"),
        ({"answers": [{"txt": "x"}]}, "it must be a text or have some of"),
        ({"keys": "one"}, "keys must be a list"),
        ([], "must be a mapping"),
        ({"faults": {"schedule": 3}}, "faults.schedule must be a list"),
    ],
)
def test_a_mistake_is_refused_with_its_place(plain: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_behaviour(plain)


def test_flags_override_the_file(tmp_path: Path) -> None:
    file = tmp_path / "simulator.yaml"
    file.write_text("limits: {requests_per_minute: 60, concurrency: 3}\nseed: 4\n")
    flags = ["--config", str(file), "--requests-per-minute", "120", "--fault", "error=0.5"]
    flags += ["--latency-s", "0.2", "--output-tokens", "9", "--key", "a"]
    behaviour = behaviour_from(command_line().parse_args(flags))
    assert behaviour.limits == Limits(requests_per_minute=120, concurrency=3)
    assert (behaviour.seed, behaviour.latency.median_s, behaviour.keys) == (4, 0.2, frozenset({"a"}))
    assert behaviour.output == OutputLength("fixed", tokens=9)
    assert behaviour.faults.probabilities == {"error": 0.5}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    file.write_text("{")
    with pytest.raises(OptionError, match=r"broken\.json: cannot be read"):
        behaviour_from(command_line().parse_args(["--config", str(file)]))


def test_keys_do_not_show_in_the_repr() -> None:
    assert "sk-secret" not in repr(Behaviour(keys=frozenset({"sk-secret"})))


def test_latency_is_drawn_around_its_median_and_repeats_with_the_seed() -> None:
    latency = Latency(median_s=2.0, sigma=0.5, per_output_token_s=0.1)
    drawn = sorted(latency.times_s(10, Draw(1, n, 0))[0] for n in range(2001))
    assert drawn[1000] == pytest.approx(2.0, rel=0.1)
    assert latency.times_s(10, Draw(1, 5, 0)) == latency.times_s(10, Draw(1, 5, 0))
    first_s, total_s = latency.times_s(10, Draw(1, 5, 0))
    assert total_s - first_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("length", "max_tokens", "expected"),
    [
        (OutputLength(), 100, None),
        (OutputLength("fixed", tokens=30), 100, 30),
        (OutputLength("max_tokens", share=0.25), 100, 25),
        (OutputLength("max_tokens", tokens=12), None, 12),
    ],
)
def test_lengths(length: OutputLength, max_tokens: int | None, expected: int | None) -> None:
    assert length.tokens_for(max_tokens, Draw(0, 0, 0)) == expected
