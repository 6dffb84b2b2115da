"""Evaluators that compare a response with what was expected, without a model's help."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import lru_cache
from numbers import Real
from typing import Any, NoReturn

from evalve.errors import DatasetError, DeclarationError, ResultError
from evalve.evaluators.declaring import evaluator, known_by_row, shown
from evalve.evaluators.json_schemas import NotASchema, errors_of, validator_of
from evalve.jsontext import as_text, from_json, to_json
from evalve.metrics import accuracy
from evalve.records import Score

_ACCURACY = (accuracy,)


def _miss(name: str, **metadata: Any) -> Score:
    return Score(name, False, _ACCURACY, metadata)


def _hit(name: str, **metadata: Any) -> Score:
    return Score(name, True, _ACCURACY, metadata)


# -- equality ----------------------------------------------------------------------------------------


@known_by_row(metrics=accuracy)
def exact_match(result: Any, expected: Any) -> bool | Score:
    """Whether the two are equal: no trimming, no change of case, no conversion of types."""
    if result == expected:
        return True  # and so the response is known
    both = {"result": shown(result), "expected": shown(expected)}
    reason = _why_unequal(result, expected)
    return _miss("exact_match", **both, reason=reason) if reason else _miss("exact_match", **both)


def _why_unequal(result: Any, expected: Any) -> str | None:
    """The near misses that are usually the evaluation's fault and not the model's."""
    if type(result) is not type(expected):
        if str(result) == str(expected):
            return f"equal as text, but {type(result).__name__} is not {type(expected).__name__}"
        return None
    if not isinstance(result, str):
        return None
    if result.strip() == expected.strip():
        return "differs only in surrounding whitespace"
    if result.casefold() == expected.casefold():
        return "differs only in case"
    if result.strip().casefold() == expected.strip().casefold():
        return "differs only in case and surrounding whitespace"
    return None


# -- numbers -----------------------------------------------------------------------------------------

_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}\N{FIGURE SPACE}"
_GROUPS = ",_'\N{RIGHT SINGLE QUOTATION MARK}" + _SPACES
_TEX_GROUPS = r",\\! | \\, | \\[ ] | \{,\}"
_NUMBER = re.compile(
    r"""(?<![A-Za-z\d.])                                # not inside a word, as in gpt4 or v1.2
        (?P<sign>[-+\N{MINUS SIGN}]?) (?:[$€£¥₹]\s?)?   # -$42
        (?P<digits>
            (?: \d{1,3} (?P<group>TEX | [GROUPS])\d{3} (?:(?P=group)\d{3})* (?!\d) | \d+ )
            (?: \.\d+ )?
          | \.\d+
        )
        (?P<exponent>[eE][-+]?\d+)?
    """.replace("GROUPS", _GROUPS).replace("TEX", _TEX_GROUPS),
    re.VERBOSE,
)
_ANSWER = re.compile(r"####|\\boxed\s*\{")
# more digits than any answer, and infinities instead of exceptions for absurd exponents
_ARITHMETIC = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


@evaluator(metrics=accuracy)
def numeric_match(result: Any, expected: Any, tolerance: float = 1e-9, relative: float = 0.0) -> bool | Score:
    """Whether two numbers agree: within `tolerance`, or within `relative` times the expected one.

    Of a text, the number after the last `####` or `\\boxed{` is taken, else the last number in it.
    Thousands may be grouped by comma, underscore or a space of any width, one sign throughout, also as TeX
    writes them, and the decimal mark is a point: "1,234.5", "1 234.5" and "1{,}234.5" are 1234.5. Currency
    signs, percent signs and units are ignored: "$42", "42 %" and "42km" are 42. Digits inside a word
    ("gpt4") are no number. A response without a number is a miss; an expected value without one is an error
    in the dataset.
    """
    wanted = number_in(expected)
    if wanted is None:
        raise DatasetError(
            f"numeric_match: there is no number in the expected value {as_text(expected)[:200]}; "
            "correct the row, or use exact_match"
        )
    found = number_in(result)
    if found is None:
        return _miss("numeric_match", result=shown(result), expected=str(wanted), reason="no number found")
    both = {"result": shown(result), "number": str(found), "expected": str(wanted)}
    if found == wanted or _is_near(found, wanted, Decimal(str(tolerance)), Decimal(str(relative))):
        return _hit("numeric_match", **both)
    return _miss("numeric_match", **both)


def _is_near(found: Decimal, wanted: Decimal, tolerance: Decimal, relative: Decimal) -> bool:
    distance = _ARITHMETIC.abs(_ARITHMETIC.subtract(found, wanted))
    if not distance.is_finite():
        return False
    return distance <= max(tolerance, _ARITHMETIC.multiply(relative, _ARITHMETIC.abs(wanted)))


def number_in(value: Any) -> Decimal | None:
    """The number that a value is or, for text, contains; `None` where there is none."""
    if isinstance(value, str):
        return _number_in_text(value)
    if isinstance(value, Decimal):
        return None if value.is_nan() else value
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if not isinstance(value, Real):
        return None
    number = Decimal(repr(float(value)))
    return None if number.is_nan() else number


def _number_in_text(text: str) -> Decimal | None:
    for marker in reversed(list(_ANSWER.finditer(text))):
        if match := _NUMBER.search(text, marker.end()):
            return _decimal(match)
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    return _decimal(last) if last else None


def _decimal(match: re.Match[str]) -> Decimal | None:
    sign = "-" if match["sign"] in ("-", "\N{MINUS SIGN}") else ""
    digits = match["digits"].replace(match["group"] or ",", "")
    try:
        return Decimal(sign + digits + (match["exponent"] or ""))
    except InvalidOperation:  # an exponent that not even Decimal holds
        return None


# -- text --------------------------------------------------------------------------------------------


@evaluator(metrics=accuracy)
def contains(result: Any, expected: Any, ignore_case: bool = False) -> bool | Score:
    """Whether the expected text occurs in the response, or the expected item in a list or set."""
    if isinstance(result, str):
        sought = expected if isinstance(expected, str) else str(expected)
        if sought in result or (ignore_case and sought.casefold() in result.casefold()):
            return _hit("contains", result=shown(result), expected=shown(sought))
        only_case = not ignore_case and sought.casefold() in result.casefold()
        reason = {"reason": "occurs in another case"} if only_case else {}
        return _miss("contains", result=shown(result), expected=shown(sought), **reason)
    if result is not None and not isinstance(result, Container):
        _refuse_type("contains", result, "text or a list")
    if result is not None and expected in result:
        return _hit("contains", result=shown(result), expected=shown(expected))
    return _miss("contains", result=shown(result), expected=shown(expected))


@evaluator(metrics=accuracy)
def matches(result: Any, pattern: str | re.Pattern[str], flags: int | re.RegexFlag = 0) -> bool | Score:
    """Whether the regular expression matches anywhere in the response; anchor it with ^ and $ for all."""
    if result is None:
        return _miss("matches", result=None, pattern=_pattern_text(pattern))
    if not isinstance(result, str):
        _refuse_type("matches", result, "text")
    try:
        found = re.search(pattern, result, flags)
    except re.error as error:
        raise DeclarationError(f"matches: {pattern!r} is not a regular expression: {error}") from error
    both = {"result": shown(result), "pattern": _pattern_text(pattern)}
    return _hit("matches", **both) if found else _miss("matches", **both)


def _pattern_text(pattern: str | re.Pattern[str]) -> str:
    return pattern if isinstance(pattern, str) else pattern.pattern


def _refuse_type(name: str, result: Any, needs: str) -> NoReturn:
    raise ResultError(
        f"{name} needs {needs} as `result`; got {as_text(result)[:200]} ({type(result).__name__}): "
        "pass the response's text"
    )


# -- JSON --------------------------------------------------------------------------------------------


@evaluator(metrics=accuracy)
def valid_json(result: Any, schema: Any = None) -> bool | Score:
    """Whether the response is JSON and nothing else, and fits the JSON Schema if one is given.

    Dicts and lists count as JSON that has been read already. NaN and Infinity are not JSON.
    """
    parsed = result
    if isinstance(result, str | bytes | bytearray):
        try:
            parsed = json.loads(result, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            fenced = isinstance(result, str) and result.lstrip().startswith("```")
            reason = "the JSON is inside a Markdown fence" if fenced else f"not JSON: {error}"
            return _miss("valid_json", result=shown(result), reason=reason)
    elif not isinstance(result, dict | list):
        return _miss("valid_json", result=shown(result), reason=f"{type(result).__name__} is not JSON text")
    if schema is None:
        return True
    problems = _problems(parsed, schema)
    return _miss("valid_json", result=shown(result), reason="; ".join(problems)) if problems else True


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _problems(value: Any, schema: Any) -> list[str]:
    """The first three places where the value does not fit, in words."""
    try:
        errors = list(errors_of(_validator(to_json(schema)), value))
    except NotASchema as error:
        raise DeclarationError(f"valid_json: the schema is not a JSON Schema: {error}") from error
    return [f"{error.json_path}: {error.message[:200]}" for error in errors[:3]]


@lru_cache(maxsize=32)
def _validator(schema_json: str) -> Any:
    """Checking a schema takes a thousand times as long as using it, and each sample brings the same one."""
    return validator_of(from_json(schema_json), who="valid_json(schema=…)")
