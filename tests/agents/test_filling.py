from __future__ import annotations

from pathlib import Path

from evalve.agents.adapters.claude_code import SPEC as CLAUDE
from evalve.agents.adapters.gemini_cli import SPEC as GEMINI
from evalve.agents.filling import command_of, environment_of, filled, model_name
from evalve.agents.spec import AgentTask
from evalve.contracts import GatewayLease

LEASE = GatewayLease("http://127.0.0.1:1/t/abc", "abc")
OWN = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "ANTHROPIC_API_KEY": "sk-agents-own",
    "OPENAI_API_KEY": "sk-judges",
    "AWS_SECRET_ACCESS_KEY": "cloud",
}


def test_a_prompt_that_looks_like_a_placeholder_stays_as_it_is() -> None:
    assert filled("{prompt}", {"prompt": "print {home} {x}", "home": "/h"}) == "print {home} {x}"


def test_json_in_an_argument_is_no_placeholder() -> None:
    assert filled('{"a": 1}', {"a": "x"}) == '{"a": 1}'


def test_what_has_no_value_is_left_out_with_what_stands_beside_it() -> None:
    command = ("run", ("--model", "{model}"), "{arguments}", "--", "{prompt}")
    values = {"model": None, "prompt": "hi"}
    assert command_of(command, values, ["-v"]) == ["run", "-v", "--", "hi"]
    assert command_of(command, {**values, "model": "m"}, []) == ["run", "--model", "m", "--", "hi"]


def test_a_model_is_named_as_its_own_agent_names_it() -> None:
    assert model_name(CLAUDE, "anthropic/claude-sonnet-5") == "claude-sonnet-5"
    assert model_name(GEMINI, "google/gemini-3-pro") == "gemini-3-pro"
    assert model_name(CLAUDE, "qwen/qwq-32b") == "qwen/qwq-32b"
    assert model_name(CLAUDE, None) is None


def environment(lease: GatewayLease | None) -> dict[str, str]:
    task = AgentTask("hi", Path("/w"), gateway=lease)
    base_url = None if lease is None else lease.base_url("anthropic")
    values = {"base_url": base_url, "token": None if lease is None else lease.token}
    return environment_of(CLAUDE, task, values, own=OWN, added={"MORE": "1"}, folders={"HOME": "/h"})


def test_without_a_gateway_an_agent_is_given_its_own_keys_and_nobody_elses() -> None:
    given = environment(None)
    assert given["ANTHROPIC_API_KEY"] == "sk-agents-own"
    assert "ANTHROPIC_BASE_URL" not in given
    assert given.keys() & OWN.keys() == {"PATH", "LC_ALL", "ANTHROPIC_API_KEY"}


def test_with_a_gateway_its_token_is_the_only_key() -> None:
    given = environment(LEASE)
    assert given["ANTHROPIC_API_KEY"] == "abc"
    assert given["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1/t/abc/anthropic"
    assert given["NO_PROXY"] == "127.0.0.1,localhost"
    assert not set(given.values()) & {"sk-agents-own", "sk-judges", "cloud"}


def test_every_run_has_what_keeps_programs_from_asking() -> None:
    given = environment(None)
    assert (given["HOME"], given["CI"], given["NO_COLOR"], given["TERM"]) == ("/h", "1", "1", "dumb")
    assert given["MORE"] == "1"
