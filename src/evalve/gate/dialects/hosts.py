"""Whose a host is: the name under which a person sets a provider's limits."""

from __future__ import annotations


def provider_at(host: str) -> str:
    """`anthropic`, `gemini` and so on; any other host is a provider by itself."""
    match host:
        case "api.anthropic.com":
            return "anthropic"
        case "api.cohere.com" | "api.cohere.ai":
            return "cohere"
        case "generativelanguage.googleapis.com":
            return "gemini"
    if host == "api.openai.com" or host.endswith(".api.openai.com"):
        return "openai"
    if host.endswith("aiplatform.googleapis.com"):
        return "vertex"
    if host.startswith("bedrock-runtime"):
        return "bedrock"
    return "ollama" if host.endswith("ollama.com") else host
