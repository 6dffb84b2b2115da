"""Evaluations that call a model: the fixtures, the choice of models, the cache, and what stops a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from project import Ended, Project

from evalve.simulator import Behaviour, Limits, OutputLength, Simulator, SpendCap

EVALUATION = """
    import evalve

    @evalve.foreach("question", [f"What is {n} + {n}?" for n in range(8)])
    async def eval_sums(question, model):
        answer = await model.generate(question, max_tokens=20)
        return evalve.Result(bool(answer.text), prompt=question, response=answer.text)
"""


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour()).start_in_thread() as simulator:
        yield simulator


def at(simulator: Simulator, folder: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": simulator.url,
        "ANTHROPIC_API_KEY": "sk-test-4711",
        "EVALVE_STATE_DIR": str(folder / "state"),
        "EVALVE_CACHE_DIR": str(folder / "cache"),
    }


MODEL = ("--model", "anthropic/claude-sonnet-5")


def test_the_model_fixture_is_the_model_that_was_chosen(project: Project, provider: Simulator) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest("eval_sums.py", *MODEL, "--experiment", "one", **at(provider, project.folder))

    assert ended.code == 0
    assert ended.summary[0].startswith("eval_sums[anthropic/claude-sonnet-5]  8/8 done")
    assert any("8 calls; " in line for line in ended.summary)
    assert provider.stats.requests == 8


def test_several_models_are_several_variants_with_records_of_their_own(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest(
        "eval_sums.py", *MODEL, "--model", "anthropic/claude-haiku-4-5", **at(provider, project.folder)
    )

    assert ended.outcomes == {"passed": 2}
    assert provider.stats.requests_by_model == {"claude-sonnet-5": 8, "claude-haiku-4-5": 8}


def test_calls_from_threads_of_a_sample_are_its_own_and_repeats_are_drawn_anew(
    project: Project, provider: Simulator
) -> None:
    project.write(
        "eval_draws.py",
        """
        import asyncio, threading
        from concurrent.futures import ThreadPoolExecutor
        import evalve

        POOL = ThreadPoolExecutor(2)

        @evalve.foreach("number", [1, 2])
        async def eval_draws(number, model):
            ask = lambda _=None: model.generate_sync(f"draw {number}", max_tokens=20)
            await asyncio.get_running_loop().run_in_executor(None, ask)
            await asyncio.to_thread(lambda: list(POOL.map(ask, range(2))))
            thread = threading.Thread(target=ask)
            thread.start()
            await asyncio.to_thread(thread.join)
            return True
        """,
    )

    ended = project.pytest(
        "eval_draws.py", *MODEL, "--experiment", "x", "--repeat", "3", **at(provider, project.folder)
    )

    assert ended.code == 0
    assert provider.stats.requests == 2 * 3 * 4
    shown = json.loads(project.evalve("show", "x", "--json").out)
    (evaluation,) = shown["evaluations"]
    assert [sample["calls"]["requests"] for sample in evaluation["samples"]] == [4] * 6


def test_a_second_run_pays_for_nothing(project: Project, provider: Simulator) -> None:
    project.write("eval_sums.py", EVALUATION)
    environment = at(provider, project.folder)
    project.pytest("eval_sums.py", *MODEL, "--experiment", "one", **environment)

    again = project.pytest("eval_sums.py", *MODEL, "--experiment", "two", **environment)
    without = project.pytest("eval_sums.py", *MODEL, "--experiment", "three", "--no-cache", **environment)

    assert any("8 calls, 8 of them cached" in line for line in again.summary)
    assert not any("cached" in line for line in without.summary)
    assert provider.stats.requests == 16


def test_without_a_choice_the_evaluation_says_how_to_choose(project: Project) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest("eval_sums.py")

    assert ended.code == 1
    assert "asks for a model, and none was chosen: pass --model" in ended.out


def test_the_rate_limiter_fixture_holds_the_keys_limit(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_own_client.py",
        """
        import evalve

        @evalve.foreach("n", range(3))
        async def eval_own_client(n, rate_limiter):
            await rate_limiter.acquire()
            return True

        @evalve.foreach("n", range(3))
        def eval_sync_client(n, rate_limiter):
            with rate_limiter.acquire(input_tokens=10, output_tokens=10):
                return True
        """,
    )
    environment = {**at(provider, project.folder), "ANTHROPIC_RPM_LIMIT": "6000"}

    ended = project.pytest("eval_own_client.py", **environment)
    limits = project.evalve("limits", **environment)

    assert ended.outcomes == {"passed": 2}
    assert "configured by ANTHROPIC_RPM_LIMIT" in limits.out


def test_a_spent_account_stops_the_run_at_once_and_says_why(project: Project) -> None:
    project.write("eval_sums.py", EVALUATION)
    with Simulator(Behaviour(spend_cap=SpendCap(calls=3))).start_in_thread() as simulator:
        environment = at(simulator, project.folder)
        ended = project.pytest(
            "eval_sums.py", *MODEL, "--experiment", "one", "--max-concurrency", "1", **environment
        )
        asked = simulator.stats.requests

    assert ended.code == 2
    assert any(line.strip().startswith("stopped: ") for line in ended.summary)
    assert any(line.startswith("interrupted; what was done is saved. To go on: ") for line in ended.summary)
    assert asked == 4


def test_a_budget_stops_the_run_before_it_is_exceeded(project: Project, provider: Simulator) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest(
        "eval_sums.py",
        *MODEL,
        "--max-concurrency",
        "1",
        "--budget-usd",
        "0.0006",
        **at(provider, project.folder),
    )

    assert ended.code == 2
    assert any("budget" in line for line in ended.summary)
    assert 1 <= provider.stats.requests < 8


def test_what_the_budget_does_not_allow_was_not_run_and_has_not_failed(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_sums.py", EVALUATION)
    said = (*MODEL, "--experiment", "x")

    ended = project.pytest("eval_sums.py", *said, "--budget-usd", "0.0006", **at(provider, project.folder))
    recorded = project.records("x")
    again = project.pytest("eval_sums.py", *said, **at(provider, project.folder))

    assert ended.code == 2
    assert any("the budget of 0.0006 USD is used up" in line for line in ended.summary)
    assert "failed" not in "\n".join(ended.summary)
    assert 1 <= len(recorded) < 8
    assert [record["failure"] for record in recorded] == [None] * len(recorded)
    assert again.code == 0
    assert provider.stats.requests == 8


def test_a_budget_is_for_all_evaluations_of_a_run_together(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_sums.py", EVALUATION + EVALUATION.replace("What is", "And what is").replace("_sums", "_more")
    )
    alone = project.pytest("eval_sums.py::eval_sums", *MODEL, **at(provider, project.folder))
    (cost_usd,) = [float(line.split()[-2]) for line in alone.summary if line.endswith(" USD")]

    ended = project.pytest(
        "eval_sums.py",
        *MODEL,
        "--no-cache",
        "--budget-usd",
        f"{1.5 * cost_usd + 0.0004}",
        **at(provider, project.folder),
    )

    assert ended.code == 2
    assert [line.partition(",")[0] for line in ended.summary if "8/8 done" in line] == [
        "eval_sums[anthropic/claude-sonnet-5]  8/8 done"
    ]
    assert any("is used up" in line for line in ended.summary)


def test_a_budget_that_is_spent_under_xdist_says_so(project: Project, provider: Simulator) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest(
        "eval_sums.py",
        *MODEL,
        "-n",
        "2",
        "--budget-usd",
        "0.0012",
        "--experiment",
        "x",
        **at(provider, project.folder),
    )

    assert ended.code == 2
    assert any("one of 2 shares of the budget of 0.0012 USD is used up" in line for line in ended.summary)
    assert "crashed" not in ended.all
    assert any("To go on: pytest eval_sums.py" in line for line in ended.summary)


def test_workers_share_one_keys_limit_and_nobody_is_refused(project: Project) -> None:
    project.write("eval_sums.py", EVALUATION)
    limits = Limits(requests_per_minute=1200, depth_s=1.0)
    with Simulator(Behaviour(limits=limits)).start_in_thread() as simulator:
        ended = project.pytest(
            "eval_sums.py",
            *MODEL,
            "--model",
            "anthropic/claude-sonnet-5-5",
            "-n",
            "2",
            **at(simulator, project.folder),
        )
        refused = simulator.stats.refused

    assert ended.outcomes == {"passed": 2}
    assert refused == 0


LOCKED_CACHE = """
    import os, pathlib, sqlite3
    import pytest
    from evalve.gate.cache import file

    file._WRITE_WITHIN_S = 0.1
    locking = []

    @pytest.fixture
    def locked():
        cache = pathlib.Path(os.environ["EVALVE_CACHE_DIR"], "responses.db")
        locking.append(sqlite3.connect(cache, isolation_level=None))
        locking[0].execute("BEGIN IMMEDIATE")
"""


def test_what_a_locked_cache_keeps_a_worker_from_writing_is_there_for_the_next_run(
    project: Project, provider: Simulator
) -> None:
    """Who waits at the very end of a worker is killed by xdist after ten seconds."""
    project.write("eval_sums.py", EVALUATION)
    project.pytest("eval_sums.py", "--model", "anthropic/claude-haiku-4-5", **at(provider, project.folder))
    project.write("conftest.py", LOCKED_CACHE)
    project.write("eval_sums.py", EVALUATION.replace("async def eval_sums(", "async def eval_sums(locked, "))

    ended = project.pytest("eval_sums.py", *MODEL, "-n", "1", **at(provider, project.folder))
    (project.folder / "conftest.py").unlink()
    project.write("eval_sums.py", EVALUATION)
    again = project.pytest("eval_sums.py", *MODEL, "--fresh", **at(provider, project.folder))

    assert (ended.outcomes, again.outcomes) == ({"passed": 1}, {"passed": 1}), ended.all + again.all
    assert "answers that could not be written lie in a file beside it" in ended.all
    assert provider.stats.requests == 16


def test_the_key_is_in_no_record_cache_or_output(project: Project, provider: Simulator) -> None:
    project.write("eval_sums.py", EVALUATION)

    ended = project.pytest("eval_sums.py", *MODEL, **at(provider, project.folder))

    files = [path for path in project.folder.rglob("*") if path.is_file()]
    assert ended.code == 0
    assert "sk-test-4711" not in ended.all
    assert [path for path in files if b"sk-test-4711" in path.read_bytes()] == []


ONE_IN_TEN_MINUTES = """
    limits:
      anthropic:
        rpm: 0.1
"""
ASKING = {
    "async": """
        async def eval_asks(number, model):
            begun(number)
            await model.generate(f"{number}", max_tokens=20)
            return True
    """,
    "sync": """
        def eval_asks(number, model):
            begun(number)
            try:
                model.generate_sync(f"{number}", max_tokens=20)
            except Exception:
                return False  # a stop is no failure of the call
            return True
    """,
    "sdk": """
        def eval_asks(number):
            begun(number)
            messages = [{"role": "user", "content": f"{number}"}]
            asked = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": messages}
            try:
                CLIENT.post(URL, json=asked, headers={"x-api-key": "sk", "anthropic-version": "2023-06-01"})
            except Exception:
                return False
            return True
    """,
    "loops": """
        def eval_asks(number, model):
            begun(number)
            asyncio.run(model.generate(f"{number}", max_tokens=20))
            return True
    """,
}
ASKS = """
import asyncio, os
import evalve

CLIENT, URL = evalve.http_client(), os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"

def begun(number):
    with open("calls.txt", "a") as file:
        file.write(f"{number} ")

@evalve.foreach("number", range(6))
"""


@pytest.mark.parametrize(
    ("kind", "window", "begun"),
    [
        ("async", "3", 4),
        ("async", "1", 2),
        ("sync", "3", 4),
        ("sync", "1", 2),
        ("sdk", "3", 4),
        ("sdk", "1", 2),
        ("loops", "1", 2),
    ],
)
def test_ctrl_c_ends_the_wait_for_a_limit_and_says_how_to_go_on(
    kind: str, window: str, begun: int, project: Project, provider: Simulator
) -> None:
    project.write("evalve.yaml", ONE_IN_TEN_MINUTES)
    project.write("eval_asks.py", ASKS + dedent(ASKING[kind]))
    chosen = [] if kind == "sdk" else MODEL
    arguments = ["-m", "pytest", "eval_asks.py", *chosen, "--max-concurrency", window, "--experiment", "x"]
    environment = at(provider, project.folder)

    with project.started(*arguments, **environment) as run:
        run.wait_until(lambda: len(project.read("calls.txt").split()) == begun, "calls that wait")
        run.interrupt()
        ended = run.end()

    assert ended.code == 2
    assert next(iter(project.values("x").values())) == [True]
    assert provider.stats.requests == 1  # the second would have gone ten minutes later
    assert any("To go on: " in line for line in ended.summary)

    (project.folder / "evalve.yaml").unlink()
    resumed = project.pytest(*arguments[2:], **environment)

    assert resumed.code == 0
    assert next(iter(project.values("x").values())) == [True] * 6
    assert provider.stats.requests == 6


def test_evaluations_awaited_together_keep_to_their_own_cache_mode_and_budget(
    project: Project, provider: Simulator
) -> None:
    project.write(
        "together.py",
        """
        import asyncio, json
        import evalve

        model = evalve.model("anthropic/claude-sonnet-5")

        async def ask(n):
            return bool((await model.generate(f"question {n}", max_tokens=20)).text)

        @evalve.foreach("n", range(4))
        async def eval_a(n):
            return await ask(n)

        @evalve.foreach("n", range(6))
        async def eval_b(n):
            return await ask(n)

        async def told_of(evaluation):
            try:
                calls = (await evaluation).report["calls"]
            except evalve.Interrupted:
                return "stopped"
            return [calls["requests"], calls["cached"], calls["cost_usd"] > 0]

        async def main():
            told = []
            await eval_b(experiment="warm")
            for budget_usd in (1.0, 0.0004):
                told += await asyncio.gather(
                    told_of(eval_a(experiment=f"a{budget_usd}", cache="off", budget_usd=budget_usd)),
                    told_of(eval_b(experiment=f"b{budget_usd}", cache="on")),
                    told_of(eval_b(experiment=f"c{budget_usd}", cache="refresh")),
                )
            print(json.dumps(told))

        asyncio.run(main())
        """,
    )

    ended = project.python("together.py", **at(provider, project.folder), EVALVE_PROGRESS="off")

    assert ended.code == 0, ended.err
    with_room, refused = json.loads(ended.out)[:3], json.loads(ended.out)[3:]
    assert with_room == [[4, 0, True], [0, 6, False], [6, 0, True]]
    assert refused == ["stopped", [0, 6, False], [6, 0, True]]


def test_a_fixtures_call_during_a_run_is_the_runs(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_lazy.py",
        """
        import contextvars
        import evalve

        @evalve.foreach("n", range(2))
        async def eval_lazy(n, model):
            # a call of nobody's: a client's own task may have been begun before there were samples
            await contextvars.Context().run(asyncio.ensure_future, model.generate(f"{n}", max_tokens=20))
            return True

        import asyncio
        """,
    )

    ended = project.pytest("eval_lazy.py", *MODEL, "--cache", "off", **at(provider, project.folder))
    again = project.pytest("eval_lazy.py", *MODEL, "--cache", "off", **at(provider, project.folder))

    assert (ended.code, again.code) == (0, 0)
    assert any("2 calls; " in line for line in ended.summary)
    assert provider.stats.requests == 4


def test_calls_that_pass_ungated_are_counted_and_told_of(project: Project, provider: Simulator) -> None:
    project.write(
        "eval_raw.py",
        """
        import os

        import evalve

        CLIENT = evalve.http_client()

        @evalve.foreach("n", range(3))
        def eval_raw(n):
            url = os.environ["ANTHROPIC_BASE_URL"] + "/invocations"
            return CLIENT.post(url, json={"prompt": str(n)}).status_code == 404
        """,
    )

    ended = project.pytest("eval_raw.py", **at(provider, project.folder))

    host = provider.url.removeprefix("http://")
    assert ended.code == 0
    assert any(line.strip() == "3 calls passed ungated" for line in ended.summary)
    assert sum(f"calls to {host}/invocations pass without limits" in line for line in ended.summary) == 1


FIXTURE_THAT_ASKS = """
    import pytest
    import evalve

    @pytest.fixture
    def told(model):
        return model.generate_sync("What shall be asked?", max_tokens=20).text

    @evalve.foreach("n", range(2))
    async def eval_told(n, told, model):
        return (await model.generate(f"{told} {n}", max_tokens=20)).text != ""
"""


def test_a_fixtures_call_before_a_run_keeps_to_the_cache_mode_of_the_pytest_run(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_told.py", FIXTURE_THAT_ASKS)

    def ended(mode: str) -> Ended:
        return project.pytest("eval_told.py", *MODEL, "--cache", mode, **at(provider, project.folder))

    refused = ended("read")

    assert refused.code == 1
    assert "--cache read" in refused.all
    assert provider.stats.requests == 0
    assert [ended(mode).code for mode in ("on", "read", "off")] == [0, 0, 0]
    assert provider.stats.requests == 6


def test_a_fixtures_call_before_a_run_counts_towards_the_budget_of_the_pytest_run(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_told.py", FIXTURE_THAT_ASKS)

    ended = project.pytest(
        "eval_told.py", *MODEL, "--budget-usd", "0.0000001", **at(provider, project.folder)
    )

    assert ended.code == 1
    assert "the budget of 1e-07 USD is too small" in ended.all
    assert provider.stats.requests == 0


A_CENT_FOR_EACH_TOKEN = "prices:\n  tiny: {input: 0, output: 10000}\n"


def test_what_a_broken_evaluation_has_spent_is_not_there_for_the_next(project: Project) -> None:
    project.write("evalve.yaml", A_CENT_FOR_EACH_TOKEN)
    project.write(
        "eval_both.py",
        """
        from evalve import foreach

        def breaks():
            yield from ({"n": n} for n in range(3))
            raise OSError("the disk is gone")

        @foreach("n", breaks())
        async def eval_first(n, model):
            return bool((await model.generate(f"first {n}", max_tokens=30)).text)

        @foreach("n", range(9))
        async def eval_second(n, model):
            return bool((await model.generate(f"second {n}", max_tokens=30)).text)
        """,
    )
    with Simulator(Behaviour(output=OutputLength("fixed", tokens=20))).start_in_thread() as provider:
        ended = project.pytest(
            *["eval_both.py", "--model", f"openai-compatible/tiny@{provider.url}/v1"],
            *["--budget-usd", "1.15", "--no-cache", "--max-concurrency", "1"],
            **at(provider, project.folder),
        )
        sent = provider.stats.requests

    # a call costs 0.2 USD and may cost 0.3: three of the first, and two of the second
    assert "the disk is gone" in ended.all
    assert "the budget of 1.15 USD is used up (1.0000 USD spent)" in ended.all
    assert sent == 5


def test_what_answers_did_not_state_is_forgotten_by_the_next_direct_call(project: Project) -> None:
    project.write("evalve.yaml", A_CENT_FOR_EACH_TOKEN)
    project.write(
        "direct.py",
        """
        import asyncio, os, openai, evalve

        address = os.environ["ANTHROPIC_BASE_URL"] + "/v1"
        client = openai.AsyncOpenAI(
            base_url=address, api_key="any", http_client=evalve.async_http_client()
        )

        @evalve.foreach("n", range(2))
        async def eval_streams(n):
            question = [{"role": "user", "content": f"question {n}"}]
            stream = await client.chat.completions.create(
                model="tiny", max_tokens=30, messages=question, stream=True
            )
            return len([chunk async for chunk in stream]) > 0

        async def main():
            for name in ("one", "two", "three"):
                await eval_streams(experiment=name, budget_usd=0.7, no_cache=True)

        asyncio.run(main())
        """,
    )
    with Simulator(Behaviour()).start_in_thread() as provider:
        ended = project.python("direct.py", **at(provider, project.folder), EVALVE_PROGRESS="off")
        sent = provider.stats.requests

    assert ended.code == 0, ended.all
    assert sent == 6
