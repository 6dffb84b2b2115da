"""What a workspace begins with."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from evalve.errors import DeclarationError
from evalve.sandboxes.seeds import Seed


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / "src" / "main.py").write_text("print(1)\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "empty").mkdir()
    return root


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


def copied(seed: Seed, target: Path) -> dict[str, str]:
    """Name → text of every file that was copied; a directory ends with a slash, a link has an arrow."""
    seed.copy(target)
    found = {}
    for path in sorted(target.rglob("*")):
        name = str(path.relative_to(target))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[f"{name}/"] = ""
        else:
            found[name] = path.read_text()
    return found


def test_without_files_it_is_empty(target: Path) -> None:
    assert copied(Seed(None), target) == {}


def test_of_a_directory_the_content_is_copied(repository: Path, target: Path) -> None:
    assert copied(Seed(repository), target) == {
        "empty/": "",
        "run.sh": "#!/bin/sh\n",
        "src/": "",
        "src/main.py": "print(1)\n",
    }


def test_paths_of_a_list_are_copied_under_their_own_names(repository: Path, target: Path) -> None:
    seed = Seed([repository / "src", repository / "run.sh"])

    assert copied(seed, target) == {"run.sh": "#!/bin/sh\n", "src/": "", "src/main.py": "print(1)\n"}


def test_names_may_have_texts_bytes_and_paths(repository: Path, target: Path) -> None:
    seed = Seed({"notes/a.txt": "ä", "b.bin": b"\x00", "code": repository / "src"})

    assert copied(seed, target) == {
        "b.bin": "\x00",
        "code/": "",
        "code/main.py": "print(1)\n",
        "notes/": "",
        "notes/a.txt": "ä",
    }


@pytest.mark.parametrize("kind", ["text", "path"])
def test_a_name_in_a_directory_that_was_named_before_replaces_what_is_there(
    repository: Path, target: Path, tmp_path: Path, kind: str
) -> None:
    (repository / "src" / "main.py").chmod(0o444)
    (tmp_path / "repaired.py").write_text("print(2)\n")
    other: Any = "print(2)\n" if kind == "text" else tmp_path / "repaired.py"

    seed = Seed({"src": repository / "src", "src/main.py": other})

    assert copied(seed, target) == {"src/": "", "src/main.py": "print(2)\n"}
    assert (repository / "src" / "main.py").read_text() == "print(1)\n"


def test_modes_and_times_are_kept(repository: Path, target: Path) -> None:
    (repository / "empty").chmod(0o500)
    os.utime(repository / "run.sh", ns=(5_000_000_000, 7_000_000_000))

    Seed(repository).copy(target)

    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (target / "run.sh").stat().st_mtime_ns == 7_000_000_000
    assert (target / "empty").stat().st_mode & 0o777 == 0o500


def test_relative_paths_are_seen_from_the_current_directory_else_from_the_folder(
    repository: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(target)

    seed = Seed(["run.sh"], folder=repository)

    assert [entry.name for entry in seed.entries()] == ["run.sh"]


def test_where_workspaces_live_is_left_out(repository: Path, target: Path) -> None:
    inside = repository / ".evalve"
    inside.mkdir()
    (inside / "evalve.db").write_text("")

    names = copied(Seed(repository, leaving_out=inside), target)

    assert ".evalve/" not in names
    assert "run.sh" in names


class TestLinks:
    def test_links_inside_stay_links(self, repository: Path, target: Path) -> None:
        (repository / "src" / "again.sh").symlink_to("../run.sh")
        (repository / "code").symlink_to("src")

        found = copied(Seed(repository), target)

        assert (found["src/again.sh"], found["code"]) == ("-> ../run.sh", "-> src")

    def test_an_absolute_link_leads_into_the_copy(self, repository: Path, target: Path) -> None:
        (repository / "src" / "again.sh").symlink_to(repository / "run.sh")

        assert copied(Seed(repository), target)["src/again.sh"] == "-> ../run.sh"

    def test_a_link_that_goes_out_and_in_again_leads_into_the_copy(
        self, repository: Path, target: Path
    ) -> None:
        (repository / "again.sh").symlink_to("../repository/run.sh")

        assert copied(Seed(repository), target)["again.sh"] == "-> run.sh"

    def test_in_place_of_a_link_to_a_file_outside_the_file_is_copied(
        self, repository: Path, target: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "outside.txt").write_text("shared")
        (repository / "inside.txt").symlink_to(tmp_path / "outside.txt")

        found = copied(Seed(repository), target)
        (target / "inside.txt").write_text("changed by a sample")

        assert found["inside.txt"] == "shared"
        assert (tmp_path / "outside.txt").read_text() == "shared"

    def test_a_link_to_a_directory_outside_is_refused(self, repository: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (repository / "link").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(DeclarationError, match=r"link .*/repository/link leads out of .*/repository"):
            Seed(repository)


class TestMistakes:
    def test_a_missing_path_is_told_with_where_it_was_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(
            DeclarationError, match=r"there is no 'nope' to put into the workspace; looked in /"
        ):
            Seed("nope", folder=tmp_path)

    def test_two_paths_of_one_name_are_refused(self, repository: Path, tmp_path: Path) -> None:
        (tmp_path / "run.sh").touch()

        with pytest.raises(DeclarationError, match=r"run\.sh' and '.*/run\.sh' have one name; give each its"):
            Seed([repository / "run.sh", tmp_path / "run.sh"])

    def test_a_single_file_is_passed_in_a_list(self, repository: Path) -> None:
        with pytest.raises(DeclarationError, match=r"run.sh' is not a directory: pass a list"):
            Seed(repository / "run.sh")

    @pytest.mark.parametrize("name", ["/etc/passwd", "../up.txt", "a/../../b", "", "~/x"])
    def test_a_name_stays_inside(self, name: str) -> None:
        with pytest.raises(DeclarationError, match="a name is a relative path inside the workspace"):
            Seed({name: "text"})

    @pytest.mark.parametrize("files", [7, {"a": 7}, [7]])
    def test_anything_else_is_refused(self, files: Any) -> None:
        with pytest.raises(DeclarationError, match=r"; got 7$"):
            Seed(files)

    def test_what_is_neither_file_nor_directory_is_refused(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(repository)  # the address of a socket must be short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s")
            with pytest.raises(DeclarationError, match="neither a file nor a directory"):
                Seed(repository)


class TestSettings:
    def test_equal_content_is_equal_whatever_its_times(self, repository: Path) -> None:
        before = Seed(repository).settings()
        os.utime(repository / "run.sh", (1, 1))

        assert Seed(repository).settings() == before

    def test_another_content_is_told_of_the_file_alone(self, repository: Path) -> None:
        before = Seed(repository).settings()
        (repository / "run.sh").write_text("#!/bin/bash\n")

        now = Seed(repository).settings()

        assert {name for name in now if now[name] != before[name]} == {"file run.sh"}

    def test_whether_a_file_can_be_executed_counts(self, repository: Path) -> None:
        before = Seed(repository).settings()
        (repository / "run.sh").chmod(0o644)

        assert Seed(repository).settings() != before

    def test_the_place_of_the_files_does_not_count(self, repository: Path, tmp_path: Path) -> None:
        before = Seed(repository).settings()

        assert Seed(repository.rename(tmp_path / "moved")).settings() == before

    def test_of_many_files_one_digest_is_told(self) -> None:
        files = {f"{number}.txt": "" for number in range(51)}

        one, other = Seed(files).settings(), Seed({**files, "7.txt": "x"}).settings()

        assert list(one) == ["files"]
        assert one["files"].startswith("51 files, ")
        assert one != other

    def test_of_a_file_too_large_to_be_read_the_size_counts(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("evalve.sandboxes.seeds._MOST_READ_BYTES", 9)

        settings = Seed(repository).settings()

        assert settings["file run.sh"] == "10 bytes executable"
        assert settings["file src/main.py"] != "9 bytes"


class TestClones:
    """Most file systems of test machines cannot clone, so the system call is stood in for."""

    def test_files_are_cloned_where_the_file_system_can(
        self, repository: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def clone(writer: int, request: int, reader: int) -> int:
            assert request == 0x40049409
            os.write(writer, b"cloned " + os.pread(reader, 100, 0))
            return 0

        monkeypatch.setattr(fcntl, "ioctl", clone)

        assert copied(Seed([repository / "run.sh"]), target) == {"run.sh": "cloned #!/bin/sh\n"}

    def test_where_it_cannot_files_are_copied_and_it_is_not_asked_again(
        self, repository: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def refuse(writer: int, request: int, reader: int) -> int:
            asked.append(request)
            raise OSError(errno.EOPNOTSUPP, "cannot clone")

        monkeypatch.setattr(fcntl, "ioctl", refuse)

        assert copied(Seed(repository), target)["run.sh"] == "#!/bin/sh\n"
        assert len(asked) == 1

    def test_a_full_disk_is_no_reason_to_copy(
        self, repository: Path, target: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(writer: int, request: int, reader: int) -> int:
            raise OSError(errno.ENOSPC, "full")

        monkeypatch.setattr(fcntl, "ioctl", full)

        with pytest.raises(OSError, match="full"):
            Seed(repository).copy(target)


def test_a_copy_that_nobody_waits_for_any_more_ends_early(repository: Path, target: Path) -> None:
    Seed(repository).copy(target, is_abandoned=lambda: bool(list(target.iterdir())))

    assert [path.name for path in target.iterdir()] == ["empty"]
