"""The pytest plugin: options, collection of `eval_*`, and the hooks that hand over to `session`.

Every pytest run on the machine imports this module and the next to nothing that it needs; what runs
evaluations is imported when the first one has been collected.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Generator, Iterator
from types import FunctionType
from typing import Any

import pytest

from evalve.errors import DeclarationError, EvalveError
from evalve.options import OPTIONS
from evalve.plugin import fixtures
from evalve.plugin.early_gateway import use_gateway, wants_gateway
from evalve.plugin.fixtures import (  # noqa: F401 (pytest finds them here)
    gateway,
    model,
    postgres_sandbox,
    rate_limiter,
    record,
    records,
    workspace,
)
from evalve.plugin.flags import (
    add_words,
    attributes,
    dest,
    names_taken,
    said_on_command_line,
    short_names,
    with_our_trace,
    without_bare_concurrent,
    without_short_names,
)
from evalve.plugin.stash import LEFT_OUT, MISTAKE, SESSION, SHORT_NAMES, models_chosen, session_of

MARK = "__evalve__"
_MARKERS = ("evalve", "doteval", "dotevals")
"""Also the names by which a person who comes from doteval deselects evaluations."""
EXIT_BROKE = 7
"""The exit code where tests could not read what they need, so that nothing is known of it."""


# -- options


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The names that nobody else can have: `--evalve-…`."""
    _keep_from_rewriting(pluginmanager)
    group = parser.getgroup("evalve", "evaluations")
    for option in OPTIONS:
        names = [f"--evalve-{name}" for name in (option.name, *option.aliases)]
        group.addoption(*names, dest=dest(option), **attributes(option))
        add_words(group, option, names)


def _keep_from_rewriting(pluginmanager: pytest.PytestPluginManager) -> None:
    """pytest compiles a plugin's whole package anew, for the sake of its asserts; none of ours is a test's.

    That takes half a second of every run where nothing can be kept beside the package. There is no public
    way to decline: where pytest has become another, it does as before.
    """
    hook = pluginmanager.rewrite_hook
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked -= {"evalve", "doteval", "dotevals"}
        hook.mark_rewrite()  # which forgets what was decided before


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """The short names, as far as no other plugin or conftest.py has them.

    They are added last, so that a plugin that also wants one gets it; until then they are kept from
    being mistaken for paths.
    """
    args[:] = without_bare_concurrent(with_our_trace(args))
    others = without_short_names(args, names_taken(parser))
    known = parser.parse_known_args(others, namespace=copy.copy(early_config.option))
    # only the paths: pytest has already written into this record how far up conftest.py files count
    early_config.known_args_namespace.file_or_dir = known.file_or_dir
    if wants_gateway(early_config, args, names_taken(parser)):
        use_gateway(early_config)
    yield
    taken = names_taken(parser)
    group = parser.getgroup("evalve")
    ours = early_config.stash[SHORT_NAMES] = set()
    for option in OPTIONS:
        if names := short_names(option, taken):
            ours.update(names)
            group.addoption(*names, dest=dest(option), **attributes(option))
            add_words(group, option, names)


# -- collection


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("python_files", "eval_*.py")
    for name in _MARKERS:
        config.addinivalue_line("markers", f"{name}: an evaluation; added by evalve to select by `-m {name}`")
    config.addinivalue_line("markers", "basic: yours to set: scored by rules, no model judges")
    config.addinivalue_line("markers", "llm: yours to set: a model judges, which costs calls")
    config.addinivalue_line("markers", "evalve_reads: added by evalve.reads to tests that read records")
    said_on_command_line(config)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """One item per evaluation and variant; what only looks like one is told about at the end."""
    evaluation = getattr(obj, MARK, None)
    if evaluation is None or not (name.startswith("eval_") or collector.istestfunction(obj, name)):
        _note_if_left_out(collector, name, obj)
        return None
    try:
        evaluation.dataset.peek()
    except DeclarationError as error:
        raise collector.CollectError(str(error)) from None
    items = list(collector._genfunctions(name, obj))
    for item in items:
        for name in _MARKERS:
            item.add_marker(name)
        if evaluation.is_async and collector.config.pluginmanager.has_plugin("asyncio"):
            _choose_loop(item)
    if len(items) > 1:
        evaluation.dataset.keep_rows()
    return list(items)


def _note_if_left_out(collector: pytest.Module | pytest.Class, name: str, obj: object) -> None:
    """In `eval_*.py`: `eval_x` without `@foreach`, and `@foreach` where nobody collects it."""
    module = collector.getparent(pytest.Module)
    if module is None or not collector.path.match("eval_*.py"):
        return
    if inspect.isclass(obj):
        if obj.__module__ == module.obj.__name__ and not collector.istestclass(obj, name):
            for inner, function in vars(obj).items():
                if inspect.isfunction(function) and hasattr(function, MARK):
                    why = f"the name of its class does not begin with Test: call it Test{name}"
                    _note_left_out(collector, f"{name}::{inner}", function, why)
        return
    if not inspect.isfunction(obj) or (obj.__globals__ is not vars(module.obj) and not hasattr(obj, MARK)):
        return  # it is imported from elsewhere
    if hasattr(obj, MARK):
        _note_left_out(collector, name, obj, f"its name does not begin with eval_: call it eval_{name}")
    elif name.startswith("eval_"):
        _note_left_out(collector, name, obj, "it has no @foreach(columns, dataset)")


def _note_left_out(
    collector: pytest.Module | pytest.Class, name: str, function: FunctionType, why: str
) -> None:
    place = getattr(function, "place_as", function).__code__
    text = f"{collector.nodeid}::{name} (line {place.co_firstlineno}) is not run: {why}"
    collector.config.stash.setdefault(LEFT_OUT, []).append(text)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of a mistake in a declaration, its message and the place are shown, not our way to find it."""
    report = yield
    call = getattr(report, "call", None)
    error = call.excinfo.value if report.failed and call is not None and call.excinfo else None
    if isinstance(error, EvalveError) and not collector.config.option.fulltrace:
        from evalve.plugin.traceback import leave_own_frames

        leave_own_frames(error)
        report.longrepr = collector.repr_failure(pytest.ExceptionInfo.from_exception(error))
    return report


def _choose_loop(item: pytest.Function) -> None:
    """Under pytest-asyncio: the loop of its async fixtures, else one loop for the whole session."""
    if item.get_closest_marker("asyncio") or item.get_closest_marker("anyio"):
        return
    scopes = set(_loop_scopes(item))
    if len(scopes) > 1:
        raise pytest.Collector.CollectError(
            f"{item.nodeid}: its async fixtures live on several event loops ({', '.join(sorted(scopes))}); "
            "give them the same loop_scope"
        )
    item.add_marker(pytest.mark.asyncio(loop_scope=scopes.pop() if scopes else "session"))


def _loop_scopes(item: pytest.Function) -> Iterator[str]:
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        definition = definitions[-1]
        function = definition.func
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            own = getattr(function, "_loop_scope", None)
            yield own or item.config.getini("asyncio_default_fixture_loop_scope") or definition.scope


def is_evaluation(item: pytest.Item) -> bool:
    return hasattr(getattr(item, "function", None), MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" not in metafunc.fixturenames:
        return
    definitions = metafunc._arg2fixturedefs.get("model")
    ours = definitions is not None and definitions[-1].func.__module__ == fixtures.__name__
    if ours and (names := models_chosen(metafunc.config)):
        metafunc.parametrize("model", names, indirect=True, ids=names)


# -- running


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Before an xdist worker reports what it collected: until all have, none is given anything to run."""
    asked = session.config.option
    if MISTAKE in session.config.stash:
        raise session.config.stash[MISTAKE]
    if asked.collectonly or (session.testsfailed and not asked.continue_on_collection_errors):
        return  # nothing will run, so nothing may be forgotten either
    items = [item for item in session.items if is_evaluation(item)]
    readers: list[pytest.Item] = []
    if _MARKS in sys.modules:  # or no test can be marked
        readers = [item for item in session.items if sys.modules[_MARKS].reading_of(item) is not None]
    if items or readers:
        session_of(session.config).begin(items, readers)


_MARKS = "evalve.reading.marks"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """With `--batch`, several evaluations share their batches; a worker of xdist has its items one by one."""
    config = session.config
    broken = session.testsfailed and not config.option.continue_on_collection_errors
    is_worker = hasattr(config, "workerinput")
    if SESSION in config.stash and not config.option.collectonly and not broken and not is_worker:
        config.stash[SESSION].gather([item for item in session.items if is_evaluation(item)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """While an evaluation's item is called, its function is the one that judges, not the direct call."""
    if not is_evaluation(item) or not isinstance(item, pytest.Function):
        yield
        return
    declared = item.obj
    item.obj = session_of(item.config).item_function(item, declared)
    try:
        yield
    except Exception as error:
        if not item.config.option.fulltrace:
            from evalve.plugin.traceback import leave_own_frames

            leave_own_frames(error)
        raise
    finally:
        item.obj = declared
        session_of(item.config).end_what_goes_on()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Async evaluations that no other plugin runs share one loop for the whole process."""
    if not is_evaluation(pyfuncitem) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    if "anyio_backend" in pyfuncitem.funcargs:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    session_of(pyfuncitem.config).run_on_loop(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "teardown" and is_evaluation(item):
        # a report takes what plugins add, and travels with it from an xdist worker to the controller
        session = session_of(item.config)
        report.evalve = session.told.get(item.nodeid)  # type: ignore[attr-defined]
        report.evalve_warned = session.heard.taken()  # type: ignore[attr-defined]
    elif SESSION in item.config.stash and session_of(item.config).readings is not None:
        from evalve.reading.readings import BROKE

        session = session_of(item.config)
        report.evalve_ran = session.ran_for.pop(item.nodeid, [])  # type: ignore[attr-defined]
        report.evalve_broke = item.stash.get(BROKE, False)  # type: ignore[attr-defined]
        report.evalve_warned = session.heard.taken()  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(
    terminalreporter: Any, exitstatus: int | pytest.ExitCode, config: pytest.Config
) -> None:
    for text in config.stash.get(LEFT_OUT, []):
        terminalreporter.write_line(f"evalve: {text}", yellow=True)
    reports = list(_reports(config, "evalve"))
    readers = list(_reports(config, "evalve_ran"))
    if reports or readers or SESSION in config.stash:
        told = [(report.start, report.evalve) for report in reports if report.evalve]
        told += [(report.start, ran) for report in readers for ran in report.evalve_ran]
        session_of(config).summarise(
            terminalreporter,
            [each for _, each in sorted(told, key=lambda one: one[0])],
            [warned for report in (*reports, *readers) for warned in report.evalve_warned],
            all_told={report.nodeid for report in reports}
            == {report.nodeid for report in reports if report.evalve},
            interrupted=exitstatus == pytest.ExitCode.INTERRUPTED,
            is_ours=bool(reports),
        )


def _reports(config: pytest.Config, attribute: str) -> Iterator[Any]:
    """Those that have it, of all processes; without a terminal reporter nobody keeps them."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    for of_one_kind in getattr(reporter, "stats", {}).values():
        yield from (report for report in of_one_kind if hasattr(report, attribute))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):  # each worker of xdist collects, and the controller tells once
        config.workeroutput["evalve_left_out"] = config.stash.get(LEFT_OUT, [])
    elif exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        session.exitstatus = _exit_code(config, exitstatus)
    if SESSION in config.stash:
        config.stash[SESSION].finish(exitstatus)


def _exit_code(config: pytest.Config, exitstatus: int) -> int:
    """A sample that broke says nothing of what is evaluated; a missed gate counts though no test tells it."""
    readers = list(_reports(config, "evalve_ran"))
    if any(report.evalve_broke for report in readers):
        return EXIT_BROKE
    has_problems = any(told["problems"] for report in readers for told in report.evalve_ran)
    return int(pytest.ExitCode.TESTS_FAILED) if has_problems else exitstatus


def pytest_unconfigure(config: pytest.Config) -> None:
    if SESSION in config.stash:
        config.stash[SESSION].close()
        del config.stash[SESSION]


# -- xdist: the controller names the experiment and holds its lock for all workers


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    session_of(node.config).lend_to_worker(node)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    session_of(node.config).worker_ended(output)
    known = node.config.stash.setdefault(LEFT_OUT, [])
    known.extend(text for text in output.get("evalve_left_out", ()) if text not in known)
