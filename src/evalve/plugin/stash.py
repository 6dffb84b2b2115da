"""What the plugin keeps in pytest's configuration while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evalve.plugin.flags import said_on_command_line

if TYPE_CHECKING:
    from evalve.plugin.session import EvalveSession

SESSION: pytest.StashKey[EvalveSession] = pytest.StashKey()
SHORT_NAMES: pytest.StashKey[set[str]] = pytest.StashKey()
MISTAKE: pytest.StashKey[pytest.UsageError] = pytest.StashKey()
"""Found while pytest collects, when raising it would show a traceback for every file."""
LEFT_OUT: pytest.StashKey[list[str]] = pytest.StashKey()
"""What looks like an evaluation and is none."""


def session_of(config: pytest.Config) -> EvalveSession:
    if SESSION not in config.stash:
        from evalve.plugin.session import EvalveSession

        is_ours = "--experiment" in config.stash.get(SHORT_NAMES, ())
        config.stash[SESSION] = EvalveSession(
            config,
            said_on_command_line(config),
            experiment_flag="--experiment" if is_ours else "--evalve-experiment",
        )
    return config.stash[SESSION]


def models_chosen(config: pytest.Config) -> tuple[str, ...]:
    """Chosen on the command line, in the environment or in `evalve.yaml`."""
    try:
        return session_of(config).models()
    except pytest.UsageError as error:
        config.stash[MISTAKE] = error
        return ()
