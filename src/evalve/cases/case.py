"""A test case: what was asked, what was called, what is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalve.evaluators.tools.definitions import definitions
from evalve.evaluators.tools.reading import expected_calls, tool_calls
from evalve.jsontext import as_text, digest
from evalve.options import suggestion
from evalve.records import ToolCall


class TestCase:
    """One case. Not a dataclass: a record keeps its calls in plain form, and of its tools only the names."""

    __test__ = False  # pytest takes classes of such names for tests
    __slots__ = ("actual_output", "expected_tools", "input", "name", "tools", "tools_called")

    def __init__(
        self,
        input: str,
        tools_called: Any = None,
        expected_tools: Any = None,
        tools: Any = None,
        actual_output: Any = None,
        *,
        name: str | None = None,
    ) -> None:
        """`tools_called` is an answer, a response of an SDK or a list of calls; left out, a model is asked.

        `expected_tools` is a list of calls, `[]` where none is right; `tools` are the definitions that the
        model is offered. `name` identifies the case when it is run again.
        """
        self.input = input
        self.tools_called = None if tools_called is None else tool_calls(tools_called)
        self.expected_tools = None if expected_tools is None else expected_calls(expected_tools)
        self.tools = tools
        self.actual_output = actual_output
        self.name = name

    def __repr__(self) -> str:
        return f"TestCase({self.input!r}, {self.tools_called!r}, {self.expected_tools!r})"

    def _asdict(self) -> dict[str, Any]:
        """What a record keeps of it."""
        kept: dict[str, Any] = {"input": self.input}
        for name in ("tools_called", "expected_tools"):
            calls: list[ToolCall] | None = getattr(self, name)
            if calls is not None:
                kept[name] = [{"name": call.name, "arguments": call.arguments} for call in calls]
        if self.tools is not None:
            kept["tools"] = [tool.name for tool in definitions(self.tools)]
            kept["tools_digest"] = digest(self.tools)
        if self.actual_output is not None:
            kept["actual_output"] = self.actual_output
        return kept


def as_case(given: Any) -> TestCase:
    """A case, also from a mapping of its fields."""
    if isinstance(given, TestCase):
        return given
    if isinstance(given, Mapping):
        fields = sorted(TestCase.__slots__)
        for key in given:
            if key not in fields:
                hint = suggestion(str(key), fields) or f" (there is: {', '.join(fields)})"
                raise TypeError(f"a test case has no {key!r}{hint}: {as_text(given)[:200]}")
        return TestCase(**given)
    raise TypeError(f"a test case is a TestCase or a mapping of its fields; got {given!r}")
