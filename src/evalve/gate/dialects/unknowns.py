"""What in a request is read by the model and cannot be counted from its bytes, whatever the provider."""

from __future__ import annotations

import json
from typing import Any, Literal

from evalve.gate.dialects.request_parts import is_attachment

Unknown = Literal["", "attachments", "context"]
"""Why nobody can know how large the input is; empty where its text bounds it."""
CacheTime = Literal["", "5m", "1h"]
"""For how long a request has the provider's prompt cache written."""

_KEPT_THERE = frozenset(
    {
        "agent_id",
        "cachedContent",
        "cached_content",
        "connectors",
        "container",
        "conversation",
        "mcp_servers",
        "previous_interaction_id",
        "previous_response_id",
        "web_search_options",
    }
)
"""Fields of a body that name what the provider keeps, or what it fetches itself."""
_SERVER_TOOLS = (
    "advisor",
    "code_execution",
    "code_interpreter",
    "computer_use",
    "file_search",
    "image_generation",
    "mcp",
    "tool_search",
    "web_fetch",
    "web_search",
)
_DECLARATIONS = frozenset({"functionDeclarations", "function_declarations"})
_REFERENCES = frozenset({"item_reference", "container_upload", "search_result"})
_SIGNS = tuple(
    name.encode()
    for name in (
        *sorted(_KEPT_THERE),
        *_SERVER_TOOLS,
        *sorted(_REFERENCES),
        "data:",
        "document",
        "file",
        "audio",
        "image",
        "inlineData",
        "inline_data",
        "oogle",
        "prompt",
        "rl_context",
        "rlContext",
        "codeExecution",
        "video",
    )
)
"""One of these is in every body that has something unknown; most bodies need not be parsed."""


def unknown_input(body: bytes) -> Unknown:
    """`context` for what the provider keeps or fetches, `attachments` for images, documents and the like."""
    if not any(sign in body for sign in _SIGNS):
        return ""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(parsed, dict):
        return ""
    if _refers(parsed):
        return "context"
    return _found(parsed)


def written_cache(body: bytes) -> CacheTime:
    """Anthropic's marks; a text that only speaks of them makes a call look dearer than it is."""
    if b'"cache_control"' not in body:
        return ""
    return "1h" if b'"1h"' in body else "5m"


def _refers(body: dict[str, Any]) -> bool:
    if any(body.get(name) for name in _KEPT_THERE) or isinstance(body.get("prompt"), dict):
        return True
    tools = body.get("tools")
    return isinstance(tools, list) and any(_is_of_server(tool) for tool in tools)


def _is_of_server(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return False
    kind = tool.get("type")
    if isinstance(kind, str):
        return kind.startswith(_SERVER_TOOLS)
    is_geminis = bool(tool) and all(isinstance(value, dict | list) for value in tool.values())
    return (
        is_geminis and "name" not in tool and tool.keys().isdisjoint(_DECLARATIONS | {"toolSpec", "function"})
    )


def _found(value: Any) -> Unknown:
    if is_attachment(value):
        return "attachments"
    if isinstance(value, dict):
        if value.get("type") in _REFERENCES:
            return "context"
        return next((found for name, item in value.items() if (found := _named(name, item))), "")
    if isinstance(value, list):
        return next((found for item in value if (found := _found(item))), "")
    return ""


def _named(name: str, item: Any) -> Unknown:
    return "attachments" if is_attachment(item, name) else _found(item)
