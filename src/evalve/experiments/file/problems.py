"""What is wrong with a file by itself: keys that nobody knows, values that cannot be, keys in clear."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.file.document import Document, Keys, Place
from evalve.experiments.file.keys import (
    AGENT_MODEL,
    API_MODEL,
    DATASET,
    EXPERIMENT,
    FILES,
    PAIR_MODEL,
    SANDBOXES,
    SECTIONS,
    Key,
    Table,
    is_file,
    option_keys,
    table_of_model,
)
from evalve.options import from_mapping, suggestion

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NAME = re.compile(r"(?i)key|token|secret|password|authorization")
_PASSWORD_IN_URL = re.compile(r"//[^/@\s]*:[^/@\s]+@|\bpassword\s*=")
OWN_KEYS = ("agent", "model", "student", "teacher", "extends")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it stands, and what to write instead."""

    place: Place
    text: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def own_problems(document: Document) -> Iterator[Problem]:
    """What can be told without looking at anything else than the file."""
    content = document.content
    if content is None:
        return
    if not isinstance(content, dict):
        yield Problem(document.place(), f"must be a mapping of names to values; got {type(content).__name__}")
        return
    for key, value in content.items():
        if key not in SECTIONS:
            yield Problem(document.place(key), _unknown_at_top(str(key), value))
    for section in ("options", "models", "datasets", "experiments", "sandboxes"):
        entries = content.get(section)
        if entries is not None and not isinstance(entries, dict):
            kind = type(entries).__name__
            yield Problem(
                document.place(section), f"{section} must be a mapping of names to values; got {kind}"
            )
        for name in document.section(section):
            if isinstance(name, bool) and section != "options":
                said = f"{section}: a name is a text, and YAML reads this one as {name!r}{_unquoted(name)}"
                yield Problem(document.place(section, name), said)
    yield from _option_problems(document, ("options",), document.section("options"))
    for name, entry in document.section("experiments").items():
        yield from _experiment_problems(document, ("experiments", name), entry)
    for name, entry in document.section("models").items():
        yield from _model_problems(document, ("models", name), entry)
    for name, entry in document.section("datasets").items():
        if not isinstance(entry, str):
            yield from _entry_problems(document, ("datasets", name), entry, DATASET)
    for name, entry in document.section("sandboxes").items():
        yield from _sandbox_problems(document, ("sandboxes", name), entry)


def is_sound(document: Document, section: str, name: Any, values: Any) -> bool:
    """Whether an entry, with what it extends, has only keys and values that can be; others lead nowhere."""
    keys = (section, name)
    if section == "experiments":
        return not any(_experiment_problems(document, keys, values))
    if section == "models":
        return not any(_model_problems(document, keys, values))
    return not any(_entry_problems(document, keys, values, DATASET))


def _unknown_at_top(key: str, value: Any) -> str:
    experiment = {*EXPERIMENT.by_name, *option_keys()}
    if isinstance(value, dict) and experiment & {str(inner) for inner in value}:
        return (
            f"{key!r} is an experiment, and experiments stand under `experiments:`; add that line above it "
            f"and indent it:\n\nexperiments:\n  {key}:\n    …"
        )
    return f"unknown key {key!r}{suggestion(key, SECTIONS)} (known: {', '.join(SECTIONS)})"


def _in_words(keys: Keys) -> str:
    return ".".join(map(str, keys))


def _not_a_mapping(document: Document, keys: Keys, entry: Any) -> Problem:
    kind = type(entry).__name__
    return Problem(
        document.place(*keys), f"{_in_words(keys)} must be a mapping of names to values; got {kind}"
    )


def _option_problems(document: Document, keys: Keys, entry: dict[Any, Any]) -> Iterator[Problem]:
    said: dict[str, str] = {}
    for key, value in entry.items():
        try:
            from_mapping({key: value}, said_by=_in_words(keys))
        except OptionError as error:
            yield Problem(document.place(*keys, key), str(error))
            continue
        yield from _said_twice(document, keys, key, option_keys()[key].field, said)


def _experiment_problems(document: Document, keys: Keys, entry: Any) -> Iterator[Problem]:
    if entry is None:
        return
    if not isinstance(entry, dict):
        yield _not_a_mapping(document, keys, entry)
        return
    options = option_keys()
    said: dict[str, str] = {}
    for key, value in entry.items():
        known = EXPERIMENT.by_name.get(key)
        if known is not None:
            yield from _value_problem(document, keys, key, known, value)
            yield from _said_twice(document, keys, key, known.name, said)
        elif key in options:
            yield from _option_problems(document, keys, {key: value})
            yield from _said_twice(document, keys, key, options[key].field, said)
        else:
            hint = suggestion(str(key), [*EXPERIMENT.by_name, *options])
            yield Problem(document.place(*keys, key), f"{_in_words(keys)}: unknown key {str(key)!r}{hint}")


def _said_twice(
    document: Document, keys: Keys, key: Any, name: str, said: dict[str, str]
) -> Iterator[Problem]:
    if name in said:
        text = f"{_in_words(keys)}: {name} is given twice, as {said[name]!r} and as {key!r}"
        yield Problem(document.place(*keys, key), text)
    said[name] = str(key)


def _model_problems(document: Document, keys: Keys, entry: Any) -> Iterator[Problem]:
    if isinstance(entry, str):
        return  # the name of a model, as in openai/gpt-5-mini
    if not isinstance(entry, dict):
        yield _not_a_mapping(document, keys, entry)
        return
    if not any(key in entry for key in OWN_KEYS):
        yield Problem(
            document.place(*keys),
            f"{_in_words(keys)} says neither `agent:` (as in claude-code or command) nor `model:` "
            "(as in openai/gpt-5-mini), nor `student:` and `teacher:`",
        )
        return
    if "agent" in entry or "student" in entry or "teacher" in entry or "extends" not in entry:
        yield from _entry_problems(document, keys, entry, table_of_model(entry))
    else:
        tables = (PAIR_MODEL, AGENT_MODEL, API_MODEL)
        any_of = Table(tuple({key.name: key for table in tables for key in table.keys}.values()))
        yield from _entry_problems(document, keys, entry, any_of)
    yield from _keys_in_clear(document, keys, entry)


def _sandbox_problems(document: Document, keys: Keys, entry: Any) -> Iterator[Problem]:
    table = SANDBOXES.get(str(keys[-1]))
    if table is None:
        known = ", ".join(SANDBOXES)
        hint = suggestion(str(keys[-1]), SANDBOXES)
        yield Problem(
            document.place(*keys), f"sandboxes: unknown name {str(keys[-1])!r}{hint} (known: {known})"
        )
        return
    yield from _entry_problems(document, keys, entry, table)
    if not isinstance(entry, dict):
        return
    for key in table.required:
        if entry.get(key) is None:
            yield Problem(
                document.place(*keys), f"{_in_words(keys)} lacks `{key}:`, {table.by_name[key].help}"
            )
    url = entry.get("url")
    if isinstance(url, str) and not _VARIABLE.search(url) and _PASSWORD_IN_URL.search(url):
        yield Problem(
            document.place(*keys, "url"),
            f"{_in_words(keys)}: url has a password in it, and a file is read by others; put it into the "
            "environment (or a file for --env-file) and write:  url: ${DATABASE_URL}",
        )


def _entry_problems(document: Document, keys: Keys, entry: Any, table: Table) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield _not_a_mapping(document, keys, entry)
        return
    for key, value in entry.items():
        known = table.by_name.get(key)
        if known is None:
            hint = suggestion(str(key), table.by_name)
            names = ", ".join(key.name for key in table.keys)
            text = f"{_in_words(keys)}: unknown key {str(key)!r}{hint} (known: {names})"
            yield Problem(document.place(*keys, key), text)
        else:
            yield from _value_problem(document, keys, key, known, value)


def _value_problem(document: Document, keys: Keys, key: Any, known: Key, value: Any) -> Iterator[Problem]:
    if known.kind is FILES and isinstance(value, dict):
        yield from _file_problems(document, (*keys, key), value)
    elif value is not None and not known.kind.accepts(value):
        shown = repr(value) if len(repr(value)) <= 60 else type(value).__name__
        accepts = known.kind.accepts
        unquoted = _unquoted(value) if accepts("no") or accepts(["no"]) else ""
        text = f"{_in_words(keys)}: {key}: needs {known.kind.words}; got {shown}{unquoted}"
        yield Problem(document.place(*keys, key), text)


def _unquoted(value: Any) -> str:
    """What to say where a text was expected, and YAML made something else of it."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool):
            return "; YAML reads yes, no, on and off as true and false: in quotes they are texts"
        if isinstance(one, int | float):
            return f'; as a text it is written in quotes: "{one}"'
    return ""


def _file_problems(document: Document, keys: Keys, files: dict[Any, Any]) -> Iterator[Problem]:
    for name, value in files.items():
        if not (isinstance(name, str) and is_file(value)):
            text = f'needs a text, as in "{{context}}", or {{path: …}} of a file to copy; got {value!r}'
            text += _unquoted(value)
            yield Problem(document.place(*keys, name), f"{_in_words(keys[:-1])}: {keys[-1]}: {name}: {text}")


def _keys_in_clear(document: Document, keys: Keys, entry: dict[Any, Any]) -> Iterator[Problem]:
    """What is a key and stands in the file, which others read; it is not repeated in the message."""
    found: Iterable[tuple[Keys, Any]] = [
        (("api_key",), entry.get("api_key")),
        *_named_like_keys(entry, "headers"),
        *_named_like_keys(entry, "env"),
        *_named_like_keys(entry, "environment"),
    ]
    for inner, value in found:
        if value is None or _VARIABLE.search(str(value)):
            continue
        bare = re.fullmatch(r"\$(\w+)", str(value))  # as shells write it
        variable = bare[1] if bare else _variable_for(keys[-1], inner)
        yield Problem(
            document.place(*keys, *inner),
            f"{_in_words(keys)}: {'.'.join(inner)} is written out, and a file is read by others; put it into "
            f"the environment (or a file for --env-file) and write:  {inner[-1]}: ${{{variable}}}",
        )


def _named_like_keys(entry: dict[Any, Any], section: str) -> Iterator[tuple[Keys, Any]]:
    inner = entry.get(section)
    for name, value in (inner if isinstance(inner, dict) else {}).items():
        if _NAME.search(str(name)) and isinstance(value, str) and len(value) >= 8:
            yield (section, str(name)), value


def _variable_for(name: Any, inner: Keys) -> str:
    if inner[0] in ("env", "environment"):
        return str(inner[-1])
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_API_KEY".upper()).strip("_")
