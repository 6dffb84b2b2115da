"""The simulator's life: on a loop, in a thread, as a process; and its back door."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from typing import Any

import aiohttp
import pytest
from simulated import Client, FakeClock, Start

from evalve.errors import OptionError
from evalve.simulator import Behaviour, Limits, Simulator
from evalve.simulator.command import main

BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}


def ask(url: str) -> Any:
    request = urllib.request.Request(f"{url}/v1/messages", data=json.dumps(BODY).encode(), method="POST")
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read())


@pytest.mark.parametrize("host", ["0.0.0.0", "", "example.com", "192.168.1.2"])
def test_it_serves_on_loopback_only(host: str) -> None:
    with pytest.raises(OptionError, match=r"127\.0\.0\.1 only"):
        Simulator(host=host)


async def test_it_counts_what_it_saw(start: Start, clock: FakeClock) -> None:
    simulator, client = await start(Behaviour())
    await client.messages("a")
    clock.advance(2.5)
    await client.messages("a")
    await client.post("/v1/messages", BODY, x_api_key="sk-secret")
    stats = await client.get("/_simulator/stats")
    assert (stats["requests"], stats["admitted"], stats["completed"], stats["refused"]) == (3, 3, 3, 0)
    assert (stats["repeated_bodies"], stats["answered_again"], stats["distinct_bodies"]) == (1, 1, 2)
    assert stats["admitted_by_second"] == {"0": 1, "2": 2}
    assert (stats["first_request_s"], stats["last_answer_s"], stats["elapsed_s"]) == (1000.0, 1002.5, 2.5)
    assert stats["requests_by_model"] == {"claude-test": 2, "m": 1}
    assert sorted(stats["requests_by_key"].values()) == [1, 2]
    assert (stats["input_tokens"], stats["output_tokens"]) == (3, 17)
    assert simulator.stats.received_bytes > 100


async def test_a_key_is_nowhere_to_be_found(start: Start) -> None:
    _, client = await start(Behaviour())
    await client.post("/v1/messages", BODY, x_api_key="sk-secret", authorization="Bearer sk-other")
    seen = await client.get("/_simulator/requests?limit=5")
    assert [(one["path"], one["outcome"]) for one in seen] == [("/v1/messages", "200")]
    assert json.loads(seen[0]["body"]) == BODY
    stats = await client.get("/_simulator/stats")
    assert "sk-" not in json.dumps([seen, stats])
    assert len(seen[0]["key_hash"]) == 12


async def test_a_new_behaviour_holds_at_once_and_what_was_used_stays_used(start: Start) -> None:
    simulator, client = await start(Behaviour(limits=Limits(requests_per_minute=2)))
    assert [(await client.messages(f"{n}")).status for n in range(3)] == [200, 200, 429]
    simulator.adopt(Behaviour(limits=Limits(requests_per_minute=600), answers=["new"]))
    assert (await client.messages()).status == 429
    plain = {"limits": {}, "answers": ["newer"]}
    assert (await client.post("/_simulator/behaviour", plain)).json == {"adopted": True}
    assert (await client.messages()).json["content"][0]["text"] == "newer"
    refused = await client.post("/_simulator/behaviour", {"limts": {}})
    assert (refused.status, "did you mean 'limits'" in refused.json["error"]) == (400, True)


async def test_a_reset_forgets_everything(start: Start) -> None:
    simulator, client = await start(Behaviour(limits=Limits(requests_per_minute=1)))
    assert [(await client.messages(f"{n}")).status for n in range(2)] == [200, 429]
    await client.post("/_simulator/reset", {})
    assert simulator.stats.requests == 0
    assert simulator.recent_requests() == []
    assert (await client.messages()).status == 200


async def test_what_the_back_door_does_not_know_is_refused(start: Start) -> None:
    _, client = await start(Behaviour())
    assert (await client.get("/_simulator/nothing"))[
        "error"
    ] == "the simulator knows no GET /_simulator/nothing"
    assert "must be a number" in (await client.get("/_simulator/requests?limit=x"))["error"]


async def test_a_body_of_some_megabytes_is_read_and_one_of_forty_is_too_large() -> None:
    async with Simulator() as simulator, aiohttp.ClientSession() as session:
        client = Client(session, simulator.url)
        reply = await client.messages("x" * 4_000_000)
        assert reply.json["usage"]["input_tokens"] == 1_000_000
        refused = await client.post("/v1/messages", b"x" * 40_000_000)
        assert (refused.status, refused.json["error"]["type"]) == (413, "request_too_large")


def test_in_a_thread_it_serves_and_takes_orders() -> None:
    with Simulator().start_in_thread() as simulator:
        ask(simulator.url)
        simulator.adopt(Behaviour(answers=["second"]))
        assert ask(simulator.url)["content"][0]["text"] == "second"
        assert simulator.stats.completed == 2
        simulator.reset()
        assert simulator.stats.completed == 0


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with Simulator().start_in_thread() as simulator:
        port = int(simulator.url.rpartition(":")[2])
        with (
            pytest.raises(OptionError, match=f"port {port} cannot be had"),
            Simulator(port=port).start_in_thread(),
        ):
            pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_a_process_it_says_where_it_is_and_at_the_end_what_it_saw(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "evalve.simulator", "--requests-per-minute", "60", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        ask(url)
        process.send_signal(number)
        stats = json.loads(process.stdout.read())
    assert process.returncode == 0
    assert (stats["requests"], stats["completed"]) == (1, 1)


def test_a_wrong_setting_ends_the_command_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--requests-per-minute", "-1"]) == 4
    assert "limits.requests_per_minute is -1.0" in capsys.readouterr().err
