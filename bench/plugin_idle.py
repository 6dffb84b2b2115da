"""What the pytest plugin costs a project that has no evaluations."""

from __future__ import annotations

from pathlib import Path

from bench.measuring import Figure, alternating, timed_s
from bench.processes import python

ROUNDS = 12
AT_MOST_MS = 40.0

_ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def measure() -> list[Figure]:
    """The best wall seconds of whole pytest processes that run one test: noise only adds."""
    Path("test_one.py").write_text("def test_one() -> None: ...\n", encoding="utf-8")
    took_s = alternating(
        {
            "with": _pytest_s,
            "without": lambda: _pytest_s("-p", "no:evalve"),
            "alone": lambda: _pytest_s("-p", "evalve.plugin.hooks", environ=_ALONE),
            "none": lambda: _pytest_s(environ=_ALONE),
        },
        rounds=ROUNDS,
    )
    with_s, without_s, alone_s, none_s = (min(took_s[side]) for side in took_s)
    return [
        Figure(
            "plugin idle, beside all plugins installed here", (with_s - without_s) * 1e3, "ms", AT_MOST_MS
        ),
        Figure("plugin idle, as the only plugin", (alone_s - none_s) * 1e3, "ms", AT_MOST_MS),
        Figure("pytest without it and without any plugin", none_s * 1e3, "ms"),
    ]


def _pytest_s(*arguments: str, environ: dict[str, str] | None = None) -> float:
    command = ("-m", "pytest", "-q", *arguments, "test_one.py")
    return timed_s(lambda: python(*command, folder=Path.cwd(), environ=environ))
