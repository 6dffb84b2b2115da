"""Which arguments of an evaluation are lenders, and what of them belongs to its fingerprint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from evalve.contracts import Lender, is_lender
from evalve.jsontext import to_json
from evalve.secrecy import without_keys


def lenders_among(
    function: Callable[..., Any], columns: tuple[str, ...], arguments: Mapping[str, Any]
) -> dict[str, Lender]:
    """Those that were passed, as fixtures or keywords, and those that are defaults of parameters."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not parameter.empty and name not in columns
    }
    return {name: value for name, value in {**defaults, **arguments}.items() if is_lender(value)}


def settings_of(lenders: Mapping[str, Lender]) -> dict[str, str]:
    """Part name → what the lender was told; what it holds at the moment is not part of an evaluation."""
    return {
        f"lender {name}": without_keys(_settings(lender), f"lender {name}")
        for name, lender in lenders.items()
    }


def _settings(lender: Lender) -> str:
    settings = getattr(lender, "settings", None)
    return f"{type(lender).__qualname__}({to_json(dict(settings)) if isinstance(settings, Mapping) else ''})"
