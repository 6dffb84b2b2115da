"""Functions of a person's own that conversations run: tools and agents, imported from the project."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalve.conversations.tools import is_tool, tools_of
from evalve.errors import OptionError
from evalve.experiments.file.resolving import Entry
from evalve.options import suggestion


def tool_functions(entry: Entry, where: str) -> tuple[list[Callable[..., Any]], Path | None]:
    """What `tools:` names, and the file that has it; `OptionError` with a remedy."""
    said = entry.get("tools")
    if said is None:
        return [], None
    if not isinstance(said, str) or "{" in said:
        raise OptionError(
            f"{where}: the tools of a conversation are run: name a Python file with functions under @tool, "
            "or module:NAME"
        )
    folder = entry.folder("tools")
    _find_modules_in(folder)
    module_name, colon, name = said.partition(":")
    if colon and not module_name.endswith(".py"):
        module = _imported(lambda: importlib.import_module(module_name), said, where)
        found = _members(module, name, where)
    else:
        module = _of_file(folder / module_name, where)
        found = (
            _members(module, name, where) if colon else [one for one in vars(module).values() if is_tool(one)]
        )
    try:
        tools_of(found)
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None
    if not found:
        raise OptionError(
            f"{where}: {said!r} has no tools: write @evalve.conversations.tool above its functions"
        )
    file = getattr(module, "__file__", None)
    return found, None if file is None else Path(file)


def function_named(said: str, folder: Path, where: str) -> Any:
    """`package.module:name`, a module beside the file included."""
    module_name, _, name = said.partition(":")
    _find_modules_in(folder)
    module = _imported(lambda: importlib.import_module(module_name), said, where)
    function = getattr(module, name, None)
    if function is None:
        raise OptionError(f"{where}: {module_name} has no {name!r}{suggestion(name, vars(module))}")
    return function


def _find_modules_in(folder: Path) -> None:
    """A module beside the file is found, from wherever one works."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _of_file(path: Path, where: str) -> Any:
    if path.suffix != ".py":
        raise OptionError(
            f"{where}: {path.name!r} is not a Python file: the tools of a conversation are run, so name a "
            "file with functions under @tool, or module:NAME"
        )
    if not path.is_file():
        near = suggestion(path.name, [one.name for one in path.parent.glob("*.py")])
        raise OptionError(f"{where}: there is no file {str(path)!r}{near}")
    spec = importlib.util.spec_from_file_location(f"evalve_tools_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where annotations, and dataclasses in it, look for their names
    loader = spec.loader
    _imported(lambda: loader.exec_module(module), str(path), where)
    return module


def _imported(load: Callable[[], Any], what: str, where: str) -> Any:
    try:
        return load()
    except Exception as error:  # the person's own code
        raise OptionError(f"{where}: {what} cannot be imported: {type(error).__name__}: {error}") from error


def _members(module: Any, name: str, where: str) -> list[Callable[..., Any]]:
    """A function, or a list of them, by its name in a module."""
    value: Any = getattr(module, name, None)
    found: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not found or not all(inspect.isfunction(one) for one in found):
        hint = suggestion(name, vars(module))
        raise OptionError(f"{where}: {module.__name__} has no function, or list of functions, {name!r}{hint}")
    return found
