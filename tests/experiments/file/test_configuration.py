"""`evalve.yaml`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from evalve.errors import OptionError
from evalve.experiments.file.configuration import Configuration, project_folder, read_configuration
from evalve.options import Options, Threshold, Tolerance

Read = Callable[[str], Configuration]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The configuration in a file with this text."""

    def read_text(text: str) -> Configuration:
        (tmp_path / "evalve.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
        return read_configuration(tmp_path)

    return read_text


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    assert read_configuration(tmp_path) == Configuration()


def test_an_empty_file_says_nothing(read: Read) -> None:
    assert read("# nothing yet\n").options == Options()


def test_options_hold_for_every_experiment(read: Read) -> None:
    configuration = read(
        """
        options:
          max_concurrency: auto
          timeout: 30
          fail_under:
            exact_match.accuracy: 0.9
          allow_failures: 5%
          fresh: off
          progress: off
        """
    )

    assert configuration.options_for("any") == Options(
        max_concurrency="auto",
        timeout_s=30.0,
        fail_under=(Threshold("exact_match.accuracy", 0.9),),
        allow_failures=Tolerance(share=0.05),
        fresh=False,
        progress="off",
    )


def test_an_experiments_own_options_go_before_those_for_all(read: Read) -> None:
    configuration = read(
        """
        options:
          samples: 10
          repeat: 2
        experiments:
          nightly:
            samples: 1000
          2026:
            samples: 3
          empty:
        """
    )

    assert configuration.options_for("nightly") == Options(samples=1000, repeat=2)
    assert configuration.options_for("2026") == Options(samples=3, repeat=2)
    assert configuration.options_for("empty") == Options(samples=10, repeat=2)
    assert configuration.options_for("other") == Options(samples=10, repeat=2)
    assert configuration.options_for(None) == Options(samples=10, repeat=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "option:\n",
            "1: unknown key 'option'; did you mean 'options'? "
            "(known: options, models, datasets, experiments, sandboxes, limits, prices, extends)",
        ),
        ("options:\n  sample: 3\n", "2: options: unknown option 'sample'; did you mean 'samples'?"),
        ("options:\n  on: 3\n", "2: options: unknown option True"),
        (
            "experiments:\n  nightly:\n    samples: many\n",
            "3: experiments.nightly: samples: needs a whole number, 0 or more; got 'many'",
        ),
        (
            "experiments:\n  nightly:\n    limt: 3\n",
            "3: experiments.nightly: unknown key 'limt'; did you mean 'limit'?",
        ),
    ],
)
def test_a_mistake_names_file_key_and_what_was_meant(
    read: Read, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(OptionError) as caught:
        read(text)

    assert str(caught.value) == f"{tmp_path / 'evalve.yaml'}:{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", ":1: must be a mapping of names to values; got list"),
        ("options: 3\n", ":1: options must be a mapping of names to values; got int"),
        ("experiments: [a]\n", ":1: experiments must be a mapping of names to values; got list"),
        ("experiments:\n  a: b\n", ":2: experiments.a must be a mapping of names to values; got str"),
    ],
)
def test_what_is_no_mapping_is_refused(read: Read, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(text)

    assert str(caught.value) == f"{tmp_path / 'evalve.yaml'}{message}"


def test_text_that_is_no_yaml_is_refused(read: Read) -> None:
    with pytest.raises(OptionError, match=r"evalve\.yaml:2: this is not valid YAML: "):
        read("options: [\n")


def test_a_file_that_cannot_be_decoded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evalve.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(OptionError, match=r"evalve\.yaml cannot be read: "):
        read_configuration(tmp_path)


def test_a_project_is_found_from_below_up_to_its_repository(tmp_path: Path) -> None:
    deep = tmp_path / "repository" / "evals" / "deep"
    deep.mkdir(parents=True)
    assert project_folder(deep) == deep
    (tmp_path / "evalve.yaml").write_text("options: {storage: up.db}\n")
    assert project_folder(deep) == tmp_path
    assert read_configuration(deep).options.storage == str(tmp_path / "up.db")
    (tmp_path / "repository" / ".git").mkdir()
    assert project_folder(deep) == deep


def test_a_folder_that_others_may_write_into_is_nobodys_project(tmp_path: Path) -> None:
    inside = tmp_path / "shared" / "inside"
    inside.mkdir(parents=True)
    (tmp_path / "shared" / "evalve.yaml").write_text("options: {samples: 1}\n")
    (tmp_path / "shared").chmod(0o777)
    assert read_configuration(inside).path is None
