"""The habits of providers over real HTTP, with a clock that the test moves."""

from __future__ import annotations

import pytest
from simulated import FakeClock, Start

from evalve.errors import OptionError
from evalve.simulator import Behaviour, Limits, RefuseAtRandom, read_behaviour
from evalve.simulator.command import behaviour_from, command_line, main
from evalve.simulator.habits import RetryAfter
from evalve.simulator.limits import Window

GEMINI = {"contents": [{"parts": [{"text": "Hello"}]}]}


async def test_openai_headers_state_a_minute_that_a_shallow_bucket_does_not_hold(start: Start) -> None:
    limits = Limits(requests_per_minute=240, depth_s=0.25)
    _, client = await start(Behaviour(limits=limits, headers="minute"))

    served, refused = await client.chat("a"), await client.chat("b")

    stated = {name: value for name, value in served.headers.items() if name.startswith("x-ratelimit")}
    assert stated == {
        "x-ratelimit-limit-requests": "240",
        "x-ratelimit-remaining-requests": "239",
        "x-ratelimit-reset-requests": "250ms",
    }
    assert (refused.status, refused.headers["x-ratelimit-remaining-requests"]) == (429, "238")


async def test_anthropic_headers_of_a_limit_a_second_are_exact(start: Start) -> None:
    limits = Limits(requests_per_minute=1200, input_tokens_per_minute=60_000, window_s=1.0)
    _, client = await start(Behaviour(limits=limits))

    headers = (await client.messages("Hello")).headers

    prefix = "anthropic-ratelimit-"
    assert {name.removeprefix(prefix): value for name, value in headers.items() if prefix in name} == {
        "requests-limit": "20",
        "requests-remaining": "19",
        "requests-reset": "2026-11-15T12:00:00.050Z",
        "input-tokens-limit": "1000",
        "input-tokens-remaining": "998",
        "input-tokens-reset": "2026-11-15T12:00:00.002Z",
        "tokens-limit": "1000",
        "tokens-remaining": "998",
        "tokens-reset": "2026-11-15T12:00:00.002Z",
    }


async def test_no_headers_where_none_are_wanted(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60), headers="none"))

    replies = [await client.chat(), await client.messages()]

    assert [name for reply in replies for name in reply.headers if "ratelimit" in name] == []


@pytest.mark.parametrize("window", ["fixed", "sliding"])
async def test_windows_refuse_until_they_have_room(start: Start, clock: FakeClock, window: Window) -> None:
    limits = Limits(requests_per_minute=12, window=window, window_s=10.0)
    _, client = await start(Behaviour(limits=limits))
    statuses = [(await client.messages(f"{n}")).status for n in range(3)]

    clock.advance(9.9)
    statuses.append((await client.messages("d")).status)
    clock.advance(0.1)
    statuses.append((await client.messages("e")).status)

    assert statuses == [200, 200, 429, 429, 200]


async def test_a_refusal_names_the_time_that_its_limit_is_for(start: Start) -> None:
    _, client = await start(Behaviour(limits=Limits(requests_per_minute=60, window_s=1.0)))
    await client.messages()
    await client.chat()

    refused = [(await client.messages()).json, (await client.chat()).json]

    assert "rate limit of 1 requests per second (org" in refused[0]["error"]["message"]
    assert "on requests per second: Limit 1, Used 1, Requested 1." in refused[1]["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("whole", {"retry-after": "2"}),
        ("exact", {"retry-after": "1.500"}),
        ("ms", {"retry-after-ms": "1500"}),
        ("date", {"retry-after": "Sun, 15 Nov 2026 12:00:02 GMT"}),
        ("none", {}),
    ],
)
async def test_every_api_says_when_to_come_back_as_it_is_told(
    start: Start, kind: RetryAfter, expected: dict[str, str]
) -> None:
    limits = Limits(requests_per_minute=40, depth_s=1.5)
    _, client = await start(Behaviour(limits=limits, retry_after=kind))
    path = "/v1beta/models/m:generateContent"

    for _ in range(2):
        replies = [await client.messages(), await client.chat(), await client.post(path, GEMINI)]

    assert [reply.status for reply in replies] == [429, 429, 429]
    told = [{k: v for k, v in reply.headers.items() if "retry" in k} for reply in replies]
    assert told == [expected] * 3
    assert not any("try again in" in reply.text or "retryDelay" in reply.text for reply in replies)


async def test_who_comes_before_the_date_it_was_told_is_counted(start: Start, clock: FakeClock) -> None:
    limits = Limits(requests_per_minute=40, depth_s=1.5)
    simulator, client = await start(Behaviour(limits=limits, retry_after="date"))
    await client.messages("a")
    await client.messages("b")
    clock.advance(1.9)
    await client.messages("b")
    assert simulator.stats.retry_after_ignored == 1


async def test_refusals_at_random_depend_on_the_request_and_end(start: Start, clock: FakeClock) -> None:
    at_random = RefuseAtRandom(0.3, for_s=60.0)
    simulator, client = await start(Behaviour(seed=1, refuse_at_random=at_random))

    ill = [(await client.messages(f"{n}")).status for n in range(100)]
    simulator.reset()
    again = [(await client.messages(f"{n}")).status for n in reversed(range(100))]
    clock.advance(60.0)
    well = [(await client.messages(f"{n}")).status for n in range(100)]

    assert 20 <= ill.count(429) <= 40
    assert again == ill[::-1]
    assert well == [200] * 100
    assert simulator.stats.refusals == {"random": ill.count(429)}


async def test_a_refusal_at_random_says_nothing_of_limits(start: Start) -> None:
    behaviour = Behaviour(limits=Limits(requests_per_minute=600), refuse_at_random=RefuseAtRandom(1.0))
    _, client = await start(behaviour)

    refused = [
        await client.messages(),
        await client.chat(),
        await client.post("/v1beta/models/m:generateContent", GEMINI),
    ]

    assert [reply.status for reply in refused] == [429] * 3
    assert (refused[0].headers["retry-after"], refused[1].headers["retry-after-ms"]) == ("1", "500")
    assert refused[1].headers["x-ratelimit-remaining-requests"] == "599"
    assert [reply.json["error"]["message"] for reply in refused] == [
        "Too many requests. Please try again later.",
        "Too many requests. Please slow down.",
        "Resource exhausted. Please try again later.",
    ]


def test_flags_compose() -> None:
    flags = ["--requests-per-minute", "2400", "--window", "sliding", "--window-s", "1", "--headers", "minute"]
    flags += ["--retry-after", "date", "--refuse-at-random", "0.05", "--refuse-at-random-for-s", "30"]

    behaviour = behaviour_from(command_line().parse_args(flags))

    assert behaviour == Behaviour(
        limits=Limits(requests_per_minute=2400, window="sliding", window_s=1.0),
        headers="minute",
        retry_after="date",
        refuse_at_random=RefuseAtRandom(0.05, for_s=30.0),
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--window", "fixed", "--depth-s", "1", "--requests-per-minute", "60"],
            "Set limits.window_s instead",
        ),
        (["--window", "bukket"], "did you mean 'bucket'"),
        (["--headers", "minute"], "there is nothing to state"),
        (["--headers", "hour"], "it is one of window, minute"),
        (["--retry-after", "dat"], "did you mean 'date'"),
        (["--refuse-at-random-for-s", "10"], "refuse_at_random.share is missing"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 4
    assert words in capsys.readouterr().err


def test_a_file_may_say_the_same() -> None:
    plain = {"limits": {"requests_per_minute": 6, "window": "fixed"}, "refuse_at_random": {"share": 0.1}}

    behaviour = read_behaviour(plain)

    assert behaviour.limits == Limits(requests_per_minute=6, window="fixed")
    assert behaviour.refuse_at_random == RefuseAtRandom(0.1)
    with pytest.raises(OptionError, match="did you mean 'share'"):
        read_behaviour({"refuse_at_random": {"shar": 0.1}})
