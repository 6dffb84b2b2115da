"""What evalve's own code warned of while pytest captured it: kept for the section at the end."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from evalve.show.pytest_summary import Warned

_PLACEHOLDER = re.compile(r"%[^a-zA-Z]*[a-zA-Z]")


class HeardWarnings(logging.Handler):
    """Collects what is logged below `evalve`, from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._guard = threading.Lock()
        self._heard: dict[str, Warned] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        logger = logging.getLogger("evalve")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            kind, text = kind_of(record), record.getMessage()
        except Exception:  # as logging has it: what cannot be formatted is no reason to end a run
            self.handleError(record)
            return
        with self._guard:
            before = self._heard.get(kind)
            self._heard[kind] = (kind, before[1] if before else text, (before[2] if before else 0) + 1)

    def taken(self) -> list[Warned]:
        """What came since this was last asked; plain values, so that they travel between processes."""
        with self._guard:
            heard, self._heard = self._heard, {}
        return list(heard.values())


def kind_of(record: logging.LogRecord) -> str:
    """What was written in the code, without what differs each time; a mere frame for a text is no kind."""
    template = str(record.msg)
    has_words = any(sign.isalpha() for sign in _PLACEHOLDER.sub("", template))
    return f"{record.name}: {template if has_words else record.getMessage()}"
