"""`evalve plan`, from the command line to what it prints."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from evalve.cli import main
from evalve.experiments.file.configuration import Configuration
from evalve.gate.limits.state import Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Stated
from evalve.planning.providers import Provider
from evalve.storage import open_store
from recorded import done, record

SONNET = "anthropic/claude-sonnet-4-5"
FIGURES = ["--calls-per-sample", "2", "--input-tokens", "600", "--output-tokens", "200", "--latency-s", "6"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in, nothing configured, limits of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("EVALVE_STATE_DIR", str(tmp_path / "state"))
    for name in (
        "EVALVE_STORAGE",
        "EVALVE_MODEL",
        "ANTHROPIC_RPM_LIMIT",
        "ANTHROPIC_BASE_URL",
        "OPENAI_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def calls(**said: Any) -> dict[str, Any]:
    names = ("requests", "cached", "retries", "input_tokens", "output_tokens", "unpriced", "cost_usd")
    return {**dict.fromkeys((*names, "cache_read_tokens", "cache_write_tokens"), 0), **said}


def remember(folder: Path, experiment: str, *, name: str = "eval_math", file: str = "eval_x.py") -> None:
    """Ten samples of two calls each: 500 and 100 tokens, 3 s, a cent a call."""
    store = open_store(folder / ".evalve" / "evalve.db")
    made = calls(requests=2, input_tokens=1_000, output_tokens=200, cost_usd=0.02)
    samples = [done(f"s{n}", wall_s=6.0, exact_match=True, also={"calls": made}) for n in range(10)]
    record(store, experiment, *samples, name=name, file=file)
    store.close()


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["plan", *arguments, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    document: dict[str, Any] = json.loads(said.out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    return main(["plan", *arguments]), capsys.readouterr().err.strip()


# -- an experiment


def test_an_experiment_is_planned_from_its_records(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(project, "trial")

    plan = planned(capsys, "trial", "--samples", "1000")

    assert (plan["samples"], plan["calls"]) == (1_000, 2_000)
    assert (plan["input_tokens"], plan["output_tokens"]) == (1_000_000, 200_000)
    assert plan["cost_usd"] == pytest.approx(20.0)
    assert plan["latency_s"] == 3.0
    assert plan["evaluations"][0]["source"] == "10 records of trial"
    assert [scope["name"] for scope in plan["limits"]] == [
        "tier 1",
        "tier 2",
        "tier 3",
        "tier 4",
        "tier start",
        "tier build",
        "tier scale",
    ]


def test_without_samples_the_whole_experiment_is_planned_again(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "trial")

    assert planned(capsys, "latest", "--repeat", "3")["calls"] == 60


def test_flags_hold_over_records(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(project, "trial")

    plan = planned(capsys, "trial", "--output-tokens", "50", "--model", SONNET)

    assert (plan["input_tokens"], plan["output_tokens"]) == (10_000, 1_000)
    assert plan["cost_usd"] == pytest.approx(20 * (500 * 3 + 50 * 15) / 1e6)
    assert plan["evaluations"][0]["source"] == "flags, 10 records of trial"


def test_an_experiment_without_calls_is_planned_from_an_earlier_one(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "earlier")
    store = open_store(project / ".evalve" / "evalve.db")
    record(store, "from_cache", done("s0", exact_match=True, also={"calls": calls(cached=2)}))
    store.close()

    plan = planned(capsys, "from_cache")

    assert (plan["samples"], plan["input_tokens"]) == (1, 1_000)
    assert plan["evaluations"][0]["source"] == "10 records of earlier"


def test_an_experiment_that_called_nothing_has_nothing_to_plan_from(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(project / ".evalve" / "evalve.db")
    record(store, "silent", done("s0", exact_match=True))
    store.close()

    code, error = refused(capsys, "silent")

    assert code == 1
    assert error.startswith("evalve: experiment 'silent' has nothing to plan from: none of its samples")
    assert planned(capsys, "silent", *FIGURES)["calls"] == 2


def test_an_unknown_experiment_is_refused_with_a_suggestion(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "trial")
    (project / "eval_tools.py").write_text("")

    code, near = refused(capsys, "trail")
    _, file = refused(capsys, "tools")

    assert code == 1
    assert near.endswith("did you mean 'trial'?")
    assert file == "evalve: no experiment 'tools'; did you mean the file 'eval_tools.py'?"


# -- a file


def evaluations(folder: Path, name: str) -> str:
    (folder / name).write_text(
        dedent("""
        import evalve

        @evalve.foreach("n", list(range(53)))
        def eval_tools(n):
            raise AssertionError("samples are not run")

        def endless():
            while True:
                yield 1

        @evalve.foreach("n", endless)
        async def eval_endless(n):
            raise AssertionError("samples are not run")
        """)
    )
    return name


def test_a_file_is_imported_and_its_rows_counted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = evaluations(project, "eval_plan_counted.py")

    plan = planned(capsys, f"{file}::eval_tools", *FIGURES, "--tier", "1")

    assert (plan["samples"], plan["calls"], plan["cost_usd"]) == (53, 106, None)
    (tier,) = plan["limits"]
    assert (tier["binding"], tier["max_concurrency"], tier["throttle_s"]) == ("output_tokens", 5, 3.0)
    assert not (project / ".evalve").exists()


def test_no_more_samples_are_planned_than_the_dataset_has(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evaluations(project, "eval_plan_fewer.py")

    assert planned(capsys, f"{file}::eval_tools", "--samples", "5")["samples"] == 5
    assert planned(capsys, f"{file}::eval_tools", "--samples", "5000")["samples"] == 53


def test_an_endless_dataset_is_not_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = evaluations(project, "eval_plan_endless.py")

    code, error = refused(capsys, file)

    assert code == 4
    assert error == (
        "evalve: eval_endless: only reading function endless tells how many samples it has; "
        "say how many with --samples N"
    )
    plan = planned(capsys, file, "--samples", "20")
    assert [one["samples"] for one in plan["evaluations"]] == [20, 20]


def test_a_file_without_figures_says_that_tokens_are_not_known(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evaluations(project, "eval_plan_unknown.py")

    assert main(["plan", f"{file}::eval_tools"]) == 0

    said = capsys.readouterr().out
    assert "1 call assumed" in said
    assert "Tokens per call are not known" in said
    assert "run with --samples 5 first and plan again" in said


def test_a_file_is_planned_from_the_records_of_its_evaluations(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evaluations(project, "eval_plan_learnt.py")
    remember(project, "trial", name="eval_tools", file=file)
    remember(project, "trial", name="eval_endless[gpt]", file=file)

    plan = planned(capsys, file)

    assert [(one["samples"], one["source"]) for one in plan["evaluations"]] == [
        (53, "10 records of trial"),
        (10, "10 records of trial"),  # as many as it had before; another variant's figures
    ]
    assert plan["cost_usd"] == pytest.approx((106 + 20) * 0.01)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("eval_plan_nmaed.py", "no file 'eval_plan_nmaed.py'; did you mean 'eval_plan_named.py'?"),
        ("eval_plan_named.py::eval_tool", "eval_plan_named.py has no evaluation 'eval_tool'; did you mean"),
        ("eval_plan_empty.py", "eval_plan_empty.py has no evaluations: no function with @foreach"),
        ("eval_plan_broken.py", "eval_plan_broken.py cannot be imported:"),
    ],
)
def test_a_file_that_cannot_be_planned_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], what: str, expected: str
) -> None:
    evaluations(project, "eval_plan_named.py")
    (project / "eval_plan_empty.py").write_text("x = 1\n")
    (project / "eval_plan_broken.py").write_text("import nothing_of_that_name\n")

    code, error = refused(capsys, what)

    assert code != 0
    assert error.startswith(f"evalve: {expected}")


# -- limits


def test_configured_limits_hold_here(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(project, "trial")
    monkeypatch.setenv("ANTHROPIC_RPM_LIMIT", "30")

    here, tier = planned(capsys, "trial", "--model", SONNET, "--tier", "4")["limits"]

    assert (here["name"], here["source"], here["per_minute"]) == (
        "here",
        "ANTHROPIC_RPM_LIMIT",
        {"requests": 30.0},
    )
    assert (here["binding"], tier["name"]) == ("requests", "tier 4")


def test_limits_that_answers_stated_hold_here(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(project, "trial")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-a-test")
    provider = Provider.of(SONNET, Configuration(), {"ANTHROPIC_API_KEY": "sk-of-a-test"})
    state = SqliteState(project / "state" / "limits.db")
    answer = Settlement({}, {}, 0.0, {"output_tokens": Stated(per_minute=6_000)}, answered=True)

    async def settle() -> None:
        await state.exchange(provider.call.scope, provider.configured, [answer], [], horizon_s=0.0)
        await state.close()

    asyncio.run(settle())

    here = planned(capsys, "trial", "--model", SONNET)["limits"][0]

    assert (here["name"], here["source"]) == ("here", "response headers")
    assert here["per_minute"] == {"output_tokens": pytest.approx(6_000)}
    assert here["calls_per_minute"] == pytest.approx(60)


def test_looking_for_learnt_limits_makes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(project, "trial")

    planned(capsys, "trial", "--model", SONNET)

    assert not (project / "state").exists()


def test_each_tier_of_openai_is_planned_with_the_limit_that_binds(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "trial")

    tokens = ["--input-tokens", "3000", "--output-tokens", "1000"]
    assert main(["plan", "trial", "--samples", "5000", "--model", "openai/gpt-5-mini", *tokens]) == 0

    tiers = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("tier ")]
    assert [" ".join(line) for line in tiers] == [
        "tier 1 1 h 20 min combined tokens 100% 125 6.2 8 0.96 s",
        "tier 2 20 min 03 s combined tokens 100% 500 25 32 0.24 s",
        "tier 3 10 min 03 s combined tokens 100% 1,000 50 63 0.12 s",
        "tier 4 4 min 03 s combined tokens 99% 2,500 125 157 0.048 s",
        "tier 5 22.8 s requests 88% 30,000 1,500 1875 0",
    ]


def test_a_server_that_only_speaks_like_openai_has_no_tiers(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "trial")
    model = "openai-compatible/gpt-5@http://127.0.0.1:9/v1"

    assert planned(capsys, "trial", "--model", model)["limits"] == []
    code, error = refused(capsys, "trial", "--model", model, "--tier", "1")
    assert (code, error) == (4, "evalve: --tier: openai-compatible has no tier '1'")


def test_a_tier_of_another_provider_is_refused_with_the_right_ones(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember(project, "trial")

    code, error = refused(capsys, "trial", "--model", "openai/gpt-5", "--tier", "build")

    assert (code, error) == (4, "evalve: --tier: openai has no tier 'build'; known: 1, 2, 3, 4, 5")


def test_an_unknown_tier_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(project, "trial")

    code, error = refused(capsys, "trial", "--tier", "biuld")

    assert (code, error) == (4, "evalve: --tier: anthropic has no tier 'biuld'; did you mean 'build'?")


def test_a_plan_is_for_one_model(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(project, "trial")
    monkeypatch.setenv("EVALVE_MODEL", f"{SONNET} openai/gpt-5")

    code, error = refused(capsys, "trial")

    assert code == 4
    assert error.startswith("evalve: a plan is for one model: say which with --model")
    assert planned(capsys, "trial", "--model", SONNET)["model"] == SONNET


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--samples", "0"], "there is nothing to plan: eval_three with 0 samples makes no calls"),
        (["--repeat", "0"], "argument --repeat: needs a whole number, 1 or more; got '0'"),
        (["--model", "foo/bar"], "'foo/bar' does not name a model"),
    ],
)
def test_what_cannot_be_planned_is_told(
    project: Path, flags: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "eval_three.py").write_text(
        "import evalve\n\n@evalve.foreach('n', range(3))\ndef eval_three(n):\n    return True\n"
    )

    assert main(["plan", "eval_three.py", *flags]) == 4

    assert told in capsys.readouterr().err


CONVERSATIONS = """
    sandboxes:
      postgres: {schema: schema.sql}
    models:
      mini: openai/gpt-4.1-mini
      claude: anthropic/claude-sonnet-4-5
      atlas: {student: mini, teacher: claude, lane: "{workflow}"}
    datasets:
      talks: {path: talks.jsonl, id: conversation_id}
    experiments:
      crm:
        evaluation_mode: conversation
        datasets: talks
        models: [claude, mini, atlas]
        sandbox: postgres
        tools: tools.py
        concurrency: 2
"""
ADD = """
    from evalve.conversations import tool

    @tool
    async def add(connection, name: str) -> dict:
        "Add a client."
"""


def test_a_plan_of_conversations_counts_turns_steps_teachers_and_lanes_and_compares_orders(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "evalve.yaml").write_text(dedent(CONVERSATIONS))
    (project / "schema.sql").write_text("CREATE TABLE clients (name text);")
    (project / "tools.py").write_text(dedent(ADD))
    turn = {"user_utterance": "Acme", "expected_tool": "add", "expected_args": {"name": "Acme"}}
    talk = {"user_utterance": "Thanks!"}
    lengths = [("a", 3), ("a", 1), ("b", 1), ("c", 1)]
    rows = [
        {"conversation_id": f"t{place}", "workflow": lane, "turns": [turn] * count + [talk] * (count == 3)}
        for place, (lane, count) in enumerate(lengths)
    ]
    (project / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    said = planned(capsys, "crm", "--latency-s", "2")
    text = main(["plan", "crm", "--latency-s", "2"]), capsys.readouterr().out
    chosen = planned(capsys, "crm", "--models", "mini, atlas")

    assert [one["model"] for one in chosen["plans"]] == ["mini", "atlas"]
    by_name = {one["model"]: one for one in said["plans"]}
    assert {name: (one["calls"], one["turns"]) for name, one in by_name.items()} == {
        "claude": (13, 7),
        "mini": (13, 7),
        "atlas": (26, 7),
    }
    assert {role: one["calls"] for role, one in by_name["atlas"]["roles"].items()} == {
        "student": 13,
        "teacher": 13,
    }
    assert by_name["atlas"]["lanes"] == [5, 1, 1]
    # 52 s of calls in 7 turns: the lane of 5 turns; for the others, 26 s in two rounds of two of four
    assert round(by_name["atlas"]["alone_s"], 2) == round(52 / 7 * 5, 2)
    assert by_name["claude"]["alone_s"] == 13.0
    assert [(one["order"], round(one["duration_s"], 2)) for one in said["orders"]] == [
        ("one by one", 63.14),
        ("phases: claude, mini; atlas", 50.14),
        ("all at once", 37.14),
    ]
    assert text[0] == 0
    assert "lanes     3, the longest with 5 turns" in text[1]
    assert "phases: claude, mini; atlas" in text[1]
    assert text[1].count("what is more than this only waits") == 1  # and not for each agent
