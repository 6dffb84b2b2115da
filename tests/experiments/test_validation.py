"""`evalve validate`: every mistake, with file, line and what was meant."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from textwrap import dedent

import jsonschema
import pytest
import yaml

from evalve.agents.settings import AgentSettings
from evalve.errors import OptionError
from evalve.experiments import validation
from evalve.experiments.file import keys, schema
from evalve.options import OPTIONS

VALID = """
    models:
      reader: {agent: command, command: [python3, "{project}/agent.py", "{prompt}"], answer: last_line}
      mini: {model: small, base_url: "http://127.0.0.1:1/v1", api_key: "${MINI_KEY}", temperature: 0}
    datasets:
      docs: {path: docs.jsonl}
    experiments:
      full:
        datasets: [docs]
        models: [reader]
        evaluation_mode: agent
        concurrency: 5
        prompt: "{question}"
        files: {context.md: "{context}"}
        expected: answer
        metrics: [exact_match]
      debug: {extends: full, concurrency: 1, limit: 3}
      options_only: {samples: 3}
"""


def problems_of(folder: Path, text: str) -> list[str]:
    """The errors, with the file's name left out."""
    report = validated(folder, text)
    return [f"{one.place.line}: {one.text}" for one in report.errors]


def validated(folder: Path, text: str) -> validation.Report:
    (folder / "evalve.yaml").write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    row = {"id": "a", "question": "q", "context": "c", "answer": "x"}
    (folder / "docs.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "agent.py").touch()
    return validation.validated(folder)


def test_a_file_that_is_right_says_what_it_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINI_KEY", raising=False)

    report = validated(tmp_path, VALID)

    assert report.errors == []
    assert report.experiments[1] == {
        "name": "debug",
        "runnable": True,
        "datasets": ["docs"],
        "models": ["reader"],
        "evaluation_mode": "agent",
        "evaluations": 1,
    }
    assert report.experiments[2] == {"name": "options_only", "runnable": False}
    assert [one.text.split(";")[0] for one in report.warnings] == [
        "models.mini: api_key: the variable MINI_KEY is not set"
    ]


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        (
            "models: [reader]",
            "models: [no, reader]",
            "9: experiments.full: models: needs a name, or a list of names; got [False, 'reader']; YAML reads"
            " yes, no, on and off as true and false: in quotes they are texts",
        ),
        (
            "      docs: {path: docs.jsonl}\n",
            "      docs: {path: docs.jsonl}\n      on: {path: docs.jsonl}\n",
            "6: datasets: a name is a text, and YAML reads this one as True; YAML reads yes, no, on and off"
            " as true and false: in quotes they are texts",
        ),
        (
            'prompt: "{question}"',
            "prompt: 5",
            '12: experiments.full: prompt: needs a text; got 5; as a text it is written in quotes: "5"',
        ),
        (
            "concurrency: 5",
            "concurency: 5",
            "11: experiments.full: unknown key 'concurency'; did you mean 'concurrency'?",
        ),
        (
            "concurrency: 5",
            "concurrency: many",
            "11: experiments.full: concurrency: needs a whole number, 1 or more, or `auto`; got 'many'",
        ),
        (
            "datasets: [docs]",
            "datasets: [dosc]",
            "8: experiments.full: there is no dataset 'dosc'; did you mean 'docs'?",
        ),
        (
            "models: [reader]",
            "models: [raeder]",
            "9: experiments.full: there is no model 'raeder'; did you mean 'reader'?",
        ),
        (
            "evaluation_mode: agent",
            "evaluation_mode: agents",
            "10: experiments.full: evaluation_mode: needs one of: agent, model, conversation; got 'agents'",
        ),
        (
            "evaluation_mode: agent",
            "evaluation_mode: model",
            "10: experiments.full says evaluation_mode: model, and 'reader'",
        ),
        (
            'prompt: "{question}"',
            'prompt: "{qestion}"',
            "12: experiments.full: prompt names the column 'qestion', and row 1 of docs.jsonl",
        ),
        (
            'prompt: "{question}"',
            'prompt: "{question"',
            "12: experiments.full: prompt: expected '}' before end of string",
        ),
        (
            "metrics: [exact_match]",
            "metrics: [exact_mtach]",
            "15: experiments.full: unknown evaluator 'exact_mtach'; did you mean 'exact_match'?",
        ),
        (
            "extends: full",
            "extends: fulll",
            "16: experiments.debug extends 'fulll', which is not there; did you mean 'full'?",
        ),
        (
            "{path: docs.jsonl}",
            "{paht: docs.jsonl}",
            "5: datasets.docs: unknown key 'paht'; did you mean 'path'?",
        ),
        (
            "answer: last_line}",
            "answr: last_line}",
            "2: models.reader: unknown key 'answr'; did you mean 'answer'?",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_was_meant(
    tmp_path: Path, was: str, now: str, problem: str
) -> None:
    assert was in VALID

    found = problems_of(tmp_path, VALID.replace(was, now))

    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (
            "reader: {agent: command",
            "other: 5\n  reader: {agent: command",
            "2: models.other must be a mapping",
        ),
        (
            'command: [python3, "{project}/agent.py", "{prompt}"]',
            "command: 5",
            "2: models.reader: command: needs",
        ),
        ("{path: docs.jsonl}", "{path: docs.jsonl, id: [id]}", "5: datasets.docs: id: needs a text"),
        ("extends: full", "extends: [{full: 1}]", "16: experiments.debug: extends: needs a name"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_once_whatever_names_its_entry(
    tmp_path: Path, was: str, now: str, told: str
) -> None:
    text = dedent(VALID).lstrip("\n")
    assert was in text

    [problem] = problems_of(tmp_path, text.replace(was, now))

    assert problem.startswith(told)


def test_an_experiment_whose_files_cannot_be_is_told_once_and_looked_at_no_further(tmp_path: Path) -> None:
    text = VALID.replace('{context.md: "{context}"}', "{context.md: {pth: a}}")
    (found,) = problems_of(tmp_path, text)  # and not for debug, which extends it
    told = "13: experiments.full: files: context.md: needs a text, as in"
    assert found.startswith(told) and found.endswith("got {'pth': 'a'}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "models:\n  a: {model: x\ndatasets: [\n",
            "3: this is not valid YAML: while parsing a flow mapping at line 2: "
            "expected ',' or '}', but got ':'",
        ),
        (
            "experiments:\n\tx: 1\n",
            "2: this is not valid YAML: found character '\\t' that cannot start any token; "
            "indent with spaces, YAML takes no tabs",
        ),
    ],
)
def test_text_that_is_not_yaml_is_told_with_the_line_where_it_stops(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert problems_of(tmp_path, text) == [problem]


def test_what_the_gate_would_not_take_is_told_with_its_line(tmp_path: Path) -> None:
    calls = """
    limits:
      anthropic: {rmp: 50}
      openai: 3
    prices:
      mini: {inputt: 3}
    """
    assert [one.partition(" (known")[0] for one in problems_of(tmp_path, dedent(VALID) + dedent(calls))] == [
        "20: limits.anthropic: unknown key 'rmp'; did you mean 'rpm'?",
        "21: limits.openai must be a mapping of names to values; got int",
        "23: prices.mini: unknown key 'inputt'; did you mean 'input'?",
    ]


def test_a_provider_alone_is_no_model(tmp_path: Path) -> None:
    text = VALID.replace("models: [reader]", "models: [openai]").replace("evaluation_mode: agent", "")
    told = problems_of(tmp_path, text)
    assert told[0] == "9: experiments.full: 'openai' lacks the name of a model, as in openai/MODEL"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("{rubrik: polite}", " has no argument 'rubrik'; did you mean 'rubric'?"),
        (
            "{repeats: 2}",
            ": repeats=2: of an even number of verdicts, half may say yes and half no; ask 3 times",
        ),
        ("{rubric: {txt: x}}", ": a rubric has text, scale, criteria; got 'txt'; did you mean 'text'?"),
    ],
)
def test_a_judge_that_cannot_be_is_told_before_an_agent_has_worked_for_it(
    tmp_path: Path, arguments: str, problem: str
) -> None:
    judged = f"judge_model: mini\n        metrics: [{{llm_judge: {arguments}}}]"
    text = VALID.replace("metrics: [exact_match]", judged)
    assert problems_of(tmp_path, text)[0] == f"16: experiments.full: llm_judge{problem}"


def test_without_a_way_to_score_nothing_is_run(tmp_path: Path) -> None:
    told = problems_of(tmp_path, VALID.replace("metrics: [exact_match]", ""))
    assert told[0] == (
        "7: experiments.full says nothing about how answers are scored: add `evaluators: [exact_match]`, "
        "or `judge_model: NAME`; `evaluators: none` only collects answers"
    )


def test_what_an_experiment_needs_and_is_not_there_is_told(tmp_path: Path) -> None:
    script = problems_of(tmp_path, VALID.replace("agent.py", "solver.py"))
    copied = problems_of(tmp_path, VALID.replace('"{context}"}', '"{context}", b.csv: {path: b.csv}}'))
    by_row = problems_of(tmp_path, VALID.replace('"{context}"}', '"{context}", b.csv: {path: "{id}.csv"}}'))
    unused = problems_of(
        tmp_path, VALID.replace("models: [reader]\n        evaluation_mode: agent", "models: mini")
    )

    assert script[0].startswith(
        f"2: models.reader: command: there is no '{tmp_path}/solver.py'; {{project}} "
    )
    assert copied[0] == f"13: experiments.full: files: b.csv: there is no '{tmp_path}/b.csv' to copy"
    assert by_row == []
    assert not any("solver.py" in one for one in unused)


def gated(gate: str) -> str:
    return VALID.replace(
        "metrics: [exact_match]", f"metrics: [exact_match]\n        fail_under: {{{gate}: 0.8}}"
    )


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        ("exact_macth", "no score is called 'exact_macth'; did you mean 'exact_match'?"),
        ("exact_match.acuracy.low", "exact_match.acuracy.low: there is no metric 'acuracy'; did you mean"),
    ],
)
def test_a_gate_that_no_score_can_have_is_told(tmp_path: Path, gate: str, told: str) -> None:
    assert problems_of(tmp_path, gated(gate))[0].startswith(f"16: experiments.full: fail_under: {told}")


@pytest.mark.parametrize("gate", ["exact_match", "exact_match.accuracy.low", "accuracy"])
def test_a_gate_names_a_score_or_a_metric(tmp_path: Path, gate: str) -> None:
    assert problems_of(tmp_path, gated(gate)) == []


def test_scores_of_ones_own_function_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def right(answer):\n    return {'polite': True}\n")
    own = "metrics: [checks.py:right]\n        fail_under: {polite: 1}"

    assert problems_of(tmp_path, VALID.replace("metrics: [exact_match]", own)) == []


def test_a_judge_without_a_key_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = VALID.replace("metrics: [exact_match]", "judge_model: openai/gpt-5-mini")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    without = validated(tmp_path, text)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with_key = validated(tmp_path, text)

    assert (without.errors, with_key.errors) == ([], [])
    told = "experiments.full: openai/gpt-5-mini needs an API key: set OPENAI_API_KEY"
    assert told in [one.text for one in without.warnings]
    assert told not in [one.text for one in with_key.warnings]


def test_a_program_that_is_not_installed_is_a_warning(tmp_path: Path) -> None:
    report = validated(tmp_path, VALID.replace("[python3", "[no-such-program"))
    assert report.is_valid
    assert "the program 'no-such-program' is not installed" in report.warnings[0].text
    unused = VALID.replace(
        "    datasets:", "      other: {agent: command, command: [no-such-program]}\n    datasets:", 1
    )
    assert not [one for one in validated(tmp_path, unused).warnings if "other" in one.text]


def test_a_file_of_rows_that_is_not_there_is_told(tmp_path: Path) -> None:
    found = problems_of(tmp_path, VALID.replace("docs.jsonl", "none.jsonl"))

    assert found[0].startswith("5: datasets.docs: there is no file ")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = VALID.replace("concurrency: 5", "concurency: 5").replace("models: [reader]", "models: [raeder]")

    assert [one.partition(":")[0] for one in problems_of(tmp_path, text)] == ["9", "9", "11"]


@pytest.mark.parametrize("key", ["api_key: sk-live-0123456789abcdef", "api_key: secret"])
def test_a_key_in_clear_is_refused_with_the_line_to_write_and_not_shown(tmp_path: Path, key: str) -> None:
    found = problems_of(tmp_path, VALID.replace('api_key: "${MINI_KEY}"', key))

    assert found[0].startswith("3: models.mini: api_key is written out")
    assert found[0].endswith("write:  api_key: ${MINI_API_KEY}")
    assert key.partition(": ")[2] not in found[0].replace("--env-file", "")


def test_a_variable_without_braces_gets_them(tmp_path: Path) -> None:
    found = problems_of(tmp_path, VALID.replace('"${MINI_KEY}"', "$MINI_KEY"))

    assert found[0].endswith("write:  api_key: ${MINI_KEY}")


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        (
            "agent: command",
            "agent: comand",
            "2: models.reader: there is no agent 'comand'; did you mean 'command'?",
        ),
        (
            "{prompt}",
            "{question}",
            "2: models.reader: agent 'command': {question} in '{question}' is not a placeholder",
        ),
        (
            "answer: last_line",
            "answer: last",
            "2: models.reader: agent 'command': answer is one of last_line",
        ),
        (
            "context.md:",
            "../context.md:",
            "13: experiments.full: files: '../context.md' leads out of the workspace",
        ),
    ],
)
def test_what_an_agent_does_not_take_is_told(tmp_path: Path, was: str, now: str, problem: str) -> None:
    assert problems_of(tmp_path, VALID.replace(was, now, 1))[0].startswith(problem)


@pytest.mark.parametrize("command", ["[python3, agent.py]", "[./agent.py, x]"])
def test_a_script_of_the_project_is_named_as_such_or_put_into_the_workspace(
    tmp_path: Path, command: str
) -> None:
    text = VALID.replace('[python3, "{project}/agent.py", "{prompt}"]', command)

    told = problems_of(tmp_path, text)
    seeded = problems_of(tmp_path, text.replace("context.md:", "agent.py: {path: agent.py}, context.md:"))

    assert told == [
        "2: models.reader: command: an agent starts in its workspace, where "
        f"'{'./' if '.' in command[1] else ''}agent.py' is not; write {{project}}/agent.py for the file of "
        "your project, or put it into the workspace with `files:`"
    ]
    assert seeded == []


def test_a_token_for_an_agent_is_refused_in_clear_too(tmp_path: Path) -> None:
    text = VALID.replace("answer: last_line", "environment: {HUB_TOKEN: abcdefghijkl}")

    assert problems_of(tmp_path, text)[0].endswith("write:  HUB_TOKEN: ${HUB_TOKEN}")


def test_an_experiment_at_the_top_gets_the_line_to_add(tmp_path: Path) -> None:
    found = problems_of(
        tmp_path,
        """
        docfinqa_claude_code_test:
          datasets: [docfinqa_test_only]
          models: [claude-code-sonnet]
          evaluation_mode: agent
          concurrency: 5  # Run 5 samples in parallel
          judge_model: openrouter-qwq-32b-judge
        """,
    )

    assert found == [
        "1: 'docfinqa_claude_code_test' is an experiment, and experiments stand under `experiments:`; add "
        "that line above it and indent it:\n\nexperiments:\n  docfinqa_claude_code_test:\n    …"
    ]


def test_paths_are_seen_from_the_file_that_says_them(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "rows.csv").write_text("id,question\n1,why\n")
    (shared / "base.yaml").write_text("datasets: {rows: rows.csv}\nmodels: {m: local}\n")

    report = validated(
        tmp_path,
        """
        extends: shared/base.yaml
        experiments:
          e: {datasets: rows, models: m, prompt: "{question}", evaluators: [valid_json]}
        """,
    )

    assert report.errors == []


def test_without_a_file_the_way_to_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"there is no evalve\.yaml in .*`evalve init --agents` writes one"):
        validation.validated(tmp_path)


def test_the_report_is_json_for_programs(tmp_path: Path) -> None:
    report = validated(tmp_path, VALID.replace("concurrency: 5", "concurency: 5"))

    plain = json.loads(validation.report_json(report))

    assert plain["valid"] is False
    assert plain["errors"][0] == {
        "file": str(tmp_path / "evalve.yaml"),
        "line": 11,
        "message": "experiments.full: unknown key 'concurency'; did you mean 'concurrency'?",
    }


# -- the JSON Schema


def test_the_schema_that_is_shipped_is_the_one_that_the_keys_make() -> None:
    shipped = Path(schema.__file__).with_name(schema.FILE)

    assert shipped.read_text() == schema.schema_text()


def test_the_schema_accepts_what_is_valid_and_refuses_what_is_not() -> None:
    check = jsonschema.Draft202012Validator(schema.schema())
    jsonschema.Draft202012Validator.check_schema(schema.schema())

    assert list(check.iter_errors(yaml.safe_load(VALID))) == []
    assert list(check.iter_errors(yaml.safe_load(VALID.replace("limit: 3", "limit: null")))) == []
    for was, now in (
        ("concurrency: 5", "concurency: 5"),
        ("evaluation_mode: agent", "evaluation_mode: agents"),
        ("{path: docs.jsonl}", "{paht: docs.jsonl}"),
        ("agent: command,", "agnet: command,"),
    ):
        assert list(check.iter_errors(yaml.safe_load(VALID.replace(was, now)))) != []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_a_schema(option: object) -> None:
    assert keys.option_schema(option)  # type: ignore[arg-type]


def test_every_setting_of_agents_is_a_key() -> None:
    assert {setting.name for setting in fields(AgentSettings)} <= set(keys.AGENT_MODEL.by_name)
