"""JSON text of any Python value: what JSON cannot hold is written as text, and nothing ever raises."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Set
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

_MOST_BITS = 14_000  # Python writes and reads whole numbers of up to 4300 digits
_MOST_DIGITS = 15
"""Of a decimal number that is written as one: readers in any language read these exactly."""
RAISED_BY_VALUES = (Exception, SystemExit)
"""What methods of a person's classes may raise where nothing may end but them, `sys.exit()` among it."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def to_json(value: Any) -> str:
    """Compact JSON with sorted keys, equal for equal content in every process."""
    try:
        return _encode(value)
    except RAISED_BY_VALUES:  # a value without a form in JSON, or a converter of the person's own that raised
        return _encode(_plain(value, within=()))


def from_json(text: str) -> Any:
    return json.loads(text)


def digest(value: Any) -> str:
    """A short name for the content of a value."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()[:16]


def as_plain(value: Any) -> Any:
    """The value as it will come back from the store."""
    return from_json(to_json(value))


def _foreign(value: Any) -> Any:
    """What to write for a value that JSON has no form for."""
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, UUID | timedelta) or type(value).__module__ == "ipaddress":
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(value, key=repr)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    for method in ("model_dump", "isoformat", "tolist", "_asdict"):  # pydantic, dates, numpy, named tuples
        converter = getattr(value, method, None)
        if callable(converter) and not isinstance(value, type):
            return converter()
    return as_text(value)


def _number(value: Decimal) -> int | float | str:
    """As JSON has it: 500 of 500.00, and a text where a float would not be the same."""
    if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
        return str(value)
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def as_text(value: Any) -> str:
    """The value's repr without memory addresses, so that it is the same in the next process."""
    try:
        return _ADDRESS.sub("", repr(value))
    except RAISED_BY_VALUES as error:  # a broken __repr__ of a user's class must not lose the record
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


_encode = json.JSONEncoder(
    ensure_ascii=True, sort_keys=True, allow_nan=False, separators=(",", ":"), default=_foreign
).encode


def _plain(value: Any, *, within: tuple[int, ...]) -> Any:
    """A copy that JSON accepts: string keys, no NaN, no cycles; deeper than 50 levels becomes text.

    `within` holds the ids of the values around this one.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _MOST_BITS else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in within or len(within) > 50:
        return "…"
    within = (*within, id(value))
    try:
        if isinstance(value, Mapping):
            return {_key(key): _plain(item, within=within) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_plain(item, within=within) for item in value]
        converted = _foreign(value)
    except RAISED_BY_VALUES:  # a user's own container or converter failed: fall back to text
        return as_text(value)
    return _plain(converted, within=within) if converted is not value else as_text(value)


def _key(key: Any) -> str:
    if isinstance(key, date | Decimal | Enum | UUID):
        key = _foreign(key)
    return key if isinstance(key, str) else as_text(key)
