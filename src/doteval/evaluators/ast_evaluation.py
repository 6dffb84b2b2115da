"""`ast_evaluation`: whether a function call, written as on Berkeley's leaderboard, is an expected one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evalve.evaluators import evaluator
from evalve.metrics import accuracy

__all__ = ["ast_evaluation", "compare_param_value", "is_dict_match", "recursive_normalize"]

_IGNORED = re.compile(r"[ ,./\-_*^]")


@evaluator(metrics=accuracy)
def ast_evaluation(
    result: Mapping[str, Any], expected: Sequence[Mapping[str, Any]], schema: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether `{"function": {parameter: value}}` calls the function of the schema as is expected.

    `expected` names for each parameter the values that are right; `""` among them says that it may be left
    out. Case, spaces and punctuation of texts do not count.
    """
    if not result or not expected or not schema or len(result) != 1:
        return False
    (name, given), described = next(iter(result.items())), schema[0]
    wanted = expected[0].get(name)
    if name != described.get("name") or wanted is None or not isinstance(given, Mapping):
        return False
    parameters = described.get("parameters", {})
    required = parameters.get("required", ())
    known = parameters.get("properties", wanted)
    if any(parameter not in given for parameter in required):
        return False
    if any(parameter not in known or parameter not in wanted for parameter in given):
        return False
    return all(
        compare_param_value(given[parameter], right) if parameter in given else _may_be_left_out(right)
        for parameter, right in wanted.items()
    )


def compare_param_value(value: Any, right: Any) -> bool:
    """Whether the value is the right one, or among several that are."""
    choices = right if isinstance(right, list | tuple | set | frozenset) else [right]
    return any(_agree(value, choice) for choice in choices)


def is_dict_match(value: Mapping[str, Any], right: Any) -> bool:
    """The same of a mapping, which an empty text admits whatever it is."""
    return _may_be_left_out(right) or compare_param_value(value, right)


def recursive_normalize(value: Any) -> Any:
    """What counts of a value: texts without case, spaces and punctuation, also inside lists and mappings."""
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, Mapping):
        return {key: recursive_normalize(each) for key, each in value.items()}
    return [recursive_normalize(each) for each in value] if isinstance(value, list) else value


def _may_be_left_out(right: Any) -> bool:
    return right == "" or (isinstance(right, list | tuple | set | frozenset) and "" in right)


def _agree(value: Any, choice: Any) -> bool:
    if isinstance(value, str) and isinstance(choice, str):
        return _plain(value) == _plain(choice)
    if isinstance(value, Mapping) and isinstance(choice, Mapping):
        return value.keys() == choice.keys() and all(
            compare_param_value(value[key], choice[key]) for key in value
        )
    if isinstance(value, list | tuple) and isinstance(choice, list | tuple):
        return len(value) == len(choice) and all(map(_agree, value, choice))
    return bool(value == choice)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')
