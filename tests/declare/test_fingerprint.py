"""What counts as a change of an evaluation."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalve.declare.bindings import names_read
from evalve.declare.fingerprint import METHOD, defined_twice, defines, fingerprint

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
        evaluation = namespace["eval_math"].__evalve__
        return fingerprint(evaluation.function, ("question", "answer"), evaluation.captured)

    return print_of


def test_its_parts_are_the_function_its_helpers_and_its_constants(printed: Print) -> None:
    assert printed(ORIGINAL) == {
        "method": METHOD,
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
        (
            "async def eval_math(question, answer):",
            "async def eval_math(question: str, answer: 'Answer') -> bool:",
        ),
        ("def shorten(text):", "def shorten(text: DATASET) -> str:"),
        ("    response =", "    response: str ="),
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
        "type hints",
        "a helper's type hints",
        "a variable's type hint",
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


RICH = '''
import os
import time
import uuid
from json import dumps, loads

import pytest

from evalve import foreach

score_of = lambda n: n + 1
TEMPL = f"hello {1 + 1}"
STARTED_AT, RUN = time.time(), uuid.uuid4()
LIMITS = {}
LIMITS["words"] = 10
RULES = []
RULES.append("be brief")
if os.environ.get("LONG"):
    SIZE = 10
else:
    SIZE = 20
try:
    import absent as parser
except ImportError:
    parser = None
(bound := 3)
with open(os.devnull) as nothing:
    CONTENT = nothing.read()


def make(k):
    def inner(n):
        return n * k
    return inner


def twice(function):
    return lambda n: function(n) * 2


@twice
def doubled(n):
    return n


scorer = make(3)


class Base:
    prompt = "brief"


class Grader(Base):
    """Grades."""

    strict = True

    def grade(self, text):
        """One grade."""
        return self.prompt in text


class Unused:
    strict = True


@pytest.fixture(params=[1])
def judge(model):
    return model


@pytest.fixture
def model():
    return "small"


for question in ["a"]:
    pass


@foreach("question,answer", [("1", "2")])
def eval_math(question, answer, judge=None):
    used = (TEMPL, STARTED_AT, RUN, LIMITS, RULES, SIZE, parser, bound, CONTENT, dumps)
    Unused = None
    return scorer(score_of(doubled(1))) and Grader().grade(question) and used and Unused
'''


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("lambda n: n + 1", "lambda n: n + 2", "constant score_of"),
        ('f"hello', 'f"bye', "constant TEMPL"),
        ('LIMITS["words"] = 10', 'LIMITS["words"] = 11', "constant LIMITS"),
        ("be brief", "be long", "constant RULES"),
        ("SIZE = 10", "SIZE = 11", "constant SIZE"),
        ('get("LONG")', 'get("SHORT")', "constant SIZE"),
        ("import absent as parser", "import other as parser", "import parser"),
        ("    parser = None", "    parser = 0", "import parser"),
        ("bound := 3", "bound := 4", "constant bound"),
        ("nothing.read()", "nothing.read(5)", "constant CONTENT"),
        ("open(os.devnull)", "open(os.devnull, 'rb')", "constant CONTENT constant nothing"),
        ("make(3)", "make(4)", "constant scorer"),
        ("n * k", "n - k", "function make"),
        ("* 2", "* 3", "function twice"),
        ("@twice\n", "@twice\n@twice\n", "function doubled"),
        ('prompt = "brief"', 'prompt = "long"', "class Base"),
        ("self.prompt in text", "self.prompt == text", "class Grader"),
        ('(Base):\n    """Grades."""\n\n    strict = True', "(Base):\n    strict = False", "class Grader"),
        ("import dumps,", "import dump as dumps,", "import dumps"),
        ('return "small"', 'return "large"', "function model"),
        ("    return model", "    return model * 2", "function judge"),
    ],
)
def test_what_the_function_reaches_in_its_file_counts(printed: Print, old: str, new: str, part: str) -> None:
    assert RICH.count(old) == 1
    before = printed(RICH)

    after = printed(RICH.replace(old, new))

    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    assert " ".join(changed) == part


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("STARTED_AT, RUN = time.time(), uuid.uuid4()", "RUN, STARTED_AT = uuid.uuid4(), time.time()"),
        ("scorer = make(3)\n", "# a comment\nscorer = make(\n    3\n)\n"),
        ('"""One grade."""', '"""A grade."""'),
        ('    """Grades."""\n', ""),
        ("class Unused:\n    strict = True", "class Unused:\n    strict = False"),
        ("import dumps, loads", "import dumps"),
        ("params=[1]", "params=[1, 2]"),
        ('for question in ["a"]', 'for question in ["b"]'),
        ("import os\nimport time\n", "import time\nimport os\nimport os.path\n"),
    ],
    ids=[
        "order",
        "comment and layout",
        "a method's docstring",
        "a class's docstring",
        "a class that a local variable hides",
        "another import",
        "a fixture's parameters",
        "a name that a column hides",
        "order of imports",
    ],
)
def test_what_else_is_no_change(printed: Print, old: str, new: str) -> None:
    assert RICH.count(old) == 1

    assert printed(RICH.replace(old, new)) == printed(RICH)


def test_values_that_differ_in_every_run_are_no_change(printed: Print) -> None:
    parts = printed(RICH)

    assert parts == printed(RICH)
    assert parts["constant RUN"] == "uuid.uuid4()"


METHODS = """
from evalve import foreach

class Common:
    suffix = "!"

class TestMath(Common):
    prompt = "brief"
    unused = 1

    def ask(self, text):
        return self.prompt + text

    @foreach("question,answer", [("1", "2")])
    def eval_math(self, question, answer):
        return self.ask(question) + self.suffix

    @foreach("question,answer", [("1", "2")])
    def eval_other(self, question, answer):
        return 1

eval_math = TestMath.eval_math
"""


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ('prompt = "brief"', 'prompt = "long"', ["constant TestMath.prompt"]),
        ("self.prompt + text", "text", ["constant TestMath.prompt", "function TestMath.ask"]),
        ('suffix = "!"', 'suffix = "?"', ["class Common"]),
        ("unused = 1", "unused = 2", []),
        ("        return 1", "        return 2", []),
    ],
)
def test_of_its_own_class_a_method_counts_what_it_uses(
    printed: Print, old: str, new: str, part: list[str]
) -> None:
    assert METHODS.count(old) == 1
    before, after = printed(METHODS), printed(METHODS.replace(old, new))

    assert sorted(name for name in {*before, *after} if before.get(name) != after.get(name)) == part


FACTORY = """
import functools
from evalve import foreach

def helped(n):
    return n + 1

def repeated(times):
    def decorate(function):
        @functools.wraps(function)
        def inner(**values):
            return [function(**values) for _ in range(times)]
        return inner
    return decorate

def build(letters, grades, strict=lambda n: n > 0):
    calls = []
    threshold = 1

    def score(n):
        return helped(n) * threshold

    @foreach("question,answer", [("1", "2")])
    @repeated(2)
    def eval_math(question, answer):
        calls.append(question)
        return len(letters) + score(len(grades)) and strict(1)

    return eval_math

eval_math = build("abcdef", {"good": 1, "bad": {0, -1}})
"""


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("abcdef", "a", ["captured letters"]),
        ('"bad": {0, -1}', '"bad": {0, -2}', ["captured grades"]),
        ('{"good": 1, "bad": {0, -1}}', '{"good": 1, "bad": {-1, 0}}', []),
        ("threshold = 1", "threshold = 2", ["captured threshold of score"]),
        ("helped(n) * threshold", "helped(n) - threshold", ["captured score"]),
        ("n + 1", "n + 2", ["function helped"]),
        ("n > 0", "n > 1", ["captured strict"]),
        ("@repeated(2)", "@repeated(3)", ["captured times"]),
        ("[function(**values) for", "[not function(**values) for", ["function inner"]),
        ("and strict(1)", "or strict(1)", ["function eval_math"]),
    ],
)
def test_what_a_function_inside_another_captured_counts(
    printed: Print, old: str, new: str, part: list[str]
) -> None:
    assert FACTORY.count(old) == 1
    before, after = printed(FACTORY), printed(FACTORY.replace(old, new))

    assert sorted(name for name in {*before, *after} if before.get(name) != after.get(name)) == part


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


def test_a_piece_with_nonlocal_names_is_read_too() -> None:
    counting = ast.parse("def f():\n    nonlocal count\n    count = count + STEP")

    assert names_read(counting.body[0]) == {"count", "STEP"}
