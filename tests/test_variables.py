"""Which variables evalve knows, and what it says about those that it does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evalve
from evalve.gate.limits.presets import from_environment
from evalve.options import OPTIONS
from evalve.variables import KNOWN, LIMIT_KEYS, unknown_variables

SOURCES = Path(evalve.__file__).parent


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("EVALVE_MAX_CONCURENCY", "; did you mean EVALVE_MAX_CONCURRENCY?"),
        ("EVALVE_CONCURRENCY", "; did you mean EVALVE_MAX_CONCURRENCY?"),
        ("EVALVE_TIMEOUT_S", "; did you mean EVALVE_TIMEOUT?"),
        ("EVALVE_CASETTES", "; did you mean EVALVE_CASSETTES?"),
        ("EVALVE_LIMIT_STATE", "; did you mean EVALVE_LIMITS_STATE?"),
        ("EVALVE_LIMITS_ANTHROPIC_RMP", "; did you mean EVALVE_LIMITS_ANTHROPIC_RPM?"),
        ("EVALVE_LIMITS_OPENAI_BRUST_S", "; did you mean EVALVE_LIMITS_OPENAI_BURST_S?"),
        ("EVALVE_LIMITS_RPM", "; did you mean EVALVE_LIMITS_OPENAI_RPM?"),
        ("EVALVE_LIMITS_127_0_0_1_8080_TIRE", "; did you mean EVALVE_LIMITS_127_0_0_1_8080_TIER?"),
        ("EVALVE_LIMTS_OPENAI_RPM", "; did you mean EVALVE_LIMITS_OPENAI_RPM?"),
        (
            "EVALVE_LIMITS_OPENAI_XYZ",
            "; a limit's name ends with one of TIER, RPM, ITPM, OTPM, TPM, CONCURRENCY, BURST_S, ACCOUNT,"
            " BATCH_SIZE, BATCH_QUEUE",
        ),
        ("EVALVE_ZZZ", ""),
    ],
)
def test_a_misspelt_variable_is_named_with_the_nearest_known_one(name: str, hint: str) -> None:
    assert unknown_variables({name: "5"}) == [f"{name} is no variable of evalve and changes nothing{hint}"]


@pytest.mark.parametrize("name", [*KNOWN, "EVALVE_LIMITS_MY_HOST_EXAMPLE_443_TPM", "EVAL_USE_CACHE", "HOME"])
def test_nothing_is_said_about_a_known_variable_or_another_programs(name: str) -> None:
    assert unknown_variables({name: "5"}) == []


def test_an_empty_variable_counts_as_not_set() -> None:
    assert unknown_variables({"EVALVE_MAX_CONCURENCY": ""}) == []


def test_every_variable_of_the_source_is_known() -> None:
    text = "".join(path.read_text() for path in SOURCES.rglob("*.py"))
    written = set(re.findall(r"EVALVE_[A-Z0-9_]*[A-Z0-9]\b", text)) - {"EVALVE_LIMITS"}

    assert unknown_variables(dict.fromkeys(written, "5")) == []
    assert {option.env for option in OPTIONS} <= set(KNOWN)


@pytest.mark.parametrize("key", LIMIT_KEYS)
def test_every_key_of_a_limit_is_read(key: str) -> None:
    assert list(from_environment("openai", {f"EVALVE_LIMITS_OPENAI_{key}": "5"})) == [key.lower()]
