"""What an evaluation is made of, as text by part, so that a later run can tell whether it changed.

The parts are the function without its decorators; the functions, classes, constants and imports of its
own file that it reaches by name; the fixtures of that file that it takes; and the plain values that it
captured from a function around it. An assignment counts by its text, not by what it came to, or a time or
an environment variable would be a change in every run.
"""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from types import CodeType, FunctionType
from typing import Any

from evalve.declare.bindings import Binding, FunctionNode, bare, bindings, names_read
from evalve.declare.captured import captured_functions, is_beside, unwrapped
from evalve.secrecy import without_keys

METHOD = "4"
"""How the parts are made. Records made otherwise cannot be compared, and so are not called changed."""


def fingerprint(
    function: Callable[..., Any], columns: tuple[str, ...], captured: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Part name → normalised source text; `captured` is what the function captured when it was declared.

    It is recorded, so keys are left out: another key is no other evaluation.
    """
    return {
        part: without_keys(text, part) for part, text in _parts(function, columns, captured or {}).items()
    }


def _parts(
    function: Callable[..., Any], columns: tuple[str, ...], captured: Mapping[str, str]
) -> dict[str, str]:
    name = getattr(function, "__name__", "")
    wrappers, own = unwrapped(function)
    parts = {"method": METHOD, "columns": ", ".join(columns)}
    parts.update({f"captured {variable}": text for variable, text in captured.items()})
    if not isinstance(own, FunctionType):
        return parts
    code = own.__code__
    file = _read(code.co_filename)
    node = file.definition(code) if file is not None else None
    if file is None or not isinstance(node, FunctionNode):
        # no source at hand (an interactive prompt): the compiled form is all there is
        parts[f"function {name}"] = _compiled(code, own.__doc__)
        return parts
    collected = _Parts(file, own, parts)
    collected.add_evaluation(name, node, columns)
    for wrapper in wrappers:
        if is_beside(wrapper, own):
            collected.add_captured(f"function {wrapper.__code__.co_name}", wrapper)
    return parts


class _Parts:
    """Follows names through one file and keeps the text of what they lead to."""

    def __init__(self, file: _File, own: FunctionType, parts: dict[str, str]) -> None:
        self._file = file
        self._own = own
        self._top_level = file.top_level
        self._seen: set[str] = set()
        self._parts = parts

    def add_evaluation(self, name: str, node: FunctionNode, columns: tuple[str, ...]) -> None:
        plain = bare(_without_decorators(node))
        text = self._parts[f"function {name}"] = ast.unparse(plain)
        self._seen.add(node.name)
        self._add_what_it_captured(self._own)
        self._follow(names_read(plain, text) - {*self._own.__code__.co_freevars})
        self._follow_fixtures(set(_parameters(node)) - {*columns})
        owner = self._file.class_around(node)
        if owner is not None:
            self._follow_members(owner, plain)

    def add_captured(self, part: str, function: FunctionType) -> None:
        """A function that is no name of the file: one inside another, or what a decorator has made."""
        if part in self._parts:
            return
        node = self._file.definition(function.__code__)
        if node is None:
            self._parts[part] = _compiled(function.__code__, function.__doc__)
            return
        plain = bare(node) if isinstance(node, FunctionNode) else node
        text = self._parts[part] = ast.unparse(plain)
        self._add_what_it_captured(function)
        self._follow(names_read(plain, text) - {*function.__code__.co_freevars})

    def _add_what_it_captured(self, function: FunctionType) -> None:
        for variable, inner in captured_functions(function):
            if inner is not self._own:
                self.add_captured(f"captured {variable}", inner)

    def _follow(self, names: Iterable[str]) -> None:
        for name in sorted(names):
            found = self._top_level.get(name)
            if found is not None and name not in self._seen:
                self._seen.add(name)
                self._add(name, found)

    def _follow_fixtures(self, names: Iterable[str]) -> None:
        self._follow(name for name in names if any(map(_is_fixture, self._top_level.get(name, ()))))

    def _follow_members(self, owner: ast.ClassDef, node: ast.AST) -> None:
        """What an evaluation that is a method uses of its class: `self.prompt`."""
        self._follow(name for base in owner.bases for name in names_read(base))
        members = bindings(owner.body)
        waiting = [node]
        while waiting:
            for name in _attributes_of_self(waiting.pop()):
                part = f"{owner.name}.{name}"
                if name in members and part not in self._seen:
                    self._seen.add(part)
                    self._add(part, members[name])
                    waiting += [binding.node for binding in members[name]]

    def _add(self, name: str, found: list[Binding]) -> None:
        plain = [_without_fixture_mark(binding) for binding in found]
        self._parts[f"{found[0].kind} {name}"] = "\n".join(dict.fromkeys(one.text() for one in plain))
        for binding in plain:
            self._follow(binding.reads())
        for binding in filter(_is_fixture, found):
            self._follow_fixtures(_parameters(binding.node))


def _without_decorators(node: FunctionNode) -> FunctionNode:
    plain = copy.copy(node)
    plain.decorator_list = []
    return plain


def _without_fixture_mark(binding: Binding) -> Binding:
    """A fixture's decorator holds its scope and parameters, and each parameter has records of its own."""
    if not _is_fixture(binding):
        return binding
    assert isinstance(binding.node, FunctionNode)
    return Binding(binding.kind, _without_decorators(binding.node), binding.under)


def _is_fixture(binding: Binding) -> bool:
    decorators = binding.node.decorator_list if isinstance(binding.node, FunctionNode) else []
    return any("fixture" in ast.unparse(decorator) for decorator in decorators)


def _parameters(node: ast.AST) -> list[str]:
    if not isinstance(node, FunctionNode):
        return []
    arguments = node.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _attributes_of_self(node: ast.AST) -> list[str]:
    return [
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute)
        and isinstance(inner.value, ast.Name)
        and inner.value.id in ("self", "cls")
    ]


def _compiled(code: CodeType, docstring: str | None) -> str:
    """The compiled form as text that is the same in every process."""
    constants = [_constant(value) for value in code.co_consts if value is None or value != docstring]
    return f"{code.co_code.hex()} {code.co_names} [{', '.join(constants)}]"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _compiled(value, None)
    if isinstance(value, frozenset):  # its order differs between processes
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    return repr(value)


class _File:
    """What a file's text holds, looked through once for all the evaluations in it."""

    def __init__(self, module: ast.Module) -> None:
        self.module = module
        self._functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self._lambdas: list[ast.Lambda] = []
        self._owners: dict[int, ast.ClassDef] = {}
        for node in ast.walk(module):
            if isinstance(node, FunctionNode):
                self._functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Lambda):
                self._lambdas.append(node)
            elif isinstance(node, ast.ClassDef):
                for member in node.body:
                    self._owners.setdefault(id(member), node)

    @cached_property
    def top_level(self) -> dict[str, list[Binding]]:
        return bindings(self.module.body)

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return self._owners.get(id(node))

    def definition(self, code: CodeType) -> FunctionNode | ast.Lambda | None:
        """Where the code was compiled from; `None` where that is not certain."""
        if code.co_name == "<lambda>":
            here = [one for one in self._lambdas if one.lineno == code.co_firstlineno]
            return here[0] if len(here) == 1 else None
        for node in self._functions.get(code.co_name, ()):
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if code.co_firstlineno in lines:
                return node
        return None


def _read(path: str) -> _File | None:
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    return _parsed(_Lines(lines)) if lines else None


class _Lines:
    """The lines that `linecache` holds of a file. They are other ones once the file has changed."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Lines) and other.lines is self.lines

    def __hash__(self) -> int:
        return id(self.lines)


@lru_cache(maxsize=8)
def _parsed(read: _Lines) -> _File | None:
    try:
        return _File(ast.parse("".join(read.lines)))
    except (SyntaxError, SystemError, RecursionError):
        return None  # not Python, or more than its parser takes


def defined_twice(path: str, name: str) -> list[int]:
    """The lines at which a file's top level defines `name`, if it does so more than once."""
    lines = _lines_of(path, name)
    return lines if len(lines) > 1 else []


def defines(path: str, name: str) -> bool:
    """Whether a file's top level defines `name` now; a reloaded module may hold older functions."""
    return bool(_lines_of(path, name))


def _lines_of(path: str, name: str) -> list[int]:
    file = _read(path)
    if file is None:
        return []
    return [
        node.lineno
        for node in file.module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
