"""Fills the placeholders of commands, environments and files with what belongs to one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from evalve.agents.spec import AgentSpec, AgentTask, Argument

PLACEHOLDERS = {
    "prompt": "the prompt",
    "prompt_file": "a file with the prompt in it, for one that is too long for an argument",
    "model": "the model's name",
    "workspace": "the directory that the agent works in",
    "home": "the directory of its configuration",
    "project": "the directory that evalve was started in, or that `evalve.yaml` is in",
    "gateway": "where the gateway is; `/anthropic`, `/openai`, `/gemini` below it stand for providers",
    "base_url": "where the gateway stands for its provider",
    "token": "the key that the gateway accepts",
    "arguments": "the arguments that are set beside the command",
}
LONGEST_ARGUMENT_BYTES = 131_000
"""Linux takes 128 KiB for one argument."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

Values = Mapping[str, str | None]

EVERYBODYS = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
]
"""What programs need of a machine: no key is among them."""
_FOR_EVERYBODY = {
    "NO_COLOR": "1",
    "CI": "1",
    "TERM": "dumb",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
_LOOPBACK = "127.0.0.1,localhost"


def filled(text: str, values: Values) -> str | None:
    """The text with its placeholders replaced, in one pass; `None` where one has no value."""
    names = [name for name in _PLACEHOLDER.findall(text) if name in values]
    if any(values[name] is None for name in names):
        return None
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), text)


def command_of(command: Iterable[Argument], values: Values, arguments: Iterable[str]) -> list[str]:
    """The argument list of one run. What has no value is left out, with what stands beside it in a tuple."""
    whole: list[str] = []
    for argument in command:
        if argument == "{arguments}":
            whole += arguments
            continue
        parts = [filled(part, values) for part in ((argument,) if isinstance(argument, str) else argument)]
        whole += [part for part in parts if part is not None] if None not in parts else []
    return whole


def model_name(spec: AgentSpec, model: str | None) -> str | None:
    """`anthropic/claude-…` as the agent calls it: without a provider that it has anyway."""
    if model is None or spec.upstream is None:
        return model
    names = {"gemini": ("gemini", "google")}.get(spec.upstream, (spec.upstream,))
    provider, slash, name = model.partition("/")
    return name if slash and provider in names else model


def environment_of(
    spec: AgentSpec,
    task: AgentTask,
    values: Values,
    *,
    own: Mapping[str, str],
    added: Mapping[str, str],
    folders: Mapping[str, str],
) -> dict[str, str]:
    """What is allowed of evalve's `own` environment, the run's folders, and what a person added."""
    allowed = (*EVERYBODYS, *spec.allowed, *(spec.keys if task.gateway is None else ()))
    environment = {name: own[name] for name in own if name in allowed or name.startswith("LC_")}
    environment |= _FOR_EVERYBODY | dict(folders)
    templates = {
        **spec.environment,
        **(spec.gateway_environment if task.gateway is not None else {}),
        **added,
    }
    for name, text in templates.items():
        value = filled(text, values)
        if value is not None:
            environment[name] = value
    if task.gateway is not None:
        for name in ("NO_PROXY", "no_proxy"):  # the gateway is on this machine
            before = environment.get(name)
            environment[name] = f"{before},{_LOOPBACK}" if before else _LOOPBACK
    return environment


def unknown_placeholders(text: str) -> list[str]:
    return [name for name in _PLACEHOLDER.findall(text) if name not in PLACEHOLDERS]
