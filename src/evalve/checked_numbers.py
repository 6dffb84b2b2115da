"""Numbers that a person sets in code, checked: a bad one is an error that names file and line."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from evalve.callers import caller
from evalve.errors import OptionError


def whole(name: str, value: Any, *, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        raise OptionError(f"{caller()}: {name} must be a whole number, {minimum} or more; got {value!r}")
    return int(value)


def number(name: str, value: Any, *, minimum: float = 0.0, maximum: float = math.inf) -> float:
    is_number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if not is_number or not minimum <= value <= maximum:
        allowed = f"{minimum:g} or more" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
        raise OptionError(f"{caller()}: {name} must be a number, {allowed}; got {value!r}")
    return float(value)
