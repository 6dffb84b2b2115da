"""`evalve limits`, `evalve cache` and `evalve simulate`: what they print, change and leave alone."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evalve.cli import main
from evalve.gate.cache.entries import Entry
from evalve.gate.cache.store import CacheStore
from evalve.gate.limits.state import Refusal, Settlement
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Cost, Limit, Limits, Stated

SCOPE = "api.anthropic.com/1a2b3c4d5e6f/claude-haiku-4-5"
OTHER = "api.openai.com/none/gpt-6"
LIMITS = Limits({"requests": Limit(600, 40, "evalve.yaml")}, concurrency=4)
ONE: Cost = {"requests": 1}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the limits' database will be, in a directory that does not exist yet."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("EVALVE_LIMITS_STATE", raising=False)
    monkeypatch.setenv("EVALVE_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state" / "limits.db"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache will be, in a directory that does not exist yet."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("EVALVE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "responses.db"


def book(path: Path, scope: str, *settlements: Settlement, limits: Limits = LIMITS, calls: int = 0) -> None:
    async def exchange() -> None:
        shared = SqliteState(path)
        await shared.exchange(scope, limits, settlements, [ONE] * calls, horizon_s=60.0)
        await shared.close()

    asyncio.run(exchange())


def keep(directory: Path, *models: str) -> None:
    async def put() -> None:
        store = CacheStore(directory, inline=True)
        for number, model in enumerate(models):
            entry = Entry(200, {}, b"{}", "anthropic", model, experiment=f"about {model}")
            await store.put(f"{number:064x}", entry)
        store.close()

    asyncio.run(put())


# -- limits


def test_no_limits_yet_is_a_friendly_line_and_makes_nothing(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["limits"]) == 0
    assert capsys.readouterr().out.startswith("no limits yet: they appear with the first call to a model")

    assert main(["limits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(state), "scopes": []}
    assert not state.parent.exists()


def test_limits_shows_levels_sources_and_this_process(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book(state, SCOPE, calls=3)

    assert main(["limits"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "api.anthropic.com · key 1a2b3c4d5e6f · claude-haiku-4-5"
    assert lines[3].split()[:3] == ["requests", "600", "40"]
    assert lines[4:6] == ["  source: configured by evalve.yaml", "  in flight: 3 calls of at most 4"]
    assert lines[6].startswith(f"    process {os.getpid()} (")
    assert lines[6].endswith(": 3 calls")


def test_limits_as_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book(state, SCOPE, calls=3)

    assert main(["limits", "--json"]) == 0

    [scope] = json.loads(capsys.readouterr().out)["scopes"]
    assert (scope["host"], scope["key_hash"], scope["pool"]) == tuple(SCOPE.split("/"))
    assert (scope["in_flight"], scope["concurrency"]) == (3, 4)
    [limit] = scope["limits"]
    assert (limit["per_minute"], limit["burst"], limit["in_flight"]) == (600, 40, 3)
    assert scope["holders"][0]["booked"] == {"requests": 3}


def test_limits_tells_pauses_and_what_the_answers_stated(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Settlement(
        booked=ONE,
        actual=ONE,
        started_at_s=1e12,
        stated={"requests": Stated(per_minute=50, remaining=40)},
        answered=True,
        refusal=Refusal(None, 30.0),
    )
    book(state, OTHER, refused, limits=Limits())

    assert main(["limits"]) == 0

    printed = capsys.readouterr().out
    assert "api.openai.com · no key · gpt-6" in printed
    assert "  source: response headers\n" in printed
    assert "s) by a 429\n" in printed

    assert main(["limits", "--json"]) == 0
    [scope] = json.loads(capsys.readouterr().out)["scopes"]
    assert scope["paused_by"] == "refused"
    assert 25 < scope["paused_for_s"] <= 30


def test_looking_changes_nothing_and_does_not_count_the_dead(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import os, sys; from pathlib import Path; from test_gate_commands import SCOPE, book;"
        "book(Path(sys.argv[1]), SCOPE, calls=2); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(state)], cwd=Path(__file__).parent, check=True)
    before = state.read_bytes()

    assert main(["limits"]) == 0

    assert "  in flight: 0 calls of at most 4\n" in capsys.readouterr().out
    assert state.read_bytes() == before
    assert [path.name for path in state.parent.iterdir()] == ["limits.db"]


def test_a_database_that_cannot_be_read_is_told_and_left_alone(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state.parent.mkdir()
    state.write_bytes(b"no database" * 100)

    assert main(["limits"]) == 1

    assert f"evalve: {state}: cannot be used (" in capsys.readouterr().err
    assert state.read_bytes() == b"no database" * 100


def test_with_memory_only_there_is_nothing_to_show(
    state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALVE_LIMITS_STATE", "memory")

    assert main(["limits"]) == 0
    assert "every process has limits of its own" in capsys.readouterr().out


def test_a_scope_is_forgotten_by_its_name_or_a_part_that_only_it_has(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book(state, SCOPE, calls=1)
    book(state, OTHER)

    assert main(["limits", "--forget", "haiku"]) == 0
    assert capsys.readouterr().out == (
        f"forgot {SCOPE}: its limits are learnt anew; 1 call in flight not disturbed\n"
    )
    assert main(["limits", "--forget", OTHER]) == 0
    capsys.readouterr()
    assert main(["limits"]) == 0
    assert capsys.readouterr().out.startswith("no limits yet")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("api.", 4, f"'api.' is in several scopes: {SCOPE}, {OTHER}"),
        ("api.openai.com/none/gpt-7", 1, f"no scope 'api.openai.com/none/gpt-7'; did you mean {OTHER!r}?"),
        ("zzz", 1, "no scope 'zzz'; `evalve limits` shows those that exist"),
        ("", 1, "no scope ''"),
    ],
)
def test_what_is_no_scope_or_several_forgets_nothing(
    state: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, said: str
) -> None:
    book(state, SCOPE)
    book(state, OTHER)

    assert main(["limits", "--forget", text]) == code

    assert said in capsys.readouterr().err
    main(["limits", "--json"])
    assert len(json.loads(capsys.readouterr().out)["scopes"]) == 2


# -- cache


def test_an_empty_cache_is_looked_at_without_being_made(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "stats"]) == 0
    assert main(["cache", "verify"]) == 0
    assert main(["cache", "path"]) == 0
    assert main(["cache", "clear", "--yes"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"{kept}: nothing is kept here yet",
        f"{kept}: 0 answers checked, all of them whole",
        str(kept),
        f"{kept}: nothing to remove",
    ]
    assert not kept.parent.exists()


def test_cache_stats_and_verify_for_people_and_machines(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(kept.parent, "claude-a", "claude-a", "claude-b")

    assert main(["cache", "stats"]) == 0
    assert "  anthropic/claude-a        2" in capsys.readouterr().out
    assert main(["cache", "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 3
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == f"{kept}: 3 answers checked, all of them whole\n"
    assert main(["cache", "verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"] == 3


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--model", "claude-a"], 1),
        (["--model", "anthropic/claude-b"], 2),
        (["--experiment", "about claude-b"], 2),
        (["--older-than", "30m"], 3),
        (["--model", "claude-a", "--experiment", "about claude-b"], 3),
        ([], 0),
    ],
)
def test_cache_clear_removes_what_meets_all_that_is_said(
    kept: Path, capsys: pytest.CaptureFixture[str], flags: list[str], left: int
) -> None:
    keep(kept.parent, "claude-a", "claude-a", "claude-b")

    assert main(["cache", "clear", *flags, "--yes"]) == 0

    capsys.readouterr()
    main(["cache", "stats", "--json"])
    assert json.loads(capsys.readouterr().out)["entries"] == left


def test_cache_clear_asks_on_a_terminal_and_otherwise_wants_yes(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kept.parent, "claude-a")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["cache", "clear"]) == 4
    assert "say --yes to clear" in capsys.readouterr().err

    questions: list[str] = []
    answers = iter(["", "y"])

    def answer(question: str) -> str:
        questions.append(question)
        return next(answers)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answer)
    assert main(["cache", "clear", "--older-than", "0s", "--model", "claude-a"]) == 1
    assert capsys.readouterr().err == "nothing was removed\n"
    assert questions[0].startswith("Remove the answers of claude-a older than 0s from ")
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.startswith(f"{kept}: removed 1 answer, ")


def test_a_damaged_answer_fails_the_check(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(kept.parent, "claude-a", "claude-b")
    store = CacheStore(kept.parent, inline=True)
    with store.file.writing() as connection:
        assert connection is not None
        connection.execute("UPDATE entries SET checksum = checksum + 1 WHERE model = 'claude-a'")
    store.close()

    assert main(["cache", "verify"]) == 1
    assert "2 answers checked, 1 damaged and removed" in capsys.readouterr().out
    assert main(["cache", "verify"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cache", "stast"], "evalve: unknown cache action 'stast'; did you mean 'stats'?\n"),
        (["cache", "zzz"], "evalve: unknown cache action 'zzz'; the cache actions are: stats, clear, path, "),
        (["cache"], "the following arguments are required: ACTION\n"),
        (["cache", "clear", "--older-than", "7", "--yes"], "evalve: --older-than: needs a number and a unit"),
        (["cashe"], "evalve: unknown command 'cashe'; did you mean 'cache'?\n"),
        (["limit"], "evalve: unknown command 'limit'; did you mean 'limits'?\n"),
        (["simulat"], "evalve: unknown command 'simulat'; did you mean 'simulate'?\n"),
        (["simulate", "--latency", "x"], "evalve simulate: error: "),
        (["simulate", "--fault", "error"], "--fault 'error': write it as KIND=PROBABILITY"),
    ],
)
def test_wrong_usage_is_told_with_a_suggestion(
    kept: Path, state: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(arguments) == 4

    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


# -- simulate


@contextmanager
def simulating(*flags: str, stderr: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`evalve simulate` in a process of its own, and the URL that it says."""
    command = [sys.executable, "-m", "evalve.cli", "simulate", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


def ask(url: str) -> str:
    body = {"model": "claude-x", "max_tokens": 20, "messages": [{"role": "user", "content": "Hello?"}]}
    headers = {"x-api-key": "any", "anthropic-version": "2023-06-01", "content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return str(json.load(reply)["type"])


def test_simulate_serves_until_it_is_interrupted_and_says_what_it_saw() -> None:
    with simulating("--requests-per-minute", "600", stderr=subprocess.PIPE) as (process, url):
        assert ask(url) == "message"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert errors == ""
    seen = json.loads(rest)
    assert (seen["requests"], seen["completed"], seen["requests_by_model"]) == (1, 1, {"claude-x": 1})


def test_simulate_tells_a_person_how_to_point_a_client_at_it_on_stderr() -> None:
    ours, theirs = pty.openpty()
    try:
        with simulating(stderr=theirs) as (process, url):
            hint = os.read(ours, 10_000).decode()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)

    assert f"  export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any" in hint
    assert f"  export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any" in hint
    assert json.loads(rest)["requests"] == 0


def test_simulate_has_the_help_of_the_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--help"]) == 0

    assert "--requests-per-minute" in capsys.readouterr().out


@pytest.mark.parametrize("port", ["99999", "-1", "80x"])
def test_a_port_that_cannot_be_is_told(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", f"--port={port}"]) == 4

    told = capsys.readouterr().err.splitlines()[-1]
    needed = "needs a port, 1 to 65535, or 0 for any free one"
    assert told == f"evalve simulate: error: argument --port: {needed}; got {port!r}"


@pytest.mark.parametrize(
    ("command", "variable"), [(["limits"], "EVALVE_STATE_DIR"), (["cache", "stats"], "EVALVE_CACHE_DIR")]
)
def test_a_directory_that_is_a_file_is_told(
    command: list[str],
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv(variable, str(file))

    assert main(command) == 1

    assert capsys.readouterr().err == f"evalve: {file} is not a directory, so nothing can be kept in it\n"
