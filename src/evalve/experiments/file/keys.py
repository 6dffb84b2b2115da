"""Every key of `evalve.yaml`, declared once: what it means, what it takes, and its JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalve.options import OPTIONS, Option

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be."""

    words: str
    """Reads on from "needs"."""
    schema: Schema
    accepts: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_text(item) for item in value)


def whole(minimum: int) -> Kind:
    return Kind(
        f"a whole number, {minimum} or more",
        {"type": "integer", "minimum": minimum},
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= minimum,
    )


def choice(*words: str) -> Kind:
    return Kind(f"one of: {', '.join(words)}", {"enum": list(words)}, lambda value: value in words)


TEXT = Kind("a text", {"type": "string", "minLength": 1}, _is_text)
NUMBER = Kind("a number, 0 or more", {"type": "number", "minimum": 0}, lambda v: _is_number(v) and v >= 0)
SWITCH = Kind("true or false", {"type": "boolean"}, lambda value: isinstance(value, bool))
NAMES = Kind(
    "a name, or a list of names",
    {"anyOf": [TEXT.schema, {"type": "array", "items": TEXT.schema, "minItems": 1}]},
    lambda value: _is_text(value) or _are_texts(value),
)
_FILE = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"path": TEXT.schema},
            "required": ["path"],
            "additionalProperties": False,
        },
    ]
}


def is_file(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, dict) and list(value) == ["path"] and _is_text(value["path"])
    )


FILES = Kind(
    'names with a text, as in context.md: "{context}", or with {path: …} for a file to copy',
    {"type": "object", "additionalProperties": _FILE},
    lambda value: (
        isinstance(value, dict) and all(isinstance(k, str) and is_file(v) for k, v in value.items())
    ),
)
ARGV = Kind(
    "a list of words, as in [python3, agent.py, '{prompt}']",
    {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
    lambda value: (
        isinstance(value, list) and bool(value) and all(isinstance(i, str | int | float) for i in value)
    ),
)
_EVALUATOR = {
    "anyOf": [TEXT.schema, {"type": "object", "additionalProperties": {"type": "object"}, "maxProperties": 1}]
}


def _is_evaluator(value: Any) -> bool:
    return _is_text(value) or (
        isinstance(value, dict) and len(value) == 1 and all(isinstance(v, dict) for v in value.values())
    )


EVALUATORS = Kind(
    "names of evaluators, each as NAME or {NAME: {argument: value}}",
    {"anyOf": [TEXT.schema, {"type": "array", "items": _EVALUATOR}]},
    lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_evaluator, value))),
)
TEXTS_BY_NAME = Kind(
    "a mapping of names to texts",
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
    lambda value: isinstance(value, dict) and all(isinstance(v, str | int | float) for v in value.values()),
)
TOOLS = Kind(
    "a list of definitions of tools, the path of a JSON, YAML or Python file, or a {column}",
    {"anyOf": [TEXT.schema, {"type": "array", "items": {"type": "object"}, "minItems": 1}]},
    lambda value: _is_text(value) or (isinstance(value, list) and all(isinstance(t, dict) for t in value)),
)
RULES = Kind(
    "exact, subset, values or ignore, or a mapping of rules as in {compare: subset, ignore: [request_id]}",
    {"anyOf": [TEXT.schema, {"type": "object"}]},
    lambda value: _is_text(value) or isinstance(value, dict),
)
PHASES = Kind(
    "a list of lists of names, as in [[first, second], [third]]",
    {"type": "array", "items": NAMES.schema, "minItems": 1},
    lambda value: isinstance(value, list) and bool(value) and all(map(NAMES.accepts, value)),
)
ANYTHING = Kind("a value", {}, lambda value: True)


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its name, what it takes, what it is for."""

    name: str
    kind: Kind
    help: str
    aliases: tuple[str, ...] = ()
    throughput: bool = False
    """Whether it says only how fast something runs, or how much of it: a resumed run may change it."""


@dataclass(frozen=True, slots=True)
class Table:
    """The keys of one kind of entry."""

    keys: tuple[Key, ...]
    required: tuple[str, ...] = ()
    by_name: dict[str, Key] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_name", {name: key for key in self.keys for name in (key.name, *key.aliases)}
        )


EXPERIMENT = Table(
    (
        Key("datasets", NAMES, "which of `datasets:`; with it, `evalve run NAME` runs the experiment"),
        Key("models", NAMES, "which of `models:`, or models by their own names, as in openai/gpt-5-mini"),
        Key(
            "evaluation_mode",
            choice("agent", "model", "conversation"),
            "ask agents, or models directly; or play conversations of several turns with either",
        ),
        Key("prompt", TEXT, "what is asked; {column} stands for the row's value"),
        Key("system", TEXT, "the system prompt, for models"),
        Key(
            "tools",
            TOOLS,
            "what models may call: definitions, a file of them, a {column}; a Python file in conversations",
        ),
        Key("max_steps", whole(1), "of conversations: how often a model answers in a turn at most (8)"),
        Key(
            "arguments", RULES, "of conversations: how arguments are compared (exact), as in tool_call_match"
        ),
        Key("files", FILES, "what an agent finds in its workspace: a text, or {path: …} of a file to copy"),
        Key("expected", TEXT, "the column with the right answer"),
        Key("evaluators", EVALUATORS, "what scores an answer", aliases=("metrics",)),
        Key("judge_model", TEXT, "the model that judges answers (llm_judge) or calls (llm_tool_selection …)"),
        Key(
            "retries",
            whole(1),
            "how often a sample is tried in all where the network fails",
            throughput=True,
        ),
        Key(
            "sandbox",
            choice("postgres"),
            "which of `sandboxes:` is lent: to an agent, its address in DATABASE_URL; to tools, a connection",
        ),
        Key(
            "reset",
            choice("conversation", "lane", "never"),
            "when the sandbox is reset: for each sample, for each lane, or never (conversation)",
        ),
        Key(
            "lane",
            TEXT,
            'samples of one lane follow each other, as in "{workflow}"; a model may have its own',
        ),
        Key("phases", PHASES, "which models run together, phase after phase (all at once)", throughput=True),
        Key("models_at_once", whole(1), "how many models run at a time (all)", throughput=True),
        Key("keep", choice("failed", "always", "never"), "which workspaces stay", throughput=True),
        Key("extends", NAMES, "experiments whose keys hold where this one says nothing"),
        Key("description", TEXT, "for readers", throughput=True),
    )
)

DATASET = Table(
    (
        Key("path", TEXT, "a file: .jsonl, .json, .csv, .tsv, .parquet, .yaml; relative to this one"),
        Key("huggingface", TEXT, "a dataset of the Hugging Face hub, as in owner/name"),
        Key("config", TEXT, "which configuration of it"),
        Key("split", TEXT, "which split of it (test)"),
        Key("revision", TEXT, "which revision of it"),
        Key("data_files", ANYTHING, "which of its files"),
        Key("id", TEXT, "the column that names rows (id)"),
        Key("description", TEXT, "for readers"),
    )
)

API_MODEL = Table(
    (
        Key("model", TEXT, "as in anthropic/claude-sonnet-5, or a server's own name beside base_url"),
        Key("base_url", TEXT, "the address of a server that speaks like OpenAI"),
        Key("api_key", TEXT, "${VARIABLE}: the key is in the environment"),
        Key("temperature", NUMBER, "of every call"),
        Key("max_output_tokens", whole(1), "of every call (1024)", aliases=("max_tokens",)),
        Key("headers", TEXTS_BY_NAME, "sent with every call"),
        Key("lane", TEXT, "in place of the experiment's"),
        Key(
            "options",
            Kind("a mapping", {"type": "object"}, lambda v: isinstance(v, dict)),
            "go into the body",
        ),
        Key("extends", NAMES, "entries whose keys hold where this one says nothing"),
        Key("description", TEXT, "for readers"),
    ),
    required=("model",),
)

SECONDS = Kind(
    "a number of seconds above 0",
    {"type": "number", "exclusiveMinimum": 0},
    lambda value: _is_number(value) and value > 0,
)
ON_OR_OFF = Kind(
    "on or off",
    {"enum": [True, False, "on", "off"]},
    lambda value: isinstance(value, bool) or value in ("on", "off"),
)
WORDS = Kind(
    "a list of words",
    {"type": "array", "items": {"type": ["string", "number"]}},
    lambda value: isinstance(value, list) and all(isinstance(item, str | int | float) for item in value),
)
AGENT_MODEL = Table(
    (
        Key("agent", TEXT, "claude-code, codex, gemini-cli, command, python, or one that is installed"),
        Key("model", TEXT, "the model that the agent uses"),
        Key("command", ARGV, "of agent: command; with {prompt}, {project}, {workspace}, {model} …"),
        Key("answer", TEXT, "where the answer is in the output: last_line, whole, json, jsonl, regex"),
        Key("field", TEXT, "of answer: json or jsonl: the field that has it"),
        Key("pattern", TEXT, "of answer: regex: the expression whose first group is the answer"),
        Key("function", TEXT, "of agent: python: package.module:function"),
        Key("program", TEXT, "another path for the program that the adapter calls"),
        Key("arguments", WORDS, "more arguments for its command"),
        Key("environment", TEXTS_BY_NAME, "variables that the agent is given", aliases=("env",)),
        Key("readable", WORDS, "what it may read although it is confined"),
        Key(
            "confine",
            Kind(
                "auto, off, bubblewrap or landlock",
                {"type": ["string", "boolean"]},
                lambda v: isinstance(v, str | bool),
            ),
            "what keeps it from reading and writing elsewhere",
        ),
        Key(
            "gateway", ON_OR_OFF, "off: it calls its provider itself, and no call of it is limited or counted"
        ),
        Key("cache", ON_OR_OFF, "on: answers to its calls are cached, as those of models are (off)"),
        Key("timeout_s", SECONDS, "how long it may run"),
        Key("startup_s", SECONDS, "until its first output"),
        Key("silence_s", SECONDS, "without any output"),
        Key("grace_s", SECONDS, "until it is killed after it was asked to end"),
        Key("memory_limit_mb", SECONDS, "for it and all that it starts"),
        Key("lane", TEXT, "in place of the experiment's"),
        Key("extends", NAMES, "entries whose keys hold where this one says nothing"),
        Key("description", TEXT, "for readers"),
    ),
    required=("agent",),
)

PAIR_MODEL = Table(
    (
        Key("student", TEXT, "which of `models:` takes part in conversations"),
        Key("teacher", TEXT, "which of `models:` teaches it"),
        Key("lane", TEXT, "in place of the experiment's"),
        Key("teaching", choice("review", "guide"), "the teacher reviews each step, or advises before a turn"),
        Key("extends", NAMES, "entries whose keys hold where this one says nothing"),
        Key("description", TEXT, "for readers"),
    ),
    required=("student", "teacher"),
)


def table_of_model(values: Mapping[Any, Any]) -> Table:
    """Which keys an entry of `models:` may have, told by those that it has."""
    if "agent" in values:
        return AGENT_MODEL
    return PAIR_MODEL if "student" in values or "teacher" in values else API_MODEL


SANDBOXES = {
    "postgres": Table(
        (
            Key("schema", TEXT, "a file of SQL: tables and whatever belongs to them; relative to this one"),
            Key("seed", TEXT, "a file of SQL: the rows that every sample begins with"),
            Key("url", TEXT, "a server, as in ${DATABASE_URL}; without it, an embedded one is started"),
            Key("size", whole(1), "how many databases there are at most"),
            Key("connections", whole(1), "how many connections each may have (5)"),
            Key("statement_timeout_s", SECONDS, "how long a statement may take (30)"),
            Key("lock_timeout_s", SECONDS, "how long a statement may wait for a lock (10)"),
            Key("idle_in_transaction_timeout_s", SECONDS, "how long a transaction may do nothing (600)"),
            Key("volatile", NAMES, "columns that differ from run to run, as in seen_on or notes.seen_on"),
            Key("description", TEXT, "for readers"),
        ),
        required=("schema",),
    )
}
"""What samples are lent, by name."""

SECTIONS = ("options", "models", "datasets", "experiments", "sandboxes", "limits", "prices", "extends")
"""The keys at the top."""

_WHOLE_OR_AUTO = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}
_GATES = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": "number"}},
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
    ]
}
_SHARE = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}]}
OPTION_SCHEMAS: dict[str, Schema] = {
    "experiment": {"type": "string"},
    "samples": {"type": "integer", "minimum": 0},
    "max_concurrency": _WHOLE_OR_AUTO,
    "throttle_s": {"type": "number", "minimum": 0},
    "timeout_s": {"type": "number", "exclusiveMinimum": 0},
    "repeat": {"type": "integer", "minimum": 1},
    "fail_under": _GATES,
    "min_samples": {"type": "integer", "minimum": 1},
    "allow_failures": _SHARE,
    "storage": {"type": "string"},
    "model": NAMES.schema,
    "budget_usd": {"type": ["number", "string"], "minimum": 0},
    "workers": {"type": "integer", "minimum": 1},
    "batch": {"enum": ["on", "off", "auto", True, False]},
    "deadline_s": {"type": ["number", "string"]},
}
"""What `options.py` reads from text, as JSON Schema; the others are told from their metavar."""


def option_schema(option: Option) -> Schema:
    if option.field in OPTION_SCHEMAS:
        return OPTION_SCHEMAS[option.field]
    if option.is_switch:
        return {"type": "boolean"}
    words: list[Any] = (option.metavar or "").split("|")
    return {"enum": [*words, *([True, False] if "off" in words else [])]}  # YAML reads `off` as false


OF_MODELS = ("temperature", "max_output_tokens")
"""Keys of models that `evalve run EXPERIMENT` takes as flags, for all of them."""
OUTPUT_DIR = "output_dir"


def flags_in_words() -> Iterator[tuple[str, str]]:
    """The flags of `evalve run EXPERIMENT` beside options, and what each is for."""
    for key in EXPERIMENT.keys:
        if key.name not in ("extends", "description"):
            yield f"--{key.name.replace('_', '-')} …", key.help
    yield "--temperature X, --max-output-tokens N", "of every call, for all models that are asked"
    yield "--output-dir DIR", "for each model AGENT.jsonl, AGENT.log, and a place in status.json"


def flags_with_values() -> frozenset[str]:
    """What `evalve run EXPERIMENT` takes beside options, each with a value."""
    names = [*EXPERIMENT.by_name, *OF_MODELS, OUTPUT_DIR]
    return frozenset(f"--{name.replace('_', '-')}" for name in names)


def option_keys() -> dict[str, Option]:
    """Every name under which an option may stand in the file."""
    return {key: option for option in OPTIONS for key in option.keys}
