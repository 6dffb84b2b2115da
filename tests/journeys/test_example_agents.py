"""`examples/agents`: questions about long documents, asked of a command-line agent through the gateway."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml
from project import Project

from evalve.simulator import Behaviour, Simulator
from evalve.simulator.scripts import read_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents"


def test_the_example_finds_the_figures_in_long_documents(project: Project) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, project.folder)
    made = project.python("make_documents.py", "--lines", "1500")
    script = read_script(yaml.safe_load((EXAMPLE / "model.yaml").read_text()))
    with Simulator(Behaviour(answers=script)).start_in_thread() as provider:
        environ = {
            "READER_URL": provider.url,
            "OPENAI_API_KEY": "sk-real-0123456789",
            "EVALVE_STATE_DIR": str(project.folder / "state"),
            "EVALVE_CACHE_DIR": str(project.folder / "cache"),
        }
        ended = project.evalve("run", "documents", "--concurrency", "10", "--keep", "always", **environ)
        shown = project.evalve("show", "documents", "alder", "--json", **environ)

    assert made.code == 0
    assert ended.code == 0
    assert "exact_match  accuracy 1.000" in ended.out
    records = project.records("documents")
    assert [record["tries"] for record in records] == [1] * 24, ended.err
    assert "72 calls; " in ended.out
    assert provider.stats.completed == 72
    (sample,) = json.loads(shown.out)
    assert [event["kind"] for event in sample["trace"]].count("call") == 3
    kept = list((project.folder / ".evalve" / "kept").rglob("answer.txt"))
    assert len(kept) == 24
    workspaces = b"".join(path.read_bytes() for path in kept[0].parent.rglob("*") if path.is_file())
    assert b"sk-real-0123456789" not in workspaces
