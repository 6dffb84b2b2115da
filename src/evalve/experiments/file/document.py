"""A YAML file as plain values that remember where they stand, so that a mistake is told with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalve.errors import OptionError

Keys = tuple[Any, ...]
"""The way to a value: keys of mappings, places in lists."""

TOP = "extends"
"""The key at the top that names other files."""
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; line 0 for a flag of the command line, whose name then is the path."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, together with those that it extends."""

    path: Path
    content: Any = None
    places: Mapping[Keys, Place] = field(default_factory=dict)

    def place(self, *keys: Any) -> Place:
        """Where the value stands; where it is not written, what is around it."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return self.places.get(keys, Place(self.path, 1))

    def section(self, name: str) -> dict[Any, Any]:
        """A mapping at the top; empty where there is none."""
        found = self.content.get(name) if isinstance(self.content, dict) else None
        return found if isinstance(found, dict) else {}


def read_document(path: Path, *, seen: tuple[Path, ...] = ()) -> Document:
    """The file with what it extends below it; `FileNotFoundError` where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}") from error
    own = _parsed(path, text)
    below = own.content.get(TOP) if isinstance(own.content, dict) else None
    if below is None:
        return own
    for number, name in enumerate(_names(own, below)):
        file = (path.parent / Path(name).expanduser()).resolve()
        where = own.place(TOP, number)
        if file in (path.resolve(), *seen):
            raise OptionError(f"{where}: {name!r} extends itself")
        try:
            base = read_document(file, seen=(path.resolve(), *seen))
        except FileNotFoundError:
            raise OptionError(f"{where}: there is no file {str(file)!r} to extend") from None
        own = _over(own, base)
    return own


def _names(own: Document, below: Any) -> list[str]:
    names = below if isinstance(below, list) else [below]
    if not all(isinstance(name, str) for name in names):
        raise OptionError(f"{own.place(TOP)}: {TOP} at the top names a file, or a list of files")
    return names


def _over(own: Document, base: Document) -> Document:
    """Section by section, entry by entry: what the file says itself hides what it extends."""
    content, places = dict(own.content), dict(own.places)
    for section, entries in (base.content if isinstance(base.content, dict) else {}).items():
        if section == TOP:
            continue
        if section not in content or content[section] is None:
            content[section] = entries
            places.update(_below(base, (section,)))
        elif isinstance(entries, dict) and isinstance(content[section], dict):
            missing = {name: value for name, value in entries.items() if name not in content[section]}
            content[section] = {**missing, **content[section]}
            for name in missing:
                places.update(_below(base, (section, name)))
    return Document(own.path, content, places)


def _below(document: Document, start: Keys) -> Iterator[tuple[Keys, Place]]:
    return ((keys, place) for keys, place in document.places.items() if keys[: len(start)] == start)


def _parsed(path: Path, text: str) -> Document:
    import yaml  # heavy: only those who have such a file pay for it

    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return Document(path)
        _refuse_doubles(path, node)
        content = loader.construct_document(node)
    except yaml.YAMLError as error:
        raise OptionError(_in_words(path, error)) from error
    finally:
        loader.dispose()
    places = {
        keys: Place(path, line + 1) for keys, line in _lines(yaml, loader, node, (), node.start_mark.line)
    }
    return Document(path, content, places)


def _in_words(path: Path, error: Any) -> str:
    """Where the text stops being YAML, and why; a character that no YAML has comes without a mark."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{path} is not valid YAML: {error}"
    begun = error.context_mark
    since = f" {error.context} at line {begun.line + 1}:" if error.context and begun else ""
    remedy = "; indent with spaces, YAML takes no tabs" if "'\\t'" in error.problem else ""
    return f"{path}:{mark.line + 1}: this is not valid YAML:{since} {error.problem}{remedy}"


def _lines(yaml: Any, loader: Any, node: Any, keys: Keys, line: int) -> Iterator[tuple[Keys, int]]:
    """The line of each value: in a mapping, that of its key."""
    yield keys, line
    if len(keys) > _DEEPEST:
        return  # an anchor that contains itself
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = loader.construct_object(key, deep=True)
            yield from _lines(yaml, loader, value, (*keys, name), key.start_mark.line)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _lines(yaml, loader, item, (*keys, number), item.start_mark.line)


def _refuse_doubles(path: Path, node: Any, depth: int = 0) -> None:
    """YAML lets the second of two equal keys hide the first without a word."""
    children = node.value if isinstance(node.value, list) and depth <= _DEEPEST else []
    lines: dict[str, int] = {}
    for child in children:
        if not isinstance(child, tuple):
            _refuse_doubles(path, child, depth + 1)
            continue
        key, value = child
        name = key.value if isinstance(key.value, str) else None
        if name is not None and name != "<<":
            line = key.start_mark.line + 1
            if name in lines:
                raise OptionError(f"{path}:{line}: the key {name!r} is there already, at line {lines[name]}")
            lines[name] = line
        _refuse_doubles(path, value, depth + 1)


def parsed_text(text: str) -> Any:
    """A value as YAML writes it, from the command line."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
