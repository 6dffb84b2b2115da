"""Every example of README.md and docs/ runs as printed, and prints what the page says.

How a page is read, from top to bottom, in a temporary directory of its own:

- a ```python block whose first line is a comment with a file's name (`# eval_first.py`) is written to
  that file; unless a command of the page names the file, it is run here (`eval_*.py` through pytest);
- any other ```python block is executed, all of a page in one namespace; top-level `await` works as in a
  notebook; `print(…)  # 0.75` promises that line of output; a ```output block after it promises the
  whole output, the error that it ends with included;
- a block of any kind below `<!-- file: rows.jsonl -->` is written to that file;
- a ```console block holds `$ command` lines, each with its output; a line `…` stands for any lines;
- a ```bash block holds commands without output;
- a ```text block is for reading only.

Commands must succeed. `make`, `pip`, `git` and `cd` are not run.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalve import gating, metrics
from evalve.options import OPTIONS

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md"))
_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
SETTINGS = ("ANTHROPIC_", "EVAL_", "EVALVE_", "OPENAI_", "PYTEST_")
NOT_RUN = ("make", "pip", "git", "cd")

_FENCE = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n+)?^```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    kind: str
    body: str
    line: int
    file: str | None


def blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        file, body = match["file"], match["body"]
        title = re.match(r"# (\w+\.py)\n", body)
        if match["kind"] == "python" and title:
            file = title[1]
        yield Block(match["kind"], body, text.count("\n", 0, match.start("body")), file)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# -- the examples


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        monkeypatch.delenv(name)
    for name in ("state", "cache"):  # a person's own limits and answers are left alone
        monkeypatch.setenv(f"EVALVE_{name.upper()}_DIR", str(tmp_path / name))
    monkeypatch.setattr(gating, "_HOUSES", {})  # or the gate of the page before would serve this one
    monkeypatch.setattr(metrics, "_OWN", {})  # or what other tests declare would be known here
    Reader(page, folder).read()


class Reader:
    """Goes through one page and does what it says."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._text = page.read_text()
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._printed: str | None = None
        self._where = _name(page)
        self._doing = {
            "python": self._execute,
            "output": self._check_output,
            "console": self._run_session,
            "bash": self._run_commands,
        }

    def read(self) -> None:
        for block in blocks(self._text):
            self._where = f"{_name(self._page)}:{block.line}"
            if block.kind != "output":
                self._printed = None
            if block.file is not None:
                self._write(block)
            elif block.kind != "text":
                do = self._doing.get(block.kind)
                assert do is not None, f"{self._where}: a block of the kind {block.kind!r} cannot be checked"
                do(block)

    def _write(self, block: Block) -> None:
        assert block.file is not None
        (self._folder / block.file).write_text(block.body)
        if block.kind != "python" or self._is_used(block.file):
            return
        program = "pytest -q" if block.file.startswith("eval_") else "python"
        self._run(f"{program} {block.file}", expected=None)

    def _is_used(self, file: str) -> bool:
        """Whether a command names the file, or another file imports it."""
        shells = [block.body for block in blocks(self._text) if block.kind in ("console", "bash")]
        imports = f"from {file.removesuffix('.py')} import"
        return file == "conftest.py" or any(file in body for body in shells) or imports in self._text

    def _execute(self, block: Block) -> None:
        source = self._folder / "example.py"
        source.write_text(block.body)
        code = compile(block.body, str(source), "exec", flags=_AWAIT, dont_inherit=True)
        printed = io.StringIO()
        error: Exception | None = None
        with redirect_stdout(printed):
            try:
                awaiting = eval(code, self._namespace)
                if inspect.iscoroutine(awaiting):
                    asyncio.run(awaiting)
            except Exception as raised:
                error = raised
                print(f"{type(raised).__name__}: {raised}")
        self._printed = printed.getvalue()
        if error is not None and "```output" not in self._after(block):
            raise AssertionError(f"{self._where}: {self._printed}") from error
        promised = re.findall(r"^\s*print\(.*\)  # (.*)$", block.body, re.MULTILINE)
        if promised:
            self._compare("\n".join(promised), self._printed)

    def _after(self, block: Block) -> str:
        """The page's text from the end of the block to its next fence, inclusive."""
        rest = self._text.split(block.body, 1)[1].partition("```")[2]
        return rest[: rest.find("```") + len("```output")]

    def _check_output(self, block: Block) -> None:
        assert self._printed is not None, f"{self._where}: no python block stands before this output"
        self._compare(block.body, self._printed)

    def _run_session(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            self._run(command, expected=output if output.strip() else None)

    def _run_commands(self, block: Block) -> None:
        for line in block.body.splitlines():
            command = line.partition("  #")[0].strip()
            if command and not command.startswith("#"):
                self._run(command, expected=None)

    def _run(self, command: str, *, expected: str | None) -> None:
        if command.split()[0] in NOT_RUN:
            return
        environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
            "LC_ALL": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ended = subprocess.run(
            command,
            shell=True,
            check=False,
            cwd=self._folder,
            env=environ,
            text=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
        assert ended.returncode == 0, (
            f"{self._where}: {command} ended with {ended.returncode}:\n{ended.stdout}"
        )
        if expected is not None:
            self._compare(expected, ended.stdout, of=command)

    def _compare(self, expected: str, printed: str, of: str = "the block") -> None:
        said, seen = (self._normalised(text) for text in (expected, printed))
        assert _fits(said, seen), (
            f"{self._where}: {of} prints something else:\n\n{printed}\n\n"
            f"-- page, normalised\n{said}\n-- printed, normalised\n{seen}"
        )

    def _normalised(self, text: str) -> str:
        """Without what differs from run to run: places, times, dates, names of runs, widths."""
        text = text.replace(str(self._folder), "/project")
        for pattern, stands_for in _VARIABLE:
            text = re.sub(pattern, stands_for, text)
        lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
        return "\n".join(line for line in lines if line)


_VARIABLE = [
    (r"(?m)^evalve \S+: \d+/\d+ .*$", ""),  # progress in a log, told by the clock
    (r"; waited \d+(\.\d+)? ?(s|ms|min|h) in all", ""),  # told where it was a while
    (r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{4}", "RUN"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00| UTC)?", "DATE"),
    (r"from DATE to DATE", "from DATE"),  # the minute may pass meanwhile
    (r"\b\d+(\.\d+)? ?(s|ms|min|h)\b", "TIME"),
    (r"×\d+(\.\d+)?", "×N"),
    (r"\bpid \d+ on \S+", "pid N on HOST"),
    (r"\b127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"([=─_!-])\1{2,}", r"\1\1\1"),
]


def _fits(expected: str, printed: str) -> bool:
    """Equal, where a line `…` of the expected text stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^…$\n?", expected, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(parts) + r"\n?", printed + "\n") is not None


# -- the pages themselves


def test_the_table_of_options_is_complete() -> None:
    rows = _rows_of_options((ROOT / "docs" / "pytest.md").read_text())
    expected = {
        f"--{option.name}": (
            option.metavar or "",
            option.env,
            tuple(f"--{alias}" for alias in option.aliases),
            option.field,
        )
        for option in OPTIONS
    }
    assert rows == expected


def _rows_of_options(text: str) -> dict[str, tuple[str, str, tuple[str, ...], str]]:
    """Flag → value, variable, aliases, key; from the table's first, second, third and fourth columns."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.replace(r"\|", "\0").split("|")[1:-1]]
        if len(cells) == 5 and cells[0].startswith("`--"):
            flag, _, value = cells[0].strip("`").replace("\0", "|").partition(" ")
            rows[flag] = (
                value,
                cells[2].strip("`"),
                tuple(re.findall(r"`(--[a-z-]+)`", cells[1])),
                cells[3].strip("`"),
            )
    return rows


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    targets = [link for link in re.findall(r"\]\(([^)]+)\)", prose) if "://" not in link]
    missing = [link for link in targets if not _exists(page, link)]
    assert missing == []


def _exists(page: Path, link: str) -> bool:
    path, _, heading = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not heading or heading in {_anchor(title) for title in _titles(target)}


def _titles(page: Path) -> list[str]:
    return re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_every_page_of_the_manual_is_in_its_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page != "index.md" and f"]({page})" not in index] == []
