"""Files of a person's own that an experiment runs: an agent's script, evaluators. Are they there, have they
changed?"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from evalve.errors import OptionError
from evalve.experiments.file.resolving import Entry
from evalve.experiments.parts.models import Asked

PROJECT = "{project}"
_CODE = frozenset({".bash", ".jar", ".js", ".mjs", ".pl", ".py", ".r", ".rb", ".sh", ".ts"})
"""What is run must be there; another path may be one that the agent shall write."""
_MOST_SHOWN_BYTES = 200_000


_INTERPRETERS = re.compile(r"(?:python|pypy|node|bun|deno|ruby|perl|Rscript|bash|zsh|sh)[\d.]*")
"""Programs whose first argument is a script."""


def check_scripts(asked: Asked, project: Path, seeded: Collection[str] = ()) -> None:
    """`OptionError` for a script that the command names and that is not there.

    `seeded` are the files that a workspace begins with.
    """
    _check_not_relative(asked, project, {Path(name).parts[:1] for name in seeded})
    for path in scripts_of(asked, project):
        if path.suffix.lower() in _CODE and not path.exists():
            where = asked.entry.where("command")
            raise OptionError(
                f"{where}: models.{asked.name}: command: there is no {str(path)!r}; {PROJECT} stands for the "
                "folder of evalve.yaml"
            )


def _check_not_relative(asked: Asked, project: Path, seeded: Collection[tuple[str, ...]]) -> None:
    """A program starts in its workspace: a script of the project is not there under a relative name."""
    program, *arguments = [*map(str, asked.entry.get("command", [])), ""]
    named = [program] if "/" in program else []
    if _INTERPRETERS.fullmatch(Path(program).name):
        named += [word for word in arguments[:1] if Path(word).suffix.lower() in _CODE]
    for word in named:
        path = Path(word)
        is_relative = not path.is_absolute() and "{" not in word and path.parts[:1] not in seeded
        if is_relative and (project / path).is_file():
            where = asked.entry.where("command")
            raise OptionError(
                f"{where}: models.{asked.name}: command: an agent starts in its workspace, where {word!r} is"
                f" not; write {PROJECT}/{path} for the file of your project, or put it into the workspace"
                " with `files:`"
            )


def scripts_of(asked: Asked, project: Path) -> Iterator[Path]:
    """Words of the command, and the program, that lie in the project."""
    words = [*asked.entry.get("command", []), asked.entry.get("program", "")]
    for word in map(str, words):
        inside = word.removeprefix(f"{PROJECT}/")
        if inside != word and "{" not in inside:
            yield project / inside


def sources_of(asked: Asked, project: Path, evaluators: Entry) -> dict[str, str]:
    """What the person's own files say, by name, as a fingerprint has it: a change of them is told."""
    named = {f"script {path.name}": path for path in scripts_of(asked, project)}
    if "function" in asked.entry.values:
        module = str(asked.entry.get("function")).partition(":")[0].replace(".", "/")
        folder = asked.entry.folder("function")
        named[f"script {module}.py"] = folder / f"{module}.py"
    for file in _files_of(evaluators.get("evaluators", [])):
        named[f"evaluator {file}"] = evaluators.folder("evaluators") / file
    return {name: source_text(path) for name, path in named.items() if path.is_file()}


def _files_of(evaluators: str | Sequence[str | dict[str, object]]) -> Iterator[str]:
    for one in [evaluators] if isinstance(evaluators, str) else evaluators:
        name = one if isinstance(one, str) else next(iter(one))
        file, colon, _ = str(name).rpartition(":")
        if colon:
            yield file


def source_text(path: Path) -> str:
    """The text, so that a difference can be shown; of what is none, or long, what tells it from others."""
    content = path.read_bytes()
    try:
        text = content.decode() if len(content) <= _MOST_SHOWN_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    return text or hashlib.sha256(content).hexdigest()
