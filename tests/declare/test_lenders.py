"""Which arguments are lenders, and what of them belongs to an evaluation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

import pytest

from evalve.contracts import SampleContext
from evalve.declare.lenders import lenders_among, settings_of
from evalve.declare.variants import variant
from evalve.errors import DeclarationError
from lending import Numbered

DEFAULT = Numbered("default")


def evaluate(question: str, thing: Any = DEFAULT, other: Any = None) -> bool:
    return True


def test_defaults_and_what_is_passed_are_found() -> None:
    passed = Numbered("passed")

    assert lenders_among(evaluate, ("question",), {}) == {"thing": DEFAULT}
    assert lenders_among(evaluate, ("question",), {"other": passed}) == {"thing": DEFAULT, "other": passed}


def test_what_is_passed_takes_the_place_of_a_default() -> None:
    assert lenders_among(evaluate, ("question",), {"thing": "plain"}) == {}


def test_a_mock_a_class_and_a_column_are_no_lenders() -> None:
    arguments = {"other": MagicMock(), "thing": Numbered}

    assert lenders_among(evaluate, ("question",), arguments) == {}
    assert lenders_among(evaluate, ("question", "thing"), {}) == {}


def test_settings_are_told_line_by_line() -> None:
    class Database:
        settings = {"rows": 3, "schema": ["a"]}  # noqa: RUF012 (as people write it)

        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            yield

    name = Database.__qualname__
    assert settings_of({"db": Database()}) == {"lender db": f'{name}\nrows = 3\nschema = ["a"]'}


def test_a_lender_without_settings_is_its_class() -> None:
    class Plain:
        @asynccontextmanager
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            yield

    assert settings_of({"thing": Plain()}) == {"lender thing": Plain.__qualname__}


def test_live_state_is_no_setting() -> None:
    used = Numbered("x")
    used.events.append(("lent", 1))

    assert settings_of({"thing": used}) == settings_of({"thing": Numbered("x")})


def test_keys_among_settings_are_not_shown() -> None:
    named = Numbered("sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789")

    assert "abcdefghij" not in settings_of({"thing": named})["lender thing"]


def test_lenders_make_no_variants() -> None:
    assert variant({"thing": Numbered(), "model": "gpt"}) == "[model=gpt]"


def test_a_lend_without_its_decorator_is_told_before_anything_runs() -> None:
    class Forgot:
        async def lend(self, context: SampleContext) -> AsyncIterator[None]:
            yield

    with pytest.raises(
        DeclarationError, match=r"'thing': .*Forgot\.lend .* @contextlib\.asynccontextmanager"
    ):
        lenders_among(evaluate, ("question",), {"thing": Forgot()})
