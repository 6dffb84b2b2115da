"""`extends:`: an entry with everything that it takes over from others, each value with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.experiments.file.document import Document, Place
from evalve.experiments.file.keys import AGENT_MODEL, API_MODEL, DATASET, EXPERIMENT, PAIR_MODEL, option_keys
from evalve.options import suggestion

_ALIASES = {
    "experiments": {name: key.name for name, key in EXPERIMENT.by_name.items()},
    "models": {
        name: key.name
        for table in (API_MODEL, AGENT_MODEL, PAIR_MODEL)
        for name, key in table.by_name.items()
    },
    "datasets": {name: key.name for name, key in DATASET.by_name.items()},
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A resolved entry of a section: values by the keys' first names."""

    section: str
    name: str
    place: Place
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def names(self, key: str) -> list[str]:
        """What a key names, one or several."""
        value = self.get(key, [])
        return [str(item) for item in (value if isinstance(value, list) else [value])]

    def where(self, key: str) -> Place:
        return self.places.get(key, self.place)

    def folder(self, key: str) -> Path:
        """Where paths under the key are seen from: the folder of the file that says it, here for a flag."""
        place = self.where(key)
        return place.path.parent if place.line else Path.cwd()


def entry_of(document: Document, section: str, name: Any, *, below: tuple[Any, ...] = ()) -> Entry:
    """The entry over those that it extends, in their order: the first that says something wins.

    A key without a value takes away what the others say.
    """
    own = document.section(section).get(name)
    place = document.place(section, name)
    values, places = _own(document, section, name, own)
    bases = own.get("extends") if isinstance(own, dict) else None
    for number, base in enumerate(bases if isinstance(bases, list) else [] if bases is None else [bases]):
        where = document.place(section, name, "extends", number)
        if isinstance(base, list | dict):
            raise OptionError(
                f"{where}: {section}.{name}: extends: needs a name, or a list of names; got {bases!r}"
            )
        if base == name or base in below:
            circle = " → ".join(map(str, (*below, name, base)))
            raise OptionError(f"{where}: {section}.{name} extends itself: {circle}")
        known = document.section(section)
        if base not in known:
            hint = suggestion(str(base), map(str, known)) or f" (there is: {', '.join(map(str, known))})"
            raise OptionError(f"{where}: {section}.{name} extends {base!r}, which is not there{hint}")
        under = entry_of(document, section, base, below=(*below, name))
        values = {**under.values, **values}
        places = {**under.places, **places}
    said = {key: value for key, value in values.items() if value is not None}
    return Entry(section, str(name), place, said, {key: places[key] for key in said})


def _own(document: Document, section: str, name: Any, entry: Any) -> tuple[dict[str, Any], dict[str, Place]]:
    values: dict[str, Any] = {}
    places: dict[str, Place] = {}
    if isinstance(entry, str):  # `docs: docs.jsonl`, `mini: openai/gpt-5-mini`
        entry = {"path" if section == "datasets" else "model": entry}
    if entry is not None and not isinstance(entry, dict):
        where, kind = document.place(section, name), type(entry).__name__
        raise OptionError(f"{where}: {section}.{name} must be a mapping of names to values; got {kind}")
    for key, value in (entry or {}).items():
        first = first_name(section, str(key))
        if first != "extends":
            values[first] = value
            places[first] = document.place(section, name, key)
    return values, places


def first_name(section: str, key: str) -> str:
    """`samples` for `limit`, `evaluators` for `metrics`."""
    if key in _ALIASES[section]:
        return _ALIASES[section][key]
    option = option_keys().get(key) if section == "experiments" else None
    return key if option is None else option.field


def options_part(entry: Entry) -> dict[str, Any]:
    """What of an experiment are options, as any experiment has them."""
    fields = {option.field for option in option_keys().values()}
    return {
        key: value for key, value in entry.values.items() if key in fields and key not in EXPERIMENT.by_name
    }


def over(entry: Entry, said: Mapping[str, Any], flags: Mapping[str, str] | None = None) -> Entry:
    """The entry with what was said on the command line in place of what is written; by which flags."""
    typed = {key: "--" + key.replace("_", "-") for key in said} | dict(flags or {})
    places = {key: Place(Path(typed[key]), 0) for key in said}
    return replace(entry, values={**entry.values, **said}, places={**entry.places, **places})
