"""What a person asks of a model, in a form that fits every provider."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.gate.doors.answers import ToolCall
from evalve.gate.doors.misuse import shown

Prompt = str | Sequence[Mapping[str, Any]]
"""A text, or messages with `role` (system, user, assistant, tool) and `content`.

Content is a text or a list of texts and blocks. `{"type": "image", …}` with one of `data` (bytes), `path`,
`url` or `base64` suits every provider, as do an assistant's `tool_calls` and a `tool` message with its
`tool_call_id`; any other block goes to the provider as it is.
"""

_SOURCES = ("data", "path", "url", "base64")
_MAGIC = ((b"\x89PNG", "image/png"), (b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"))


@dataclass(slots=True)
class Ask:
    """One question with everything that goes with it."""

    prompt: Prompt
    system: str | list[Any] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    max_tokens: int | None = 1024
    temperature: float | None = None
    response_schema: Mapping[str, Any] | None = None
    stop: str | Sequence[str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the body as they are."""
    streams: bool = False

    def __post_init__(self) -> None:
        """A mistake is told here, not by a provider that is paid or by code that meets it later."""
        system, schema, tools = self.system, self.response_schema, self.tools
        if system is not None and not isinstance(system, str | list | tuple):
            raise OptionError(f"system= needs a text or a list of blocks, not {shown(system)}")
        if schema is not None and not isinstance(schema, Mapping):
            raise OptionError(
                "response_schema= needs a JSON schema, a mapping as in {'type': 'object', …}, "
                f"not {shown(schema)}"
            )
        if tools is not None:
            _check_tools(tools)
        _check_settings(self.max_tokens, self.temperature, self.stop)

    def messages(self) -> Sequence[Mapping[str, Any]]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return ({"role": "user", "content": prompt},)
        given: object = prompt
        if not isinstance(given, list | tuple):
            raise OptionError(f"a prompt is a text or a list of messages, not {shown(given)}")
        for place, message in enumerate(given):
            if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
                raise OptionError(f"message {place} must have a role and content; it is {shown(message)}")
            _check_content(message.get("content"), place)
        return given

    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


def _check_settings(max_tokens: object, temperature: object, stop: object) -> None:
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise OptionError(f"max_tokens= needs a whole number above 0, or None; got {shown(max_tokens)}")
    if temperature is not None and (isinstance(temperature, bool) or not isinstance(temperature, Real)):
        raise OptionError(f"temperature= needs a number, or None; got {shown(temperature)}")
    if stop is not None and not isinstance(stop, str | list | tuple):
        raise OptionError(f"stop= needs a text or a list of texts, not {shown(stop)}")


def _check_tools(tools: object) -> None:
    if not isinstance(tools, list | tuple):
        raise OptionError(f"tools= needs a list of tools, not {shown(tools)}")
    for place, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise OptionError(
                f"tools=: tool {place} needs a mapping of name, description, parameters, not {shown(tool)}"
            )


def _check_content(content: object, place: int) -> None:
    if content is None or isinstance(content, str | Mapping):
        return
    if not isinstance(content, list | tuple):
        raise OptionError(
            f"message {place}: its content needs a text or a list of texts and blocks, not {shown(content)}"
        )
    for item in content:
        if not isinstance(item, str | Mapping):
            raise OptionError(
                f"message {place}: its content holds texts and blocks, not {shown(item)}; "
                "an image is {'type': 'image', 'data': …}"
            )


@dataclass(frozen=True, slots=True)
class Image:
    """Either somewhere (`url`) or here (`base64`)."""

    media_type: str = ""
    base64: str = ""
    url: str = ""

    @property
    def as_url(self) -> str:
        return self.url or f"data:{self.media_type};base64,{self.base64}"


def neutral_image(block: Mapping[str, Any]) -> Image | None:
    """The image of a block in the neutral form; `None` for every other block."""
    if block.get("type") != "image":
        return None
    given = [name for name in _SOURCES if name in block]
    if len(given) != 1:
        return None
    value, media_type = block[given[0]], block.get("media_type")
    match given[0]:
        case "url" if not str(value).startswith("data:"):
            return Image(url=str(value))
        case "url":
            head, _, text = str(value).partition(",")
            return Image(media_type or head[5:].partition(";")[0], text)
        case "base64" if isinstance(value, str):
            return Image(media_type or _sniffed(base64.b64decode(value[:64])), value)
        case "path" if isinstance(value, str | PathLike):
            return _encoded(_content_of(value), media_type)
        case "data" if isinstance(value, bytes | bytearray | memoryview):
            return _encoded(bytes(value), media_type)
        case kind:
            needed = "bytes" if kind == "data" else "a text"
            raise OptionError(f"an image's {kind!r} needs {needed}, not {shown(value)}")


def _encoded(content: bytes, media_type: str | None) -> Image:
    return Image(media_type or _sniffed(content), base64.b64encode(content).decode("ascii"))


def _content_of(path: Any) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"the image {path} cannot be read: {error.strerror}") from error


def _sniffed(content: bytes) -> str:
    for magic, media_type in _MAGIC:
        if content.startswith(magic):
            return media_type
    if content[8:12] == b"WEBP":
        return "image/webp"
    raise OptionError("an image is neither PNG, JPEG, GIF nor WebP; say what it is with media_type=")


def as_tool_call(given: Any) -> ToolCall:
    """A tool call in a message: ours, a mapping of the same names, or in OpenAI's shape."""
    if isinstance(given, ToolCall):
        return given
    if not isinstance(given, Mapping):
        raise OptionError(f"a tool call in a message needs a name and arguments, not {shown(given)}")
    function = given.get("function", given)
    if not isinstance(function, Mapping) or not function.get("name"):
        raise OptionError(f"a tool call in a message needs a name; it is {shown(given)}")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        return tool_call_from_text(str(function["name"]), arguments, str(given.get("id", "")))
    return ToolCall(str(function["name"]), arguments, str(given.get("id", "")))


def tool_call_from_text(name: str, text: str, id: str) -> ToolCall:
    """A call whose arguments come as text; none at all are an empty object."""
    try:
        return ToolCall(name, json.loads(text) if text.strip() else {}, id)
    except (ValueError, RecursionError):
        return ToolCall(name, text, id, unparsed=True)


def tool_parts(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    """Name, description and `schema` of a function in any of the three shapes; `None` for any other tool."""
    kind = tool.get("type", "function")
    if kind not in ("function", "custom"):
        return None
    inner = tool.get("function", tool)
    if "name" not in inner or (kind == "custom" and "input_schema" not in inner):
        return None
    schema = inner.get("parameters") or inner.get("input_schema") or {"type": "object", "properties": {}}
    parts = {"name": inner["name"], "schema": schema}
    if inner.get("description"):
        parts["description"] = inner["description"]
    return parts


def closed(schema: Any) -> Any:
    """The schema with `additionalProperties: false` on objects that do not say: both providers insist."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy = {name: value if name in ("enum", "const") else closed(value) for name, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        copy.setdefault("additionalProperties", False)
    return copy
