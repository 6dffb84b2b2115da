"""Which dialect a request is written in."""

from __future__ import annotations

from collections.abc import Sequence

from evalve.gate.dialects.anthropic import AnthropicDialect
from evalve.gate.dialects.bedrock import BedrockDialect
from evalve.gate.dialects.cohere import CohereDialect
from evalve.gate.dialects.gemini import GeminiDialect
from evalve.gate.dialects.interactions import InteractionsDialect
from evalve.gate.dialects.ollama import OllamaDialect
from evalve.gate.dialects.openai import OpenAIDialect
from evalve.gate.dialects.text_servers import TextServerDialect
from evalve.gate.dialects.vertex import VertexDialect
from evalve.gate.messages import Call, Dialect, Request

DIALECTS: tuple[Dialect, ...] = (
    AnthropicDialect(),
    OpenAIDialect(),
    GeminiDialect(),
    InteractionsDialect(),
    VertexDialect(),
    BedrockDialect(),
    CohereDialect(),
    OllamaDialect(),
    TextServerDialect(),
)


def recognised(request: Request, dialects: Sequence[Dialect] = DIALECTS) -> tuple[Dialect, Call] | None:
    """The dialect and the call; `None` for a request that is neither limited nor cached nor retried."""
    for dialect in dialects:
        call = dialect.read(request)
        if call is not None:
            return dialect, call
    return None
