"""Which arguments of an evaluation are lenders, and what of them belongs to its fingerprint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from evalve.contracts import Lender, is_lender
from evalve.errors import DeclarationError
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
    lenders = {name: value for name, value in {**defaults, **arguments}.items() if is_lender(value)}
    for name, lender in lenders.items():
        _check_lend(name, lender)
    return lenders


def settings_of(lenders: Mapping[str, Lender]) -> dict[str, str]:
    """Part name → what the lender was told; what it holds at the moment is not part of an evaluation."""
    return {
        f"lender {name}": without_keys(_settings(lender), f"lender {name}")
        for name, lender in lenders.items()
    }


def _settings(lender: Lender) -> str:
    """A line for each, so that a change of one is shown as such."""
    settings = getattr(lender, "settings", None)
    plain = settings if isinstance(settings, Mapping) else {}
    lines = [f"{name} = {to_json(value)}" for name, value in plain.items()]
    return "\n".join([type(lender).__qualname__, *lines])


def _check_lend(name: str, lender: Lender) -> None:
    """What can be told before anything runs: an `async def` is no context manager by itself."""
    lend = type(lender).lend
    if inspect.iscoroutinefunction(lend) or inspect.isasyncgenfunction(lend):
        raise DeclarationError(
            f"{name!r}: {type(lender).__qualname__}.lend must return an async context manager: "
            "write @contextlib.asynccontextmanager above it"
        )
