"""What a person has configured for calls to models, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evalve.errors import OptionError
from evalve.experiments.file.calls import call_problems
from evalve.experiments.file.configuration import Configuration
from evalve.gate.doors.naming import target_of
from evalve.gate.limits.presets import check_variables
from evalve.gate.prices import prices_from
from evalve.gating import cache_cap_bytes, cache_mode, keeps_limits_in_memory
from evalve.options import Options


def check_calls(models: Sequence[str], configuration: Configuration, environ: Mapping[str, str]) -> None:
    """Raises `OptionError` for the first value that the gate would not take, once there is a call."""
    for name in models:
        target_of(name, environ=environ)
    for problem in call_problems(configuration.document) if configuration.document is not None else ():
        raise OptionError(str(problem))
    check_variables(environ)
    prices_from(configuration.prices, environ)
    cache_mode(Options(), environ)
    cache_cap_bytes(environ)
    keeps_limits_in_memory(environ)
