"""Whose a host is."""

from __future__ import annotations

import pytest

from evalve.gate.dialects.hosts import provider_at


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.anthropic.com", "anthropic"),
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("generativelanguage.googleapis.com", "gemini"),
        ("us-east5-aiplatform.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("api.cohere.com", "cohere"),
        ("ollama.com", "ollama"),
        ("api.mistral.ai", "api.mistral.ai"),
        ("127.0.0.1:11434", "127.0.0.1:11434"),
    ],
)
def test_a_host_is_a_providers_or_one_by_itself(host: str, provider: str) -> None:
    assert provider_at(host) == provider
