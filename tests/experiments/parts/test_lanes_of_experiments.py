"""`lane:` and `reset:` of an experiment, and what flags say for all of its models or of its dataset."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.experiments.building import build
from evalve.experiments.declared import Declared, declared_named
from evalve.experiments.file.document import read_document
from evalve.experiments.overriding import read_model_key, with_model_keys
from evalve.options import Options
from evalve.runner.lanes import kept_through, row_of
from evalve.sandboxes.postgresql.kept import KeptPostgres

FILE = """\
sandboxes:
  postgres: {schema: schema.sql}
models:
  plain: {model: openai/gpt-4.1, temperature: 1.0}
  own: {model: openai/gpt-4.1-mini, lane: "{level}"}
  program: {agent: command, command: [cat, "{prompt}"]}
datasets:
  talks: {path: talks.jsonl, id: name}
experiments:
  crm:
    datasets: talks
    models: [plain, own]
    prompt: "{question}"
    evaluators: none
    lane: "{workflow}"
  agents:
    datasets: talks
    models: program
    prompt: "{question}"
    evaluators: none
    sandbox: postgres
"""
ROWS = [
    {"name": "a", "question": "?", "workflow": "quotes", "level": 2},
    {"name": "b", "question": "!", "workflow": "notes", "level": 1},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evalve.yaml").write_text(FILE)
    (tmp_path / "schema.sql").write_text("CREATE TABLE clients (id int);")
    for name in ("talks.jsonl", "other.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def declared(folder: Path, name: str = "crm", **said: Any) -> Declared:
    return declared_named(read_document(folder / "evalve.yaml"), name, said)


async def lanes_of(folder: Path, name: str = "crm", **said: Any) -> dict[str, list[str]]:
    """By evaluation, the lanes of its rows."""
    found: dict[str, list[str]] = {}
    for built in build(declared(folder, name, **said), Options(), {"OPENAI_API_KEY": "x"}, experiment=name):
        rows = built.runnable.rows()
        lane = built.runnable.lane
        assert lane is not None
        lanes = found[built.runnable.spec.name] = []
        while samples := await rows.next(10):
            lanes += [lane(row_of(sample)) for sample in samples]
        await rows.close()
    return found


async def test_a_models_own_lane_goes_before_that_of_the_experiment(folder: Path) -> None:
    assert await lanes_of(folder) == {"talks[plain]": ["quotes", "notes"], "talks[own]": ["2", "1"]}


async def test_never_makes_one_lane_whatever_is_said_of_lanes(folder: Path) -> None:
    assert await lanes_of(folder, "agents", reset="never", lane="{level}") == {"talks[program]": ["", ""]}


def test_databases_are_kept_as_reset_says(folder: Path) -> None:
    def kept(**said: Any) -> list[str]:
        [built] = build(declared(folder, "agents", **said), Options(), {}, experiment="agents")
        return [kept_through(one) for one in built.runnable.lenders.values() if isinstance(one, KeptPostgres)]

    assert kept(reset="lane", lane="{level}") == ["lane"]
    assert kept(reset="never") == ["run"]
    assert kept(reset="conversation") == kept() == []


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("crm", {"lane": "{workflw}"}, "lane names the column 'workflw', and row 1 of talks.jsonl lacks"),
        ("crm", {"lane": "{workflow"}, "experiments.crm: lane: "),
        ("crm", {"reset": "lane"}, "`reset:` says when the sandbox is reset, and there is none"),
        ("agents", {"reset": "lane"}, "'program' has none: add `lane: \"{column}\"`, or write reset: never"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_runs(
    folder: Path, name: str, said: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        declared(folder, name, **said)


def test_what_is_said_for_all_models_stands_in_place_of_their_own(folder: Path) -> None:
    said = {"temperature": 0.0, "max_output_tokens": 800}

    changed, notes = with_model_keys(declared(folder), said)

    assert [{key: one.entry.get(key) for key in said} for one in changed.asked] == [said, said]
    assert notes == []
    assert changed.asked[0].recorded() != declared(folder).asked[0].recorded()


def test_an_agent_with_a_program_of_its_own_is_told_of(folder: Path) -> None:
    _, notes = with_model_keys(declared(folder, "agents"), {"temperature": 0.0})

    assert notes == ["program: --temperature says nothing to an agent, which calls its model itself"]
    with pytest.raises(OptionError, match="--max-output-tokens: needs a whole number, 1 or more; got 'many'"):
        read_model_key("max_output_tokens", "many")


def test_a_file_stands_in_place_of_the_dataset_with_its_ids(folder: Path) -> None:
    [other] = declared(folder, datasets=["other.jsonl"]).sources
    [same] = declared(folder, datasets=["./talks.jsonl"]).sources

    assert (other.name, next(other.open())["id"]) == ("other", "a")
    assert same.name == "talks"
    with pytest.raises(OptionError, match=r"--datasets: datasets\.none: .*none\.jsonl"):
        declared(folder, datasets=["none.jsonl"])
