"""Progress in a notebook: one output that is updated in place."""

from __future__ import annotations

import html
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence

from evalve.show.live.running import UsageMeter, Watched
from evalve.show.live.status_line import last_line, status_line

WIDTH = 110

Show = Callable[[Mapping[str, str], str, bool], None]
"""Puts an output (a text per MIME type) under an id: new, or in place of the one that is there."""


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; never imports IPython to find out."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    # by name along the bases: Colab's shell is a subclass
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


def show_with_ipython(output: Mapping[str, str], display_id: str, update: bool) -> None:
    from IPython.display import display  # late: it exists only where a notebook runs

    display(dict(output), raw=True, display_id=display_id, update=update)


class NotebookView:
    """The running evaluations in one output, updated twice a second; their last lines stay."""

    interval_s = 0.5

    def __init__(self, show: Show = show_with_ipython) -> None:
        self._show = show
        self._meter = UsageMeter()
        self._display_id: str | None = None
        self._last: list[str] = []

    def open(self) -> None:
        self._display_id, self._last = None, []

    def draw(self, running: Sequence[Watched], now_s: float) -> None:
        usage = self._meter.read(now_s)
        self._update(
            [
                *self._last,
                *(
                    status_line(
                        watched.tally, now_s=now_s, width=WIDTH, rate_per_s=watched.rate_per_s, usage=usage
                    )
                    for watched in running
                ),
            ]
        )

    def note(self, text: str) -> None:
        self._show(_output(f"evalve: {text}"), uuid.uuid4().hex, False)

    def ended(self, watched: Watched, now_s: float) -> None:
        self._last.append(last_line(watched.tally, now_s=now_s))

    def close(self) -> None:
        self._update(self._last)

    def _update(self, lines: Sequence[str]) -> None:
        update = self._display_id is not None
        self._display_id = self._display_id or uuid.uuid4().hex
        self._show(_output("\n".join(lines)), self._display_id, update)


def _output(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f'<pre style="margin:0">{html.escape(text)}</pre>'}
