"""What is secret shows nothing, and still goes where it must."""

from __future__ import annotations

import json
import pprint

import pytest

from evalve.secrecy import (
    Environment,
    Secret,
    discreet,
    discreet_headers,
    secret_values,
    without_credentials,
    without_keys,
    without_secrets,
)


def test_a_secret_does_not_show_itself() -> None:
    key = Secret("sk-4711")

    assert repr(key) == "'***'"
    assert f"{key} {key!r} {key:>5}" == "*** '***'   ***"
    assert "4711" not in pprint.pformat({"headers": {"x-api-key": key}})


def test_the_password_of_a_database_that_was_lent_is_masked_in_data() -> None:
    said = (
        "connected to postgresql://evalve_0a1b2c3d_1:pgpw_0123456789abcdef0123456789abcdef@127.0.0.1:5432/x"
    )

    assert without_secrets(said, ()) == "connected to postgresql://evalve_0a1b2c3d_1:***@127.0.0.1:5432/x"


def test_a_secret_is_the_text_wherever_it_is_used() -> None:
    key = Secret("sk-4711")

    assert key == "sk-4711"
    assert hash(key) == hash("sk-4711")
    assert key.encode() == b"sk-4711"
    assert str(key) == "sk-4711"


def test_an_environment_gives_its_values_and_shows_none() -> None:
    environ = Environment({"ANTHROPIC_API_KEY": "sk-4711", "HOME": "/root"})

    assert environ["ANTHROPIC_API_KEY"] == "sk-4711"
    assert environ.get("OPENAI_API_KEY") is None
    assert dict(environ) == {"ANTHROPIC_API_KEY": "sk-4711", "HOME": "/root"}
    assert repr(environ) == "<an environment of 2 variables>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5"),
        ("openai-compatible/a@b@http://127.0.0.1:80/v1", "openai-compatible/a@b@http://127.0.0.1:80/v1"),
        ("openai-compatible/m@http://u:p@h/v1?key=q", "openai-compatible/m@http://***@h/v1?***"),
        ("https://token@h/v1#part", "https://***@h/v1#***"),
        ("https://u:p/w@h", "https://***@h"),
        ("u:p@h:80/v1", "***@h:80/v1"),
    ],
)
def test_an_address_is_shown_without_user_password_and_query(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
    assert repr(discreet(text)) == repr(shown)
    assert discreet(text) == text


def test_headers_that_may_hold_a_key_are_secret() -> None:
    headers = discreet_headers({"content-type": "application/json", "X-Gateway": "4711"})

    assert headers == {"content-type": "application/json", "X-Gateway": "4711"}
    assert repr(headers) == "{'content-type': 'application/json', 'X-Gateway': '***'}"


@pytest.mark.parametrize(
    ("code", "name", "shown"),
    [
        ("KEY = 'sk-ant-LITERAL5551212'", "function f", "KEY = '***'"),
        ("'plain text of a key'", "constant API_KEY", "'*** 233770'"),
        ("ask(api_key='plainkey-77')", "function f", "ask(api_key='*** 053ae7')"),
        ("{'token': 'abcdefghij'}", "constant HEADERS", "{'token': '*** 8058c1'}"),
        ("ask('sk-proj-abcdefghijkl')", "function f", "ask('***')"),
        ("'http://carol:pw@h/v1?token=QUERY&n=1'", "constant URL", "'http://***@h/v1?token=***&n=1'"),
        ("answer_key = 'the long answer'", "constant answer_key", "answer_key = 'the long answer'"),
        ("['important', 'relevant words']", "constant KEYWORDS", "['important', 'relevant words']"),
        ("row['key'] == 'answer'", "function f", "row['key'] == 'answer'"),
        ("'how many tokens are there?'", "constant PROMPT", "'how many tokens are there?'"),
    ],
)
def test_code_is_recorded_without_keys(code: str, name: str, shown: str) -> None:
    assert without_keys(code, name) == shown


def test_another_text_that_is_only_named_like_a_key_is_another_code() -> None:
    before = without_keys("'end of the story'", "constant STOP_TOKEN")
    after = without_keys("'end of the chapter'", "constant STOP_TOKEN")

    assert before != after
    assert "story" not in before


def test_another_key_is_no_other_code() -> None:
    before = without_keys("'sk-ant-LITERAL5551212'", "constant API_KEY")
    after = without_keys("'sk-ant-LITERAL9991212'", "constant API_KEY")

    assert before == after == "'***'"


def test_the_values_of_variables_named_like_keys_are_secrets() -> None:
    variables = {
        "ANTHROPIC_API_KEY": "an-anthropic-key",
        "GITHUB_TOKEN": "a-token-of-github",
        "OPENAI_API_KEY": "short",
        "KEYWORDS": "not a secret at all",
        "HOME": "/home/someone",
    }

    found = secret_values(variables)

    assert list(map(str, found)) == ["a-token-of-github", "an-anthropic-key"]
    assert "an-anthropic-key" not in repr(found)


def test_a_secret_is_found_in_json_too() -> None:
    secrets = secret_values({"DB_PASSWORD": 'quoted "é" and long'})

    assert without_secrets(json.dumps({"text": 'it is quoted "é" and long.'}), secrets) == (
        '{"text": "it is ***."}'
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"authorization": "Bearer abcdef0123456789xyz"}', '{"authorization": "Bearer ***"}'),
        ("-H 'authorization: bearer eyJhbGciOi.J9-_~+/0123=='", "-H 'authorization: bearer ***'"),
        ("a bearer internationalization of papers", "a bearer internationalization of papers"),
    ],
)
def test_what_follows_bearer_is_a_key(text: str, shown: str) -> None:
    assert without_secrets(text, ()) == shown
