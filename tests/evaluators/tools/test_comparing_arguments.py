"""Arguments: exact, subset, value lists, tolerances, patterns, functions, globs, defaults, rules per tool."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evalve.errors import OptionError, ResultError
from evalve.evaluators import ArgumentRules, ToolCall, tool_arguments, tool_call_match
from evalve.evaluators.tools import anything, near, one_of, optional, regex


def kinds(called: Any, expected: Any, arguments: Any = "exact", **more: Any) -> dict[str, int]:
    score = tool_call_match([ToolCall("t", called)], [ToolCall("t", expected)], arguments=arguments, **more)
    counts: dict[str, int] = score.metadata.get("miss_counts", {})
    assert score.value is (not counts)
    return counts


VALUE, TYPE = {"wrong value": 1}, {"wrong type": 1}
MISSING, UNEXPECTED = {"missing argument": 1}, {"unexpected argument": 1}


@pytest.mark.parametrize(
    ("called", "expected", "found"),
    [
        (5, 5, {}),
        (5, 6, VALUE),
        (5, 5.0, {}),
        ("5", 5, TYPE),
        (5, "5", TYPE),
        (True, 1, TYPE),
        (1, True, TYPE),
        (True, "true", TYPE),
        (0, False, TYPE),
        (None, 0, TYPE),
        (None, None, {}),
        ("", None, TYPE),
        ("Cats", "cats", VALUE),
        ([1, 2], [1, 2], {}),
        ((1, 2), [1, 2], {}),
        ([2, 1], [1, 2], {"wrong value": 2}),
        ([1], [1, 2], VALUE),
        ([True], [1], TYPE),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 1}, UNEXPECTED),
        ({}, {"a": 1}, MISSING),
        ({"a": {"b": [1, "2"]}}, {"a": {"b": [1, 2]}}, TYPE),
        ([1], {"a": 1}, TYPE),
    ],
)
def test_exact_tells_types_apart_as_json_does(called: Any, expected: Any, found: dict[str, int]) -> None:
    assert kinds({"x": called}, {"x": expected}) == found


@pytest.mark.parametrize(
    ("called", "expected"), [("5", 5), (5, "5"), (True, "true"), ("False", False), (1, True), ("5.0", 5)]
)
def test_coercion_is_for_those_who_ask_for_it(called: Any, expected: Any) -> None:
    assert kinds({"x": called}, {"x": expected}) == TYPE
    assert kinds({"x": called}, {"x": expected}, {"coerce": True}) == {}


@pytest.mark.parametrize(("called", "expected"), [("5a", 5), ("", 0), (None, 0), ([5], 5), ("6", 5)])
def test_coercion_makes_nothing_equal_that_is_not(called: Any, expected: Any) -> None:
    assert kinds({"x": called}, {"x": expected}, {"coerce": True}) != {}


def test_subset_takes_more_also_inside_objects_and_lists() -> None:
    called = {"where": {"city": "Bern", "zip": 3000}, "tags": [{"k": "a", "v": 1}], "limit": 5}
    expected = {"where": {"city": "Bern"}, "tags": [{"k": "a"}]}
    assert kinds(called, expected, "subset") == {}
    assert kinds(called, expected) == {"unexpected argument": 3}
    assert kinds(called, {"where": {"city": "Genf"}}, "subset") == VALUE
    assert kinds({}, {"where": {"city": "Genf"}}, "subset") == MISSING


def test_ignore_compares_the_tool_alone() -> None:
    assert kinds({"x": 1}, {"y": 2}, "ignore") == {}


def test_value_lists_with_an_empty_text_may_be_omitted() -> None:
    expected = {"unit": ["C", "celsius", ""], "city": ["Bern"]}
    assert kinds({"city": "Bern"}, expected, "values") == {}
    assert kinds({"city": "Bern", "unit": "celsius"}, expected, "values") == {}
    assert kinds({"city": "Bern", "unit": "F"}, expected, "values") == VALUE
    assert kinds({"city": "Bern", "unit": 5}, expected, "values") == TYPE
    assert kinds({"unit": "C"}, expected, "values") == MISSING
    assert kinds({"city": "Bern", "day": 1}, expected, "values") == UNEXPECTED
    with pytest.raises(OptionError, match="a list of allowed values for each argument; city is 'Bern'"):
        kinds({"city": "Bern"}, {"city": "Bern"}, "values")


def test_value_lists_inside_objects() -> None:
    expected = {"where": [{"city": ["Bern", "Berne"], "zip": [3000, ""]}]}
    assert kinds({"where": {"city": "Berne"}}, expected, "values") == {}
    assert kinds({"where": {"city": "Genf"}}, expected, "values") == VALUE


@pytest.mark.parametrize(
    ("matcher", "right", "wrong", "found"),
    [
        (one_of("a", "b"), ["a", "b"], "c", VALUE),
        (one_of(1, 2), [1], "1", TYPE),
        ({"$one_of": ["a", 2]}, ["a", 2], None, TYPE),
        (near(10, 0.5), [10, 10.5, 9.5], 10.6, VALUE),
        (near(10, relative=0.1), [11, 9], 8.9, VALUE),
        (near(10, 1), [10], "10", TYPE),
        ({"$near": 0.3, "$tolerance": 0.1}, [0.4], 0.5, VALUE),
        (regex(r"^2026-\d\d"), ["2026-11-16"], "16.11.2026", VALUE),
        (re.compile("cat", re.I), ["Cats"], "dogs", VALUE),
        ({"$regex": "^a"}, ["ab"], 5, TYPE),
        (lambda value: value > 3, [4], 3, VALUE),
        (one_of(near(1, 0.1), "one"), [1.05, "one"], 2, VALUE),
    ],
)
def test_matchers_stand_for_values(matcher: Any, right: list[Any], wrong: Any, found: dict[str, int]) -> None:
    for value in right:
        assert kinds({"x": value}, {"x": matcher}) == {}
        assert kinds({"x": [{"y": value}]}, {"x": [{"y": matcher}]}) == {}
    assert kinds({"x": wrong}, {"x": matcher}) == found
    assert kinds({}, {"x": matcher}) == MISSING


def test_a_check_that_cannot_take_the_value_does_not_accept_it() -> None:
    assert kinds({"x": "four"}, {"x": lambda value: value > 3}) == VALUE


@pytest.mark.parametrize("matcher", [optional(5), {"$optional": 5}, one_of(5, 6, optional=True)])
def test_an_optional_argument_may_be_left_out_and_not_be_wrong(matcher: Any) -> None:
    assert kinds({}, {"x": matcher}) == {}
    assert kinds({"x": 5}, {"x": matcher}) == {}
    assert kinds({"x": 7}, {"x": matcher}) == VALUE


def test_anything_must_be_there() -> None:
    assert kinds({"x": [1]}, {"x": anything()}) == kinds({"x": None}, {"x": {"$any": True}}) == {}
    assert kinds({}, {"x": anything()}) == MISSING


def test_keys_of_a_query_language_are_no_matchers() -> None:
    assert kinds({"x": {"$gt": 5}}, {"x": {"$gt": 5}}) == {}
    assert kinds({"x": {"$gt": 4}}, {"x": {"$gt": 5}}) == VALUE


def test_tolerance_of_all_numbers() -> None:
    assert kinds({"x": 10.4}, {"x": 10}, {"tolerance": 0.5}) == {}
    assert kinds({"x": 10.6}, {"x": 10}, {"tolerance": 0.5}) == VALUE
    assert kinds({"x": 105}, {"x": 100}, {"relative": 0.05}) == {}
    assert kinds({"x": True}, {"x": 1}, {"tolerance": 1}) == TYPE


def test_globs_of_arguments_that_do_not_count() -> None:
    rules = {"ignore": ["request_id", "filters.*.id", "trace*"]}
    called = {"q": 1, "request_id": 7, "traceparent": "x", "filters": [{"id": 1, "op": "="}]}
    expected = {"q": 1, "request_id": 8, "filters": [{"op": "="}]}
    assert kinds(called, expected, rules) == {}
    assert kinds(called, {**expected, "q": 2}, rules) == VALUE
    assert kinds(called, {"q": 1, "filters": [{"op": "<"}]}, rules) == VALUE


def test_texts_compared_loosely() -> None:
    rules = {"loose_text": True}
    assert kinds({"x": "new-york, NY"}, {"x": "New York NY."}, rules) == {}
    assert kinds({"x": "Newark"}, {"x": "New York"}, rules) == VALUE
    assert kinds({"x": "5"}, {"x": 5}, rules) == TYPE


def test_lists_in_any_order_are_assigned_one_to_one() -> None:
    rules = {"unordered_lists": True}
    assert kinds({"x": [3, 1, 2]}, {"x": [1, 2, 3]}, rules) == {}
    assert kinds({"x": [1, 1, 2]}, {"x": [1, 2, 2]}, rules) == VALUE
    assert kinds({"x": ["ab", "a"]}, {"x": [regex("a"), "ab"]}, rules) == {}


def test_a_function_compares_both_sides() -> None:
    def same_length(called: dict[str, Any], expected: dict[str, Any]) -> bool:
        return len(called) == len(expected)

    assert kinds({"x": 1}, {"y": 2}, same_length) == {}
    assert kinds({"x": 1}, {}, same_length) == VALUE
    with pytest.raises(ResultError, match="return True or False"):
        kinds({}, {}, lambda called, expected: None)


TOOLS = [
    {
        "name": "t",
        "input_schema": {
            "type": "object",
            "properties": {"q": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        },
    }
]


def test_defaults_of_the_schema_count_as_left_out_on_either_side() -> None:
    assert kinds({"q": "a", "limit": 10}, {"q": "a"}) == UNEXPECTED
    assert kinds({"q": "a", "limit": 10}, {"q": "a"}, tools=TOOLS) == {}
    assert kinds({"q": "a"}, {"q": "a", "limit": 10}, tools=TOOLS) == {}
    assert kinds({"q": "a", "limit": 11}, {"q": "a"}, tools=TOOLS) == UNEXPECTED
    assert kinds({"q": "a", "limit": True}, {"q": "a", "limit": 10}, tools=TOOLS) == TYPE
    assert kinds({"q": "a", "limit": 10}, {"q": "a"}, {"defaults": False}, tools=TOOLS) == UNEXPECTED


def test_a_default_may_fulfil_a_matcher_and_one_that_does_not_is_missing() -> None:
    assert kinds({"q": "a"}, {"q": "a", "limit": near(11, 2)}, tools=TOOLS) == {}
    assert kinds({"q": "a"}, {"q": "a", "limit": 5}, tools=TOOLS) == MISSING
    assert kinds({"q": "a", "limit": 5}, {"q": "a", "limit": 10}, tools=TOOLS) == VALUE


def test_defaults_inside_objects() -> None:
    inner = {"type": "object", "properties": {"a": {}, "deep": {"default": True}}}
    tools = [{"name": "t", "input_schema": {"type": "object", "properties": {"o": inner}}}]
    assert kinds({"o": {"a": 1, "deep": True}}, {"o": {"a": 1}}, tools=tools) == {}
    assert kinds({"o": {"a": 1}}, {"o": {"a": 1, "deep": True}}, tools=tools) == {}
    assert kinds({"o": {"a": 1, "deep": 1}}, {"o": {"a": 1}}, tools=tools) == UNEXPECTED


def test_an_object_that_is_a_default_but_for_defaults_counts_as_left_out() -> None:
    inner = {"type": "object", "properties": {"k": {"type": "string", "default": "z"}}, "default": {}}
    tools = [
        {"name": "t", "description": "d", "input_schema": {"type": "object", "properties": {"o": inner}}}
    ]
    given, left_out = [ToolCall("t", {"o": {"k": "z"}})], [ToolCall("t", {})]
    assert tool_call_match(given, left_out, tools=tools).value is True
    assert tool_call_match(left_out, given, tools=tools).value is True
    assert tool_call_match([ToolCall("t", {"o": {"k": "y"}})], left_out, tools=tools).value is False


def test_defaults_inside_lists_and_behind_references() -> None:
    definitions = {"Filter": {"type": "object", "properties": {"v": {}, "op": {"default": "="}}}}
    filter_or_none = {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}], "default": None}
    properties = {"one": filter_or_none, "all": {"items": {"$ref": "#/$defs/Filter"}}, "inner": {"$ref": "#"}}
    tools = [{"name": "t", "input_schema": {"$defs": definitions, "properties": properties}}]
    assert kinds({"all": [{"v": 1}, {"v": 2, "op": "="}]}, {"all": [{"v": 1}, {"v": 2}]}, tools=tools) == {}
    assert kinds({"one": {"v": 1, "op": "="}}, {"one": {"v": 1}}, tools=tools) == {}
    assert kinds({"inner": {"one": None}}, {"inner": {}}, tools=tools) == {}
    assert kinds({"all": [{"op": "<"}]}, {"all": [{}]}, tools=tools) == UNEXPECTED


def test_a_number_in_a_text_may_be_as_far_off_as_a_number_and_a_truth_may_not() -> None:
    rules = {"coerce": True, "tolerance": 1}
    assert kinds({"x": "5.5"}, {"x": 5}, rules) == {}
    assert kinds({"x": "true"}, {"x": False}, rules) == TYPE
    assert kinds({"x": 0}, {"x": True}, rules) == TYPE


@pytest.mark.parametrize("glob", ["filters[0].id", "filters[*].id", "filters.*.id"])
def test_what_does_not_count_may_be_written_as_misses_show_it(glob: str) -> None:
    assert kinds({"filters": [{"id": 1}]}, {"filters": [{"id": 2}]}, {"ignore": [glob]}) == {}


def test_rules_of_one_tool_hold_over_those_of_all() -> None:
    called = [ToolCall("a", {"x": 1, "id": 5}), ToolCall("b", {"x": 1, "id": 5})]
    expected = [ToolCall("a", {"x": 1}), ToolCall("b", {"x": 1})]
    rules = {"ignore": ["y"], "per_tool": {"a": {"compare": "subset"}, "b": "exact"}}
    score = tool_call_match(called, expected, arguments=rules)
    assert score.metadata["miss_counts"] == UNEXPECTED
    assert score.metadata["misses"][0]["tool"] == "b"
    as_objects = ArgumentRules(per_tool={"a": ArgumentRules("subset"), "b": ArgumentRules("subset")})
    assert tool_call_match(called, expected, arguments=as_objects).value is True


def test_rules_of_tools_may_be_for_a_glob_and_an_exact_name_holds_over_it() -> None:
    calls = [ToolCall("get_a", {"x": 1}), ToolCall("get_b", {"x": 1})]
    expected = [ToolCall("get_a", {"x": 2}), ToolCall("get_b", {"x": 2})]
    rules = {"per_tool": {"get_*": "ignore", "get_b": "exact"}}
    misses = tool_call_match(calls, expected, arguments=rules).metadata["misses"]
    assert [miss["tool"] for miss in misses] == ["get_b"]


def test_rules_for_a_tool_that_there_is_not_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    call, tools = [ToolCall("find_flights", {})], [{"name": "find_flights", "description": "It finds."}]
    for _ in range(2):
        tool_call_match(call, call, arguments={"per_tool": {"find_flight": "ignore"}})
        tool_call_match(call, call, arguments={"per_tool": {"book_hotel": "ignore"}}, tools=tools)
        tool_call_match(call, call, arguments={"per_tool": {"book_train": "ignore"}})  # others may call it
    assert caplog.messages == [
        "arguments=: per_tool has rules for 'find_flight', and there is no such tool; did you mean"
        " 'find_flights'?",
        "arguments=: per_tool has rules for 'book_hotel', and there is no such tool",
    ]


def test_reasons_have_the_letters_of_all_languages_and_tell_apart_what_looks_the_same() -> None:
    def reason(called: str, expected: str) -> str:
        score = tool_call_match([ToolCall("t", {"x": called})], [ToolCall("t", {"x": expected})])
        return str(score.metadata["misses"][0]["reason"])

    assert reason("Zürich", "東京\ud800") == 't: x is "Zürich", expected "東京\\ud800"'
    assert reason("é", "e\u0301").startswith('t: x is "\\u00e9", expected "e\\u0301": it looks the same')


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("exakt", "did you mean 'exact'"),
        ({"ignored": ["x"]}, "no rule 'ignored'; did you mean 'ignore'"),
        ({"coerce": "yes"}, "coerce is true or false; got 'yes'"),
        ({"tolerance": -1}, "tolerance is a number, 0 or more"),
        ({"ignore": [5]}, "ignore has names or globs"),
        (5, "arguments= is exact, subset, values, ignore, a function, or a mapping of rules"),
        ({"per_tool": ["a"]}, "per_tool has rules by the name of a tool"),
        (ArgumentRules(ignore=(5,)), "ignore has names or globs"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_rule_is_refused_with_what_there_is(rules: Any, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        kinds({}, {}, rules)


def test_wrong_matchers_are_refused() -> None:
    for make in (lambda: near("5"), lambda: near(1, -1), lambda: regex("("), one_of):  # type: ignore[arg-type]
        with pytest.raises(OptionError):
            make()


def test_the_share_of_right_arguments() -> None:
    called = [ToolCall("t", {"a": 1, "b": 2, "c": 3})]
    assert tool_arguments(called, [ToolCall("t", {"a": 1, "b": 5, "d": 4})]).value == 0.25
    assert tool_arguments(called, [ToolCall("t", {"a": 1, "b": 5})], arguments="subset").value == 0.5
    assert tool_arguments(called, ["t"]).value == 1.0


def test_a_reason_names_path_value_and_what_is_expected() -> None:
    called = [ToolCall("search", {"filters": [{"op": 5}]})]
    score = tool_call_match(called, [ToolCall("search", {"filters": [{"op": "="}]})])
    assert score.metadata["reason"] == (
        'wrong type: search: filters[0].op is 5, expected "=" (number instead of text)'
    )
    assert score.metadata["misses"][0]["path"] == "filters[0].op"
