"""Experiments of `evalve.yaml` with models: run, resumed, several beside each other, stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from project import Project

from evalve.simulator import Behaviour, Latency, Limits, Simulator

CONFIGURATION = """
    models:
      sim: {{model: tiny, base_url: "{url}/v1", api_key: "${{SIM_KEY}}", max_output_tokens: 20}}
      other: {{model: tiny-2, base_url: "{url}/v1", api_key: "${{OTHER_KEY}}"}}
    datasets:
      sums: {{path: sums.jsonl}}
    experiments:
      full:
        datasets: [sums]
        models: [sim]
        evaluation_mode: model
        concurrency: 5
        prompt: "{{question}}"
        expected: answer
        metrics: [contains]
      debug: {{extends: full, concurrency: 1, limit: 3}}
      options_only: {{samples: 3}}
"""
KEYS = {"SIM_KEY": "sk-sim-0123456789", "OTHER_KEY": "sk-other-0123456789"}


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour()).start_in_thread() as simulator:
        yield simulator


def prepared(project: Project, provider: Simulator) -> dict[str, str]:
    """A project with twenty rows; the environment of its commands."""
    project.write("evalve.yaml", CONFIGURATION.format(url=provider.url))
    rows = [{"id": f"r{n}", "question": f"What is {n}?", "answer": str(n)} for n in range(20)]
    project.write("sums.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    folder = project.folder
    return {**KEYS, "EVALVE_STATE_DIR": str(folder / "state"), "EVALVE_CACHE_DIR": str(folder / "cache")}


def test_an_experiment_runs_by_its_name_and_says_each_sample(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve("run", "full", **environ)

    assert ended.code == 0
    assert ended.err.splitlines()[:3] == [
        "Running concurrent evaluation with 5 workers",
        "Completed 1/20 samples",
        "Completed 2/20 samples",
    ]
    assert "Completed 20/20 samples\n" in ended.err
    assert ended.out.startswith("sums[sim]  20/20 done")
    assert [record["sample_id"] for record in project.records("full")] == [f"r{n}" for n in range(20)]
    assert provider.stats.requests == 20


def test_a_missing_key_stops_the_run_and_not_each_sample(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve(
        "run", "full", "--model", "openai/m", "--concurrency", "1", **environ, OPENAI_API_KEY=""
    )

    assert ended.code == 2
    assert ended.out.startswith("sums[openai/m]  0/20 done, 1 failed (code)")
    assert ended.out.count("needs an API key") == 1
    assert "  stopped: openai/m needs an API key: set OPENAI_API_KEY, or give api_key=" in ended.out


def test_without_a_name_the_experiments_that_there_are_are_told(
    project: Project, provider: Simulator
) -> None:
    ended = project.evalve("run", **prepared(project, provider))

    assert ended.code == 5
    assert "evalve.yaml has experiments: evalve run full" in ended.err


def test_what_is_done_is_not_done_again_and_limits_may_change(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    first = project.evalve("run", "debug", **environ)
    second = project.evalve("run", "debug", "--limit", "5", "--concurrency", "10", **environ)

    assert first.err.splitlines()[0] == "Running sequential evaluation with 1 worker"
    assert second.err.splitlines()[:3] == [
        "Running concurrent evaluation with 10 workers",
        "Completed 4/5 samples",
        "Completed 5/5 samples",
    ]
    assert second.code == 0
    assert provider.stats.requests == 5


def test_a_changed_prompt_is_refused_and_a_changed_timeout_is_not(
    project: Project, provider: Simulator
) -> None:
    environ = prepared(project, provider)
    project.evalve("run", "debug", **environ)
    text = project.read("evalve.yaml")

    project.write(
        "evalve.yaml",
        text.replace("concurrency: 5", "concurrency: 4\n    timeout_s: 60").replace("[contains]", "contains"),
    )
    same = project.evalve("run", "debug", **environ)
    project.write("evalve.yaml", text.replace('"{question}"', '"Tell me: {question}"'))
    changed = project.evalve("run", "debug", **environ)

    assert same.code == 0
    assert changed.code == 1
    assert "sums[sim] has changed since the 3 samples of experiment 'debug' were recorded" in changed.out
    assert '+ "prompt": "Tell me: {question}"' in changed.out


def test_several_experiments_and_models_run_beside_each_other(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve("run", "full", "debug", "--model", "sim", "--model", "other", **environ)

    assert ended.code == 0
    assert "Running concurrent evaluation with 5 workers (full: sums[other])" in ended.err
    assert {record["evaluation"] for record in project.records("full")} == {"sums[sim]", "sums[other]"}
    compared = project.evalve("compare", "full", "--across", "model", **environ)
    assert compared.out.startswith("A  full, model=sim\nB  full, model=other\n")


def test_a_throttled_model_does_not_slow_another(project: Project) -> None:
    slow = Behaviour(models={"tiny-2": Limits(requests_per_minute=20, depth_s=6)})
    with Simulator(slow).start_in_thread() as provider:
        environ = prepared(project, provider)
        with project.started(
            "-m", "evalve", "run", "full", "--model", "other", "--model", "sim", **environ
        ) as running:
            running.has_written("Completed 20/20 samples (full: sums[sim])", "err")
            so_far = project.read("err")
            running.interrupt()
            running.interrupt()
            running.end()

    assert "Completed 20/20 samples (full: sums[other])" not in so_far


def test_a_file_of_that_name_wins_and_one_without_datasets_gives_options(
    project: Project, provider: Simulator
) -> None:
    environ = prepared(project, provider)
    project.write("full.py", "")
    project.write(
        "eval_n.py",
        """
        import evalve

        @evalve.foreach("n", range(10))
        def eval_n(n):
            return True
        """,
    )

    by_file = project.evalve("run", "eval_n.py", "--experiment", "options_only", **environ)
    none = project.evalve("run", "options_only", **environ)
    misspelt = project.evalve("run", "ful", **environ)

    assert "eval_n  3/3 done" in by_file.out
    assert none.code == 4
    assert "experiments.options_only has no `datasets:`, so there is nothing to run" in none.err
    assert misspelt.code == 4
    assert "no experiment 'ful'; did you mean 'full'?" in misspelt.err


def test_a_key_comes_from_an_env_file_and_is_nowhere_else(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)
    del environ["SIM_KEY"]
    project.write("keys.env", "# keys\nexport SIM_KEY='sk-sim-from-a-file-1'  # mine\n")

    without = project.evalve("run", "debug", **environ)
    ended = project.evalve("run", "debug", "--env-file", "keys.env", **environ)

    assert without.code == 4
    assert "models.sim: api_key: the variable SIM_KEY is not set" in without.err
    assert ended.code == 0
    stored = [path for path in (project.folder / ".evalve").rglob("*") if path.is_file()]
    assert project.folder / ".evalve" / "evalve.db" in stored
    everything = b"".join(path.read_bytes() for path in stored)
    assert b"sk-sim-from-a-file-1" not in everything


def test_another_file_is_named_by_config(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)
    (project.folder / "conf").mkdir()
    text = project.read("evalve.yaml").replace("sums.jsonl", "../sums.jsonl")
    (project.folder / "evalve.yaml").unlink()
    project.write("conf/nightly.yaml", text)

    ended = project.evalve("run", "debug", "--config", "conf/nightly.yaml", **environ)
    shown = project.evalve("show", "debug", **environ)

    assert ended.code == 0
    assert shown.out.startswith("debug · complete")


def test_ctrl_c_stops_all_of_them_and_says_how_to_go_on(project: Project) -> None:
    with Simulator(Behaviour(latency=Latency(median_s=0.3))).start_in_thread() as provider:
        environ = prepared(project, provider)
        said = "--config evalve.yaml --concurrency 2 --model sim --model other"
        with project.started("-m", "evalve", "run", "full", *said.split(), **environ) as running:
            running.has_written("Completed 2/20 samples (full: sums[other])", "err")
            running.interrupt()
            ended = running.end()
        again = project.evalve("run", "full", "--model", "sim", "--model", "other", **environ)

    assert ended.code == 2
    assert ended.err.count("stopping: ") == 1
    assert f"interrupted; what was done is saved. To go on: evalve run full {said}" in ended.out
    assert again.code == 0
    assert len(project.records("full")) == 40
    assert provider.stats.requests == 40


def test_every_key_is_overridable_on_the_command_line(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve(
        "run",
        "debug",
        "--prompt",
        "Say {answer}",
        "--evaluators",
        "contains,exact_match",
        "--experiment",
        "x",
        **environ,
    )
    wrong = project.evalve("run", "debug", "--evaluators", "contain", **environ)
    mode = project.evalve("run", "debug", "--evaluation-mode", "agents", **environ)

    assert ended.code == 0
    records = project.records("x")
    assert [record["prompt"] for record in records] == ["Say 0", "Say 1", "Say 2"]
    assert [score["name"] for score in records[0]["scores"]] == ["contains", "exact_match"]
    assert "--evaluators: experiments.debug: unknown evaluator 'contain'; did you mean" in wrong.err
    assert "--evaluation-mode: needs one of: agent, model, conversation; got 'agents'" in mode.err


def test_a_judge_with_a_key_of_its_own_is_counted_apart(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    ended = project.evalve("run", "debug", "--judge-model", "other", **environ)

    assert ended.code == 0
    names = [[score["name"] for score in record["scores"]] for record in project.records("debug")]
    assert names == [["contains", "llm_judge"]] * 3
    requests = provider.recent_requests()
    asked = [(json.loads(one["body"])["model"], one["key_hash"]) for one in requests]
    assert sorted(model for model, _ in asked) == ["tiny"] * 3 + ["tiny-2"] * 3
    assert len(set(asked)) == 2
    assert len({key for _, key in asked}) == 2
    assert "3 calls" in ended.out and "judge" in ended.out


def test_a_budget_holds_for_all_models_of_an_experiment(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)
    text = project.read("evalve.yaml")
    prices = "prices:\n  tiny: {input: 1000, output: 1000}\n  tiny-2: {input: 1000, output: 1000}\n"
    project.write("evalve.yaml", text + prices)

    said = ("run", "full", "--model", "sim", "--model", "other", "--budget-usd", "0.1")
    ended = project.evalve(*said, **environ)
    again = project.evalve(*said, **environ)

    assert ended.code == again.code == 2
    assert "the budget of 0.1 USD is used up" in ended.out
    assert re.search(r"the budget of 0.1 USD is used up \((0.0\d+) USD spent, \1 USD of it by", again.out)
    spent = [float(cost) for cost in re.findall(r"([\d.]+) USD\n", ended.out)]
    assert 0 < sum(spent) <= 0.1


@pytest.mark.parametrize("way", ["kill -9", "Ctrl-C twice"])
def test_a_budget_counts_calls_that_were_sent_and_not_answered_also_in_later_runs(
    project: Project, way: str
) -> None:
    with Simulator(Behaviour(latency=Latency(600.0))).start_in_thread() as provider:
        environ = prepared(project, provider)
        # a cent for each token: a call may cost 0.2 USD
        project.write(
            "evalve.yaml", project.read("evalve.yaml") + "prices:\n  tiny: {input: 0, output: 10000}\n"
        )
        said = ("run", "full", "--budget-usd", "0.7", "--concurrency", "3")
        with project.started("-m", "evalve", *said, **environ) as run:
            run.wait_until(lambda: provider.stats.requests == 3, "three calls")
            if way == "kill -9":
                run.kill()
            else:
                run.interrupt()
                run.has_written("cancel", "err")
                run.interrupt()
                run.end()
        again = project.evalve(*said, **environ)

        assert provider.stats.requests == 3
    assert again.code == 2
    spent = "0.6000 USD spent, 0.6000 USD of it by earlier runs, 0.6000 USD of it at most, for calls that"
    assert f"the budget of 0.7 USD is used up ({spent} did not say what they took)" in again.out


def test_a_budget_that_another_terminal_spends_too_says_so(project: Project) -> None:
    with Simulator(Behaviour(latency=Latency(600.0))).start_in_thread() as provider:
        environ = prepared(project, provider)
        said = ("run", "full", "--budget-usd", "1")
        with project.started("-m", "evalve", *said, **environ) as run:
            run.wait_until(lambda: provider.stats.requests > 0, "calls")
            # how far a run is, it tells about once a second
            run.wait_until(lambda: len(project.live("full")) == 1, "run under way")
            beside = project.evalve(*said, "--model", "other", "--limit", "0", **environ)
            run.kill()
        after = project.evalve(*said, "--model", "other", "--limit", "0", **environ)

    told = "full: sums[sim] is being run by another process: the budget counts what that has cost so far"
    assert told in beside.err
    assert "another process" not in after.err


def test_gates_and_budgets_decide_the_exit_code(project: Project, provider: Simulator) -> None:
    environ = prepared(project, provider)

    gated = project.evalve("run", "debug", "--fail-under", "contains=0.99", **environ)
    nothing = project.evalve("run", "debug", "--limit", "0", "--experiment", "none", **environ)
    wrong = project.evalve("run", "debug", "--limt", "0", **environ)

    assert gated.code == 1
    assert "not passed: " in gated.out
    assert nothing.code == 5
    assert wrong.code == 4
    assert "unknown option '--limt' for an experiment of evalve.yaml; did you mean '--limit'?" in wrong.err
