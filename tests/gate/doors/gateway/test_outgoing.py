"""Keys on their way out: the token never leaves, the real key is added."""

from __future__ import annotations

import pytest

from evalve.gate.doors.gateway.outgoing import handed_back, refuses_identity, with_real_key
from evalve.gate.doors.gateway.upstreams import Upstream
from evalve.secrecy import Secret

ANTHROPIC = Upstream("anthropic", "https://a.example", Secret("real"), "x-api-key")
SERVER = Upstream("server", "https://s.example", Secret("real"))


def sent(
    headers: dict[str, str], query: str = "", *, to: Upstream = SERVER, keeps_own: bool = False
) -> tuple[dict[str, str], str]:
    return with_real_key(headers, query, to, is_token=lambda key: key == "token", keeps_own=keeps_own)


@pytest.mark.parametrize(
    ("header", "value", "real"),
    [
        ("authorization", "Bearer token", "Bearer real"),
        ("x-api-key", "token", "real"),
        ("api-key", "token", "real"),
        ("x-goog-api-key", "token", "real"),
    ],
)
def test_the_real_key_stands_where_the_token_stood(header: str, value: str, real: str) -> None:
    assert sent({header: value, "user-agent": "x"}) == ({header: real, "user-agent": "x"}, "")


def test_a_provider_is_given_its_key_where_it_wants_it() -> None:
    assert sent({"authorization": "Bearer token"}, to=ANTHROPIC) == ({"x-api-key": "real"}, "")


def test_a_key_in_the_query_is_taken_out_of_it() -> None:
    assert sent({}, "alt=sse&key=token", to=ANTHROPIC) == ({"x-api-key": "real"}, "alt=sse")


def test_another_key_is_replaced_for_a_sample_and_goes_on_for_a_process() -> None:
    assert sent({"authorization": "Bearer mine"}) == ({"authorization": "Bearer real"}, "")
    assert sent({"authorization": "Bearer mine"}, keeps_own=True) == ({"authorization": "Bearer mine"}, "")
    assert sent({"authorization": "Bearer mine", "x-api-key": "token"}, keeps_own=True) == (
        {"authorization": "Bearer mine"},
        "",
    )


def test_what_belongs_to_the_connection_and_to_us_stays_here() -> None:
    headers = {
        "host": "127.0.0.1:1",
        "connection": "keep-alive",
        "accept-encoding": "gzip",
        "content-length": "3",
        "content-encoding": "gzip",
        "x-evalve-sample": "s",
        "anthropic-version": "2023-06-01",
    }
    assert sent(headers, to=Upstream("open", "https://o.example")) == (
        {"anthropic-version": "2023-06-01"},
        "",
    )


def test_a_final_error_says_that_trying_again_has_been_seen_to() -> None:
    headers = {"content-type": "application/json", "alt-svc": "h3", "server": "theirs"}
    assert handed_back(headers, 200) == {"content-type": "application/json"}
    assert handed_back(headers, 429) == {"content-type": "application/json", "x-should-retry": "false"}


@pytest.mark.parametrize(
    ("accept_encoding", "refuses"),
    [
        ("", False),
        ("gzip, deflate, br", False),
        ("identity", False),
        ("gzip, identity;q=0", True),
        ("gzip, *;q=0", True),
        ("gzip;q=0, identity;q=0", False),
    ],
)
def test_answers_are_compressed_only_for_who_takes_nothing_else(accept_encoding: str, refuses: bool) -> None:
    assert refuses_identity(accept_encoding) is refuses
