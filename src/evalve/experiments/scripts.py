"""Files of a person's own that an experiment runs: an agent's script, evaluators. Are they there, have they
changed?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalve.errors import OptionError
from evalve.experiments.models import Asked
from evalve.experiments.resolving import Entry

PROJECT = "{project}"
_CODE = frozenset({".bash", ".jar", ".js", ".mjs", ".pl", ".py", ".r", ".rb", ".sh", ".ts"})
"""What is run must be there; another path may be one that the agent shall write."""
_MOST_SHOWN_BYTES = 200_000


def check_scripts(asked: Asked, project: Path) -> None:
    """`OptionError` for a script that the command names and that is not there."""
    for path in scripts_of(asked, project):
        if path.suffix.lower() in _CODE and not path.exists():
            where = asked.entry.where("command")
            raise OptionError(
                f"{where}: models.{asked.name}: command: there is no {str(path)!r}; {PROJECT} stands for the "
                "folder of evalve.yaml"
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
