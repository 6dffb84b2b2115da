"""Several agents of one experiment: their order, what each leaves, and what one does to the others."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalve import processes
from evalve.contracts import SAMPLE, Store
from evalve.errors import DatasetError, Locked, OptionError
from evalve.experiments.file.document import Document, Place, read_document
from evalve.experiments.file.resolving import Entry
from evalve.experiments.ordering import Order, phases_in_text
from evalve.experiments.outputs import OutputFolder, file_name
from evalve.experiments.running import SIDE_BY_SIDE, Ended, Planned, exit_code, run_all
from evalve.show.exports.exporting import Rows, jsonl_lines
from evalve.storage import open_store
from running import Notes, runnable

AGENTS = ("claude", "gpt", "mini", "atlas")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/records.db")
    yield store
    store.close()


class Crew:
    """Agents that answer at once, and note when they were asked."""

    def __init__(self, store: Store, rows: int = 3) -> None:
        self.store = store
        self.asked: list[tuple[str, str]] = []
        self.at_once: list[int] = []
        self._running: dict[str, int] = {}
        self._rows = [{"id": f"s{number}"} for number in range(rows)]

    def planned(self, agent: str, answer: Callable[[str], Any] = lambda id: True) -> Planned:
        async def evaluate(id: str) -> Any:
            self._running[agent] = self._running.get(agent, 0) + 1
            self.asked.append((agent, id))
            self.at_once.append(sum(1 for running in self._running.values() if running))
            await asyncio.sleep(0)
            try:
                return answer(id)
            finally:
                self._running[agent] -= 1

        name = f"talks[{agent}]"
        one = runnable(evaluate, self._rows, experiment="crm", key=f"evalve.yaml::{name}")
        one = replace(one, spec=replace(one.spec, name=name), variant={"model": agent})
        return Planned(one, self.store)

    def run(self, planned: list[Planned], order: Order, folder: Path, **more: Any) -> list[Ended]:
        return run_all(planned, progress=Notes(), folder=folder, orders={"crm": order}, **more)

    @property
    def order(self) -> list[str]:
        """Agents by their first question."""
        return list(dict.fromkeys(agent for agent, _ in self.asked))


def _document(tmp_path: Path) -> Document:
    (tmp_path / "evalve.yaml").write_text(
        "models:\n" + "".join(f"  {name}: openai/{name}\n" for name in AGENTS)
    )
    return read_document(tmp_path / "evalve.yaml")


def _order(tmp_path: Path, agents: tuple[str, ...] = AGENTS, **said: Any) -> Order:
    entry = Entry("experiments", "crm", Place(tmp_path / "evalve.yaml", 3), said)
    return Order.of(entry, _document(tmp_path), list(agents))


# -- which order


def test_without_a_word_all_agents_are_one_phase(tmp_path: Path) -> None:
    assert _order(tmp_path) == Order((AGENTS,))


def test_phases_hold_for_the_agents_that_are_asked_and_others_come_last(tmp_path: Path) -> None:
    phases = [["claude", "gpt"], "atlas"]

    assert _order(tmp_path, phases=phases).phases == (("claude", "gpt"), ("atlas",), ("mini",))
    assert _order(tmp_path, ("atlas", "gpt"), phases=phases).phases == (("gpt",), ("atlas",))


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ([["claude"], ["atlsa"]], "the experiment asks no model 'atlsa'; did you mean 'atlas'?"),
        ([["claude"], ["claude", "gpt"]], "'claude' is in two phases"),
    ],
)
def test_phases_that_cannot_be_meant_are_refused(tmp_path: Path, phases: Any, told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        _order(tmp_path, phases=phases)


def test_phases_are_typed_with_commas_and_semicolons() -> None:
    assert phases_in_text("claude, gpt; atlas;") == [["claude", "gpt"], ["atlas"]]


def test_phases_follow_each_other_and_agents_of_one_run_together(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    planned = [crew.planned(agent) for agent in ("atlas", "claude", "gpt")]

    ended = crew.run(planned, Order((("claude", "gpt"), ("atlas",))), tmp_path)

    assert crew.asked[-3:] == [("atlas", "s0"), ("atlas", "s1"), ("atlas", "s2")]
    assert max(crew.at_once) == 2
    assert [one.planned.agent for one in ended] == ["atlas", "claude", "gpt"]
    assert exit_code(ended) == 0


def test_one_agent_at_a_time(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)

    crew.run([crew.planned(agent) for agent in AGENTS], Order((AGENTS,), at_once=1), tmp_path)

    assert crew.order == list(AGENTS)
    assert max(crew.at_once) == 1


# -- one and the others


def test_an_agent_that_breaks_leaves_the_others_alone(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    broken = crew.planned("gpt")

    def no_rows() -> Any:
        raise DatasetError("the disk is gone")

    broken = replace(broken, runnable=replace(broken.runnable, rows=no_rows))
    outputs = OutputFolder(tmp_path / "out", [crew.planned("claude"), broken], lambda ended: ["the end"])

    with outputs.opened({}):
        ended = crew.run(
            [crew.planned("claude"), broken], Order((("gpt",), ("claude",))), tmp_path, watcher=outputs
        )

    assert exit_code(ended) == 1
    status = json.loads((tmp_path / "out" / "status.json").read_text())["agents"]
    assert (status["claude"]["status"], status["claude"]["exit_code"], status["claude"]["done"]) == (
        "done",
        0,
        3,
    )
    assert (status["gpt"]["status"], status["gpt"]["exit_code"]) == ("broken", 1)
    assert status["gpt"]["problems"] == ["the disk is gone"]
    assert (tmp_path / "out" / "gpt.jsonl").read_text() == ""


def test_ctrl_c_starts_no_other_agent_and_writes_what_there_is(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)

    def interrupted(id: str) -> bool:
        if id == "s0":
            os.kill(os.getpid(), signal.SIGINT)
        return True

    planned = [crew.planned("claude", interrupted), crew.planned("atlas")]
    planned[0] = replace(
        planned[0],
        runnable=replace(
            planned[0].runnable, options=replace(planned[0].runnable.options, max_concurrency=1)
        ),
    )
    outputs = OutputFolder(tmp_path / "out", planned, lambda ended: [])

    with outputs.opened({}):
        ended = crew.run(planned, Order((("claude",), ("atlas",))), tmp_path, watcher=outputs)

    assert crew.order == ["claude"]
    assert exit_code(ended) == 2
    assert "not started" in str(ended[1].error)
    status = json.loads((tmp_path / "out" / "status.json").read_text())["agents"]
    assert {name: (one["status"], one["exit_code"]) for name, one in status.items()} == {
        "claude": ("interrupted", 2),
        "atlas": ("interrupted", 2),
    }
    lines = (tmp_path / "out" / "claude.jsonl").read_text().splitlines()
    assert [json.loads(line)["sample_id"] for line in lines] == [id for _, id in crew.asked]


def test_two_terminals_may_run_two_agents_of_one_experiment_and_not_the_same(
    store: Store, tmp_path: Path
) -> None:
    crew = Crew(store)
    other = open_store(store.url)
    held = [
        other.lock("crm", holder="evalve run crm --models gpt", party=SIDE_BY_SIDE),
        other.lock("crm: talks[gpt]", holder="evalve run crm --models gpt"),
    ]

    assert exit_code(crew.run([crew.planned("claude")], Order((("claude",),)), tmp_path)) == 0
    with pytest.raises(Locked, match=r"'crm: talks\[gpt\]' is being run by .*evalve run crm --models gpt"):
        crew.run([crew.planned("gpt")], Order((("gpt",),)), tmp_path)
    with pytest.raises(Locked):
        store.delete("crm")
    for lock in held:
        lock.release()
    other.close()


# -- what each leaves


def test_each_agent_has_a_file_in_dataset_order_a_log_and_a_status(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    planned = [crew.planned("claude"), crew.planned("openai/gpt", lambda id: id != "s1")]
    outputs = OutputFolder(tmp_path / "deep" / "out", planned, lambda ended: [f"{len(ended)} ended"])

    with outputs.opened({}):
        crew.run(planned, Order((("claude", "openai/gpt"),)), tmp_path, watcher=outputs)

    folder = tmp_path / "deep" / "out"
    assert sorted(path.name for path in folder.iterdir()) == [
        "claude.jsonl",
        "claude.log",
        "openai-gpt.jsonl",
        "openai-gpt.log",
        "status.json",
    ]
    exported = Rows(store, "crm", evaluation="talks[openai/gpt]", canonical=False)
    assert (folder / "openai-gpt.jsonl").read_text() == "".join(jsonl_lines(exported))
    log = (folder / "claude.log").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  \S", line) for line in log)
    assert [line[21:] for line in log if "Completed" in line][-1] == "Completed 3/3 samples"
    assert log[-1].endswith("  1 ended")
    status = json.loads((folder / "status.json").read_text())["agents"]["openai/gpt"]
    assert (status["done"], status["failed"], status["exit_code"], status["interrupted"]) == (3, 0, 0, False)


def test_another_terminal_keeps_its_place_in_the_status(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    for agent in ("claude", "gpt"):
        outputs = OutputFolder(tmp_path / "out", [crew.planned(agent)], lambda ended: [])
        with outputs.opened({}):
            crew.run([crew.planned(agent)], Order(((agent,),)), tmp_path, watcher=outputs)

    status = json.loads((tmp_path / "out" / "status.json").read_text())["agents"]
    assert {name: one["status"] for name, one in status.items()} == {"claude": "done", "gpt": "done"}


def test_a_status_that_a_killed_process_left_is_believed_by_nobody(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    killed = subprocess.Popen(["sleep", "600"])
    process = {"pid": killed.pid, "started": processes.started(killed.pid), "where": processes.here()}
    living = {"pid": os.getpid(), "started": processes.started(os.getpid()), "where": processes.here()}
    entry = {"experiment": "crm", "status": "running"}
    left = {"gpt": {**entry, "process": process}, "atlas": {**entry, "process": living}}
    killed.kill()
    killed.wait()
    (tmp_path / "status.json").write_text(json.dumps({"agents": left}))

    outputs = OutputFolder(tmp_path, [crew.planned("claude")], lambda ended: [])
    with outputs.opened({}):
        status = json.loads((tmp_path / "status.json").read_text())["agents"]

    assert {name: one["status"] for name, one in status.items()} == {
        "gpt": "interrupted",
        "atlas": "running",
        "claude": "waiting",
    }
    assert "kill -9" in status["gpt"]["problems"][0]
    assert status["claude"]["process"]["pid"] == os.getpid()


def test_files_that_two_agents_would_share_and_folders_that_cannot_be_are_refused(
    store: Store, tmp_path: Path
) -> None:
    crew = Crew(store)
    (tmp_path / "file").write_text("")

    with pytest.raises(OptionError, match="'a/b' and 'a-b' would write into one file"):
        OutputFolder(tmp_path / "out", [crew.planned("a/b"), crew.planned("a-b")], lambda ended: [])
    with pytest.raises(OptionError, match=r"--output-dir: .*file cannot be made"):
        OutputFolder(tmp_path / "file", [crew.planned("a")], lambda ended: [])
    assert file_name("gpt 4.1/mini") == "gpt-4.1-mini"


def test_lanes_are_those_of_the_sample_that_runs(store: Store, tmp_path: Path) -> None:
    crew = Crew(store)
    lanes: list[str] = []

    def answer(id: str) -> bool:
        context = SAMPLE.get()
        assert context is not None and context.lane is not None
        lanes.append(context.lane.name)
        return True

    planned = crew.planned("atlas", answer)
    planned = replace(planned, runnable=replace(planned.runnable, lane=lambda row: f"lane of {row['id']}"))

    crew.run([planned], Order((("atlas",),)), tmp_path)

    assert lanes == ["lane of s0", "lane of s1", "lane of s2"]
