"""What a person sees after a mistake: what is wrong and what to do, once; never a key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from project import Project

from evalve.simulator import Behaviour, Simulator

SECRETS = ("4711KEY", "4711GATEWAY", "4711PASSWORD", "4711QUERY")
EVERYTHING = ("-l", "-vv", "--tb=long", "--showlocals")

EVALUATION = """
    import evalve

    @evalve.foreach("n", range(3))
    async def eval_numbers(n, model):
        answer = await model.generate(f"Say {n}")
        return bool(answer.text)
"""


@pytest.fixture
def strict_provider() -> Iterator[Simulator]:
    """Knows another key than ours."""
    with Simulator(Behaviour(keys=frozenset({"another"}))).start_in_thread() as simulator:
        yield simulator


def environment(folder: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "sk-4711KEY",
        "OPENAI_API_KEY": "sk-4711KEY",
        "GATEWAY_KEY": "4711GATEWAY",
        "MODEL_WITH_PASSWORD": "openai-compatible/m@http://me:4711PASSWORD@h/v1?key=4711QUERY",
        "EVALVE_STATE_DIR": str(folder / "state"),
        "EVALVE_CACHE_DIR": str(folder / "cache"),
    }


def secrets_in(project: Project, output: str) -> list[str]:
    """Where a secret is: in the output, or in a file that was written."""
    found = [secret for secret in SECRETS if secret in output]
    for path in project.folder.rglob("*"):
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in SECRETS):
            found.append(str(path))
    return found


# -- keys


def test_no_key_is_shown_whatever_goes_wrong(project: Project, strict_provider: Simulator) -> None:
    project.write(
        "test_mistakes.py",
        """
        import os

        import anthropic
        import evalve

        URL = os.environ["STRICT_URL"]

        def test_no_such_provider():
            evalve.model("foo/bar")

        def test_password_in_the_name():
            evalve.model(os.environ["MODEL_WITH_PASSWORD"])

        def test_password_in_the_address():
            evalve.limiter("openai/m", base_url=os.environ["MODEL_WITH_PASSWORD"].partition("@")[2])

        def test_key_is_refused():
            evalve.model("anthropic/m", base_url=URL).generate_sync("hi")

        def test_key_of_openai_is_refused():
            evalve.model(
                "openai/m", base_url=URL + "/v1", headers={"x-gateway": os.environ["GATEWAY_KEY"]}
            ).generate_sync("hi")

        def test_nobody_is_there():
            model = evalve.model("openai/m", api_key="sk-" + "4711" + "KEY", base_url="http://127.0.0.1:9")
            model.generate_sync("hi", timeout_s=1)

        def test_not_json():
            evalve.model("anthropic/m", base_url=URL).generate_sync("hi", strange=object())

        def test_key_of_an_sdk_is_refused():
            client = anthropic.Anthropic(base_url=URL, http_client=evalve.http_client())
            client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        """,
    )

    ended = project.pytest(
        *EVERYTHING,
        "-p",
        "no:cacheprovider",
        "--junitxml=junit.xml",
        "test_mistakes.py",
        **environment(project.folder),
        STRICT_URL=strict_provider.url,
    )

    assert ended.outcomes == {"failed": 8}
    assert secrets_in(project, ended.all) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"EVALVE_MODEL": "foo/bar"},
        {"EVALVE_MODEL": "openai-compatible/m@http://me:4711PASSWORD@h/v1?key=4711QUERY"},
        {"EVALVE_MODEL": "anthropic/m", "ANTHROPIC_BASE_URL": "http://me:4711PASSWORD@h"},
        {"EVALVE_MODEL": "anthropic/m", "EVALVE_CACHE_SIZE": "banana"},
    ],
    ids=["model", "password in the name", "password in the address", "cache size"],
)
def test_no_key_is_shown_by_an_evaluation_that_cannot_begin(project: Project, wrong: dict[str, str]) -> None:
    project.write("eval_numbers.py", EVALUATION)

    ended = project.pytest(*EVERYTHING, "eval_numbers.py", **{**environment(project.folder), **wrong})

    assert ended.code != 0
    assert secrets_in(project, ended.all) == []


# -- bad values


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"EVALVE_MODEL": "foo"}, "'foo' does not name a model"),
        (
            {"EVALVE_MODEL": "anthropic/m", "ANTHROPIC_BASE_URL": "foo"},
            "'anthropic/m': 'foo' is not an address",
        ),
        ({"EVALVE_CACHE_SIZE": "banana"}, "EVALVE_CACHE_SIZE: needs a size such as 500MB or 5GB, or none"),
        ({"EVALVE_PRICES": "/nope"}, "EVALVE_PRICES=/nope cannot be read as JSON or YAML"),
        ({"EVALVE_BUDGET_USD": "abc"}, "EVALVE_BUDGET_USD: needs an amount in USD, 0 or more; got 'abc'"),
        ({"EVAL_USE_CACHE": "banana"}, "EVAL_USE_CACHE: needs true or false; got 'banana'"),
        ({"EVALVE_LIMITS_STATE": "disk"}, "EVALVE_LIMITS_STATE: needs memory, or nothing"),
        ({"ANTHROPIC_RPM_LIMIT": "x"}, "ANTHROPIC_RPM_LIMIT: needs a number a minute above 0"),
        ({"EVALVE_LIMITS_10_0_0_7_8080_RPM": "x"}, "EVALVE_LIMITS_10_0_0_7_8080_RPM: needs a number"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_bad_value_is_told_once_before_anything_runs(
    project: Project, wrong: dict[str, str], told: str
) -> None:
    project.write("eval_numbers.py", EVALUATION)

    ended = project.pytest("eval_numbers.py", **wrong)

    assert ended.code == 4
    assert ended.err.startswith("ERROR: ")
    assert told in ended.err.splitlines()[0]
    assert ended.err.count("\n") <= 2
    assert "Traceback" not in ended.all and ".py:" not in ended.all


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        (
            "limits: {anthropic: {rmp: 5}}",
            "evalve.yaml:1: limits.anthropic: unknown key 'rmp'; did you mean",
        ),
        ("limits: {anthropic: 5}", "evalve.yaml:1: limits.anthropic must be a mapping"),
        (
            "prices: {m: {input: much, output: 1}}",
            "evalve.yaml:1: prices.m.input: needs USD per million",
        ),
        ("options: {model: foo/bar}", "'foo/bar' does not name a model"),
    ],
)
def test_a_bad_value_in_evalve_yaml_is_told_the_same_way(project: Project, yaml: str, told: str) -> None:
    project.write("eval_numbers.py", EVALUATION)
    project.write("evalve.yaml", yaml)

    ended = project.pytest("eval_numbers.py")

    assert ended.code == 4
    assert ended.err.startswith("ERROR: ")
    assert told in ended.err.splitlines()[0]


def test_a_bad_model_is_told_once_by_xdist_too(project: Project) -> None:
    project.write("eval_numbers.py", EVALUATION)

    ended = project.pytest("eval_numbers.py", "-n", "2", "--model", "foo/bar")

    assert ended.code == 4
    assert ended.all.count("does not name a model") == 1


def test_bad_values_for_calls_do_not_concern_tests_that_make_none(project: Project) -> None:
    project.write("test_plain.py", "def test_plain(): pass")

    ended = project.pytest(EVALVE_MODEL="foo", EVALVE_CACHE_SIZE="banana")

    assert ended.outcomes == {"passed": 1}


def test_what_only_a_fixture_can_know_is_a_failure_without_a_traceback(project: Project) -> None:
    project.write(
        "test_own_choice.py",
        """
        import pytest

        @pytest.mark.parametrize("model", ["antropic/m"], indirect=True)
        def test_model(model):
            pass

        def test_limiter(rate_limiter):
            pass
        """,
    )

    ended = project.pytest("test_own_choice.py", ANTHROPIC_BASE_URL="foo")

    assert ended.outcomes == {"errors": 2}
    assert "test_model[antropic/m]: 'antropic/m' does not name a model; did you mean" in ended.out
    assert "rate_limiter: 'anthropic/claude-sonnet-5': 'foo' is not an address" in ended.out
    assert "plugin/hooks.py" not in ended.out


def test_a_model_that_is_chosen_twice_is_asked_once(project: Project) -> None:
    project.write("eval_numbers.py", EVALUATION)

    ended = project.pytest(
        "eval_numbers.py", "--collect-only", "-q", "--model", "anthropic/m", "--model", "anthropic/m"
    )

    assert ended.out.splitlines()[0] == "eval_numbers.py::eval_numbers[anthropic/m]"
    assert "1 test collected" in ended.out


# -- warnings


@pytest.fixture
def provider() -> Iterator[Simulator]:
    with Simulator(Behaviour()).start_in_thread() as simulator:
        yield simulator


def asking(provider: Simulator, folder: Path) -> dict[str, str]:
    return {
        **environment(folder),
        "EVALVE_MODEL": "anthropic/claude-sonnet-5",
        "ANTHROPIC_BASE_URL": provider.url,
    }


def damage_answers(cache: Path) -> None:
    with closing(sqlite3.connect(cache / "responses.db")) as database, database:
        database.execute("update entries set body = x'00112233'")


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_damaged_answers_are_misses_with_one_warning_in_the_summary(
    project: Project, provider: Simulator, workers: tuple[str, ...]
) -> None:
    project.write("eval_numbers.py", EVALUATION)
    around = asking(provider, project.folder)
    project.pytest("eval_numbers.py", "--experiment", "one", **around)
    damage_answers(project.folder / "cache")

    ended = project.pytest("eval_numbers.py", "--experiment", "two", *workers, **around)

    warnings = [line for line in ended.summary if line.startswith("warning: ")]
    assert ended.outcomes == {"passed": 1}
    assert provider.stats.requests == 6
    assert len(warnings) == 1
    assert "is damaged and counts as missing" in warnings[0]
    assert warnings[0].endswith("(and 2 more of this kind)")


def test_directories_that_cannot_be_used_are_warned_of_although_all_passes(
    project: Project, provider: Simulator
) -> None:
    project.write("eval_numbers.py", EVALUATION)
    file = project.write("file", "")
    around = asking(provider, project.folder) | {
        "EVALVE_CACHE_DIR": str(file),
        "EVALVE_STATE_DIR": str(file),
    }

    ended = project.pytest("eval_numbers.py", **around)

    warnings = [line for line in ended.summary if line.startswith("warning: ")]
    assert ended.outcomes == {"passed": 1}
    assert any("limits hold for this process alone" in line for line in warnings)
    assert any("the response cache cannot be used" in line for line in warnings)
    assert len(warnings) == 2


def test_a_call_that_had_no_key_is_not_counted(project: Project) -> None:
    project.write("eval_numbers.py", EVALUATION)
    around = environment(project.folder) | {"ANTHROPIC_API_KEY": "", "EVALVE_MODEL": "anthropic/m"}

    ended = project.pytest("eval_numbers.py", **around)

    assert "anthropic/m needs an API key: set ANTHROPIC_API_KEY" in ended.out
    assert any(line.startswith("  0 calls; ") for line in ended.summary)


def test_a_repr_that_leaves_the_program_ends_nothing(project: Project) -> None:
    project.write(
        "eval_a.py",
        """
        from evalve import Result, foreach

        class Leaving:
            def __repr__(self):
                raise SystemExit(3)

        @foreach("number", range(2))
        def eval_a(number):
            return Result(True, response={"made": Leaving()})
        """,
    )

    ended = project.pytest()

    assert ended.code == 0
    assert ended.outcomes == {"passed": 1}
