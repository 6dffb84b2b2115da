"""doteval's evaluators are evalve's; those of installed plugins can be imported from here too."""

from typing import Any

from doteval.evaluators.ast_evaluation import ast_evaluation as ast_evaluation
from doteval.evaluators.registry import registry as registry
from evalve.evaluators import contains, evaluator, exact_match, matches, numeric_match, valid_json

__all__ = ["contains", "evaluator", "exact_match", "matches", "numeric_match", "valid_json"]


def __getattr__(name: str) -> Any:
    """`from doteval.evaluators import llm_judge`: one that a package registers."""
    if name.startswith("_") or (found := registry.get(name)) is None:
        raise AttributeError(
            f"No evaluator named {name!r}. Available evaluators: {', '.join(registry.list_evaluators())}"
        )
    return found


def __dir__() -> list[str]:
    return [*__all__, "registry", *registry.list_evaluators()]
