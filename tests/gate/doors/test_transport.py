"""The clients themselves, with both libraries: what is kept of their settings, what passes the gate."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from evalve.gate.doors.httpx_parts import LibraryName
from evalve.gate.doors.transport import async_http_client, http_client
from evalve.gate.messages import Reply, Request, Sender
from evalve.gate.sender import AiohttpSender
from loopback import (
    CountingProxy,
    PassThrough,
    answering,
    make_certificates,
    read_request,
    refusing_port,
    serving,
    serving_in_thread,
)

BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Id: 7\r\nContent-Length: 9\r\n\r\n{"a": 1}\n'
PATH = "/v1/messages"
libraries = pytest.mark.parametrize("library", ["httpx2", "httpx"])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def tls_server(certificates: tuple[Path, Path], *, wants_certificate: bool = False) -> ssl.SSLContext:
    certificate, key = certificates
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if wants_certificate:
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


# -- which client it is


def test_the_library_is_httpx2_unless_another_is_named() -> None:
    with http_client(PassThrough()) as newer, http_client(PassThrough(), library="httpx") as older:
        assert type(newer) is httpx2.Client
        assert type(older) is httpx.Client


@libraries
async def test_client_options_are_the_clients_own(library: LibraryName) -> None:
    gate: Any = PassThrough()
    client = async_http_client(
        gate, library=library, base_url="http://a.test/v1", headers={"x-team": "t"}, timeout=3.0
    )
    async with client:
        assert str(client.base_url) == "http://a.test/v1/"
        assert client.headers["x-team"] == "t"
        assert client.timeout.read == 3.0


# -- answers


@libraries
async def test_an_answer_is_an_ordinary_response(library: LibraryName) -> None:
    gate: Any = PassThrough()
    async with serving(answering(OK)) as port, async_http_client(gate, library=library) as client:
        response = await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert (response.status_code, response.json()) == (200, {"a": 1})
    assert response.headers["x-id"] == "7"
    assert response.headers["content-length"] == "9"
    assert "x-should-retry" not in response.headers
    assert json.loads(gate.requests[0].body) == BODY
    assert gate.requests[0].headers["content-type"] == "application/json"


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}], ids=["unnamed", "text"])
@libraries
async def test_json_that_nobody_has_named_so_passes_the_gate_too(
    library: LibraryName, headers: dict[str, str]
) -> None:
    gate: Any = PassThrough()
    async with serving(answering(OK)) as port, async_http_client(gate, library=library) as client:
        url = f"http://127.0.0.1:{port}{PATH}"
        response = await client.post(url, content=json.dumps(BODY), headers=headers)
    assert response.json() == {"a": 1}
    assert [json.loads(request.body) for request in gate.requests] == [BODY]
    assert gate.requests[0].headers.get("content-type") == headers.get("content-type")


@libraries
async def test_a_call_that_follows_a_redirect_passes_the_gate(library: LibraryName) -> None:
    gate: Any = PassThrough()
    paths: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line, _, _ = await read_request(reader)
            paths.append(line.split()[1])
            moved = b"HTTP/1.1 308 X\r\nLocation: /new/v1/messages\r\nContent-Length: 0\r\n\r\n"
            writer.write(moved if len(paths) == 1 else OK)

    async with serving(handle) as port, async_http_client(gate, library=library) as client:
        response = await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert response.json() == {"a": 1}
    assert paths == [PATH, "/new/v1/messages"]
    assert [json.loads(request.body) for request in gate.requests] == [BODY, BODY]
    assert gate.passed == []


@pytest.mark.parametrize("options", [{}, {"trust_env": False}], ids=["our sender", "its own network"])
@libraries
def test_a_compressed_answer_is_decoded_once(library: LibraryName, options: dict[str, Any]) -> None:
    gate: Any = PassThrough()
    packed = gzip.compress(b'{"a": 1}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    with (
        serving_in_thread(answering(head.encode() + packed)) as port,
        http_client(gate, library=library, **options) as client,
    ):
        response = client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert response.json() == {"a": 1}
    assert "content-encoding" not in response.headers
    assert response.headers["content-length"] == "8"


@libraries
def test_a_byte_that_is_no_text_is_replaced(library: LibraryName) -> None:
    gate: Any = PassThrough()
    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"a": "\xfc"}'
    with serving_in_thread(answering(answer)) as port, http_client(gate, library=library) as client:
        response = client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert response.json() == {"a": "\N{REPLACEMENT CHARACTER}"}


@libraries
def test_an_error_says_that_trying_again_has_been_seen_to(library: LibraryName) -> None:
    gate: Any = PassThrough()
    answer = b"HTTP/1.1 529 Overloaded\r\nX-Should-Retry: true\r\nContent-Length: 2\r\n\r\n{}"
    with serving_in_thread(answering(answer)) as port, http_client(gate, library=library) as client:
        whole = client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
        streamed = client.post(f"http://127.0.0.1:{port}{PATH}", json={**BODY, "stream": True})
    assert (whole.status_code, whole.headers["x-should-retry"]) == (529, "false")
    assert (streamed.status_code, streamed.headers["x-should-retry"]) == (529, "false")


@libraries
async def test_no_answer_is_a_503_in_the_providers_shape(library: LibraryName) -> None:
    gate: Any = PassThrough()
    async with async_http_client(gate, library=library) as client:
        response = await client.post(f"http://127.0.0.1:{refusing_port()}{PATH}", json=BODY)
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == "api_error"
    assert "evalve got no answer and has given up: POST http://127" in response.json()["error"]["message"]


@libraries
async def test_a_body_that_breaks_off_in_a_stream_is_the_librarys_own_error(library: LibraryName) -> None:
    gate: Any = PassThrough()
    module: Any = {"httpx2": httpx2, "httpx": httpx}[library]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")

    async with serving(handle) as port, async_http_client(gate, library=library) as client:
        with pytest.raises(module.ReadError):
            await client.post(f"http://127.0.0.1:{port}{PATH}", json={**BODY, "stream": True})


@libraries
async def test_a_stream_is_passed_on_while_it_arrives(library: LibraryName) -> None:
    gate: Any = PassThrough()
    may_go_on = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await may_go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    received = []
    async with serving(handle) as port, async_http_client(gate, library=library) as client:
        url = f"http://127.0.0.1:{port}{PATH}"
        async with client.stream("POST", url, json={**BODY, "stream": True}) as response:
            assert "transfer-encoding" not in response.headers
            async for chunk in response.aiter_bytes():
                received.append(chunk)
                may_go_on.set()
    assert received == [b"one", b"two"]


# -- what goes past the gate


@libraries
async def test_uploads_and_other_requests_go_past_the_gate(library: LibraryName) -> None:
    gate: Any = PassThrough()
    lines: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line, headers, _ = await read_request(reader)
            if headers.get("transfer-encoding") == "chunked":
                await reader.readuntil(b"0\r\n\r\n")
            lines.append(line)
            writer.write(OK)

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"model": '
        yield b'"m"}'

    as_json = {"content-type": "application/json"}
    async with serving(handle) as port, async_http_client(gate, library=library) as client:
        url = f"http://127.0.0.1:{port}"
        await client.get(f"{url}/v1/models")
        await client.post(f"{url}/v1/files", files={"file": b"x" * 100})
        await client.post(f"{url}{PATH}", content=parts(), headers=as_json)
        await client.post(f"{url}/v1/unknown", json=BODY)
    assert gate.requests == []
    assert [line.split()[1] for line in lines] == ["/v1/models", "/v1/files", PATH, "/v1/unknown"]
    assert gate.passed == [f"{url}{PATH}", f"{url}/v1/unknown"]


@libraries
async def test_a_recording_that_a_model_is_to_read_is_told_and_an_upload_is_not(library: LibraryName) -> None:
    gate: Any = PassThrough()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(OK)

    async with serving(handle) as port, async_http_client(gate, library=library) as client:
        url = f"http://127.0.0.1:{port}"
        for path in ("/v1/files", "/v1/audio/transcriptions"):
            await client.post(f"{url}{path}", files={"file": b"x" * 100}, data={"model": "whisper-1"})
        for path, kind in (("/upload/v1beta/files", "image/png"), ("/models/whisper", "audio/flac")):
            await client.post(f"{url}{path}", content=b"x" * 100, headers={"content-type": kind})
    assert gate.passed == [f"{url}/v1/audio/transcriptions", f"{url}/models/whisper"]


def test_a_failure_past_the_gate_stays_the_librarys_own() -> None:
    with http_client(PassThrough()) as client, pytest.raises(httpx2.ConnectError):
        client.get(f"http://127.0.0.1:{refusing_port()}/v1/models")


# -- settings that are kept


@libraries
async def test_an_async_client_keeps_its_proxy(library: LibraryName) -> None:
    gate: Any = PassThrough()
    proxy = CountingProxy()
    async with serving(answering(OK)) as port, serving(proxy) as proxy_port:
        through = f"http://127.0.0.1:{proxy_port}"
        async with async_http_client(gate, library=library, proxy=through) as client:
            response = await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
            await client.get(f"http://127.0.0.1:{port}/v1/models")
    assert response.status_code == 200
    assert proxy.lines[0] == f"POST http://127.0.0.1:{port}{PATH} HTTP/1.1"
    assert len(gate.requests) == 1


@libraries
def test_a_sync_client_keeps_its_proxy(library: LibraryName) -> None:
    gate: Any = PassThrough()
    proxy = CountingProxy()
    with (
        serving_in_thread(answering(OK)) as port,
        serving_in_thread(proxy) as proxy_port,
        http_client(gate, library=library, proxy=f"http://127.0.0.1:{proxy_port}") as client,
    ):
        response = client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert response.status_code == 200
    assert (len(proxy.lines), len(gate.requests)) == (1, 1)


@libraries
async def test_an_async_client_keeps_its_certificates(
    library: LibraryName, certificates: tuple[Path, Path]
) -> None:
    gate: Any = PassThrough()
    trusting = ssl.create_default_context(cafile=str(certificates[0]))
    async with serving(answering(OK), tls=tls_server(certificates)) as port:
        url = f"https://127.0.0.1:{port}{PATH}"
        async with (
            async_http_client(gate, library=library) as wary,
            async_http_client(gate, library=library, verify=trusting) as knowing,
            async_http_client(gate, library=library, verify=False) as careless,
        ):
            statuses = [
                (await client.post(url, json=BODY)).status_code for client in (wary, knowing, careless)
            ]
    assert statuses == [503, 200, 200]


@libraries
def test_a_sync_client_keeps_its_certificates(library: LibraryName, certificates: tuple[Path, Path]) -> None:
    gate: Any = PassThrough()
    trusting = ssl.create_default_context(cafile=str(certificates[0]))
    with serving_in_thread(answering(OK), tls=tls_server(certificates)) as port:
        url = f"https://127.0.0.1:{port}{PATH}"
        with (
            http_client(gate, library=library) as wary,
            http_client(gate, library=library, verify=trusting) as knowing,
        ):
            statuses = [client.post(url, json=BODY).status_code for client in (wary, knowing)]
    assert statuses == [503, 200]


@libraries
@pytest.mark.filterwarnings("ignore:`cert=...` is deprecated:DeprecationWarning")  # what users still write
async def test_a_client_keeps_the_certificate_that_it_shows(
    library: LibraryName, certificates: tuple[Path, Path]
) -> None:
    gate: Any = PassThrough()
    names = tuple(str(path) for path in certificates)
    trusting = ssl.create_default_context(cafile=names[0])
    async with serving(answering(OK), tls=tls_server(certificates, wants_certificate=True)) as port:
        url = f"https://127.0.0.1:{port}{PATH}"
        async with async_http_client(gate, library=library, verify=trusting) as nameless:
            refused = await nameless.post(url, json=BODY)
        async with async_http_client(gate, library=library, verify=trusting, cert=names) as known:
            accepted = await known.post(url, json=BODY)
    assert (refused.status_code, accepted.status_code) == (503, 200)


async def test_a_client_keeps_its_transport_and_mounts() -> None:
    gate = PassThrough()
    asked: list[str] = []

    def transport(name: str) -> httpx2.MockTransport:
        def answer(request: httpx2.Request) -> httpx2.Response:
            asked.append(f"{name} {request.url.path} {json.loads(request.content)['model']}")
            return httpx2.Response(200, json={"by": name})

        return httpx2.MockTransport(answer)

    mounts = {"all://special.test": transport("mounted")}
    async with async_http_client(gate, transport=transport("given"), mounts=mounts) as client:
        await client.post(f"http://usual.test{PATH}", json=BODY)
        await client.post(f"http://special.test{PATH}", json=BODY)
    with http_client(gate, transport=transport("sync")) as sync_client:
        sync_client.post(f"http://usual.test{PATH}", json=BODY)
    assert asked == [f"given {PATH} m", f"mounted {PATH} m", f"sync {PATH} m"]
    assert len(gate.requests) == 3


async def test_a_proxy_in_the_environment_serves_gated_and_other_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = CountingProxy()
    async with serving(answering(OK)) as port, serving(proxy) as proxy_port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy_port}")
        monkeypatch.setenv("NO_PROXY", "")
        async with async_http_client(PassThrough()) as client:
            await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
            await client.get(f"http://127.0.0.1:{port}/v1/models")
        async with async_http_client(PassThrough(), trust_env=False) as distrustful:
            await distrustful.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert [line.split()[0] for line in proxy.lines] == ["POST", "GET"]


@libraries
async def test_timeouts_of_a_client_with_its_own_network_are_kept(library: LibraryName) -> None:
    gate: Any = PassThrough()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        serving(hang) as port,
        async_http_client(gate, library=library, trust_env=False, timeout=0.1) as client,
    ):
        response = await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert response.status_code == 503
    assert "ReadTimeout" in response.text


# -- attribution, and whose sender it is

SAMPLE: ContextVar[str] = ContextVar("SAMPLE")


class Attributing(PassThrough):
    def __init__(self) -> None:
        super().__init__()
        self.samples: list[str] = []

    async def exchange(self, request: Request, sender: Sender) -> Reply:
        self.samples.append(SAMPLE.get())
        return await super().exchange(request, sender)


@pytest.fixture
def sample() -> Iterator[str]:
    token = SAMPLE.set("sample 3")
    yield "sample 3"
    SAMPLE.reset(token)


def test_a_sync_call_is_made_in_its_callers_context(sample: str) -> None:
    gate = Attributing()
    with serving_in_thread(answering(OK)) as port, http_client(gate) as client:
        client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
    assert gate.samples == ["sample 3"]


async def test_a_sender_that_was_handed_in_outlives_the_client() -> None:
    sender = AiohttpSender()
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(OK)(reader, writer)

    async with serving(handle) as port:
        for _ in range(3):
            async with async_http_client(PassThrough(), sender=sender) as client:
                await client.post(f"http://127.0.0.1:{port}{PATH}", json=BODY)
        await sender.aclose()
    assert connections == 1


@libraries
async def test_a_key_in_an_address_is_not_in_the_log(
    library: LibraryName, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=library)
    async with serving(answering(OK)) as port, async_http_client(PassThrough(), library=library) as client:
        await client.post(f"http://127.0.0.1:{port}{PATH}?key=AIzaSECRET&alt=sse", json=BODY)

    assert f"127.0.0.1:{port}{PATH}?***" in caplog.text
    assert "SECRET" not in caplog.text
