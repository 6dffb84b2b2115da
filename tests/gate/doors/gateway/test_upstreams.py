"""Where a path under an upstream's prefix leads to."""

from __future__ import annotations

import pytest

from evalve.errors import OptionError
from evalve.gate.doors.gateway.upstreams import joined, upstreams_from


@pytest.mark.parametrize(
    ("base_url", "path", "url"),
    [
        ("https://api.anthropic.com", "/v1/messages", "https://api.anthropic.com/v1/messages"),
        ("https://api.openai.com/v1", "/v1/responses", "https://api.openai.com/v1/responses"),
        ("https://api.openai.com/v1", "/chat/completions", "https://api.openai.com/v1/chat/completions"),
        ("https://api.groq.com", "/openai/v1/models", "https://api.groq.com/openai/v1/models"),
        ("https://api.groq.com/openai/v1", "/openai/v1/models", "https://api.groq.com/openai/v1/models"),
        ("https://api.groq.com/openai/v1", "/v1/models", "https://api.groq.com/openai/v1/models"),
        ("http://127.0.0.1:11434", "/api/chat", "http://127.0.0.1:11434/api/chat"),
        (
            "https://x.openai.azure.com",
            "/openai/deployments/d/x",
            "https://x.openai.azure.com/openai/deployments/d/x",
        ),
        ("https://h/v1", "/", "https://h/v1/"),
        ("https://h", "//evil.example/v1", "https://h//evil.example/v1"),
    ],
)
def test_what_base_url_and_path_share_is_there_once(base_url: str, path: str, url: str) -> None:
    assert joined(base_url, path) == url


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/v1beta/models/g:generateContent", "https://g.example/v1beta/models/g:generateContent?alt=sse"),
        ("/v1alpha/models/g:generateContent", "https://g.example/v1alpha/models/g:generateContent?alt=sse"),
        ("/models/g:generateContent", "https://g.example/v1beta/models/g:generateContent?alt=sse"),
    ],
)
def test_gemini_is_asked_with_a_version_also_where_the_client_has_none(path: str, url: str) -> None:
    gemini = upstreams_from({"GOOGLE_GEMINI_BASE_URL": "https://g.example/"})["gemini"]
    assert gemini.url_for(path, "alt=sse") == url


def test_the_usual_providers_are_there_without_a_word_and_azure_where_it_is_set() -> None:
    found = upstreams_from({})
    assert {name: one.base_url for name, one in found.items()} == {
        "anthropic": "https://api.anthropic.com",
        "openai": "https://api.openai.com/v1",
        "gemini": "https://generativelanguage.googleapis.com",
        "groq": "https://api.groq.com",
        "cohere": "https://api.cohere.com",
        "cerebras": "https://api.cerebras.ai",
        "ollama": "http://127.0.0.1:11434",
        "local": "http://local/v1",
    }
    azure = upstreams_from({"AZURE_OPENAI_ENDPOINT": "https://x.azure.example"})["azure"]
    assert azure.base_url == "https://x.azure.example"


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("127.0.0.1:12345", "http://127.0.0.1:12345"),
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box/path", "http://gpu-box:11434/path"),
        ("[::1]", "http://[::1]:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("https://ollama.example", "https://ollama.example"),
    ],
)
def test_ollamas_host_is_read_as_its_clients_read_it(said: str, url: str) -> None:
    assert upstreams_from({"OLLAMA_HOST": said})["ollama"].base_url == url


def test_models_add_servers_each_with_its_own_key_that_does_not_show_itself() -> None:
    models = {
        "one": {"model": "a", "base_url": "http://127.0.0.1:1/v1", "api_key": "${ONE_KEY}"},
        "two": {"model": "b", "base_url": "http://127.0.0.1:2/v1"},
        "an-agent": {"agent": "claude-code"},
    }
    found = upstreams_from({"ONE_KEY": "sk-secret-one"}, models)
    assert found["one"].api_key == "sk-secret-one"
    assert found["two"].api_key is None
    assert "an-agent" not in found
    assert "sk-secret" not in repr(found)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="the address of 'openai' must begin with http"):
        upstreams_from({"OPENAI_BASE_URL": "localhost:8080"})


def test_a_variable_that_is_not_set_is_named_and_keeps_no_other_upstream_from_being_there() -> None:
    models = {
        "elsewhere": {"model": "m", "base_url": "${THEIR_URL}/v1", "api_key": "${THEIR_KEY}"},
        "here": {"model": "m", "base_url": "http://127.0.0.1:8000/v1", "api_key": "${OUR_KEY}"},
        "open": {"model": "m", "base_url": "http://127.0.0.1:8000/v1"},
    }
    found = upstreams_from({}, models)
    assert found["elsewhere"].address_variable == "THEIR_URL"
    assert (found["here"].address_variable, found["here"].key_variable) == (None, "OUR_KEY")
    assert found["open"].key_variable is None
    assert found["openai"].base_url == "https://api.openai.com/v1"
