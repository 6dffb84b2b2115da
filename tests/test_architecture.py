"""The map of ARCHITECTURE.md, held by a test: who may import whom, and who may touch the outside world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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

MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in MODULES]
each_module = pytest.mark.parametrize("path", MODULES, ids=NAMES)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules of evalve that a file imports, and whether it does so at its top level."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        top = node in tree.body
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
                yield (inner if inner in NAMES else module), top


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


@each_module
def test_imports_point_downwards_and_rooms_do_not_import_each_other(path: Path) -> None:
    importer = name_of(path)
    if importer in ("__init__", ""):
        return  # the list of public names, loaded lazily
    forbidden = [imported for imported, _ in imports_of(path) if not may_import(importer, imported)]
    assert forbidden == []


@each_module
def test_every_module_is_on_the_map(path: Path) -> None:
    first = name_of(path).partition(".")[0]
    assert first in KERNEL | ROOMS | WIRING | DOORS | {"__init__", "__main__"}


def test_no_two_modules_import_each_other_at_the_top() -> None:
    graph = {name_of(path): {name for name, top in imports_of(path) if top} for path in MODULES}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' → '.join(error.args[1])}")


def calls_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@each_module
def test_only_the_clock_sleeps(path: Path) -> None:
    sleeps = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep")
    ]
    yields = ["asyncio.sleep(0)"]  # gives way to other tasks, which is no waiting
    assert [sleep for sleep in sleeps if sleep not in yields] == [] or name_of(path) == "clock"


@each_module
def test_only_what_shows_things_prints(path: Path) -> None:
    assert "print" not in calls_in(path) or name_of(path).startswith(("show.", "cli"))


@each_module
def test_only_doors_and_wiring_read_the_environment(path: Path) -> None:
    reads = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    ]
    assert not reads or level_of(name_of(path)) in ("wiring", "door")


@each_module
def test_the_environment_is_handed_on_so_that_it_shows_no_keys(path: Path) -> None:
    bare = [
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) != "Environment"
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
        if ast.unparse(argument) == "os.environ"
    ]
    assert bare == []


@each_module
def test_nothing_is_unpickled_evaluated_or_loaded_as_unsafe_yaml(path: Path) -> None:
    dangerous = {
        "eval",
        "exec",
        "pickle.load",
        "pickle.loads",
        "yaml.load",
        "yaml.unsafe_load",
        "marshal.loads",
    }
    assert dangerous.isdisjoint(calls_in(path))


@each_module
def test_only_what_crosses_to_our_own_child_processes_is_pickled(path: Path) -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert "pickle" not in imported or name_of(path) == "engines.crossing"


@each_module
def test_a_module_opens_with_a_sentence_that_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
