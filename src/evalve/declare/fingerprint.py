"""What an evaluation is made of, as text by part, so that a later run can tell whether it changed.

The parts are the function without its decorators, the functions of its own file that it calls, and
the literal constants of its file that it reads (a prompt, a threshold). Comments, layout, docstrings,
datasets, concurrency and timeouts are not among them.
"""

from __future__ import annotations

import ast
import copy
import linecache
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def fingerprint(function: Callable[..., Any], columns: tuple[str, ...]) -> dict[str, str]:
    """Part name → normalised source text."""
    parts = {"columns": ", ".join(columns)}
    code = getattr(function, "__code__", None)
    if code is None:
        return parts
    module = _parsed(code.co_filename)
    node = _definition(module, code.co_firstlineno, function.__name__) if module is not None else None
    if module is None or node is None:
        # no source at hand (an interactive prompt): the compiled form is all there is
        parts[f"function {function.__name__}"] = _compiled(code, function.__doc__)
        return parts
    bare = _bare(node)
    parts[f"function {function.__name__}"] = ast.unparse(bare)
    parts.update(_used(module, bare))
    return parts


def _used(module: ast.Module, start: FunctionNode) -> dict[str, str]:
    """The functions and constants of the module that are reachable from the bare function, by name."""
    functions, constants = _top_level(module)
    parts: dict[str, str] = {}
    seen = {start.name}
    waiting = [start]
    while waiting:
        for name in _names_read(waiting.pop()):
            if name in seen:
                continue
            seen.add(name)
            if name in functions:
                helper = _bare(functions[name])
                parts[f"function {name}"] = ast.unparse(helper)
                waiting.append(helper)
            elif name in constants:
                parts[f"constant {name}"] = ast.unparse(constants[name])
    return parts


def _top_level(module: ast.Module) -> tuple[dict[str, FunctionNode], dict[str, ast.expr]]:
    functions: dict[str, FunctionNode] = {}
    constants: dict[str, ast.expr] = {}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[statement.name] = statement
        elif isinstance(statement, ast.Assign) and _is_literal(statement.value):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    constants[target.id] = statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = statement.value
            if value is not None and _is_literal(value):
                constants[statement.target.id] = value
    return functions, constants


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _names_read(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
            yield inner.id


def _bare(node: FunctionNode) -> FunctionNode:
    """The function without decorators and docstring; parsing has already dropped comments and layout."""
    bare = copy.copy(node)
    bare.decorator_list = []
    if ast.get_docstring(node, clean=False) is not None:
        bare.body = node.body[1:] or [ast.Pass()]
    return bare


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


def _definition(module: ast.Module, first_line: int, name: str) -> FunctionNode | None:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            if first_line in lines:
                return node
    return None


def _parsed(path: str) -> ast.Module | None:
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    if not lines:
        return None
    try:
        return ast.parse("".join(lines))
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
    module = _parsed(path)
    if module is None:
        return []
    return [
        node.lineno
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]
