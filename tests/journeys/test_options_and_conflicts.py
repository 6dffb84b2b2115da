"""Options from every door, which one wins, and what happens where another plugin wants the same name."""

from __future__ import annotations

import json

import pytest
from project import Project

COUNTS_TO_TEN = """
    from evalve import ForEach

    @ForEach(samples=9)("number", range(10))
    async def eval_ten(number):
        return True
"""


def test_the_command_line_wins_over_the_environment_over_yaml_over_the_decorator(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    yaml = "options:\n  samples: 4\nexperiments:\n  small:\n    samples: 2\n"

    def samples(*arguments: str, **environment: str) -> int:
        assert project.pytest(*arguments, **environment).code == 0
        return len(project.records())

    assert samples() == 9
    project.write("evalve.yaml", yaml)
    assert samples() == 4
    assert samples("--experiment", "small") == 2
    assert samples(EVALVE_SAMPLES="3") == 3
    assert samples("--experiment", "small2", "--samples", "5", EVALVE_SAMPLES="3") == 5
    assert samples("--limit", "6", EVALVE_EXPERIMENT="from_environment") == 6
    assert project.experiments()[0] == "from_environment"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--max-concurrency", "0"],
            "--max-concurrency: needs a whole number, 1 or more, or `auto`; got '0'",
        ),
        (["--fail-under", "accuracy"], "--fail-under: needs NAME=VALUE"),
        (["--experiment", "latest"], "--experiment: needs a name that is not empty and not `latest`"),
        (["--evalve-repeat", "0"], "--repeat: needs a whole number, 1 or more; got '0'"),
    ],
)
def test_a_bad_value_is_a_usage_error_that_says_what_is_needed(
    project: Project, arguments: list[str], said: str
) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)

    ended = project.pytest(*arguments)

    assert ended.code == 4
    assert said in ended.err
    assert "Traceback" not in ended.all
    assert not (project.folder / ".evalve").exists()


def test_bad_values_in_the_environment_and_in_yaml_name_their_place(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)

    variable = project.pytest(EVALVE_SAMPLES="few")
    project.write("evalve.yaml", "options:\n  sampels: 3\n")
    key = project.pytest()
    project.write("evalve.yaml", "experiment:\n  x: {}\n")
    top = project.pytest()
    project.write("evalve.yaml", "options: [\n")
    broken = project.pytest()

    assert [one.code for one in (variable, key, top, broken)] == [4, 4, 4, 4]
    assert "EVALVE_SAMPLES: needs a whole number, 0 or more; got 'few'" in variable.err
    assert "evalve.yaml:2: options: unknown option 'sampels'; did you mean 'samples'?" in key.err
    assert "evalve.yaml:1: unknown key 'experiment'; did you mean 'experiments'?" in top.err
    assert "evalve.yaml:2: this is not valid YAML" in broken.err


def test_a_wrong_yaml_does_not_disturb_a_project_without_evaluations(project: Project) -> None:
    project.write("evalve.yaml", "nonsense: 1\n")
    project.write("test_plain.py", "def test_plain(): pass\n")

    assert project.pytest(EVALVE_SAMPLES="few").code == 0


OWNER_OF_SHORT_NAMES = """
    def pytest_addoption(parser):
        parser.addoption("--samples", default="theirs")
        parser.addoption("--experiment", action="store_true")
        parser.addoption("--timeout", type=float)
"""
EVALUATION_BESIDE_THEM = """
    from evalve import foreach

    @foreach("number", range(10))
    async def eval_ten(number, pytestconfig):
        return pytestconfig.getoption("--samples") == "5" and pytestconfig.getoption("--experiment")
"""


@pytest.mark.parametrize("owner", ["conftest.py", "their_plugin.py"])
def test_where_others_own_the_short_names_pytest_still_works_and_ours_have_a_prefix(
    project: Project, owner: str
) -> None:
    project.write(owner, OWNER_OF_SHORT_NAMES)
    project.write("eval_ten.py", EVALUATION_BESIDE_THEM)
    plugin = [] if owner == "conftest.py" else ["-p", "their_plugin"]

    ended = project.pytest(
        *plugin,
        *("--samples", "5", "--experiment"),
        *("--evalve-samples", "3", "--evalve-experiment", "x", "--fail-under", "accuracy=1"),
        PYTHONPATH=str(project.folder),
    )

    assert ended.outcomes == {"passed": 1}, ended.all
    assert len(project.records("x")) == 3


def test_short_names_are_no_paths_and_defaults_in_the_ini_file_count(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    project.write("sub/eval_ten.py", "raise RuntimeError('not asked for')")
    project.write("pytest.ini", "[pytest]\naddopts = --samples 2 --experiment sub\n")

    ended = project.pytest("eval_ten.py", "--max-concurrency", "auto", "--storage=x.db")

    assert ended.outcomes == {"passed": 1}, ended.all
    assert len(project.records("sub", at="x.db")) == 2


def test_help_lists_the_options(project: Project) -> None:
    ended = project.pytest("--help")

    assert ended.code == 0
    assert "--evalve-experiment=NAME" in ended.out
    assert "--samples, --limit=N" in ended.out or "--samples=N, --limit=N" in ended.out  # 3.13, and before
    assert "EVALVE" not in ended.err


def test_strict_configuration_accepts_our_mark(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)

    ended = project.pytest("--strict-markers", "--strict-config", "-W", "error", "--import-mode=importlib")

    assert ended.outcomes == {"passed": 1}, ended.all


def test_conftest_files_above_the_project_stay_out_of_it(project: Project) -> None:
    project.write("conftest.py", "raise RuntimeError('this one belongs to the folder above')\n")
    inner = Project(project.folder / "inner")
    inner.write(
        "eval_a.py",
        """
        import evalve

        @evalve.foreach("n", [1])
        def eval_a(n):
            return True
        """,
    )

    ended = inner.pytest("eval_a.py", "--experiment", "one")

    assert ended.outcomes == {"passed": 1}


MISSPELT = (
    "evalve: EVALVE_MAX_CONCURENCY is no variable of evalve and changes nothing; "
    "did you mean EVALVE_MAX_CONCURRENCY?"
)


@pytest.mark.parametrize("arguments", [[], ["-q"], ["-W", "error"], ["-n", "2"]])
def test_a_misspelt_variable_is_told_once_and_stops_nothing(project: Project, arguments: list[str]) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    project.write("eval_more.py", COUNTS_TO_TEN)

    ended = project.pytest(*arguments, EVALVE_MAX_CONCURENCY="5")

    assert (ended.code, ended.outcomes) == (0, {"passed": 2})
    assert ended.all.splitlines().count(MISSPELT) == 1


def test_a_known_variable_is_not_told_about(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)

    ended = project.pytest(EVALVE_MAX_CONCURRENCY="5", EVALVE_LIMITS_127_0_0_1_80_RPM="6")

    assert "no variable of evalve" not in ended.all


def test_every_command_tells_about_a_misspelt_variable_once_on_standard_error(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)

    listed = project.evalve("list", "--json", EVALVE_MAX_CONCURENCY="5")
    ran = project.evalve("run", EVALVE_MAX_CONCURENCY="5")

    assert (listed.code, listed.err.splitlines()) == (0, [MISSPELT])
    assert (ran.code, ran.all.splitlines().count(MISSPELT)) == (0, 1)


def test_a_direct_call_tells_about_a_misspelt_variable_once(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    project.write(
        "direct.py", "import evalve, eval_ten\nfor _ in range(2):\n    evalve.run(eval_ten.eval_ten)\n"
    )

    ended = project.python("direct.py", EVALVE_MAX_CONCURENCY="5")

    assert ended.code == 0
    assert ended.err.splitlines().count(MISSPELT) == 1


def test_a_misspelt_limit_is_told_where_only_a_model_is_opened(project: Project) -> None:
    project.write(
        "asks.py", "import evalve\nfor _ in range(2):\n    evalve.model('openai/gpt-5', api_key='k')\n"
    )

    ended = project.python("asks.py", EVALVE_LIMITS_OPENAI_RMP="5")

    assert ended.code == 0
    assert ended.err.count("EVALVE_LIMITS_OPENAI_RMP is no variable of evalve") == 1


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        (["pytest"], ["--trace", "off"]),
        (["pytest"], ["--evalve-trace=off"]),
        (["evalve", "run"], ["--trace", "off"]),
        (["evalve", "run"], ["--trace=off"]),
    ],
)
def test_trace_with_a_value_is_ours_although_pytest_has_a_switch_of_that_name(
    program: list[str], flags: list[str], project: Project
) -> None:
    project.write(
        "eval_noting.py",
        """
        import evalve

        @evalve.foreach("number", range(1))
        def eval_noting(number):
            evalve.trace("a note")
            return True
        """,
    )

    ended = getattr(project, program[0])(*program[1:], "eval_noting.py", *flags, "--experiment", "x")

    assert ended.outcomes == {"passed": 1}, ended.all
    assert json.loads(project.evalve("export", "x", "--trace").out)["trace"] == []


def test_fewer_samples_than_rows_are_told_as_such(project: Project) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    first = project.pytest("--samples", "2", "--experiment", "few")
    again = project.pytest("--samples", "2", "--experiment", "few")
    every = project.pytest("--samples", "10", "--experiment", "few")

    assert first.summary[0].startswith("eval_ten  2/2 done of the first 2 of 10 rows")
    assert "experiment 'few' has what was asked for: nothing was left to run" in again.out
    assert every.summary[0].startswith("eval_ten  10/10 done, 2 of them before")
    project.pytest("--samples", "3", "--experiment", "three")
    assert "; asked for: the first 3 rows\n" in project.evalve("show", "three").out


def test_an_iterator_that_ends_before_the_samples_asked_for_is_told_as_whole(project: Project) -> None:
    project.write(
        "eval_two.py",
        """
        from evalve import foreach

        @foreach("n", iter([1, 2]))
        def eval_two(n):
            return True
        """,
    )

    told = project.pytest("--samples", "5", "--experiment", "all").summary[0]

    assert told.startswith("eval_two  2/2 done, ")


@pytest.mark.parametrize(
    "arguments", [["--concurrent"], ["--concurrent", "eval_ten.py"], ["--concurrent", "3"]]
)
def test_concurrent_is_a_number_or_a_switch(project: Project, arguments: list[str]) -> None:
    project.write("eval_ten.py", COUNTS_TO_TEN)
    assert project.pytest(*arguments).outcomes == {"passed": 1}
