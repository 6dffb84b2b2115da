"""The default sender against real sockets: whole answers, streams, faults, loops and proxies."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import socket
import ssl
import threading
import warnings
from pathlib import Path

import pytest

from evalve.gate import sender as sender_module
from evalve.gate.dialects.headers import retry_after_s
from evalve.gate.messages import Reply, Request, SendError
from evalve.gate.sender import AiohttpSender, Timeouts
from loopback import (
    CountingProxy,
    answering,
    make_certificates,
    read_request,
    refusing_port,
    serving,
    serving_in_thread,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def post(port: int, *, headers: dict[str, str] | None = None, scheme: str = "http") -> Request:
    given = {"content-type": "application/json", **(headers or {})}
    return Request("POST", f"{scheme}://127.0.0.1:{port}/v1/messages?beta=a%2Fb", given, b'{"model": "m"}')


async def test_a_whole_answer_has_status_lower_case_headers_and_body() -> None:
    answer = b"HTTP/1.1 429 Slow\r\nX-B: 3\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 4\r\n\r\nbody"
    sender = AiohttpSender()
    async with serving(answering(answer)) as port:
        reply = await sender.send(post(port))
        await sender.aclose()
    assert reply == Reply(429, {"x-b": "3", "x-a": "1, 2"}, b"body")


async def test_the_request_arrives_as_it_was_given() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    sender = AiohttpSender()
    async with serving(handle) as port:
        await sender.send(post(port, headers={"x-api-key": "k", "content-length": "999", "user-agent": "u"}))
        await sender.aclose()
    line, headers, body = seen[0]
    assert line == "POST /v1/messages?beta=a%2Fb HTTP/1.1"
    assert body == b'{"model": "m"}'
    assert (headers["x-api-key"], headers["user-agent"], headers["content-length"]) == ("k", "u", "14")


async def test_a_request_that_names_no_type_arrives_without_one() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    sender = AiohttpSender()
    async with serving(handle) as port:
        await sender.send(Request("POST", f"http://127.0.0.1:{port}/v1/messages", {}, b"{}"))
        await sender.aclose()
    assert "content-type" not in seen[0][1]


async def test_a_file_in_a_form_names_the_form() -> None:
    seen: list[tuple[str, dict[str, str], bytes]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    sender = AiohttpSender()
    async with serving(handle) as port:
        upload = Request("POST", f"http://127.0.0.1:{port}/v1/files", {}, b"")
        await sender.send_file(upload, io.BytesIO(b"{}\n"), form={"purpose": "batch"})
        await sender.aclose()
    assert seen[0][1]["content-type"].startswith("multipart/form-data; boundary=")


async def test_a_compressed_answer_comes_out_decoded_and_says_so() -> None:
    packed = gzip.compress(b'{"a": 1}')
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    sender = AiohttpSender()
    async with serving(answering(head.encode() + packed)) as port:
        reply = await sender.send(post(port, headers={"accept-encoding": "br, zstd"}))
        await sender.aclose()
    assert reply == Reply(200, {}, b'{"a": 1}')


async def test_what_was_signed_arrives_as_it_was_signed() -> None:
    seen: list[dict[str, str]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await read_request(reader))[1])
        writer.write(OK)

    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=x", "accept-encoding": "gzip;q=0.5"}
    sender = AiohttpSender()
    async with serving(handle) as port:
        await sender.send(post(port, headers=signed))
        await sender.aclose()
    assert seen[0]["accept-encoding"] == "gzip;q=0.5"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 500 + b"Content-Length: 2\r\n\r\n{}",
        b"nonsense\r\n\r\n",
    ],
    ids=["br", "zstd", "not gzip", "two lengths", "many headers", "no HTTP"],
)
async def test_what_no_repeat_could_make_readable_is_told_from_a_lost_connection(answer: bytes) -> None:
    sender = AiohttpSender()
    async with serving(answering(answer)) as port:
        with pytest.raises(SendError) as caught:
            await sender.send(post(port))
        await sender.aclose()
    problem = caught.value.as_problem()
    assert (caught.value.reached, problem.kind) == (True, "unreadable")


async def test_a_date_to_come_back_at_is_given_the_date_at_which_it_came() -> None:
    answer = b"HTTP/1.1 429 X\r\nRetry-After: Fri, 01 Jan 2100 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
    sender = AiohttpSender()
    async with serving(answering(answer)) as port:
        reply = await sender.send(post(port))
        await sender.aclose()
    assert (retry_after_s(reply.headers) or 0.0) > 1e9


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"])
async def test_a_failure_does_not_show_a_key_in_the_address(answer: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    sender = AiohttpSender()
    async with serving(handle) as port:
        with pytest.raises(SendError) as caught:
            url = f"http://127.0.0.1:{port}/v1beta/models/m:generateContent?key=AIzaSecret"
            await sender.send(Request("POST", url, {}, b"{}"))
        await sender.aclose()
    assert "AIzaSecret" not in str(caught.value)


async def test_a_redirect_is_an_answer() -> None:
    answer = b"HTTP/1.1 307 Elsewhere\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"
    sender = AiohttpSender()
    async with serving(answering(answer)) as port:
        reply = await sender.send(post(port))
        await sender.aclose()
    assert (reply.status, reply.headers["location"]) == (307, "/other")


async def test_a_stream_passes_chunks_on_while_they_arrive() -> None:
    may_go_on = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await may_go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await reader.read()

    sender = AiohttpSender()
    received = []
    async with serving(handle) as port:
        async with sender.stream(post(port)) as live:
            async for chunk in live.chunks:
                received.append(chunk)
                may_go_on.set()
        await sender.aclose()
    assert (live.status, live.headers, received) == (200, {}, [b"one", b"two"])


async def test_leaving_a_stream_in_the_middle_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await reader.read()
        closed.set()

    sender = AiohttpSender()
    async with serving(handle) as port:
        async with sender.stream(post(port)) as live:
            assert await anext(live.chunks) == b"one"
        await asyncio.wait_for(closed.wait(), 60)
        await sender.aclose()


async def test_whole_answers_and_finished_streams_keep_their_connection() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(OK)(reader, writer)

    sender = AiohttpSender()
    async with serving(handle) as port:
        await sender.send(post(port))
        async with sender.stream(post(port)) as live:
            assert [chunk async for chunk in live.chunks] == [b"{}"]
        await sender.with_timeouts(Timeouts(5.0, 1.0)).send(post(port))
        await sender.aclose()
    assert connections == 1


async def test_certificates_are_read_only_for_what_is_encrypted() -> None:
    sender_module._tls.cache_clear()
    sender = AiohttpSender()
    async with serving(answering(OK)) as port:
        await sender.send(post(port))
        of_plain = sender_module._tls.cache_info().misses
        with pytest.raises(SendError):
            await sender.send(post(port, scheme="https"))
        await sender.aclose()
    assert (of_plain, sender_module._tls.cache_info().misses) == (0, 1)


async def test_a_refused_connection_did_not_reach_the_provider() -> None:
    sender = AiohttpSender()
    with pytest.raises(SendError, match=r"POST http://127\.0\.0\.1:\d+: Cannot connect") as caught:
        await sender.send(post(refusing_port()))
    await sender.aclose()
    assert (caught.value.reached, caught.value.timed_out) == (False, False)


async def test_a_bad_handshake_did_not_reach_the_provider() -> None:
    async def speak_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(OK)

    sender = AiohttpSender()
    async with serving(speak_plainly) as port:
        with pytest.raises(SendError) as caught:
            await sender.send(post(port, scheme="https"))
        await sender.aclose()
    assert not caught.value.reached


async def test_a_connection_that_takes_too_long_did_not_reach_the_provider() -> None:
    async def never_shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass

    sender = AiohttpSender(Timeouts(connect_s=0.05))
    async with serving(never_shake_hands) as port:
        with pytest.raises(SendError) as caught:
            await sender.send(post(port, scheme="https"))
        await sender.aclose()
    assert (caught.value.reached, caught.value.timed_out) == (False, True)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="closed without an answer"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Len", id="closed in the headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", id="closed in the body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", id="in a chunk"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n\r\n", id="not HTTP"),
    ],
)
async def test_an_answer_that_breaks_off_reached_the_provider(answer: bytes) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    sender = AiohttpSender()
    async with serving(handle) as port:
        with pytest.raises(SendError) as whole:
            await sender.send(post(port))
        with pytest.raises(SendError) as streamed:
            async with sender.stream(post(port)) as live:
                async for _ in live.chunks:
                    pass
        await sender.aclose()
    assert (whole.value.reached, whole.value.timed_out) == (True, False)
    assert streamed.value.reached


async def _read_and_hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    await reader.read()


async def test_a_try_ends_after_its_timeout() -> None:
    sender = AiohttpSender(Timeouts(answer_s=0.05))
    async with serving(_read_and_hang) as port:
        with pytest.raises(SendError) as caught:
            await sender.send(post(port))
        await sender.aclose()
    assert (caught.value.reached, caught.value.timed_out) == (True, True)


async def test_a_stream_ends_after_a_silence_and_may_take_longer_in_all() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        for _ in range(4):
            writer.write(b"x")
            await asyncio.sleep(0.1)
        await reader.read()

    sender = AiohttpSender(Timeouts(answer_s=0.25))
    received = b""
    async with serving(handle) as port:
        with pytest.raises(SendError) as caught:
            async with sender.stream(post(port)) as live:
                async for chunk in live.chunks:
                    received += chunk
        await sender.aclose()
    assert (received, caught.value.timed_out) == (b"xxxx", True)


async def test_cancelling_a_call_closes_its_connection() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()
        closed.set()

    sender = AiohttpSender()
    async with serving(handle) as port:
        async with asyncio.TaskGroup() as tasks:
            call = tasks.create_task(sender.send(post(port)))
            await arrived.wait()
            call.cancel()
        await asyncio.wait_for(closed.wait(), 60)
        await sender.aclose()
    assert call.cancelled()


def test_an_encrypted_connection_on_which_a_call_was_cancelled_is_closed_when_its_loop_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificates(tmp_path)
    client = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(sender_module, "_tls", lambda: client)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    arrived, over = threading.Event(), threading.Event()
    sender = AiohttpSender()

    def answer_nothing(listening: socket.socket) -> None:
        """Nor does it ever say goodbye."""
        with server.wrap_socket(listening.accept()[0], server_side=True) as connection:
            connection.recv(4096)
            arrived.set()
            over.wait()

    async def cancelled(port: int) -> None:
        call = asyncio.ensure_future(sender.send(post(port, scheme="https")))
        await asyncio.to_thread(arrived.wait)
        call.cancel()
        await asyncio.wait({call})

    with socket.create_server(("127.0.0.1", 0)) as listening, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        serving = threading.Thread(target=answer_nothing, args=(listening,))
        serving.start()
        asyncio.run(cancelled(listening.getsockname()[1]))
        gc.collect()
        over.set()
        serving.join()

    assert [str(one.message) for one in warned] == []


def test_loops_in_several_threads_each_have_a_session_that_ends_with_the_loop() -> None:
    sender = AiohttpSender()
    replies: list[Reply] = []

    async def calls(port: int) -> None:
        replies.extend(await asyncio.gather(*[sender.send(post(port)) for _ in range(5)]))

    with serving_in_thread(answering(OK)) as port:
        threads = [threading.Thread(target=lambda: asyncio.run(calls(port))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        asyncio.run(calls(port))
        asyncio.run(calls(port))
    gc.collect()
    assert len(replies) == 30
    assert all(reply.body == b"{}" for reply in replies)
    assert len(sender._sessions.by_loop) <= 1, "sessions of ended loops are dropped"


def test_a_loop_that_is_closed_without_winding_up_leaves_no_unclosed_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sender = AiohttpSender()
    loop = asyncio.new_event_loop()
    with pytest.raises(SendError):
        loop.run_until_complete(sender.send(post(refusing_port())))
    loop.close()
    del sender
    gc.collect()
    assert caplog.records == []


def test_a_sender_that_is_dropped_closes_the_sessions_of_loops_that_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = threading.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with_end = answering(OK)
        try:
            await with_end(reader, writer)
        finally:
            closed.set()

    async def use_and_drop(port: int) -> None:
        sender = AiohttpSender()
        await sender.send(post(port))
        del sender
        gc.collect()
        await asyncio.to_thread(closed.wait, 5)

    with serving_in_thread(handle) as port:
        asyncio.run(use_and_drop(port))
    assert closed.is_set()
    assert caplog.records == []


async def test_the_environment_names_the_proxy_and_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = CountingProxy()
    sender = AiohttpSender()
    async with serving(answering(OK)) as port, serving(proxy) as proxy_port:
        monkeypatch.setenv("ALL_PROXY", f"http://user:secret@127.0.0.1:{proxy_port}")
        monkeypatch.setenv("NO_PROXY", "")
        reply = await sender.send(post(port))
        await sender.aclose()
    assert reply.body == b"{}"
    assert proxy.lines == [f"POST http://127.0.0.1:{port}/v1/messages?beta=a%2Fb HTTP/1.1"]
    assert proxy.passwords == ["basic dxnlcjpzzwnyzxq="]


async def test_a_host_that_the_environment_exempts_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = AiohttpSender()
    async with serving(answering(OK)) as port:
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{refusing_port()}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        reply = await sender.send(post(port))
        await sender.aclose()
    assert reply.status == 200


async def test_a_socks_proxy_in_the_environment_is_said_to_be_unusable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    sender = AiohttpSender()
    with pytest.raises(SendError, match=r"socks5://127\.0\.0\.1:1, and only HTTP proxies"):
        await sender.send(post(1))
    await sender.aclose()
