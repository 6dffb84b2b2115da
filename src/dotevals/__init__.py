"""dotevals, the later name of doteval: the same modules, and `run` with dotevals' kind of result."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from doteval.interactive import run
from evalve import __version__ as __version__
from evalve.records import Result, Score

__all__ = ["Batch", "ForEach", "Result", "Score", "batch", "foreach", "run"]

_OWN = ("dotevals.core", "dotevals.decorators")
"""Those that are not doteval's: what they declare is awaited."""


class _SameModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """`dotevals.X` is `doteval.X`: one module under two names, so that its classes are the same."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("dotevals.") or fullname in _OWN:
            return None
        if importlib.util.find_spec(f"doteval.{fullname.partition('.')[2]}") is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        name = f"doteval.{spec.name.partition('.')[2]}"
        module = importlib.import_module(name)
        spec.loader_state = module.__spec__
        for inner in [inner for inner in sys.modules if inner.startswith(f"{name}.")]:
            # or Python, importing it later, would write the module over what its package has by that name
            sys.modules.setdefault(f"dotevals.{inner.partition('.')[2]}", sys.modules[inner])
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name, which Python has just overwritten in its spec."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


# first, or Python would find the files again, through the path of the package that it already has
sys.meta_path.insert(0, _SameModules())

from dotevals.core import Batch, ForEach, batch, foreach  # noqa: E402  # may be found only from here on
