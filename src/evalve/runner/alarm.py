"""An alarm that was set for the whole evaluation, as pytest-timeout does it.

Python raises what its handler raises wherever the main thread is: inside a sample it is not the sample's.
"""

from __future__ import annotations

import signal
from types import CodeType, FunctionType


class Alarm:
    """The handler of SIGALRM that was there when the run began; one that a sample sets is its own."""

    def __init__(self) -> None:
        handler = signal.getsignal(signal.SIGALRM)
        self._code: CodeType | None = handler.__code__ if isinstance(handler, FunctionType) else None

    def has_raised(self, error: BaseException) -> bool:
        trace = error.__traceback__ if self._code is not None else None
        while trace is not None:
            if trace.tb_frame.f_code is self._code:
                return True
            trace = trace.tb_next
        return False
