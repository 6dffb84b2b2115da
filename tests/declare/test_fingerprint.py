"""What counts as a change of an evaluation."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalve.declare.fingerprint import defined_twice, defines, fingerprint

ORIGINAL = '''
from evalve import foreach

PROMPT = "Answer briefly: {question}"
LIMITS: dict = {"words": 10}
DATASET = [("1+1", "2")]


def shorten(text):
    """Cut to the limit."""
    return text[: LIMITS["words"]]


def clean(text):
    return shorten(text.strip())


def unrelated():
    return 1


@foreach("question,answer", DATASET)
async def eval_math(question, answer):
    """Sums."""
    response = PROMPT.format(question=question)
    return clean(response) == answer
'''

Print = Callable[[str], dict[str, str]]


@pytest.fixture
def printed(tmp_path: Path) -> Print:
    """The fingerprint of `eval_math` in a file with this text."""
    path = tmp_path / "eval_file.py"

    def print_of(text: str) -> dict[str, str]:
        path.write_text(text)
        linecache.checkcache(str(path))
        namespace: dict[str, Any] = {"__name__": "eval_file"}
        exec(compile(text, str(path), "exec"), namespace)
        return fingerprint(namespace["eval_math"].__evalve__.function, ("question", "answer"))

    return print_of


def test_its_parts_are_the_function_its_helpers_and_its_constants(printed: Print) -> None:
    assert printed(ORIGINAL) == {
        "columns": "question, answer",
        "function eval_math": textwrap.dedent("""\
            async def eval_math(question, answer):
                response = PROMPT.format(question=question)
                return clean(response) == answer"""),
        "function clean": "def clean(text):\n    return shorten(text.strip())",
        "function shorten": "def shorten(text):\n    return text[:LIMITS['words']]",
        "constant PROMPT": "'Answer briefly: {question}'",
        "constant LIMITS": "{'words': 10}",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Sums."""', '"""Sums, and their answers."""'),
        ('    """Sums."""\n', ""),
        ('    """Cut to the limit."""\n', ""),
        ("    response =", "    # ask\n    response ="),
        ("PROMPT.format(question=question)", "PROMPT.format(\n        question=question,\n    )"),
        ('@foreach("question,answer", DATASET)', '@foreach("question,answer", DATASET[:1])'),
        ('DATASET = [("1+1", "2")]', 'DATASET = [("1+1", "2"), ("2+2", "4")]'),
        ("    return 1\n", "    return 2\n"),
        ("\n\ndef unrelated", "\n\nX = 3\n\ndef unrelated"),
        ('"Answer briefly: {question}"', "'Answer briefly: {question}'"),
    ],
    ids=[
        "docstring",
        "no docstring",
        "a helper's docstring",
        "comment",
        "layout",
        "decorator",
        "rows",
        "another function",
        "another constant",
        "quotes",
    ],
)
def test_what_is_no_change(printed: Print, old: str, new: str) -> None:
    assert ORIGINAL.count(old) == 1

    assert printed(ORIGINAL.replace(old, new)) == printed(ORIGINAL)


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("== answer", "!= answer", "function eval_math"),
        ("question, answer):", "question, answer, model=None):", "function eval_math"),
        ("async def", "def", "function eval_math"),
        ("text.strip()", "text", "function clean"),
        ("text[: LIMITS", "text[1 : LIMITS", "function shorten"),
        ("Answer briefly", "Answer", "constant PROMPT"),
        ('"words": 10', '"words": 20', "constant LIMITS"),
    ],
)
def test_what_is_a_change_and_of_which_part(printed: Print, old: str, new: str, part: str) -> None:
    assert ORIGINAL.count(old) == 1
    before = printed(ORIGINAL)

    after = printed(ORIGINAL.replace(old, new))

    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == {part}


def _at_the_prompt(text: str) -> dict[str, str]:
    namespace: dict[str, Any] = {}
    exec(compile(text, "<stdin-of-a-test>", "exec"), namespace)
    return fingerprint(namespace["f"], ("q",))


def test_without_source_equal_code_is_equal() -> None:
    text = 'def f(q):\n    return q in {"a", "b", "c"} and (lambda x: x + 1)(1)\n'

    assert _at_the_prompt(text) == _at_the_prompt(text)


def test_without_source_the_docstring_is_no_change() -> None:
    first = _at_the_prompt('def f(q):\n    "one"\n    return q + "x"\n')
    second = _at_the_prompt('def f(q):\n    "two"\n    return q + "x"\n')

    assert first == second


@pytest.mark.parametrize(
    "changed",
    [
        'def f(q):\n    return q + "y"\n',
        'def f(q):\n    return q * "x"\n',
        'def f(q):\n    return len(q) + "x"\n',
        'def f(q):\n    return (lambda: q + "x")()\n',
    ],
)
def test_without_source_other_code_or_constants_are_a_change(changed: str) -> None:
    assert _at_the_prompt(changed) != _at_the_prompt('def f(q):\n    return q + "x"\n')


def test_without_source_a_constant_inside_an_inner_function_counts() -> None:
    first = _at_the_prompt('def f(q):\n    return (lambda: q + "x")()\n')
    second = _at_the_prompt('def f(q):\n    return (lambda: q + "y")()\n')

    assert first != second


def test_a_name_that_a_file_defines_twice_is_found_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "eval_file.py"
    path.write_text("def f(): ...\n\nasync def f(): ...\n\ndef g(): ...\n\nclass A:\n    def g(self): ...\n")

    assert defined_twice(str(path), "f") == [1, 3]
    assert defined_twice(str(path), "g") == []
    assert (defines(str(path), "g"), defines(str(path), "h")) == (True, False)


def test_a_file_that_cannot_be_parsed_defines_nothing(tmp_path: Path) -> None:
    path = tmp_path / "eval_file.py"
    path.write_text("def f(:\n")

    assert defined_twice(str(path), "f") == []
