"""The evaluators that compare without a model's help."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import doteval.evaluators
from evalve import evaluators
from evalve.errors import DatasetError, DeclarationError, ResultError
from evalve.evaluators import contains, exact_match, matches, numeric_match, valid_json
from evalve.evaluators.match import _validator, number_in
from evalve.metrics import accuracy


def test_every_evaluator_names_its_score_after_itself_and_asks_for_accuracy() -> None:
    hits = [
        exact_match("4", "4"),
        numeric_match("4", 4),
        contains("4!", "4"),
        matches("4", r"\d"),
        valid_json("4"),
    ]
    misses = [
        exact_match("4", "5"),
        numeric_match("4", 5),
        contains("4!", "5"),
        matches("4", "x"),
        valid_json("{"),
    ]
    names = ["exact_match", "numeric_match", "contains", "matches", "valid_json"]

    assert [(score.name, score.value, score.metrics) for score in hits] == [
        (name, True, (accuracy,)) for name in names
    ]
    assert [(score.name, score.value, score.metrics) for score in misses] == [
        (name, False, (accuracy,)) for name in names
    ]


def test_every_evaluator_takes_another_name_for_its_score() -> None:
    scores = [
        exact_match("4", "4", name="first"),
        exact_match("4", "5", name="first"),
        numeric_match("4", 5, name="first"),
        contains("4!", "5", name="first"),
        matches("4", "x", name="first"),
        valid_json("{", name="first"),
    ]

    assert [score.name for score in scores] == ["first"] * 6
    assert exact_match("4", "4", name=None).name == "exact_match"


def test_metadata_can_be_written_and_belongs_to_one_score() -> None:
    score = exact_match("4", "4")
    score.metadata["duration"] = 1.5

    assert score.metadata == {"duration": 1.5}
    assert exact_match("4", "4").metadata == {}


# -- exact_match -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected", "metadata"),
    [
        ("Paris", "London", {"result": "Paris", "expected": "London"}),
        (
            "4\n",
            "4",
            {"result": "4\n", "expected": "4", "reason": "differs only in surrounding whitespace"},
        ),
        ("PARIS", "Paris", {"result": "PARIS", "expected": "Paris", "reason": "differs only in case"}),
        (
            "PARIS ",
            "Paris",
            {
                "result": "PARIS ",
                "expected": "Paris",
                "reason": "differs only in case and surrounding whitespace",
            },
        ),
        (4, "4", {"result": 4, "expected": "4", "reason": "equal as text, but int is not str"}),
        (None, "4", {"result": None, "expected": "4"}),
        ([1], [2], {"result": "[1]", "expected": "[2]"}),
    ],
)
def test_an_exact_miss_says_what_differed(result: Any, expected: Any, metadata: dict[str, Any]) -> None:
    score = exact_match(result, expected)

    assert score.value is False
    assert score.metadata == metadata


def test_an_exact_match_is_plain_equality() -> None:
    assert exact_match({"a": [1, 2]}, {"a": [1, 2]}).value is True
    assert exact_match("", "").value is True


def test_a_long_result_is_shortened_in_the_metadata() -> None:
    assert exact_match("x" * 1000, "y").metadata["result"] == "x" * 199 + "…"


# -- numeric_match -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", "42"),
        ("the answer is 42.", "42"),
        ("$42", "42"),
        ("-$42", "-42"),
        ("€ 1,234.50.", "1234.50"),
        ("1,234,567", "1234567"),
        ("1_000", "1000"),
        ("12\N{NARROW NO-BREAK SPACE}345", "12345"),
        ("12\N{THIN SPACE}345", "12345"),
        ("12\N{FIGURE SPACE}345", "12345"),
        ("1 234", "1234"),
        ("1'234'567 Franken", "1234567"),
        ("1\N{RIGHT SINGLE QUOTATION MARK}234", "1234"),
        ("12'34", "34"),
        ("about 1 234 567.5 in all", "1234567.5"),
        (r"\boxed{1\,234}", "1234"),
        (r"\boxed{1{,}234{,}567.5}", "1234567.5"),
        (r"$10,\!000$", "10000"),
        (r"$1\ 234$", "1234"),
        (r"\{1\,2345\}", "2345"),
        ("in 2024 100 people", "100"),
        ("1,234 567", "567"),
        ("1 2345", "2345"),
        ("1\n234", "234"),
        ("\N{MINUS SIGN}3", "-3"),
        ("x=-5", "-5"),
        ("+7", "7"),
        (".5", "0.5"),
        ("6.02e23", "6.02e23"),
        ("50%", "50"),
        ("42km", "42"),
        ("**42**", "42"),
        ("_42_", "42"),
        ("(42)", "42"),
        ("答案是42。", "42"),
        ("2 + 2 = 4", "4"),
        ("10 - 4", "4"),
        ("3-4", "4"),
        ("first 1, then 2", "2"),
        ("1,2345", "2345"),
        ("I used gpt4: 17", "17"),
        ("17, says gpt4", "17"),
        ("so 3 * 4 = 12\n#### 12\nconfidence 90", "12"),
        (r"\boxed{7} by theorem 3", "7"),
        ("#### none, but 5", "5"),
    ],
)
def test_the_number_taken_from_a_text(text: str, number: str) -> None:
    assert number_in(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "no idea", "gpt4", "v1.2", "1e99999999999999999999"])
def test_a_text_without_a_number(text: str) -> None:
    assert number_in(text) is None


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, "3"),
        (0.1, "0.1"),
        (Decimal("1.5"), "1.5"),
        (Fraction(1, 4), "0.25"),
        (np.int64(7), "7"),
        (np.float32(0.5), "0.5"),
    ],
)
def test_numbers_are_taken_as_they_are(value: Any, number: str) -> None:
    assert number_in(value) == Decimal(number)


@pytest.mark.parametrize("value", [None, True, float("nan"), Decimal("nan"), [3]])
def test_what_is_no_number(value: Any) -> None:
    assert number_in(value) is None


@pytest.mark.parametrize(
    ("result", "expected", "options", "value"),
    [
        ("It costs $1,234.50", "1234.5", {}, True),
        (0.1 + 0.2, 0.3, {}, True),
        ("9007199254740993", 9007199254740992, {}, False),
        ("3.14", 3.14159, {}, False),
        ("3.14", 3.14159, {"tolerance": 0.01}, True),
        ("101", 100, {"relative": 0.01}, True),
        ("-101", -100, {"relative": 0.01}, True),
        ("102", 100, {"relative": 0.01}, False),
        ("1e999999999", "5", {}, False),
        (float("inf"), float("inf"), {}, True),
        (float("inf"), 3, {"relative": 0.1}, False),
        (3, float("inf"), {}, False),
    ],
)
def test_numbers_match_within_the_tolerance(
    result: Any, expected: Any, options: dict[str, float], value: bool
) -> None:
    assert numeric_match(result, expected, **options).value is value


def test_a_number_with_spaces_is_not_its_last_three_digits() -> None:
    assert numeric_match("1 234", "1234").value is True
    assert numeric_match("234", "1 234").value is False


def test_a_numeric_miss_says_which_numbers_were_compared() -> None:
    assert numeric_match("I think it is 41.", "42 apples").metadata == {
        "result": "I think it is 41.",
        "number": "41",
        "expected": "42",
    }


def test_a_response_without_a_number_is_a_miss() -> None:
    score = numeric_match("no idea", 42)

    assert score.value is False
    assert score.metadata == {"result": "no idea", "expected": "42", "reason": "no number found"}


def test_an_expected_value_without_a_number_is_an_error_in_the_dataset() -> None:
    with pytest.raises(DatasetError, match="no number in the expected value 'many'; correct the row"):
        numeric_match("42", "many")


# -- contains ----------------------------------------------------------------------------------------


def test_a_text_contains_a_part() -> None:
    assert contains("The capital is Paris.", "Paris").value is True
    assert contains("It is 4.", 4).value is True


def test_case_matters_unless_it_is_to_be_ignored() -> None:
    assert contains("PARIS", "Paris").value is False
    assert contains("PARIS", "Paris").metadata["reason"] == "occurs in another case"
    assert contains("PARIS", "Paris", ignore_case=True).value is True
    assert contains("straße", "STRASSE", ignore_case=True).value is True


def test_a_list_contains_an_item() -> None:
    assert contains(["search", "read"], "read").value is True
    assert contains(["search"], "read").metadata == {"result": "['search']", "expected": "read"}


def test_no_response_contains_nothing() -> None:
    assert contains(None, "x").value is False


def test_contains_refuses_what_holds_nothing() -> None:
    with pytest.raises(ResultError, match=r"contains needs text or a list as `result`; got 42 \(int\)"):
        contains(42, "4")


# -- matches -----------------------------------------------------------------------------------------


def test_a_pattern_is_searched_anywhere() -> None:
    assert matches("order #1234 shipped", r"#\d{4}").value is True
    assert matches("abc", "^b").value is False
    assert matches("ABC", re.compile("b", re.IGNORECASE)).value is True
    assert matches("ABC", "b", flags=re.IGNORECASE).value is True


def test_a_pattern_that_misses_is_named() -> None:
    assert matches("abc", re.compile("x+")).metadata == {"result": "abc", "pattern": "x+"}
    assert matches(None, "x+").metadata == {"result": None, "pattern": "x+"}


def test_a_broken_pattern_is_an_error_and_not_a_miss() -> None:
    with pytest.raises(DeclarationError, match=r"matches: '\[' is not a regular expression"):
        matches("abc", "[")


def test_matches_refuses_what_is_not_text() -> None:
    with pytest.raises(ResultError, match=r"matches needs text as `result`; got 42 \(int\)"):
        matches(42, "4")


# -- valid_json --------------------------------------------------------------------------------------

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@pytest.mark.parametrize("text", ['{"a": [1, 2]}', " null ", '"x"', "3.5", b"[]"])
def test_json_is_valid(text: Any) -> None:
    assert valid_json(text).value is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON: Expecting value"),
        ("{'a': 1}", "not JSON: Expecting property name"),
        ('Sure! {"a": 1}', "not JSON: Expecting value"),
        ("NaN", "not JSON: NaN is not JSON"),
        ('```json\n{"a": 1}\n```', "the JSON is inside a Markdown fence"),
        (None, "NoneType is not JSON text"),
        ("[" * 100_000, "not JSON: "),
    ],
)
def test_what_is_not_json_says_why(text: Any, reason: str) -> None:
    score = valid_json(text)

    assert score.value is False
    assert score.metadata["reason"].startswith(reason)


def test_json_that_fits_its_schema_is_valid() -> None:
    assert valid_json('{"name": "Ada", "age": 36}', PERSON).value is True
    assert valid_json({"name": "Ada", "age": 36}, schema=PERSON).value is True


def test_json_that_does_not_fit_its_schema_says_where() -> None:
    score = valid_json('{"name": 7}', PERSON)

    assert score.value is False
    assert score.metadata["reason"] == "$: 'age' is a required property; $.name: 7 is not of type 'string'"


def test_a_schema_that_is_none_is_an_error() -> None:
    with pytest.raises(DeclarationError, match="the schema is not a JSON Schema"):
        valid_json("{}", {"type": "objekt"})


def test_a_schema_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    _validator.cache_clear()

    with pytest.raises(DeclarationError, match=re.escape('pip install "evalve[json-schema]"')):
        valid_json("{}", {"type": "object"})


def test_doteval_has_the_same_evaluators() -> None:
    of_a_model = {"Rubric", "llm_compare", "llm_judge"}  # which packages for doteval register themselves
    of_tools = {name for name in evaluators.__all__ if "tool" in name.lower()} | {"ArgumentRules"}
    assert set(doteval.evaluators.__all__) == set(evaluators.__all__) - of_a_model - of_tools
    assert doteval.evaluators.exact_match is exact_match


def test_what_is_right_keeps_response_and_expected_value_too() -> None:
    assert exact_match("Paris", "Paris").metadata == {}  # the expected value is in the row
    assert numeric_match("so $42", 42).metadata == {"result": "so $42", "number": "42", "expected": "42"}
    assert contains("It is Paris.", "Paris").metadata == {"result": "It is Paris.", "expected": "Paris"}
    assert matches("A-17", r"[A-Z]-\d+").metadata == {"result": "A-17", "pattern": r"[A-Z]-\d+"}
    assert len(contains("x" * 900, "x").metadata["result"]) == 200
