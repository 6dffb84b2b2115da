"""`evalve.evaluate`: test cases through metrics, as one evaluation like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from evalve import wiring
from evalve.callers import caller
from evalve.cases.case import TestCase, as_case
from evalve.cases.configs import AsyncConfig, CacheConfig
from evalve.cases.metrics import CaseMetric
from evalve.declare.datasets import Dataset
from evalve.declare.foreach import Evaluation
from evalve.errors import DeclarationError
from evalve.evaluators.tools.reading import tool_calls
from evalve.gating import model as open_model
from evalve.jsontext import to_json
from evalve.options import from_mapping
from evalve.records import Result
from evalve.show.result import EvaluationResult

_COLUMNS = ("case",)


def evaluate(
    test_cases: Iterable[TestCase | dict[str, Any]],
    metrics: Sequence[CaseMetric],
    *,
    async_config: AsyncConfig | None = None,
    cache_config: CacheConfig | None = None,
    model: Any = None,
    name: str = "test_cases",
    **options: Any,
) -> EvaluationResult:
    """Score test cases by metrics, each case a sample: limited, cached, recorded and resumed as all are.

    Cases that say what was called are scored as they are; those without `tools_called` are first put to
    `model`, a name or what `evalve.model` returns, with their `tools`. `name` tells several evaluations of a
    file apart. Further arguments are options: `experiment=`, `samples=`, `repeat=`, `fail_under=` …
    """
    where = caller()
    for given, wanted in ((async_config, AsyncConfig), (cache_config, CacheConfig)):
        if given is not None and not isinstance(given, wanted):
            raise DeclarationError(f"{where}: got {given!r}; write {wanted.__name__}(…)")
    if isinstance(test_cases, TestCase | dict):
        test_cases = [test_cases]
    cases = [as_case(one) for one in test_cases]
    if not cases:
        raise DeclarationError(f"{where}: test_cases= is empty: there is nothing to evaluate")
    measures = _checked_metrics(metrics, where)
    asked = open_model(model) if isinstance(model, str) else model
    for case in cases:
        if case.tools_called is None and asked is None:
            raise DeclarationError(
                f"{where}: the case {case.input[:80]!r} says nothing of what was called: give it"
                " tools_called= ([] for nothing), or evaluate() a model= to ask"
            )
    file, _, line = where.rpartition(":")
    path = Path(file).resolve() if Path(file).is_file() else None
    settings = {
        **(async_config.options() if async_config is not None else {}),
        **({"cache": cache_config.mode()} if cache_config is not None else {}),
    }
    evaluation = Evaluation(
        function=_function(measures, asked),
        columns=_COLUMNS,
        dataset=Dataset([_row(case) for case in cases], _COLUMNS, where),
        name=name,
        path=path,
        line=int(line) if line.isdigit() else 0,
        options=from_mapping(settings, said_by=f"{where}: evaluate"),
        captured={"metrics": to_json([one.settings() for one in measures]), "model": str(_name_of(asked))},
    )
    return wiring.run_directly(evaluation, (), options)


def _row(case: TestCase) -> dict[str, Any]:
    return {"case": case} if case.name is None else {"id": case.name, "case": case}


def _function(measures: Sequence[CaseMetric], model: Any) -> Callable[..., Any]:
    async def evaluate_case(case: TestCase) -> Result:
        called, response = case.tools_called, case.actual_output
        if called is None:
            offered = {} if case.tools is None else {"tools": case.tools}
            response = await model.generate(case.input, **offered)
            called = tool_calls(response)
        scores = [await measure.score(case, called) for measure in measures]
        return Result(*scores, prompt=case.input, response=response if response is not None else called)

    return evaluate_case


def _checked_metrics(metrics: Any, where: str) -> Sequence[CaseMetric]:
    found = list(metrics) if isinstance(metrics, list | tuple) else [metrics]
    for one in found:
        if isinstance(one, type):
            raise DeclarationError(f"{where}: metrics= has the class {one.__name__}; write {one.__name__}()")
        if not callable(getattr(one, "score", None)) or not callable(getattr(one, "settings", None)):
            raise DeclarationError(
                f"{where}: metrics= takes ToolCorrectnessMetric(), ArgumentCorrectnessMetric(), or what has"
                f" their methods score and settings; got {one!r}"
            )
    names = [getattr(one, "name", type(one).__name__) for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DeclarationError(
            f"{where}: {len(twice)} metrics are called {twice[0]!r}, and would be averaged as one: name them"
            f" apart, as in {type(found[names.index(twice[0])]).__name__}(name='strict', …)"
        )
    if not found:
        raise DeclarationError(f"{where}: metrics= is empty: evaluate() needs something to score by")
    return found


def _name_of(model: Any) -> Any:
    return None if model is None else getattr(model, "name", model)
