"""`${VARIABLE}` in the file, and files of variables: where keys come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.options import suggestion
from evalve.secrecy import Secret

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")


def variables_in(value: Any) -> Iterator[str]:
    """The variables that stand in a value, however deep."""
    if isinstance(value, str):
        yield from VARIABLE.findall(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from variables_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from variables_in(inner)


def expanded(value: Any, environ: Mapping[str, str], *, where: str) -> Any:
    """The value with what the variables hold; one that is not set is an error."""
    if isinstance(value, Mapping):
        return {key: expanded(inner, environ, where=where) for key, inner in value.items()}
    if isinstance(value, list):
        return [expanded(inner, environ, where=where) for inner in value]
    if not isinstance(value, str) or not VARIABLE.search(value):
        return value
    for name in VARIABLE.findall(value):
        if not environ.get(name):
            raise OptionError(f"{where}: {not_set(name, environ)}")
    return Secret(VARIABLE.sub(lambda found: environ[found[1]], value))


def not_set(name: str, environ: Mapping[str, str]) -> str:
    hint = suggestion(name, [other for other in environ if environ[other]])
    return (
        f"the variable {name} is not set{hint}; `export {name}=…`, or put it into a file and say "
        "--env-file FILE"
    )


def read_env_file(path: Path) -> dict[str, str]:
    """`NAME=value` by line; quotes, comments and `export` as shells have them, and nothing is run."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"--env-file: {str(path)!r} cannot be read: {reason}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:  # the line itself may be a key
            raise OptionError(f"--env-file: {path}:{number}: needs NAME=value")
        found[match[1]] = _value(match[2].strip())
    return found


def _value(text: str) -> str:
    for quote in "\"'":
        if text.startswith(quote) and (end := text.find(quote, 1)) > 0:
            return text[1:end]
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
