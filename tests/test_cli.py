"""The command line: what it prints, where, and its exit codes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from evalve.cli import main
from evalve.errors import OptionError
from evalve.plugin.run import pytest_arguments
from evalve.storage import open_store
from recorded import done, failed, record


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("EVALVE_STORAGE", raising=False)
    return tmp_path


@pytest.fixture
def records(project: Path) -> Path:
    """Two experiments in the default place."""
    store = open_store(project / ".evalve" / "evalve.db")
    record(store, "baseline", *(done(f"s{number}", exact_match=True) for number in range(9)), failed("s9"))
    record(store, "candidate", *(done(f"s{number}", exact_match=False) for number in range(10)))
    store.close()
    return project


def test_list_and_show_read_the_default_store(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("candidate   complete  10/10       0")

    assert main(["show", "baseline"]) == 0
    assert "  exact_match  accuracy  1.000 [0.70, 1.00]    9" in capsys.readouterr().out.splitlines()


def test_json_is_on_stdout_alone(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == ["candidate", "baseline"]

    assert main(["show", "latest", "--json", "--limit", "1"]) == 0
    assert len(json.loads(capsys.readouterr().out)["evaluations"][0]["samples"]) == 1

    assert main(["compare", "baseline", "candidate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluations"][0]["evaluators"][0]["n_paired"] == 9


@pytest.mark.parametrize("arguments", [["--storage", "x.db", "list"], ["list", "--storage", "x.db"]])
def test_storage_may_stand_before_or_after_the_verb(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    store = open_store(project / "x.db")
    record(store, "elsewhere", done("s0", exact_match=True))
    store.close()

    assert main(arguments) == 0
    assert "elsewhere" in capsys.readouterr().out


def test_storage_may_come_from_the_environment(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(project / "x.db")
    record(store, "elsewhere", done("s0", exact_match=True))
    store.close()
    monkeypatch.setenv("EVALVE_STORAGE", "x.db")

    assert main(["show", "elsewhere"]) == 0


def test_storage_is_looked_for_as_a_run_does(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("typed", "variable", "yaml", "own"):
        store = open_store(project / f"{name}.db")
        record(store, f"in-{name}", done("s0", exact_match=True))
        store.close()
    (project / "evalve.yaml").write_text(
        "options: {storage: yaml.db}\nexperiments: {in-own: {storage: own.db}}\n"
    )

    assert main(["show", "in-yaml"]) == 0
    assert main(["show", "in-own"]) == 0
    monkeypatch.setenv("EVALVE_STORAGE", "variable.db")
    assert main(["show", "in-variable"]) == 0
    assert main(["show", "in-typed", "--storage", "typed.db"]) == 0


def test_experiments_that_are_kept_in_two_storages_cannot_be_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "evalve.yaml").write_text("experiments: {b: {storage: b.db}}\n")

    assert main(["compare", "a", "b"]) == 4
    assert (
        "keeps 'a' in .evalve/evalve.db, 'b' in b.db: one storage must hold both" in capsys.readouterr().err
    )


def test_a_name_that_begins_with_a_dash_stands_after_two(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(project / "x.db")
    record(store, "-name", done("s0", exact_match=True))
    store.close()

    assert main(["show", "--storage", "x.db", "--errors", "--", "-name"]) == 0
    assert main(["rename", "--storage", "x.db", "--", "-name", "name"]) == 0


def test_nothing_recorded_yet_is_an_empty_list_but_a_wrong_storage_is_an_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"]) == 0
    assert "no experiments yet" in capsys.readouterr().out
    assert not (project / ".evalve").exists()

    assert main(["list", "--storage", "nowhere.db"]) == 1
    assert "nowhere.db: nothing has been recorded here yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["shwo"], 4, "evalve: unknown command 'shwo'; did you mean 'show'?\n"),
        (["show", "basline"], 1, "did you mean 'baseline'?\n"),
        (["compare", "baseline", "candidat"], 1, "did you mean 'candidate'?\n"),
        (
            ["export", "baseline", "-o", "x.xls"],
            4,
            "use .json, .jsonl, .csv, .parquet\n",
        ),
        (["delete", "nothing", "--yes"], 1, "`evalve list` shows those that exist\n"),
        (
            ["rename", "baseline", "latest"],
            4,
            "not empty and not `latest`; got 'latest'\n",
        ),
        (["rename", "baseline", "candidate"], 1, "there is already an experiment 'candidate'"),
        (["show", "baseline", "--limit", "few"], 4, "needs a whole number, 0 or more; got 'few'\n"),
        (["show"], 4, "NAME|latest\n"),
        (
            ["show", "baseline", "--class", "provider", "--failed"],
            4,
            "samples that broke: leave out --failed\n",
        ),
        (["show", "baseline", "--class", "providers"], 4, "invalid choice: 'providers' (choose from"),
    ],
)
def test_mistakes_have_an_exit_code_and_one_line_that_helps(
    records: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert main(arguments) == code

    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_a_regression_fails_only_where_that_is_asked_for(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "baseline", "candidate"]) == 0
    assert "B is worse than A" in capsys.readouterr().out
    assert main(["compare", "baseline", "candidate", "--fail-on-regression"]) == 1
    assert main(["compare", "candidate", "baseline", "--fail-on-regression"]) == 0


def test_a_check_that_cannot_say_has_an_exit_code_that_pytest_does_not_use(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_store(records / ".evalve" / "evalve.db")) as store:
        record(store, "small", *(done(f"s{number}", exact_match=True) for number in range(3)))

    assert main(["compare", "baseline", "small", "--fail-on-regression"]) == 6
    assert "regression check: insufficient" in capsys.readouterr().out


def test_compare_takes_two_experiments_or_one_and_a_parameter(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "baseline"]) == 4
    assert "compare needs two experiments, or one and --across PARAMETER" in capsys.readouterr().err
    assert main(["compare", "baseline", "candidate", "--across", "model"]) == 4
    with closing(open_store(records / ".evalve" / "evalve.db")) as store:
        for name in ("one", "two"):
            samples = [done(f"s{number}", exact_match=True) for number in range(9)]
            record(store, "models", *samples, name=f"eval_math[{name}]", variant={"model": name})
    assert main(["compare", "models", "--across", "model"]) == 0
    assert "B  models, model=two" in capsys.readouterr().out


def test_export_writes_a_file_or_lines_on_stdout(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "baseline", "-o", "x.jsonl"]) == 0
    assert capsys.readouterr().out == "wrote 10 rows to x.jsonl\n"

    assert main(["export", "baseline"]) == 0
    assert capsys.readouterr().out == (records / "x.jsonl").read_text(encoding="utf-8")

    assert main(["export", "baseline", "-o", "x.json"]) == 0
    assert capsys.readouterr().out == "wrote 10 rows to x.json\n"
    assert main(["export", "baseline", "--json"]) == 0
    assert capsys.readouterr().out == (records / "x.json").read_text(encoding="utf-8")
    assert main(["export", "baseline", "--json", "-o", "x.json"]) == 4


def test_rename_and_delete(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rename", "baseline", "reference"]) == 0
    assert main(["delete", "candidate", "--yes"]) == 0
    assert capsys.readouterr().out == "baseline is now reference\ndeleted candidate with its 10 records\n"

    main(["list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["reference"]


def test_delete_asks_on_a_terminal_and_otherwise_wants_yes(
    records: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["delete", "baseline"]) == 4
    assert "say --yes to delete" in capsys.readouterr().err

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["", "y"])
    monkeypatch.setattr("builtins.input", lambda question: next(answers))
    assert main(["delete", "baseline"]) == 1
    assert "nothing was deleted" in capsys.readouterr().err
    assert main(["delete", "baseline"]) == 0


def test_init_writes_a_first_evaluation_and_never_over_anything(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".gitignore").write_text("*.pyc", encoding="utf-8")

    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "wrote  eval_first.py",
        "added  .evalve/ to .gitignore",
        "",
        "Type next:",
        "  pytest eval_first.py --experiment first   run it: ten samples at a time",
    ]
    assert (project / ".gitignore").read_text(encoding="utf-8") == "*.pyc\n.evalve/\n"
    ast.parse((project / "eval_first.py").read_text(encoding="utf-8"))

    (project / "eval_first.py").write_text("# mine", encoding="utf-8")
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "kept   eval_first.py (it exists already; nothing in it was changed)",
        "kept   .gitignore (.evalve/ is in it already)",
    ]
    assert (project / "eval_first.py").read_text(encoding="utf-8") == "# mine"
    assert (project / ".gitignore").read_text(encoding="utf-8") == "*.pyc\n.evalve/\n"


def test_init_in_another_directory_makes_it_and_says_to_go_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "new/place"]) == 0

    assert (project / "new" / "place" / "eval_first.py").exists()
    assert "  cd new/place\n" in capsys.readouterr().out


def test_run_passes_everything_on_to_pytest(project: Path) -> None:
    (project / "eval_a.py").touch()
    arguments = ["eval_a.py::eval_one", "-k", "not slow", "--experiment", "first", "-x"]

    assert pytest_arguments(arguments) == arguments


def test_run_without_a_file_takes_every_evaluation_from_here_down(project: Path) -> None:
    (project / "first").mkdir()  # also the name of an experiment, which is no file

    assert pytest_arguments(["--experiment", "first"]) == [
        ".",
        "-o",
        "python_files=eval_*.py",
        "--experiment",
        "first",
    ]


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("eval_mth.py::eval_one", "did you mean 'eval_math.py::eval_one'?"),
        ("eval_math", "did you mean 'eval_math.py'?"),
        ("math.py", "did you mean 'eval_math.py'?"),
        ("zzzzz.py", "evaluations beside it: eval_math.py"),
        ("nowhere/x.py", "`evalve init` writes a first evaluation"),
    ],
)
def test_a_file_that_does_not_exist_is_told_with_a_suggestion(
    project: Path, argument: str, hint: str
) -> None:
    (project / "eval_math.py").touch()

    with pytest.raises(OptionError) as caught:
        pytest_arguments([argument])

    assert str(caught.value) == f"no file {argument.split('::')[0]!r}; {hint}"


def test_run_ends_with_the_exit_code_of_pytest(project: Path) -> None:
    (project / "test_a.py").write_text("def test_a(): assert False", encoding="utf-8")
    command = [sys.executable, "-m", "evalve.cli", "run", "test_a.py", "-p", "no:cacheprovider"]

    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "1 failed" in ended.stdout
    assert "warning" not in ended.stdout


def test_a_reader_that_has_seen_enough_is_no_error(records: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "evalve.cli", "export", "baseline"]
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_the_encoding_lacks_is_written_out(records: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "evalve.cli", "show", "baseline"]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "baseline \\xb7 complete" in ended.stdout


def test_the_version_is_told_without_heavy_imports() -> None:
    program = (
        "import sys; from evalve.cli import main; code = main(['--version']);"
        "heavy = {'pytest', 'psutil', 'yaml', 'pyarrow', 'pandas', 'aiohttp', 'evalve.gate'};"
        "print(code, sorted(heavy & set(sys.modules)))"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    version, rest = ended.stdout.splitlines()
    assert version.startswith("evalve ")
    assert rest == "0 []"


_EVERY_VERB = (
    "run",
    "init",
    "list",
    "show",
    "compare",
    "export",
    "rename",
    "delete",
    "limits",
    "cache",
    "simulate",
)


def test_help_names_every_command_and_the_difference_between_errors_and_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    general = capsys.readouterr().out
    assert all(verb in general for verb in _EVERY_VERB)

    assert main(["show", "--help"]) == 0
    particular = " ".join(capsys.readouterr().out.split())
    assert "only samples that broke (an exception, a timeout): no score" in particular
    assert "only samples that were scored and are wrong (false or 0; true where less is better)" in particular


def test_run_has_a_help_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert "evalve run [FILE[::NAME] ...] [pytest options]" in capsys.readouterr().out


# -- one sample


def test_show_with_a_sample_shows_it_alone(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "baseline", "s9"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "baseline · eval_math · s9",
        "  status    failed (code)",
    ]

    assert main(["show", "baseline", "s9", "--json"]) == 0
    assert [one["sample_id"] for one in json.loads(capsys.readouterr().out)] == ["s9"]


def test_a_sample_that_is_not_there_is_an_error(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "baseline", "nope"]) == 1
    assert capsys.readouterr().err == (
        "evalve: experiment 'baseline' has no record of a sample 'nope'; "
        "`evalve show baseline` lists its samples\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show", "baseline", "--repeat", "1"], "--repeat belongs to one sample"),
        (["show", "baseline", "--save", "out"], "--save belongs to one sample"),
        (["show", "baseline", "s9", "--errors"], "--errors chooses among samples"),
        (["show", "baseline", "s9", "--limit", "3"], "--limit chooses among samples"),
        (["show", "baseline", "s9", "--class", "code"], "--class chooses among samples"),
        (["show", "baseline", "s9", "--save", "out", "--json"], "--save writes files and --json shows"),
        (["export", "baseline", "--trace", "--canonical"], "--canonical leaves out what differs"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    arguments: list[str], told: str, records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 4
    assert told in capsys.readouterr().err


def test_export_writes_traces_on_request(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "baseline", "--trace"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["trace"] == []

    assert main(["export", "baseline"]) == 0
    assert "trace" not in json.loads(capsys.readouterr().out.splitlines()[0])


def test_several_experiments_are_deleted_by_name_and_pattern(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["delete", "cand*", "baseline", "candidate", "--yes"]) == 0
    assert capsys.readouterr().out == (
        "deleted candidate with its 10 records\ndeleted baseline with its 10 records\n"
    )
    assert main(["delete", "x*", "--yes"]) == 1
    assert "no experiment fits 'x*'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        (["cand*"], ["candidate"]),
        (["--name", "line"], ["baseline"]),
        (["--status", "running"], []),
    ],
)
def test_list_shows_only_what_is_asked_for(
    asked: list[str], listed: list[str], records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", *asked, "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == listed


def test_an_unknown_option_is_told_with_the_usage_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "x", "--formt", "csv"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("usage: evalve export ")
    assert said.endswith("evalve export: error: unrecognized arguments: --formt csv\n")
