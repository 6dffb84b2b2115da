"""Which variables lead to the gateway, and what stands behind it."""

from __future__ import annotations

from evalve.contracts import GatewayLease
from evalve.gate.doors.gateway.environment import leading_to, seen_from_behind
from evalve.gate.doors.gateway.leases import is_own_gateway
from gateway_world import gateway_to

LEASE = GatewayLease("http://127.0.0.1:9/t/evalve-token", "evalve-token")
BELOW = GatewayLease("http://127.0.0.1:8/t/evalve-other", "evalve-other")


def test_clients_are_led_to_the_gateway_past_any_proxy() -> None:
    set_ = leading_to(LEASE, {"NO_PROXY": "intranet"})
    assert set_["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9/t/evalve-token/anthropic"
    assert set_["OPENAI_BASE_URL"] == "http://127.0.0.1:9/t/evalve-token/openai/v1"
    assert set_["GOOGLE_GEMINI_BASE_URL"] == "http://127.0.0.1:9/t/evalve-token/gemini"
    assert set_["CEREBRAS_BASE_URL"] == "http://127.0.0.1:9/t/evalve-token/cerebras"
    assert set_["OLLAMA_HOST"] == "http://127.0.0.1:9/t/evalve-token/ollama"
    assert set_["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert "AZURE_OPENAI_ENDPOINT" not in set_
    assert not [name for name in set_ if "KEY" in name]


def test_the_address_behind_the_gateway_is_known_to_processes_below() -> None:
    environ = {"OPENAI_BASE_URL": "http://server/v1", "HOME": "/x"}
    environ |= leading_to(LEASE, environ)
    assert seen_from_behind(environ)["OPENAI_BASE_URL"] == "http://server/v1"
    assert "ANTHROPIC_BASE_URL" not in seen_from_behind(environ)
    below = environ | leading_to(BELOW, environ)
    assert seen_from_behind(below)["OPENAI_BASE_URL"] == "http://server/v1"
    assert seen_from_behind(below)["HOME"] == "/x"


def test_an_address_that_was_set_later_is_no_gateways() -> None:
    environ = leading_to(LEASE, {})
    assert (
        seen_from_behind(environ | {"OPENAI_BASE_URL": "http://mine/v1"})["OPENAI_BASE_URL"]
        == "http://mine/v1"
    )


def test_a_gateway_of_another_process_is_a_server_like_any_other() -> None:
    assert not is_own_gateway(LEASE.base_url("openai") + "/v1/chat/completions")
    with gateway_to() as world:
        assert is_own_gateway(world.process.base_url("openai") + "/v1/chat/completions")
        assert not is_own_gateway(f"http://127.0.0.1:{world.gateway.port}/v1/chat/completions")
    assert not is_own_gateway(world.process.base_url("openai"))


def test_a_lease_has_all_that_a_program_needs_and_does_not_show_its_token() -> None:
    environment = LEASE.environment()
    assert environment["ANTHROPIC_API_KEY"] == "evalve-token"
    assert environment["OPENAI_BASE_URL"].endswith("/openai/v1")
    assert LEASE.base_url("my model/x") == "http://127.0.0.1:9/t/evalve-token/my%20model%2Fx"
    assert "evalve-token" not in repr(LEASE)
