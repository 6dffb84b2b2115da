"""The rules of the Berkeley Function Calling Leaderboard's checker, as cases over all of its categories.

Written from its documentation. A case says what the leaderboard's verdict is; evalve's is the same, unless it
is named in `DISAGREEMENTS`, each of which docs/tools.md explains. Expected arguments are lists of allowed values,
and an empty text among them says that the argument may be left out.
"""

# ruff: noqa: E501  # a case is a line of a table
from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evalve.evaluators import ToolCall, tool_call_match

RULES: dict[str, Any] = {"compare": "values", "loose_text": True}
CATEGORIES = (
    "simple",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "java",
    "javascript",
    "rest",
    "exec",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)


class Case(NamedTuple):
    category: str
    about: str
    called: Any
    """Calls as `(name, arguments)`; a text for what could not be read as calls."""
    allowed: Any
    """Expected calls as `(name, {argument: [values]})`."""
    verdict: bool
    """The leaderboard's."""
    how: dict[str, Any] = {}  # noqa: RUF012  # never changed


AREA = ("area", {"base": [10], "height": [5], "unit": ["units", ""]})
PAY = ("pay", {"amount": [5.0], "to": ["New York Fund"], "now": [True]})
LISTS = ("stats", {"numbers": [[1, 2, 3]]})
WORDS = ("tag", {"words": [["New York", "Bern"]]})
WHERE = ("find", {"where": [{"city": ["Bern", "Berne"], "zip": [3000, ""]}]})
STEPS = ("route", {"steps": [[{"to": ["Bern"]}, {"to": ["Basel"], "via": ["Olten", ""]}]]})
MATRIX = ("solve", {"matrix": [[[1, 2], [3, 4]]]})
WEATHER = ("weather", {"city": ["Bern"], "day": ["today", ""]})
TIME = ("time", {"city": ["Bern"]})
PARIS = ("weather", {"city": ["Paris"], "day": [""]})
SUPERSET: dict[str, Any] = {"mode": "superset"}
ANY_CALL: dict[str, Any] = {"mode": "superset", "arguments": "ignore"}


def area(**more: Any) -> tuple[str, dict[str, Any]]:
    return "area", {"base": 10, "height": 5, **more}


def pay(**more: Any) -> tuple[str, dict[str, Any]]:
    return "pay", {"amount": 5.0, "to": "New York Fund", "now": True, **more}


CASES = [
    # one function, one call
    Case("simple", "the right call", [area()], [AREA], True),
    Case("simple", "another function", [("volume", {"base": 10, "height": 5})], [AREA], False),
    Case("simple", "no call", [], [AREA], False),
    Case("simple", "two calls", [area(), area()], [AREA], False),
    Case("simple", "output that is no call", '[area(base=10, height=', [AREA], False),
    Case("simple", "arguments that are not JSON", [("area", '{"base": 10')], [AREA], False),
    Case("simple", "a required argument is missing", [("area", {"base": 10})], [AREA], False),
    Case("simple", "an argument that the function does not have", [area(depth=3)], [AREA], False),
    Case("simple", "an optional argument with an allowed value", [area(unit="units")], [AREA], True),
    Case("simple", "an optional argument with another value", [area(unit="cm")], [AREA], False),
    Case("simple", "another number", [area(height=6)], [AREA], False),
    Case("simple", "one of several allowed values", [("t", {"x": "b"})], [("t", {"x": ["a", "b"]})], True),
    Case("simple", "a text in another case", [pay(to="new york fund")], [PAY], True),
    Case("simple", "a text with other punctuation", [pay(to="New-York, Fund.")], [PAY], True),
    Case("simple", "a text with other quotes", [("t", {"q": "a = 'b'"})], [("t", {"q": ['a = "b"']})], True),
    Case("simple", "another text", [pay(to="Boston Fund")], [PAY], False),
    Case("simple", "a text of another script", [("t", {"q": "東京"})], [("t", {"q": ["東京"]})], True),
    Case("simple", "an integer for a float", [pay(amount=5)], [PAY], True),
    Case("simple", "a float for an integer", [area(height=5.0)], [AREA], False),
    Case("simple", "a number as text", [area(height="5")], [AREA], False),
    Case("simple", "a text as number", [("t", {"code": 5})], [("t", {"code": ["5"]})], False),
    Case("simple", "a truth value as text", [pay(now="true")], [PAY], False),
    Case("simple", "one for true", [pay(now=1)], [PAY], False),
    Case("simple", "true for one", [("t", {"n": True})], [("t", {"n": [1]})], False),
    Case("simple", "null for a text", [pay(to=None)], [PAY], False),
    Case("simple", "a list", [("stats", {"numbers": [1, 2, 3]})], [LISTS], True),
    Case("simple", "a list in another order", [("stats", {"numbers": [3, 2, 1]})], [LISTS], False),
    Case("simple", "a list with one more", [("stats", {"numbers": [1, 2, 3, 4]})], [LISTS], False),
    Case("simple", "a list with a text in it", [("stats", {"numbers": [1, "2", 3]})], [LISTS], False),
    Case("simple", "a list for a tuple", [("stats", {"numbers": [1, 2, 3]})], [("stats", {"numbers": [(1, 2, 3)]})], True),
    Case("simple", "an empty list", [("t", {"xs": []})], [("t", {"xs": [[]]})], True),
    Case("simple", "texts of a list are compared loosely", [("tag", {"words": ["new-york", "BERN"]})], [WORDS], True),
    Case("simple", "a list of lists", [("solve", {"matrix": [[1, 2], [3, 4]]})], [MATRIX], True),
    Case("simple", "a list of lists, turned", [("solve", {"matrix": [[1, 3], [2, 4]]})], [MATRIX], False),
    Case("simple", "an object", [("find", {"where": {"zip": 3000, "city": "Berne"}})], [WHERE], True),
    Case("simple", "an object without what may be left out", [("find", {"where": {"city": "Bern"}})], [WHERE], True),
    Case("simple", "an object without what is needed", [("find", {"where": {"zip": 3000}})], [WHERE], False),
    Case("simple", "an object with one more key", [("find", {"where": {"city": "Bern", "x": 1}})], [WHERE], False),
    Case("simple", "an object with another value", [("find", {"where": {"city": "Genf"}})], [WHERE], False),
    Case("simple", "a list of objects", [("route", {"steps": [{"to": "Bern"}, {"to": "Basel"}]})], [STEPS], True),
    Case("simple", "a list of objects in another order", [("route", {"steps": [{"to": "Basel"}, {"to": "Bern"}]})], [STEPS], False),
    Case("simple", "a list of objects, one without a key", [("route", {"steps": [{"to": "Bern"}, {}]})], [STEPS], False),
    Case("simple", "a name whose dot the model cannot write", [("math_fact", {"n": 5})], [("math.fact", {"n": [5]})], True),
    # several functions, one call
    Case("multiple", "the right one", [("weather", {"city": "Bern"})], [WEATHER], True),
    Case("multiple", "another one", [("time", {"city": "Bern"})], [WEATHER], False),
    Case("multiple", "both", [("weather", {"city": "Bern"}), ("time", {"city": "Bern"})], [WEATHER], False),
    # one function, several calls
    Case("parallel", "in order", [("weather", {"city": "Bern"}), ("weather", {"city": "Paris"})], [WEATHER, PARIS], True),
    Case("parallel", "in another order", [("weather", {"city": "Paris"}), ("weather", {"city": "Bern"})], [WEATHER, PARIS], True),
    Case("parallel", "one is missing", [("weather", {"city": "Bern"})], [WEATHER, PARIS], False),
    Case("parallel", "one is made twice", [("weather", {"city": "Bern"})] * 2, [WEATHER, PARIS], False),
    Case("parallel", "one too many", [("weather", {"city": c}) for c in ("Bern", "Paris", "Rom")], [WEATHER, PARIS], False),
    Case("parallel", "one has another value", [("weather", {"city": "Bern"}), ("weather", {"city": "Rom"})], [WEATHER, PARIS], False),
    Case("parallel", "the first fits both", [("t", {"n": 1}), ("t", {"n": 2})], [("t", {"n": [1, 2]}), ("t", {"n": [1]})], False),
    # several functions, several calls
    Case("parallel_multiple", "in any order", [("time", {"city": "Bern"}), ("weather", {"city": "Bern"})], [WEATHER, TIME], True),
    Case("parallel_multiple", "one function twice", [("time", {"city": "Bern"})] * 2, [WEATHER, TIME], False),
    Case("parallel_multiple", "arguments of the other", [("time", {"city": "Bern", "day": "today"}), ("weather", {"city": "Bern"})], [WEATHER, TIME], False),
    # no function fits
    Case("irrelevance", "no call", [], [], True),
    Case("irrelevance", "a call", [("weather", {"city": "Bern"})], [], False),
    Case("irrelevance", "an answer in words", "I have no tool for that.", [], True),
    # other languages: the values that their literals stand for
    Case("java", "an int", [("t", {"n": 5})], [("t", {"n": [5]})], True),
    Case("java", "a boolean", [("t", {"b": True})], [("t", {"b": [True]})], True),
    Case("java", "a char", [("t", {"c": "a"})], [("t", {"c": ["a"]})], True),
    Case("java", "an ArrayList", [("t", {"xs": ["a", "b"]})], [("t", {"xs": [["a", "b"]]})], True),
    Case("java", "a HashMap", [("t", {"m": {"a": 1}})], [("t", {"m": [{"a": [1]}]})], True),
    Case("java", "another int", [("t", {"n": 6})], [("t", {"n": [5]})], False),
    Case("java", "an int for a double", [("t", {"x": 5})], [("t", {"x": [5.0]})], False),
    Case("java", "a long as it is written in Java", [("t", {"n": "5L"})], [("t", {"n": [5]})], True),
    Case("java", "a map as it is written in Java", [("t", {"m": 'new HashMap<>(Map.of("a", 1))'})], [("t", {"m": [{"a": [1]}]})], True),
    Case("javascript", "a number", [("t", {"n": 5.5})], [("t", {"n": [5.5]})], True),
    Case("javascript", "an array", [("t", {"xs": [1, 2]})], [("t", {"xs": [[1, 2]]})], True),
    Case("javascript", "an object", [("t", {"o": {"a": {"b": 1}}})], [("t", {"o": [{"a": [{"b": [1]}]}]})], True),
    Case("javascript", "a boolean as text", [("t", {"b": "yes"})], [("t", {"b": [True]})], False),
    Case("javascript", "a bigint as it is written in JavaScript", [("t", {"n": "5n"})], [("t", {"n": [5]})], True),
    # requests, and calls that were executed
    Case("rest", "the same request", [("get", {"url": "https://a.b/c", "params": {"q": "x"}})], [("get", {"url": ["https://a.b/c"], "params": [{"q": ["x"]}]})], True),
    Case("rest", "another address", [("get", {"url": "https://a.b/d", "params": {"q": "x"}})], [("get", {"url": ["https://a.b/c"], "params": [{"q": ["x"]}]})], False),
    Case("rest", "another parameter", [("get", {"url": "https://a.b/c", "params": {"q": "y"}})], [("get", {"url": ["https://a.b/c"], "params": [{"q": ["x"]}]})], False),
    Case("exec", "the same result", [("add", {"a": 2, "b": 3})], [("add", {"a": [2], "b": [3]})], True),
    Case("exec", "the same result of other arguments", [("add", {"a": 3, "b": 2})], [("add", {"a": [2], "b": [3]})], True),
    # what users contributed
    Case("live_simple", "nested arguments", [("find", {"where": {"city": "BERN"}})], [WHERE], True),
    Case("live_simple", "an enum's other value", [("t", {"unit": "kelvin"})], [("t", {"unit": ["celsius"]})], False),
    Case("live_multiple", "the right one of many", [("time", {"city": "bern"})], [TIME], True),
    Case("live_multiple", "a similar one", [("time_zone", {"city": "Bern"})], [TIME], False),
    Case("live_parallel", "in another order", [("weather", {"city": "Paris"}), ("weather", {"city": "Bern"})], [WEATHER, PARIS], True),
    Case("live_parallel", "one is missing", [("weather", {"city": "Paris"})], [WEATHER, PARIS], False),
    Case("live_parallel_multiple", "both", [("weather", {"city": "Bern"}), ("time", {"city": "Bern"})], [TIME, WEATHER], True),
    Case("live_parallel_multiple", "one of both", [("weather", {"city": "Bern"})], [TIME, WEATHER], False),
    Case("live_irrelevance", "no call", [], [], True),
    Case("live_irrelevance", "a call", [("time", {"city": "Bern"})], [], False),
    Case("live_relevance", "some call", [("time", {"x": 1})], [("*", None)], True, ANY_CALL),
    Case("live_relevance", "several calls", [("time", {}), ("weather", {})], [("*", None)], True, ANY_CALL),
    Case("live_relevance", "no call", [], [("*", None)], False, ANY_CALL),
    # several turns: what must be called, whatever is called besides
    Case("multi_turn_base", "these calls", [("cd", {"to": "docs"}), ("rm", {"file": "a"})], [("cd", {"to": ["docs"]}), ("rm", {"file": ["a"]})], True, SUPERSET),
    Case("multi_turn_base", "a look around besides", [("ls", {}), ("cd", {"to": "docs"}), ("rm", {"file": "a"})], [("cd", {"to": ["docs"]}), ("rm", {"file": ["a"]})], True, SUPERSET),
    Case("multi_turn_base", "a step is missing", [("cd", {"to": "docs"})], [("cd", {"to": ["docs"]}), ("rm", {"file": ["a"]})], False, SUPERSET),
    Case("multi_turn_base", "another way to the same state", [("rm", {"file": "docs/a"})], [("cd", {"to": ["docs"]}), ("rm", {"file": ["a"]})], True, SUPERSET),
    Case("multi_turn_miss_func", "nothing while the function is missing", [], [], True),
    Case("multi_turn_miss_func", "a call of another function", [("rm", {"file": "a"})], [], False),
    Case("multi_turn_miss_param", "a question back", "Which file?", [], True),
    Case("multi_turn_miss_param", "a made-up argument", [("rm", {"file": "b"})], [], False),
    Case("multi_turn_long_context", "these calls", [("rm", {"file": "a"})], [("rm", {"file": ["a"]})], True, SUPERSET),
    Case("multi_turn_long_context", "another file", [("rm", {"file": "b"})], [("rm", {"file": ["a"]})], False, SUPERSET),
]  # fmt: skip

DISAGREEMENTS = {
    ("simple", "a float for an integer"),
    ("simple", "a name whose dot the model cannot write"),
    ("parallel", "the first fits both"),
    ("java", "an int for a double"),
    ("java", "a long as it is written in Java"),
    ("java", "a map as it is written in Java"),
    ("javascript", "a bigint as it is written in JavaScript"),
    ("exec", "the same result of other arguments"),
    ("multi_turn_base", "another way to the same state"),
}
PAGE = Path(__file__).parents[3] / "docs" / "tools.md"


def verdict(case: Case) -> Any:
    called = case.called
    if not isinstance(called, str):
        called = [{"name": name, "arguments": arguments} for name, arguments in called]
    expected = [ToolCall(name, arguments) for name, arguments in case.allowed]
    return tool_call_match(called, expected, **{"mode": "any_order", "arguments": RULES, **case.how}).value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.category}: {case.about}")
def test_the_verdict_is_the_leaderboards_where_no_disagreement_is_listed(case: Case) -> None:
    disagrees = (case.category, case.about) in DISAGREEMENTS
    assert verdict(case) is (case.verdict is not disagrees)


def test_there_are_cases_of_every_category_and_each_once() -> None:
    assert {case.category for case in CASES} == set(CATEGORIES)
    assert len(CASES) >= 60
    assert len({(case.category, case.about) for case in CASES}) == len(CASES)
    assert {(case.category, case.about) for case in CASES} >= DISAGREEMENTS


def test_each_disagreement_is_listed_in_the_docs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [about for _, about in sorted(DISAGREEMENTS) if f"| {about} |" not in page] == []


def test_a_glob_reads_a_name_whose_dot_the_model_cannot_write() -> None:
    expected = [ToolCall("math?fact", {"n": [5]})]
    assert tool_call_match([ToolCall("math_fact", {"n": 5})], expected, arguments=RULES).value is True
