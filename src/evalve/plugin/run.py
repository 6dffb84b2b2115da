"""`evalve run`: the same as pytest, for those who don't want to type pytest."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalve.errors import OptionError
from evalve.experiments.file.keys import flags_with_values
from evalve.options import OPTIONS

# pytest's own short options that take the next argument as their value
_PYTEST_VALUES = frozenset(
    {"-k", "-m", "-p", "-c", "-o", "-n", "-W", "-r", "--tb", "--maxfail", "--deselect"}
)
_OUR_VALUES = frozenset(
    f"--{prefix}{name}"
    for option in OPTIONS
    if not option.is_switch and not option.bare
    for name in (option.name, *option.aliases)
    for prefix in ("", "evalve-")
) - {"--trace"}  # a switch of pytest's, unless `on` or `off` follows
_OUR_TRACE = {f"--trace={value}": f"--evalve-trace={value}" for value in ("on", "off")}
"""pytest refuses a value for its switch before our plugin is asked."""
# pytest would like to rewrite the assertions of its plugins, and this process has imported one already
_QUIET = ("-W", "ignore:Module already imported so cannot be rewritten; evalve")


def run_pytest(arguments: Sequence[str], plugins: Sequence[object] = ()) -> int:
    """Runs pytest in this process; its exit code is the answer."""
    prepared = pytest_arguments([_OUR_TRACE.get(argument, argument) for argument in arguments])

    import pytest

    return int(pytest.main([*_QUIET, *prepared], plugins=list(plugins)))


def pytest_arguments(arguments: Sequence[str]) -> list[str]:
    """What pytest is given: the arguments as they are, or the evaluations below this directory.

    A file that does not exist is an error here, because pytest's own suggests nothing.
    """
    files = list(files_named(arguments))
    for file in files:
        _check_exists(file)
    if files or "--pyargs" in arguments:
        return list(arguments)
    return [".", "-o", "python_files=eval_*.py", *arguments]


def files_named(arguments: Sequence[str]) -> Iterator[str]:
    """The arguments that are neither options nor, as far as is known, values of options."""
    previous = ""
    for argument in arguments:
        if not argument.startswith("-") and not _takes_value(previous, argument):
            yield argument
        previous = argument


def _takes_value(option: str, argument: str) -> bool:
    """After an option that only another plugin knows, what is no path is that option's value."""
    if option in _PYTEST_VALUES or option in _OUR_VALUES or option in flags_with_values():
        return True
    return option.startswith("-") and ".py" not in argument and not Path(_path(argument)).exists()


def is_file(argument: str) -> bool:
    return Path(_path(argument)).is_file()


def _path(argument: str) -> str:
    return argument.split("::", 1)[0]


def _check_exists(argument: str) -> None:
    path = Path(_path(argument))
    if path.exists():
        return
    beside = sorted(str(each) for each in path.parent.glob("*.py")) if path.parent.is_dir() else []
    guesses = [
        f"{path}.py",
        str(path.with_name(f"eval_{path.name}")),
        f"{path.with_name(f'eval_{path.name}')}.py",
    ]
    near = [guess for guess in guesses if guess in beside] or difflib.get_close_matches(
        str(path), beside, n=1
    )
    evaluations = [each for each in beside if Path(each).name.startswith("eval_")]
    if near:
        hint = f"did you mean {near[0] + argument[len(_path(argument)) :]!r}?"
    elif evaluations:
        hint = f"evaluations beside it: {', '.join(evaluations)}"
    else:
        hint = "`evalve init` writes a first evaluation"
    raise OptionError(f"no file {str(path)!r}; {hint}")
