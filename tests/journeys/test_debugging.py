"""A sample that broke: what pytest shows of it, and where its debugger stops."""

from __future__ import annotations

import subprocess
import sys

import pytest
from project import Project

HELPER = """
    import json

    def parse(text):
        seen = f"seen {text}"
        return json.loads(text)
"""
BROKEN = """
    from evalve import foreach
    from evalve.evaluators import numeric_match
    from helper import parse

    @foreach("text,wanted", [("1", "1"), ("2", "none"), ("{", "3")])
    def eval_parsed(text, wanted):
        return numeric_match(parse(text), wanted)
"""


@pytest.mark.parametrize("style", ["auto", "long"])
def test_a_broken_sample_shows_its_file_and_line_and_the_first_traceback(
    project: Project, style: str
) -> None:
    project.write("helper.py", HELPER)
    project.write("eval_parsed.py", BROKEN)
    out = project.pytest("eval_parsed.py", f"--tb={style}").out
    assert "or use exact_match (eval_parsed.py:8)\n" in out
    assert "(char 1) (helper.py:6)\n" in out
    assert f'      File "{project.folder}/eval_parsed.py", line 8, in eval_parsed\n' in out
    assert "return numeric_match(parse(text), wanted)" in out
    assert "evalve/runner" not in out


def test_the_debugger_stops_at_the_line_of_the_person(project: Project) -> None:
    project.write("helper.py", HELPER)
    project.write("eval_parsed.py", BROKEN.replace('("2", "none"), ', ""))
    command = [sys.executable, "-m", "pytest", "-q", "--pdb", "eval_parsed.py"]
    ended = subprocess.run(
        command,
        cwd=project.folder,
        input="p seen\nc\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f"{project.folder}/helper.py(6)parse()" in ended.stdout
    assert "'seen {'" in ended.stdout
