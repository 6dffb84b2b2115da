"""doteval's evaluators are evalve's; those of installed plugins can be imported from here too."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from doteval.evaluators.ast_evaluation import ast_evaluation as ast_evaluation
from doteval.evaluators.registry import registry as registry
from evalve.evaluators import contains, exact_match, matches, numeric_match, valid_json
from evalve.evaluators import evaluator as declared

__all__ = ["contains", "evaluator", "exact_match", "matches", "numeric_match", "valid_json"]


def evaluator(given: Any = None, /, **how: Any) -> Callable[..., Any]:
    """evalve's, which takes the metrics first too, as in `@evaluator(accuracy())`."""
    if inspect.isroutine(given):
        return declared(**how)(_without_name(given))
    if given is not None:
        how["metrics"] = given
    return lambda function: declared(**how)(_without_name(function))


def _without_name(function: Callable[..., Any]) -> Callable[..., Any]:
    """dotevals asks for a parameter `name: str | None = None`, and never fills it: it names the score."""
    signature = inspect.signature(function)
    named = signature.parameters.get("name")
    if named is None or named.default is not None:
        return function

    @functools.wraps(function)
    def evaluate(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    others = [one for one in signature.parameters.values() if one is not named]
    evaluate.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return evaluate


def __getattr__(name: str) -> Any:
    """`from doteval.evaluators import llm_judge`: one that a package registers."""
    if name.startswith("_") or (found := registry.get(name)) is None:
        raise AttributeError(
            f"No evaluator named {name!r}. Available evaluators: {', '.join(registry.list_evaluators())}"
        )
    return found


def __dir__() -> list[str]:
    return [*__all__, "registry", *registry.list_evaluators()]
