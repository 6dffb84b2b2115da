"""`sandboxes:` of the file: what is wrong with it, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalve.errors import OptionError
from evalve.experiments.file.configuration import read_configuration
from evalve.experiments.parts.sandboxes import postgres_of_project
from evalve.experiments.validation import validated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schema.sql").write_text("CREATE TABLE a (id int);")
    return tmp_path


def test_the_files_lie_beside_the_one_that_names_them(folder: Path) -> None:
    (folder / "evalve.yaml").write_text(
        "sandboxes: {postgres: {schema: schema.sql, volatile: a.id, size: 3}}"
    )
    (folder / "below").mkdir()

    assert postgres_of_project(folder / "below").settings == postgres_of_project(folder).settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sandboxes:\n  postgres:\n    schema: a.sql\n    url: postgresql://me:pw@host/db\n",
            r"evalve.yaml:4: sandboxes.postgres: url has a password in it.* url: \$\{DATABASE_URL\}",
        ),
        (
            "sandboxes:\n  postgres:\n    shema: a.sql\n",
            r"evalve.yaml:3: sandboxes.postgres: unknown key 'shema'; did you mean 'schema'\?",
        ),
        ("sandboxes:\n  postgres: {seed: a.sql}\n", r"evalve.yaml:2: sandboxes.postgres lacks `schema:`"),
        (
            "sandboxes:\n  postgre: {schema: a.sql}\n",
            r"evalve.yaml:2: .*'postgre'; did you mean 'postgres'\?",
        ),
        ("sandboxes: {postgres: {schema: a.sql, size: 0}}", r"size: needs a whole number, 1 or more; got 0"),
    ],
)
def test_mistakes_are_told_with_their_lines(folder: Path, text: str, message: str) -> None:
    (folder / "evalve.yaml").write_text(text)
    with pytest.raises(OptionError, match=message) as told:
        read_configuration(folder)
    assert "pw" not in str(told.value)


def test_validating_names_files_that_are_not_there(folder: Path) -> None:
    (folder / "evalve.yaml").write_text("sandboxes:\n  postgres:\n    schema: schema.sql\n    seed: no.sql\n")
    report = validated(folder)
    assert [str(one) for one in report.errors] == [
        f"{folder}/evalve.yaml:4: sandboxes.postgres: seed: there is no file 'no.sql'"
    ]


def test_a_variable_that_is_not_set_is_told(folder: Path) -> None:
    (folder / "evalve.yaml").write_text("sandboxes: {postgres: {schema: schema.sql, url: '${NO_SUCH_URL}'}}")
    with pytest.raises(OptionError, match="the variable NO_SUCH_URL is not set"):
        postgres_of_project(folder)


@pytest.mark.parametrize("text", ["options: {}\n", None])
def test_a_project_without_a_sandbox_is_told_what_to_write(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / "evalve.yaml").write_text(text)
    with pytest.raises(
        OptionError, match=r"evalve.yaml does not say which database to lend; write:\n\nsandboxes:"
    ):
        postgres_of_project(folder)
