"""Agents from being asked to the verdict, with real programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from agent_services import Bench
from evalve.agents.spec import AgentTask
from evalve.contracts import SAMPLE, Admitted, CallLog, GatewayLease, SampleContext, Tally
from evalve.errors import AgentError, OptionError
from evalve.evaluators import tool_call_match
from evalve.host.admission import MemoryAdmission, Wait
from evalve.host.machine import Machine
from evalve.host.reading import HostReading
from evalve.records import Artefact, ToolCall
from evalve.traces import Trace

SECRET = "sk-judge-1234567890abcdef"


async def test_an_agent_works_in_its_workspace_and_answers(bench: Bench) -> None:
    (bench.workspace / "context.md").write_text("twelve\n")
    run = await bench.shell("echo thinking; echo $1; cat context.md")("hello", bench.workspace)
    assert (run.answer, run.exit_code, run.agent) == ("twelve", 0, "command")
    assert run.ran_s >= 0
    assert run.output_bytes == len("thinking\nhello\ntwelve\n")


async def test_a_lent_directory_is_a_workspace(bench: Bench) -> None:
    class Lent:
        def __fspath__(self) -> str:
            return str(bench.workspace)

    assert (await bench.shell("pwd")("x", Lent())).answer == str(bench.workspace)


async def test_its_environment_is_what_is_allowed_and_nothing_else(bench: Bench) -> None:
    run = await bench.agent("command", command=["env"], answer="whole", environment={"MINE": "{prompt}"})(
        "hi", bench.workspace
    )
    given = dict(line.split("=", 1) for line in run.answer.splitlines())
    assert given["MINE"] == "hi"
    assert SECRET not in run.answer
    assert Path(given["HOME"]).is_relative_to(bench.runs)
    assert given.keys() == {
        *(
            "CI",
            "EVALVE_AGENT",
            "GIT_CONFIG_GLOBAL",
            "GIT_TERMINAL_PROMPT",
            "HOME",
            "MINE",
            "NO_COLOR",
            "PATH",
        ),
        *("TERM", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    }


async def test_two_runs_at_once_have_homes_of_their_own_that_are_gone_afterwards(bench: Bench) -> None:
    agent = bench.shell("echo $HOME; touch $HOME/.config.json")
    runs = await asyncio.gather(*(agent("x", bench.workspace) for _ in range(5)))
    assert len({run.answer for run in runs}) == 5
    assert list(bench.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "failure_class", "said"),
    [
        ("echo almost; exit 3", "agent", "ended with exit code 3"),
        ("echo '429 too many requests' >&2; exit 1", "provider", "429 too many requests"),
        (
            "python3 -c 'import json; json.loads(chr(125))'",
            "agent",
            "ended with exit code 1: json.decoder.JSONDecodeError: Expecting value",
        ),
        ("true", "agent", "gave an empty answer"),
        (
            "echo 'API Error: 529 overloaded'",
            "provider",
            "gave an error of its API as the answer: API Error: 529",
        ),
        ("echo 'Error: 503 Service Unavailable'", "provider", "Error: 503 Service Unavailable"),
        ("echo 'Error code: 401 - wrong key'", "code", "Error code: 401"),
        ("echo 'openai.RateLimitError: slow down'", "provider", "openai.RateLimitError: slow down"),
        ("""echo '{"type":"error","error":{"type":"overloaded_error"}}'""", "provider", "overloaded_error"),
        ("kill -9 $$", "infrastructure", "was killed by SIGKILL, not by evalve"),
        ("kill -11 $$", "agent", "was killed by SIGSEGV"),
    ],
)
async def test_what_is_no_answer_is_a_failure_of_its_class(
    bench: Bench, script: str, failure_class: str, said: str
) -> None:
    with pytest.raises(AgentError) as raised:
        await bench.shell(script)("x", bench.workspace)
    assert said in str(raised.value)
    assert raised.value.failure_class == failure_class
    assert raised.value.run is not None


@pytest.mark.parametrize(
    "answer", ["503 Service Unavailable", "An API error of 4 %", "errors: 429", "Error 0.5"]
)
async def test_an_answer_about_errors_is_an_answer(bench: Bench, answer: str) -> None:
    assert (await bench.shell(f"echo '{answer}'")("x", bench.workspace)).answer == answer


async def test_a_clock_that_runs_out_is_a_timeout(bench: Bench) -> None:
    with pytest.raises(AgentError, match=r"ran for 0.2 s without an end \(timeout_s\)") as raised:
        await bench.shell("sleep 600")("x", bench.workspace, timeout_s=0.2)
    assert raised.value.failure_class == "timeout"


async def test_a_program_that_is_not_installed_says_how_to_install_it(bench: Bench) -> None:
    bench.environ["PATH"] = "/nowhere"
    agent = bench.agent("claude-code")
    said = (
        "agent 'claude-code': the program 'claude' is not installed, or not on PATH; "
        "install it with npm install -g @anthropic-ai/claude-code"
    )
    assert agent.missing() == said
    with pytest.raises(AgentError) as raised:
        await agent("x", bench.workspace)
    assert (str(raised.value), raised.value.failure_class) == (said, "code")


async def test_a_prompt_that_is_too_long_for_an_argument_can_be_read_from_a_file(bench: Bench) -> None:
    prompt = "x" * 200_000
    with pytest.raises(AgentError, match=r"the prompt has 200,000 bytes.*prompt_file"):
        await bench.shell("echo $1")(prompt, bench.workspace)
    agent = bench.agent("command", command=["wc", "-c", "{prompt_file}"])
    assert (await agent(prompt, bench.workspace)).answer.startswith("200000 ")


@asynccontextmanager
async def lend(context: SampleContext) -> AsyncIterator[GatewayLease]:
    yield GatewayLease(f"http://127.0.0.1:9/t/tok-{context.sample_id}", f"tok-{context.sample_id}")


async def test_an_agent_is_lent_the_gateway_and_nothing_of_the_keys(bench: Bench) -> None:
    bench.environ["OPENAI_API_KEY"] = SECRET
    agent = bench.agent("command", command=["env"], answer="whole", lend=lend)
    SAMPLE.set(SampleContext("e", "v", "7", 0, 1))
    run = await agent("x", bench.workspace)
    assert "OPENAI_API_KEY=tok-7\n" in run.answer
    assert "OPENAI_BASE_URL=http://127.0.0.1:9/t/tok-7/openai/v1\n" in run.answer
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:9/t/tok-7/anthropic\n" in run.answer
    assert SECRET not in run.answer


async def test_a_program_whose_call_was_refused_need_not_say_why(bench: Bench) -> None:
    @asynccontextmanager
    async def refusing(context: SampleContext) -> AsyncIterator[GatewayLease]:
        yield GatewayLease(
            "http://127.0.0.1:9/t/tok", "tok", last_error=lambda: (403, "the budget is used up")
        )

    agent = bench.agent("command", command=["sh", "-c", "echo no >&2; exit 1"], lend=refusing)
    with pytest.raises(AgentError) as raised:
        await agent("x", bench.workspace)
    assert raised.value.failure_class == "code"
    refused = "its last call was refused with 403: the budget is used up"
    assert str(raised.value) == f"command ended with exit code 1: no; {refused}"


async def test_what_an_agent_says_of_its_calls_counts_where_the_gateway_saw_none(bench: Bench) -> None:
    says = """echo '{"answer": "7", "turns": 2, "cost_usd": 0.5}'"""
    agent = bench.agent("command", command=["sh", "-c", says], answer="json", lend=lend)
    past_it, through_it = SampleContext("e", "v", "7", 0, 1), SampleContext("e", "v", "8", 0, 1)

    @asynccontextmanager
    async def seeing(context: SampleContext) -> AsyncIterator[GatewayLease]:
        async with lend(context) as lease:
            context.calls.add(CallLog(requests=1, cost_usd=0.4))
            yield lease

    SAMPLE.set(past_it)
    await agent("x", bench.workspace)
    SAMPLE.set(through_it)
    await bench.agent("command", command=["sh", "-c", says], answer="json", lend=seeing)("x", bench.workspace)

    assert (past_it.calls.requests, past_it.calls.cost_usd) == (2, 0.5)
    assert (through_it.calls.requests, through_it.calls.cost_usd) == (1, 0.4)


async def test_the_gateway_may_be_switched_off(bench: Bench) -> None:
    agent = bench.agent("command", command=["env"], answer="whole", lend=lend, gateway=False)
    assert "BASE_URL" not in (await agent("x", bench.workspace)).answer


class Kept:
    """Where a trace's files go."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def __call__(self, source: Path, *, name: str) -> Artefact:
        self.files[name] = source.read_text()
        return Artefact("0" * 64, source.stat().st_size, name)


async def test_a_run_leaves_its_figures_events_and_files_in_the_sample(bench: Bench) -> None:
    kept, tally = Kept(), Tally("e", "v", 0.0)
    trace = Trace(keep_file=kept)
    context = SampleContext("e", "v", "7", 0, 1, tally=tally, trace=trace)
    SAMPLE.set(context)
    lines = [
        {"type": "step", "n": 1},
        {"answer": "4", "turns": 2, "usage": {"input_tokens": 9, "output_tokens": 1}},
    ]
    script = "; ".join(f"echo '{json.dumps(line)}'" for line in lines) + f"; echo {SECRET} >&2"
    agent = bench.shell(script, answer="jsonl", environment={"MY_API_KEY": SECRET})
    await agent("x", bench.workspace)
    assert context.lent["agents"][0]["turns"] == 2
    assert context.lent["agents"][0]["usage"]["input_tokens"] == 9
    assert context.lent["agents"][0]["confinement"] == "none"
    assert [event["kind"] for event in trace.events()] == ["step", "agent", "file", "file"]
    assert kept.files["stderr.txt"] == "***\n"
    assert context.calls == CallLog(requests=2, input_tokens=9, output_tokens=1, unpriced=1)
    assert tally.agents == {}


async def test_a_run_has_the_tool_calls_that_its_output_tells_of(bench: Bench) -> None:
    context = SampleContext("e", "v", "7", 0, 1)
    SAMPLE.set(context)
    lines = [
        {"kind": "tool_call", "name": "search", "arguments": {"query": "cats"}, "result": "none"},
        {"kind": "step", "name": "thinking"},
        {"kind": "tool_call", "name": "now", "arguments": {}},
        {"answer": "4"},
    ]
    agent = bench.shell("; ".join(f"echo '{json.dumps(line)}'" for line in lines), answer="jsonl")
    run = await agent("x", bench.workspace)
    assert run.tool_calls == (ToolCall("search", {"query": "cats"}), ToolCall("now", {}))
    assert tool_call_match(run, [ToolCall("search", {"query": "cats"}), "now"]).value is True
    assert "tool_calls" not in context.lent["agents"][0]


def _has_started(tally: Tally) -> bool:
    return any(agent.started_s is not None for agent in tally.agents.values())


async def test_a_running_agent_is_in_the_tally(bench: Bench) -> None:
    tally = Tally("e", "v", 0.0)
    SAMPLE.set(SampleContext("e", "v", "7", 0, 1, tally=tally))
    ready = bench.workspace / "ready"
    running = asyncio.ensure_future(bench.shell("touch ready; sleep 600")("x", bench.workspace))
    async with asyncio.timeout(30):
        while not (ready.exists() and _has_started(tally)):  # noqa: ASYNC110 (it is another process)
            await asyncio.sleep(0.02)
    (seen,) = tally.agents.values()
    assert (seen.agent, seen.sample_id) == ("command", "7")
    running.cancel()
    await asyncio.wait({running})
    assert tally.agents == {}
    assert list(bench.runs.iterdir()) == []


async def test_the_version_of_a_program_is_asked_once(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo asked >> {tmp_path}/asked; echo 2.1.0; exit; fi\n'
        'echo \'{"type":"result","subtype":"success","num_turns":1,"result":"ok"}\'\n'
    )
    program.chmod(0o755)
    agent = bench.agent("claude-code", program=str(program))
    runs = await asyncio.gather(*(agent("x", bench.workspace) for _ in range(3)))
    assert [run.version for run in runs] == ["2.1.0"] * 3
    assert (tmp_path / "asked").read_text() == "asked\n"


async def test_codex_is_told_of_the_gateway_in_its_own_home(bench: Bench, tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text(
        '#!/bin/sh\necho "$@" > args\ncp $CODEX_HOME/config.toml .\n'
        'echo \'{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}\'\n'
        'echo \'{"type":"turn.completed","usage":{}}\'\n'
    )
    program.chmod(0o755)
    agent = bench.agent("codex", program=str(program), model="openai/gpt-5", lend=lend, arguments=["--x"])
    await agent("-do it", bench.workspace)
    assert 'base_url = "http://127.0.0.1:9/t/tok-/openai/v1"' in (bench.workspace / "config.toml").read_text()
    arguments = (bench.workspace / "args").read_text()
    assert "-m gpt-5 " in arguments
    assert arguments.endswith("--x -- -do it\n")
    assert "tok-" not in arguments


async def test_a_function_is_an_agent(bench: Bench) -> None:
    async def solve(prompt: str, workspace: Path) -> str:
        return f"{prompt} in {workspace.name}"

    run = await bench.agent("python", function=solve)("hi", bench.workspace)
    assert run.answer == "hi in workspace"


async def test_a_function_that_takes_one_argument_is_given_the_task(bench: Bench) -> None:
    async def solve(task: AgentTask) -> str:
        assert task.gateway is not None
        return f"{task.model} {task.gateway.token}"

    run = await bench.agent("python", function=solve, model="m", lend=lend)("hi", bench.workspace)
    assert run.answer == "m tok-"


async def test_a_function_that_does_not_end_is_a_timeout(bench: Bench) -> None:
    async def solve(prompt: str, workspace: Path) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(AgentError, match="without an end") as raised:
        await bench.agent("python", function=solve, timeout_s=0.05)("hi", bench.workspace)
    assert raised.value.failure_class == "timeout"


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("claude-cod", {}, "there is no agent 'claude-cod'; did you mean 'claude-code'?"),
        ("zzz", {}, "there are claude-code, codex, gemini-cli, command, python"),
        ("command", {}, "agent 'command' needs its command"),
        ("command", {"command": "python3 x.py"}, "command is a list of texts"),
        ("command", {"comand": ["x"]}, "there is no setting 'comand'; did you mean 'command'?"),
        ("command", {"command": ["x", "{promt}"]}, "{promt} in '{promt}' is not a placeholder"),
        (
            "command",
            {"command": ["x"], "answer": "xml"},
            "answer is one of last_line, whole, json, jsonl, regex",
        ),
        ("command", {"command": ["x"], "answer": "regex"}, "answer: regex needs a pattern"),
        ("command", {"command": ["x"], "answer": "regex", "pattern": "("}, "is no regular expression"),
        ("command", {"command": ["x"], "timeout_s": 0}, "timeout_s is a number above 0; got 0"),
        (
            "command",
            {"command": ["x"], "confine": "jail"},
            "confine is one of off, auto, bubblewrap, landlock",
        ),
        ("command", {"command": ["x"], "gateway": "maybe"}, "gateway is on or off"),
        ("codex", {"command": ["x"]}, "agent 'codex' has a command of its own"),
        ("python", {}, "agent 'python' needs its function"),
        ("python", {"function": "no.such:thing"}, "function 'no.such:thing' cannot be imported"),
        ("python", {"function": len}, "is no async function"),
    ],
)
async def test_a_mistake_says_what_may_be_said(
    bench: Bench, name: str, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(OptionError) as raised:
        bench.agent(name, **settings)
    assert said in str(raised.value)


async def test_another_package_registers_an_agent(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site"
    (package / "shouting-1.0.dist-info").mkdir(parents=True)
    (package / "shouting-1.0.dist-info" / "METADATA").write_text("Name: shouting\nVersion: 1.0\n")
    (package / "shouting-1.0.dist-info" / "entry_points.txt").write_text(
        "[evalve.agents]\nshout = shouting:SPEC\n"
    )
    (package / "shouting.py").write_text(
        "from evalve.agents.readers import LastLine\n"
        "from evalve.agents.spec import AgentSpec\n"
        'SPEC = AgentSpec(name="shout", command=("echo", "{prompt}!"), reader=LastLine)\n'
    )
    monkeypatch.syspath_prepend(str(package))
    run = await bench.agent("shout")("hey", bench.workspace)
    assert (run.agent, run.answer) == ("shout", "hey!")
    assert os.fspath(package) in sys.path


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "import nowhere_to_be_found",
            "of its package cannot be loaded: ModuleNotFoundError: No module named",
        ),
        ("SPEC = 3", "is registered in evalve.agents, and is no AgentSpec"),
    ],
)
async def test_a_package_that_is_broken_is_named(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, told: str
) -> None:
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_text("[evalve.agents]\nx = brokenx:SPEC\n")
    (tmp_path / "brokenx.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "brokenx", raising=False)

    with pytest.raises(OptionError) as raised:
        bench.agent("x")

    assert f"agent 'x': brokenx:SPEC {told}" in str(raised.value)


async def test_an_agent_starts_when_there_is_memory_and_its_peak_is_what_the_next_is_expected_to_take(
    bench: Bench,
) -> None:
    admission = MemoryAdmission(HostReading)

    class OneMachine(Machine):
        def admission(self, kind: str, wait: Wait) -> AbstractAsyncContextManager[Admitted]:
            return admission.admission(kind, wait)

    token = SAMPLE.set(SampleContext("x", "eval", "s1", 0, 1, host=OneMachine()))
    try:
        run = await bench.agent(
            "command",
            command=[
                sys.executable,
                "-c",
                "held = bytearray(80 << 20); import time; time.sleep(1.5); print('done')",
            ],
        )("x", bench.workspace)
    finally:
        SAMPLE.reset(token)

    assert run.peak_memory_bytes > 80 << 20
    assert admission.expected_bytes("command") == int(1.2 * run.peak_memory_bytes)


async def test_a_prompt_in_any_language_arrives_as_it_is(bench: Bench) -> None:
    prompt = "Wie groß ist 東京? 🗼 'quoted' \"twice\" $HOME `id`\nsecond line"
    run = await bench.agent("command", command=["printf", "%s", "{prompt}"], answer="whole")(
        prompt, bench.workspace
    )
    assert run.answer == prompt
    read = await bench.agent("command", command=["cat", "{prompt_file}"], answer="whole")(
        prompt, bench.workspace
    )
    assert read.answer == prompt


async def test_a_prompt_that_no_program_takes_is_told(bench: Bench) -> None:
    with pytest.raises(AgentError, match="embedded null byte") as raised:
        await bench.shell("echo $1")("a\0b", bench.workspace)
    assert raised.value.failure_class == "code"
