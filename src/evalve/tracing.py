"""`evalve.trace`: how code inside a sample leaves an event behind."""

from __future__ import annotations

import os
from typing import Any

from evalve.contracts import SAMPLE


class Tracer:
    """Adds to the trace of the sample that is under way. Where there is none, or none is wanted, nothing."""

    def __call__(self, what: Any, /, **data: Any) -> None:
        """A note, or with keyword arguments an event of the kind that comes first.

        `trace("gave up on the search")`, `trace("tool_call", name="search", arguments=…, result=…)`,
        `trace("turn", role="user", content=…)`: any kind, any plain values.
        """
        sample = SAMPLE.get()
        if sample is None or sample.trace is None:
            return
        if what == "file" and "path" in data:
            sample.trace.file(data["path"], data.get("name"))
        elif data:
            sample.trace.add(str(what), **data)
        else:
            sample.trace.add("note", text=what)

    def file(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Keep a file as it is now, by its content; `evalve show NAME SAMPLE --save DIR` gives it back."""
        sample = SAMPLE.get()
        if sample is not None and sample.trace is not None:
            sample.trace.file(path, name)


trace = Tracer()
