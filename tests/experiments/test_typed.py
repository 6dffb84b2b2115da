"""What is typed after `evalve run`: mistakes are told with the flag that was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalve.errors import OptionError
from evalve.experiments.command import names_experiments, run_command
from evalve.experiments.file.configuration import Configuration, read_configuration

CONFIGURATION = """
models: {reader: {agent: command, command: [python3, "{project}/agent.py"], answer: last_line}}
datasets: {docs: docs.jsonl}
experiments:
  full: {datasets: docs, models: reader, prompt: "{question}", expected: answer, metrics: [exact_match]}
"""


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    monkeypatch.chdir(tmp_path)
    Path("evalve.yaml").write_text(CONFIGURATION)
    Path("docs.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    Path("agent.py").touch()
    return read_configuration(tmp_path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--concurrency nix", "--concurrency: needs a whole number, 1 or more, or `auto`; got 'nix'"),
        ("--limit=-3", "--limit: needs a whole number, 0 or more; got '-3'"),
        ("--evalve-samples x", "--evalve-samples: needs a whole number, 0 or more; got 'x'"),
        ("--timeout-s x", "--timeout-s: needs a number of seconds, 0 or more; got 'x'"),
        ("--metrics exact_mtach", "--metrics: experiments.full: unknown evaluator 'exact_mtach'; did you"),
        ("--model raeder", "--model: experiments.full: there is no model 'raeder'; did you mean 'reader'?"),
        ("--limit", "expected one argument; `evalve run --help` names the options"),
    ],
)
def test_a_mistake_is_told_with_the_flag_that_was_typed(
    configuration: Configuration, flags: str, message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        run_command(["full", *flags.split()], configuration, [])

    assert message in str(caught.value)


def test_a_word_that_can_be_no_file_is_taken_for_an_experiment(configuration: Configuration) -> None:
    assert names_experiments(["quick"], configuration)  # and told which there are
    assert not names_experiments(["agent"], configuration)
    Path("eval_quick.py").touch()
    assert not names_experiments(["quick"], configuration)
