"""Evaluators by name, those of installed packages included."""

from __future__ import annotations

from doteval.evaluators.ast_evaluation import ast_evaluation
from doteval.plugins import Plugins
from evalve.evaluators import contains, exact_match, matches, numeric_match, valid_json

__all__ = ["EvaluatorRegistry", "registry"]


class EvaluatorRegistry(Plugins):
    def __init__(self) -> None:
        built_in = {
            "ast_evaluation": ast_evaluation,
            "contains": contains,
            "exact_match": exact_match,
            "matches": matches,
            "numeric_match": numeric_match,
            "valid_json": valid_json,
        }
        super().__init__("evaluators", built_in)

    def list_evaluators(self) -> list[str]:
        return self.names()


registry = EvaluatorRegistry()
