"""What the statements of a file give names to, and which names of the file a piece of it reads."""

from __future__ import annotations

import ast
import copy
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=FunctionNode | ast.ClassDef)
_Any = TypeVar("_Any", bound=ast.AST)


@dataclass(frozen=True, slots=True)
class Header:
    """What stands above a statement and decides about it: `if LONG`, `except ImportError`."""

    word: str
    nodes: tuple[ast.AST, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.word, ", ".join(map(ast.unparse, self.nodes))]).strip()


@dataclass(frozen=True, slots=True)
class Binding:
    """One statement that gives a name its value, or changes the value that it has."""

    kind: str
    """`function`, `class`, `import` or `constant`."""
    node: ast.AST
    """As it stands in the file."""
    under: tuple[Header, ...] = ()
    changes: bool = False
    """`LIMITS["words"] = 5`, `RULES.append(…)`: nothing by itself."""

    def text(self) -> str:
        """Normalised: without comments, layout and docstrings."""
        return "\n".join([*map(str, self.under), ast.unparse(self._bare())])

    def reads(self) -> set[str]:
        names = names_read(self._bare())
        for header in self.under:
            names.update(*map(names_read, header.nodes))
        return names

    def _bare(self) -> ast.AST:
        return bare(self.node) if isinstance(self.node, FunctionNode | ast.ClassDef) else self.node


def bindings(body: Iterable[ast.stmt]) -> dict[str, list[Binding]]:
    """By name, in the order in which they stand, those inside `if`, `try`, `with` and loops included."""
    found: dict[str, list[Binding]] = {}
    for name, binding in _bound(body, ()):
        there = found.setdefault(name, [])
        if not binding.changes or (there and there[0].kind != "import"):
            there.append(binding)
    return {name: there for name, there in found.items() if there}


def names_read(node: ast.AST, text: str | None = None) -> set[str]:
    """The names that a piece of a file takes from around it: not its parameters and local variables.

    `text` is the node's own, where it is at hand.
    """
    try:
        table = symtable.symtable(text or ast.unparse(node), "<part>", "exec")
    except (SyntaxError, ValueError, RecursionError):  # cannot stand alone (`nonlocal`): rather too many
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return set(_read_outside(table))


def bare(node: _Node) -> _Node:
    """A definition without docstrings and without type hints of functions; those of a class may be fields."""
    bared: _Node = _Bare().visit(_copied(node))
    return bared


def _copied(node: _Any) -> _Any:
    """A deep copy, as far as the text goes; `copy.deepcopy` takes four times as long."""
    fields = {"lineno": node.lineno} if hasattr(node, "lineno") else {}
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            fields[name] = _copied(value)
        elif isinstance(value, list):
            fields[name] = [_copied(one) if isinstance(one, ast.AST) else one for one in value]
        else:
            fields[name] = value
    return type(node)(**fields)


class _Bare(ast.NodeTransformer):
    def __init__(self) -> None:
        self._is_in_function = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._within(node, is_function=False)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if not self._is_in_function:
            return self.generic_visit(node)
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value, lineno=0))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._within(node, is_function=True)

    def _within(self, node: _Node, *, is_function: bool) -> ast.AST:
        around, self._is_in_function = self._is_in_function, is_function
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        self._is_in_function = around
        return node


def _read_outside(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (table.get_type() == "module" or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _read_outside(inner)


def _bound(body: Iterable[ast.stmt], under: tuple[Header, ...]) -> Iterator[tuple[str, Binding]]:
    for statement in body:
        if isinstance(statement, FunctionNode):
            yield statement.name, Binding("function", statement, under)
        elif isinstance(statement, ast.ClassDef):
            yield statement.name, Binding("class", statement, under)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from _imported(statement, under)
        else:
            yield from _assigned_by(statement, under)
            yield from _named_within(statement, under)
            for header, inner in _blocks(statement):
                yield from _bound(inner, (*under, header) if header.word else under)


def _imported(
    statement: ast.Import | ast.ImportFrom, under: tuple[Header, ...]
) -> Iterator[tuple[str, Binding]]:
    """One by one, so that another name in the same statement is no change."""
    for alias in statement.names:
        one = copy.copy(statement)
        one.names = [alias]
        name = alias.asname or alias.name
        if isinstance(statement, ast.Import) and alias.asname is None:
            name = alias.name.partition(".")[0]  # `import a.b` gives a name to `a`
            one.names = [ast.alias(name)]
        yield name, Binding("import", one, under)


def _assigned_by(statement: ast.stmt, under: tuple[Header, ...]) -> Iterator[tuple[str, Binding]]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _assigned(target, statement.value, statement, under)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _assigned(statement.target, statement.value, statement, under)
    elif isinstance(statement, ast.AugAssign):
        yield from _changed(statement.target, statement, under)
    elif isinstance(statement, ast.For | ast.AsyncFor):
        for name in _names_in(statement.target):
            yield name, Binding("constant", statement.iter, under)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        for item in statement.items:
            for name in _names_in(item.optional_vars):
                yield name, Binding("constant", item.context_expr, under)
    elif isinstance(statement, ast.Expr) and isinstance(called := statement.value, ast.Call):
        yield from _changed(called.func, statement, under) if isinstance(called.func, ast.Attribute) else ()


def _assigned(
    target: ast.expr, value: ast.expr, statement: ast.stmt, under: tuple[Header, ...]
) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding("constant", value, under)
    elif isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and _fit(target.elts, value.elts):
            for one, its_value in zip(target.elts, value.elts, strict=True):
                yield from _assigned(one, its_value, statement, under)
        else:
            for name in _names_in(target):
                yield name, Binding("constant", statement, under)
    else:
        yield from _changed(target, statement, under)


def _changed(
    target: ast.expr, statement: ast.stmt, under: tuple[Header, ...]
) -> Iterator[tuple[str, Binding]]:
    """The name at the root of `NAME`, `NAME.attribute`, `NAME[key]`."""
    root = target
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if isinstance(root, ast.Name):
        yield root.id, Binding("constant", statement, under, changes=True)


def _named_within(statement: ast.stmt, under: tuple[Header, ...]) -> Iterator[tuple[str, Binding]]:
    """What `:=` names in the statement's own expressions."""
    waiting = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.NamedExpr):
            yield node.target.id, Binding("constant", node.value, under)
        if not isinstance(node, ast.Lambda):
            waiting += [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.expr)]


def _blocks(statement: ast.stmt) -> Iterator[tuple[Header, list[ast.stmt]]]:
    """The statements inside a statement, with what decides about them."""
    if isinstance(statement, ast.If | ast.While):
        word = "if" if isinstance(statement, ast.If) else "while"
        yield Header(word, (statement.test,)), statement.body
        yield Header(f"else of {word}", (statement.test,)), statement.orelse
    elif isinstance(statement, ast.For | ast.AsyncFor):
        yield _for(statement), statement.body
        yield Header("else of for"), statement.orelse
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield Header("with", tuple(item.context_expr for item in statement.items)), statement.body
    elif isinstance(statement, ast.Try | ast.TryStar):
        yield Header(""), statement.body
        for handler in statement.handlers:
            yield Header("except", (handler.type,) if handler.type else ()), handler.body
        yield Header("else of try"), statement.orelse
        yield Header("finally"), statement.finalbody
    elif isinstance(statement, ast.Match):
        for case in statement.cases:
            guard = (case.guard,) if case.guard is not None else ()
            yield Header("match", (statement.subject, case.pattern, *guard)), case.body


def _for(statement: ast.For | ast.AsyncFor) -> Header:
    return Header(f"for {ast.unparse(statement.target)} in", (statement.iter,))


def _fit(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    return len(targets) == len(values) and not any(isinstance(one, ast.Starred) for one in targets + values)


def _names_in(target: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(target) if target is not None else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
