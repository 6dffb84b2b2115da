"""What a model's name means."""

from __future__ import annotations

from typing import Any

import pytest

from evalve.errors import OptionError
from evalve.gate.doors.naming import LOCAL_MODEL, LOCAL_URL, target_of

KEYS = {"ANTHROPIC_API_KEY": "a-key", "OPENAI_API_KEY": "o-key"}


@pytest.mark.parametrize(
    ("name", "provider", "model", "base_url", "api_key"),
    [
        ("anthropic/claude-x", "anthropic", "claude-x", "https://api.anthropic.com", "a-key"),
        ("openai/gpt-x", "openai", "gpt-x", "https://api.openai.com/v1", "o-key"),
        ("openai/org/tuned", "openai", "org/tuned", "https://api.openai.com/v1", "o-key"),
        (
            "openai-compatible/m@http://127.0.0.1:8080/v1",
            "openai-compatible",
            "m",
            "http://127.0.0.1:8080/v1",
            None,
        ),
        ("openai-compatible/a/b@c@https://h/v1/", "openai-compatible", "a/b@c", "https://h/v1", None),
        ("local", "local", LOCAL_MODEL, LOCAL_URL, None),
    ],
)
def test_a_name_says_provider_model_and_address(
    name: str, provider: str, model: str, base_url: str, api_key: str | None
) -> None:
    target = target_of(name, environ=KEYS)

    assert (target.provider.name, target.model, target.base_url, target.api_key) == (
        provider,
        model,
        base_url,
        api_key,
    )


def test_the_environment_gives_another_address() -> None:
    environ = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/"}

    assert target_of("anthropic/m", environ=environ).base_url == "http://127.0.0.1:9"


def test_arguments_win_over_the_environment() -> None:
    environ = KEYS | {"OPENAI_BASE_URL": "http://there/v1"}

    target = target_of("openai/m", environ=environ, api_key="mine", base_url="http://here/v1")

    assert (target.base_url, target.api_key) == ("http://here/v1", "mine")


def test_an_empty_variable_is_not_set() -> None:
    environ = {"OPENAI_API_KEY": " ", "OPENAI_BASE_URL": ""}

    target = target_of("openai/m", environ=environ)

    assert (target.lacks_key, target.base_url) == (True, "https://api.openai.com/v1")


def test_the_key_of_openai_does_not_go_to_a_compatible_server() -> None:
    assert target_of("openai-compatible/m@http://h/v1", environ=KEYS).api_key is None


def test_a_compatible_server_has_a_variable_of_its_own_and_may_do_without() -> None:
    name = "openai-compatible/m@http://h/v1"

    assert target_of(name, environ={"OPENAI_COMPATIBLE_API_KEY": "c"}).api_key == "c"
    assert not target_of(name, environ={}).lacks_key


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("claude-haiku-4-5", "did you mean 'anthropic/claude-haiku-4-5'"),
        ("gpt-5", "did you mean 'openai/gpt-5'"),
        ("antropic/claude", "did you mean 'anthropic'"),
        ("anthropic/", "lacks the name of a model; write it as in 'anthropic/claude-sonnet-5'"),
        ("anthropic", "lacks the name of a model; write it as in 'anthropic/claude-sonnet-5'"),
        ("openai", "lacks the name of a model; write it as in 'openai/gpt-5-mini'"),
        ("openai-compatible", "lacks the name of a model; write it as in 'openai-compatible/MODEL@http"),
        ("", "write 'anthropic/MODEL'"),
        ("openai-compatible/m", "which model at which address"),
        ("openai-compatible/@http://h/v1", "which model at which address"),
        ("local/other", "just 'local'"),
    ],
)
def test_a_name_that_means_nothing_is_told_how_to_be_written(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        target_of(name, environ={})


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:80",
        "ftp://h",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://h:0",
        "http://user:secret@h/v1",
        "http://user:secret@h:99999/v1",
        "user:secret@h",
        "http://h?k=secret",
    ],
)
def test_an_address_that_cannot_be_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(OptionError) as caught:
        target_of("openai/m", environ={}, base_url=url)

    assert "secret" not in str(caught.value)


def test_a_target_does_not_show_its_key() -> None:
    assert "a-key" not in repr(target_of("anthropic/m", environ=KEYS))


@pytest.mark.parametrize("name", [None, 3, b"openai/m"])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(OptionError, match="a model's name is a text, as in 'anthropic/claude-sonnet-5'; got"):
        target_of(name, environ={})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"base_url": 3}, r"'openai/m': base_url= needs a text, as in 'http://HOST'; got 3 \(int\)"),
        ({"api_key": 3}, "'openai/m': api_key= needs a text, not a int"),
        ({"api_key": "sk-secret\nmore"}, "'openai/m': the key in api_key= has a line break or another"),
        ({"api_key": "sk-secret…"}, "'openai/m': the key in api_key= has a line break or another"),
    ],
)
def test_keys_and_addresses_that_cannot_be_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told) as caught:
        target_of("openai/m", environ={}, **given)

    assert "secret" not in str(caught.value)


def test_a_broken_key_in_the_environment_is_told_by_its_variable() -> None:
    with pytest.raises(OptionError, match="the key in OPENAI_API_KEY has a line break"):
        target_of("openai/m", environ={"OPENAI_API_KEY": "sk-secret\nmore"})


def test_spaces_around_a_key_do_not_count() -> None:
    assert target_of("openai/m", environ={}, api_key="sk-1\n").api_key == "sk-1"
