"""Which limits a person's configuration means."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.experiments.file.configuration import Configuration
from evalve.gate.limits.presets import DIMENSIONS, limits_for, read_limits
from evalve.gate.messages import Call, Limit, Limits
from evalve.gating import account_namer

OPUS = ("claude-opus-4-8", "claude-opus-4.5-4.8")


def limits(
    section: Any = None,
    environ: dict[str, str] | None = None,
    provider: str = "anthropic",
    model: tuple[str, str] = OPUS,
) -> Limits:
    return limits_for(provider, *model, read_limits(section), environ or {})


def rates(given: Limits) -> tuple[float | None, ...]:
    found = [given.by_dimension.get(dimension) for dimension in DIMENSIONS.values()]
    return tuple(limit.per_minute if limit is not None else None for limit in found)


def test_nothing_configured_is_no_limit() -> None:
    assert limits() == Limits({}, None, "")


@pytest.mark.parametrize(
    ("tier", "model", "expected"),
    [
        (1, OPUS, (50, 30_000, 8_000, None)),
        (2, OPUS, (1_000, 450_000, 90_000, None)),
        (3, OPUS, (2_000, 800_000, 160_000, None)),
        ("4", OPUS, (4_000, 2_000_000, 400_000, None)),
        ("start", OPUS, (1_000, 2_000_000, 400_000, None)),
        ("Build", OPUS, (5_000, 5_000_000, 1_000_000, None)),
        ("scale", OPUS, (10_000, 10_000_000, 2_000_000, None)),
        ("start", ("claude-fable-5", "claude-fable-5"), (1_000, 500_000, 100_000, None)),
        ("build", ("claude-fable-5-1", "claude-fable-5-1"), (2_000, 1_500_000, 300_000, None)),
        ("scale", ("claude-fable-5", "claude-fable-5"), (4_000, 4_000_000, 800_000, None)),
        (2, ("claude-fable-5", "claude-fable-5"), (None, None, None, None)),
    ],
)
def test_a_tier_of_anthropic_stands_for_its_figures(tier: Any, model: tuple[str, str], expected: Any) -> None:
    assert rates(limits({"anthropic": {"tier": tier}}, model=model)) == expected


@pytest.mark.parametrize(
    ("section", "environ"),
    [
        ({"openai": {"tier": 2}}, {}),
        ({}, {"EVALVE_LIMITS_OPENAI_TIER": "2"}),
        ({"openai": {"tier": 5}}, {"EVALVE_LIMITS_OPENAI_TIER": "2"}),
    ],
)
def test_a_tier_of_openai_is_configured_like_one_of_anthropic(section: Any, environ: dict[str, str]) -> None:
    given = limits(section, environ, "openai", ("gpt-4o-2024-08-06", "gpt-4o"))

    assert given == Limits(
        {
            "requests": Limit(5_000.0, None, "openai tier 2"),
            "tokens": Limit(450_000.0, None, "openai tier 2"),
        },
        None,
        "openai tier 2",
    )


def test_each_limit_says_where_it_comes_from() -> None:
    given = limits(
        {"anthropic": {"tier": 2, "itpm": 1000, "concurrency": 8}}, {"EVALVE_LIMITS_ANTHROPIC_RPM": "30"}
    )

    assert given == Limits(
        {
            "requests": Limit(30.0, None, "EVALVE_LIMITS_ANTHROPIC_RPM"),
            "input_tokens": Limit(1000.0, None, "evalve.yaml"),
            "output_tokens": Limit(90_000.0, None, "anthropic tier 2"),
        },
        8,
        "EVALVE_LIMITS_ANTHROPIC_RPM, evalve.yaml, anthropic tier 2",
    )


@pytest.mark.parametrize(
    ("environ", "rpm", "source"),
    [
        ({"ANTHROPIC_RPM_LIMIT": "15"}, 15, "ANTHROPIC_RPM_LIMIT"),
        (
            {"ANTHROPIC_RPM_LIMIT": "15", "EVALVE_LIMITS_ANTHROPIC_RPM": "20"},
            20,
            "EVALVE_LIMITS_ANTHROPIC_RPM",
        ),
        ({"EVALVE_LIMITS_ANTHROPIC_TIER": "3"}, 100, "evalve.yaml"),
        ({"OPENAI_RPM_LIMIT": "15"}, 100, "evalve.yaml"),
        ({"EVALVE_LIMITS_ANTHROPIC_RPM": ""}, 100, "evalve.yaml"),
    ],
)
def test_the_environment_holds_over_the_file(environ: dict[str, str], rpm: float, source: str) -> None:
    given = limits({"anthropic": {"rpm": 100}}, environ)

    assert given.by_dimension["requests"] == Limit(rpm, None, source)


def test_a_tier_in_the_environment_holds_over_the_files_tier() -> None:
    given = limits({"anthropic": {"tier": 4}}, {"EVALVE_LIMITS_ANTHROPIC_TIER": "1"})

    assert rates(given) == (50, 30_000, 8_000, None)


def test_every_setting_has_a_variable() -> None:
    environ = {
        "EVALVE_LIMITS_OPENAI_RPM": "60",
        "EVALVE_LIMITS_OPENAI_ITPM": "10k",
        "EVALVE_LIMITS_OPENAI_OTPM": "2k",
        "EVALVE_LIMITS_OPENAI_TPM": "2M",
        "EVALVE_LIMITS_OPENAI_CONCURRENCY": "4",
        "EVALVE_LIMITS_OPENAI_BURST_S": "2",
    }

    given = limits(environ=environ, provider="openai", model=("gpt-5", "gpt-5"))

    assert rates(given) == (60, 10_000, 2_000, 2_000_000)
    assert given.concurrency == 4
    assert given.by_dimension["requests"].burst == 2.0


def test_a_compatible_server_is_named_by_host_and_port() -> None:
    section = {"127.0.0.1:8080": {"rpm": 600}}

    of_file = limits(section, provider="127.0.0.1:8080")
    of_environment = limits(section, {"EVALVE_LIMITS_127_0_0_1_8080_RPM": "300"}, provider="127.0.0.1:8080")

    assert (rates(of_file)[0], rates(of_environment)[0]) == (600, 300)


@pytest.mark.parametrize(
    ("burst_s", "rpm", "burst"), [(1, 2400, 40.0), (0.5, 2400, 20.0), (1, 6, 1.0), (None, 2400, None)]
)
def test_a_burst_is_given_in_seconds_and_admits_at_least_one(
    burst_s: float | None, rpm: int, burst: float | None
) -> None:
    given = limits({"anthropic": {"rpm": rpm, "burst_s": burst_s}})

    assert given.by_dimension["requests"].burst == burst


@pytest.mark.parametrize(
    ("name", "rpm"),
    [
        ("claude-opus-4-8", 7),
        ("claude-opus-4.5-4.8", 7),
        ("claude-opus-*", 7),
        ("claude-sonnet-5", 100),
        ("claude-opus-4", 100),
    ],
)
def test_a_model_may_have_limits_of_its_own(name: str, rpm: float) -> None:
    section = {"anthropic": {"rpm": 100, "itpm": 5000, "models": {name: {"rpm": 7}}}}

    assert rates(limits(section)) == (rpm, 5000, None, None)


def test_a_dated_model_has_the_limits_of_its_name() -> None:
    section = {"anthropic": {"models": {"claude-haiku-4-5": {"rpm": 7}}}}

    given = limits(section, model=("claude-haiku-4-5-20251001", "claude-haiku-4-5"))

    assert rates(given)[0] == 7


def test_the_longest_name_that_fits_wins() -> None:
    section = {"anthropic": {"models": {"claude-opus-4-8": {"rpm": 3}, "claude-*": {"rpm": 9, "itpm": 8}}}}

    assert rates(limits(section)) == (3, 8, None, None)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("2000", 2000), ("450k", 450_000), ("2M", 2_000_000), ("1_000", 1000), ("1.5m", 1_500_000)],
)
def test_figures_may_be_written_short(text: str, rate: float) -> None:
    assert rates(limits({"anthropic": {"rpm": text}}))[0] == rate


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"anthropic": {"rmp": 5}},
            "evalve.yaml: limits.anthropic: unknown key 'rmp'; did you mean 'rpm'? "
            "(known: tier, rpm, itpm, otpm, tpm, concurrency, burst_s, account, batch_size, "
            "batch_queue, models)",
        ),
        (
            {"anthropic": {"models": {"m": {"tier": 1}}}},
            "evalve.yaml: limits.anthropic.models.m: unknown key 'tier' "
            "(known: rpm, itpm, otpm, tpm, concurrency, burst_s)",
        ),
        (
            {"antropic": {"rpm": 5}},
            "evalve.yaml: limits.antropic: unknown provider 'antropic'; did you mean 'anthropic'? "
            "(or give a server's host:port)",
        ),
        (
            {"anthropic": {"tier": "bild"}},
            "evalve.yaml: limits.anthropic.tier: unknown tier 'bild'; did you mean 'build'? "
            "(known: 1, 2, 3, 4, start, build, scale)",
        ),
        (
            {"openai": {"tier": "build"}},
            "evalve.yaml: limits.openai.tier: unknown tier 'build' (known: 1, 2, 3, 4, 5)",
        ),
        (
            {"127.0.0.1:8080": {"tier": 1}},
            "evalve.yaml: limits.127.0.0.1:8080.tier: there are no presets for 127.0.0.1:8080; "
            "give rpm and tpm, or nothing: its answers state them",
        ),
        (
            {"anthropic": {"rpm": 0}},
            "evalve.yaml: limits.anthropic.rpm: needs a number a minute above 0, "
            "as in 2000, 450k or 2M; got 0",
        ),
        (
            {"anthropic": {"concurrency": "many"}},
            "evalve.yaml: limits.anthropic.concurrency: needs a whole number, 1 or more; got 'many'",
        ),
        ({"anthropic": 5}, "evalve.yaml: limits.anthropic must be a mapping of names to values; got int"),
        ([], "evalve.yaml: limits must be a mapping of names to values; got list"),
    ],
)
def test_a_mistake_in_the_file_is_named(section: Any, message: str) -> None:
    with pytest.raises(OptionError) as error:
        read_limits(section)

    assert str(error.value) == message


def test_a_wrong_tier_in_a_variable_is_named_with_those_of_its_provider() -> None:
    with pytest.raises(OptionError) as error:
        limits(environ={"EVALVE_LIMITS_OPENAI_TIER": "6"}, provider="openai", model=("gpt-5", "gpt-5"))

    assert str(error.value) == "EVALVE_LIMITS_OPENAI_TIER: unknown tier '6' (known: 1, 2, 3, 4, 5)"


def test_a_mistake_in_a_variable_is_named() -> None:
    with pytest.raises(OptionError, match=r"^ANTHROPIC_RPM_LIMIT: needs a number a minute above 0.*'fast'"):
        limits(environ={"ANTHROPIC_RPM_LIMIT": "fast"})


@pytest.mark.parametrize("provider", ["gemini", "vertex", "bedrock", "cohere", "ollama"])
def test_other_providers_are_named_like_the_first_two(provider: str) -> None:
    configured = read_limits({provider: {"rpm": 100}})
    environ = {f"EVALVE_LIMITS_{provider.upper()}_TPM": "2M"}

    limits = limits_for(provider, "m", "m", configured, environ)

    assert {name: limit.per_minute for name, limit in limits.by_dimension.items()} == {
        "requests": 100.0,
        "tokens": 2e6,
    }


@pytest.mark.parametrize(
    ("section", "environ"),
    [
        ({"api.example:1": {"account": "team-a"}}, {}),
        ({"openai": {"account": "team-a"}}, {}),
        ({}, {"EVALVE_LIMITS_API_EXAMPLE_1_ACCOUNT": "team-a"}),
    ],
)
def test_keys_of_an_account_that_a_person_names_share_their_limits(
    section: dict[str, Any], environ: dict[str, str]
) -> None:
    named = account_namer(Configuration(limits=section), environ)
    calls = [
        Call("api.example:1", "api.example:1", "m", "m", key_hash, 1, None, False, "openai")
        for key_hash in ("one", "two")
    ]

    assert len({named(call).scope for call in calls}) == 1
    assert len({account_namer(Configuration(), {})(call).scope for call in calls}) == 2
