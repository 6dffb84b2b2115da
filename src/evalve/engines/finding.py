"""How a function of this process is found again in another one: by its module, its file and its name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from evalve.contracts import Runnable
from evalve.engines.crossing import RUN_HERE, Place
from evalve.errors import DeclarationError

MAIN = "__evalve_main__"
"""What a script's own module is called in a worker, so that `if __name__ == "__main__":` is false there."""

_MARK = "__evalve__"
"""Where a decorated function keeps its evaluation."""


# -- in the process that runs the evaluation


def place_of(evaluation: Runnable) -> Place:
    """Where a worker finds the function; `DeclarationError` where it could not."""
    function = evaluation.function
    code = getattr(function, "__code__", None)
    where = f"{Path(code.co_filename).resolve()}:{code.co_firstlineno}" if code else evaluation.spec.name
    name, qualname = evaluation.spec.name, function.__qualname__
    if "<" in qualname:
        raise DeclarationError(
            f"{where}: {name} is defined inside another function, where a worker process cannot find it:"
            f" define it at the top of a module, or {RUN_HERE}"
        )
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or not Path(file).is_file():
        raise DeclarationError(
            f"{where}: {name} is not defined in a file, so that a worker process cannot import it:"
            f" write it into a module and import it from there, or {RUN_HERE}"
        )
    if _function_in(module, qualname) is not function:
        raise DeclarationError(
            f"{where}: {name} cannot be found as {qualname} in the module {function.__module__}"
            f" ({file}), as a worker process has to: keep it under that name, or {RUN_HERE}"
        )
    return Place(function.__module__, str(Path(file).resolve()), qualname)


def place_of_main() -> Place:
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    return Place(spec.name if spec is not None else MAIN, str(Path(file).resolve()) if file else None)


def names_here(main: Place) -> Callable[[str], str]:
    """A worker's name for the program's own module is `__main__` here."""
    return lambda name: "__main__" if name == main.module else name


# -- in the worker


class Modules:
    """The modules that a worker was told of, imported when they are needed."""

    def __init__(self, main: Place) -> None:
        self._main = main
        self._files: dict[str, str] = {}

    def know(self, files: dict[str, str]) -> None:
        self._files.update(files)

    def name_for(self, name: str) -> str:
        """Makes sure that the module is there, and says under which name."""
        if name == "__main__":
            name = self._main.module
            if name not in sys.modules:
                sys.modules["__main__"] = loaded_module(name, self._main.file)
        elif name not in sys.modules:
            loaded_module(name, self._files.get(name))
        return name

    def function(self, place: Place) -> Callable[..., Any]:
        """What stands in the module under that name, without what `@foreach` made of it."""
        if place.module != "__main__":
            self.know({place.module: place.file} if place.file else {})
        found = _function_in(sys.modules[self.name_for(place.module)], place.qualname)
        if found is None:
            raise LookupError(f"{place.file} has no {place.qualname} when it is imported")
        return found


def loaded_module(name: str, file: str | None) -> ModuleType:
    """By its name if that leads to the file, as for what is on the path; else from the file itself."""
    with importing():
        if file is None or _is_found(name, file):
            return importlib.import_module(name)
        return _loaded_from(name, file)


def _loaded_from(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported as a module")
    module = importlib.util.module_from_spec(spec)
    _make_sure_of_parents(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _make_sure_of_parents(name: str) -> None:
    """Whoever imports `a.b` by name, as pickle does, needs an `a`; pytest makes one too."""
    parent = name.rpartition(".")[0]
    if not parent or parent in sys.modules:
        return
    try:
        importlib.import_module(parent)
    except ImportError:
        _make_sure_of_parents(parent)
        sys.modules[parent] = ModuleType(parent)


def _is_found(name: str, file: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return (
        spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()
    )


@contextmanager
def importing() -> Iterator[None]:
    """In the block, a module that calls an evaluation while it is imported is refused."""
    _IMPORTING.append(True)
    try:
        yield
    finally:
        _IMPORTING.pop()


_IMPORTING: list[bool] = []


def refuse_while_importing(name: str) -> None:
    """A worker imports the program that it works for, which must not begin its run once more."""
    if _IMPORTING:
        raise DeclarationError(
            f"{name} is called at the top of a file that a worker process has to import: call it below"
            ' `if __name__ == "__main__":`'
        )


def _function_in(module: ModuleType, qualname: str) -> Callable[..., Any] | None:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    declared = getattr(found, _MARK, None)
    function = found if declared is None else declared.function
    return function if callable(function) else None
