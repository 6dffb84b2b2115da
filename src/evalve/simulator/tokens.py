"""Counting tokens: a token is four bytes of UTF-8 text, rounded up over the whole request.

Text, tool definitions, tool inputs and tool results count by their bytes (structures as compact JSON);
an image, a document or an audio part counts as 1,000 tokens whatever its size.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

BYTES_PER_TOKEN = 4
ATTACHMENT_BYTES = 1000 * BYTES_PER_TOKEN
_ATTACHMENTS = {"image", "image_url", "input_image", "document", "input_audio", "input_file", "file"}


class Part(NamedTuple):
    """A piece of a prompt in the order in which a provider reads it."""

    text: str
    size_bytes: int
    cached_up_to_here: bool = False
    for_an_hour: bool = False


def count_text(text: str) -> int:
    return count_bytes(text_bytes(text))


def count_bytes(size_bytes: int) -> int:
    return -(-size_bytes // BYTES_PER_TOKEN)


def count_parts(parts: list[Part]) -> int:
    return count_bytes(sum(part.size_bytes for part in parts))


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def content_parts(content: Any) -> Iterator[Part]:
    """The parts of a message's content, which is text or a list of blocks."""
    if isinstance(content, str):
        yield Part(content, text_bytes(content))
    elif isinstance(content, list):
        for block in content:
            yield _block_part(block)


def structure_part(value: Any) -> Part:
    """Anything else, such as the definition of a tool."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _marked(Part(text, text_bytes(text)), value)


def _block_part(block: Any) -> Part:
    return _marked(_unmarked_part(block), block)


def _unmarked_part(block: Any) -> Part:
    if not isinstance(block, dict):
        return structure_part(block)
    kind = block.get("type")
    if kind in _ATTACHMENTS:
        mark = zlib.crc32(json.dumps(block).encode())  # two images are two prompts
        return Part(f"[{kind} {mark:08x}]", ATTACHMENT_BYTES)
    if kind in ("text", "input_text", "output_text") and isinstance(block.get("text"), str):
        return Part(block["text"], text_bytes(block["text"]))
    if kind == "tool_result":
        inner = list(content_parts(block.get("content")))
        return Part("".join(part.text for part in inner), sum(part.size_bytes for part in inner))
    return structure_part(block.get("input", block))


def _marked(part: Part, block: Any) -> Part:
    """With what the block's `cache_control` says."""
    control = block.get("cache_control") if isinstance(block, dict) else None
    if not control:
        return part._replace(cached_up_to_here=False)
    is_hour = isinstance(control, dict) and control.get("ttl") == "1h"
    return part._replace(cached_up_to_here=True, for_an_hour=is_hour)
