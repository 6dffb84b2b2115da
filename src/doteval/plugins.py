"""What installed packages register by name: evaluators, metrics, storages."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

__all__ = ["Plugins"]


class Plugins:
    """Things by name: built-in ones, registered ones, and those of packages, which are looked for once."""

    def __init__(self, kind: str, built_in: dict[str, Any]) -> None:
        self._kind = kind
        self._known = dict(built_in)
        self._plugins_loaded = False

    def register(self, name: str, thing: Any) -> None:
        self._known[name] = thing

    def get(self, name: str) -> Any:
        """`None` where nobody has registered the name."""
        if name not in self._known:
            self.load_plugins()
        return self._known.get(name)

    def names(self) -> list[str]:
        self.load_plugins()
        return list(self._known)

    def load_plugins(self, force: bool = False) -> None:
        """A package that cannot be loaded is told about, and the others count."""
        if self._plugins_loaded and not force:
            return
        self._plugins_loaded = True
        groups = (f"doteval.{self._kind}", f"dotevals.{self._kind}")
        found = importlib.metadata.entry_points()
        for entry in [entry for group in groups for entry in found.select(group=group)]:
            try:
                self.register(entry.name, entry.load())
            except Exception as error:  # another package's code, at import
                text = f"{entry.name!r}, registered under {entry.group}, cannot be loaded: {error}"
                warnings.warn(text, stacklevel=2)
