"""The map of ARCHITECTURE.md, held by a test: who may import whom, and who may touch the outside world."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src"
PACKAGE = SRC / "evalve"

KERNEL = {
    "adaptation",
    "agreement",
    "callers",
    "checked_numbers",
    "clock",
    "comparison",
    "concurrency",
    "contracts",
    "distributions",
    "errors",
    "filesystems",
    "jsontext",
    "metrics",
    "options",
    "paired",
    "processes",
    "records",
    "secrecy",
    "shares",
    "statistics",
    "summary",
    "tallies",
    "testing",
    "traces",
    "tracing",
    "variables",
}
WIRING = {
    "agent_wiring",
    "batches",
    "cases",
    "checking",
    "conversations",
    "experiments",
    "gateways",
    "gating",
    "wiring",
    "worker_process",
}
ROOMS = {
    "agents",
    "declare",
    "engines",
    "evaluators",
    "gate",
    "host",
    "runner",
    "sandboxes",
    "show",
    "simulator",
    "storage",
}
DOORS = {
    "arguments",
    "cli",
    "gate_commands",
    "planning",
    "plugin",
    "reading",
}
UPWARD = {("declare.foreach", "wiring"), ("evaluators.asking", "gating")}
"""The named exceptions: calling an evaluation directly needs the whole machine, and a judge that is given by
the name of a model opens it where all models are opened."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def breaches(rule: Callable[[str, ast.Module], Iterable[str]]) -> dict[str, list[str]]:
    """What breaks a rule, by module. (A test for each rule and module made a third of all tests.)"""
    found = {name: list(rule(name, tree)) for name, tree in modules().items()}
    return {name: broken for name, broken in found.items() if broken}


def imports_of(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Modules of evalve that a file imports, and whether it does so at its top level."""
    at_top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        top = id(node) in at_top
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("evalve."):
                    yield alias.name.removeprefix("evalve."), top
        elif isinstance(node, ast.ImportFrom) and node.module == "evalve":
            for alias in node.names:
                yield alias.name, top
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evalve."):
            module = (node.module or "").removeprefix("evalve.")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (inner if inner in modules() else module), top


def level_of(module: str) -> str:
    first = module.partition(".")[0]
    if first in KERNEL:
        return "kernel"
    if first in ROOMS:
        return "room"
    return "wiring" if first in WIRING else "door"


def may_import(importer: str, imported: str) -> bool:
    if (importer, imported) in UPWARD:
        return True
    rank = {"kernel": 0, "room": 1, "wiring": 2, "door": 3}
    above, below = level_of(importer), level_of(imported)
    if above == below == "room":
        return importer.partition(".")[0] == imported.partition(".")[0]
    return rank[below] <= rank[above]


def test_imports_point_downwards_and_rooms_do_not_import_each_other() -> None:
    def forbidden(importer: str, tree: ast.Module) -> list[str]:
        if importer == "__init__":
            return []  # the list of public names, loaded lazily
        return [imported for imported, _ in imports_of(tree) if not may_import(importer, imported)]

    assert breaches(forbidden) == {}


def test_every_module_is_on_the_map() -> None:
    first = {name.partition(".")[0] for name in modules()}

    assert first - (KERNEL | ROOMS | WIRING | DOORS) == {"__init__", "__main__"}


def test_no_two_modules_import_each_other_at_the_top() -> None:
    graph = {name: {other for other, top in imports_of(tree) if top} for name, tree in modules().items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def calls_in(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def called_in(tree: ast.Module) -> set[str]:
    return {ast.unparse(call.func) for call in calls_in(tree)}


def test_only_the_clock_sleeps() -> None:
    def sleeps(_: str, tree: ast.Module) -> list[str]:
        gives_way = "asyncio.sleep(0)"  # to other tasks, which is no waiting
        slept = [call for call in calls_in(tree) if ast.unparse(call.func) in ("time.sleep", "asyncio.sleep")]
        return [text for call in slept if (text := ast.unparse(call)) != gives_way]

    assert set(breaches(sleeps)) == {"clock"}


def test_only_what_shows_things_prints() -> None:
    def prints(name: str, tree: ast.Module) -> set[str]:
        return set() if name.startswith(("show.", "cli")) else {"print"} & called_in(tree)

    assert breaches(prints) == {}


def test_only_doors_and_wiring_read_the_environment() -> None:
    def reads(name: str, tree: ast.Module) -> list[str]:
        if level_of(name) in ("wiring", "door"):
            return []
        attributes = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        return [text for text in attributes if text in ("os.environ", "os.getenv")]

    assert breaches(reads) == {}


def test_the_environment_is_handed_on_so_that_it_shows_no_keys() -> None:
    def bare(_: str, tree: ast.Module) -> list[str]:
        return [
            ast.unparse(call)
            for call in calls_in(tree)
            for argument in (*call.args, *(keyword.value for keyword in call.keywords))
            if isinstance(argument, ast.Attribute) and ast.unparse(argument) == "os.environ"
            if ast.unparse(call.func) != "Environment"
        ]

    assert breaches(bare) == {}


def test_nothing_is_unpickled_evaluated_or_loaded_as_unsafe_yaml() -> None:
    dangerous = {
        "eval",
        "exec",
        "pickle.load",
        "pickle.loads",
        "yaml.load",
        "yaml.unsafe_load",
        "marshal.loads",
    }

    assert breaches(lambda _, tree: dangerous & called_in(tree)) == {}


def test_only_what_crosses_to_our_own_child_processes_is_pickled() -> None:
    def pickles(_: str, tree: ast.Module) -> set[str]:
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
        }
        return {"pickle"} & imported

    assert set(breaches(pickles)) == {"engines.crossing"}


def test_a_module_opens_with_a_sentence_that_says_what_it_is_for() -> None:
    assert breaches(lambda _, tree: [] if ast.get_docstring(tree) else ["no docstring"]) == {}
