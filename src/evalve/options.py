"""Every option of a run, declared once: its name, its aliases, how its text is read.

The command line, the environment (`EVALVE_…`), `evalve.yaml` and the decorator each fill an
`Options`; `merged` lays them over each other, the earlier over the later.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from evalve.errors import OptionError

MaxConcurrency = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A gate: `name` is a metric, an evaluator or `evaluator.metric`; its value must reach `bound`.

    `name` may end with `.low` or `.high`, for an end of the interval.
    """

    name: str
    bound: float
    from_above: bool = False
    """Whether the value must not exceed the bound instead."""

    def admits(self, value: float) -> bool:
        if math.isclose(value, self.bound, rel_tol=1e-9):  # what sums of tenths leave behind
            return True
        return value < self.bound if self.from_above else value > self.bound

    @property
    def in_words(self) -> str:
        return f"be at most {self.bound:.12g}" if self.from_above else f"reach {self.bound:.12g}"

    def __str__(self) -> str:
        return f"{self.name}{'<=' if self.from_above else '='}{self.bound:.12g}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many failed samples an evaluation may have: a number of them, or a share of all."""

    count: int | None = None
    share: float | None = None

    def allows(self, failed: int, total: int) -> bool:
        if self.share is not None:
            return failed <= self.share * total + 1e-9  # 0.29 * 100 is a little less than 29
        return failed <= (self.count or 0)

    def __str__(self) -> str:
        return f"{self.share * 100:g}%" if self.share is not None else str(self.count or 0)


@dataclass(frozen=True, slots=True)
class Options:
    """`None` means: not said here."""

    experiment: str | None = None
    samples: int | None = None
    max_concurrency: MaxConcurrency | None = None
    throttle_s: float | None = None
    timeout_s: float | None = None
    repeat: int | None = None
    order: Literal["auto", "dataset"] | None = None
    fail_under: tuple[Threshold, ...] | None = None
    min_samples: int | None = None
    allow_failures: Tolerance | None = None
    fresh: bool | None = None
    accept_changes: bool | None = None
    storage: str | None = None
    progress: Literal["auto", "plain", "workers", "off"] | None = None
    model: tuple[str, ...] | None = None
    cache: Literal["on", "off", "read", "refresh"] | None = None
    no_cache: bool | None = None
    budget_usd: float | None = None
    engine: Literal["auto", "processes"] | None = None
    workers: int | None = None
    trace: Literal["on", "off"] | None = None
    gateway: bool | None = None
    batch: Literal["on", "off", "auto"] | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """How one field of `Options` is named and read outside Python."""

    field: str
    name: str
    parse: Callable[[str], Any]
    help: str
    metavar: str | None = None
    aliases: tuple[str, ...] = ()
    many: bool = False
    """Given several times, each adds to a tuple."""
    bare: str = ""
    """What it means without a value, which is then given as in `--batch=auto` and never as a next word."""

    @property
    def is_switch(self) -> bool:
        return self.metavar is None

    @property
    def words(self) -> tuple[str, ...]:
        """The values that such an option may have."""
        return tuple((self.metavar or "").split("|")) if self.bare else ()

    @property
    def env(self) -> str:
        return "EVALVE_" + self.name.upper().replace("-", "_")

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that YAML and Python keyword arguments use."""
        return tuple(dict.fromkeys([self.field, *(n.replace("-", "_") for n in (self.name, *self.aliases))]))


def _whole(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d+", text.strip()) or int(text) < minimum:
            raise ValueError(f"needs a whole number, {minimum} or more")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("needs a number of seconds, 0 or more")
    return value


def _timeout(text: str) -> float:
    value = _seconds(text)
    if value == 0:
        raise ValueError("needs a number of seconds above 0")
    return value


def _max_concurrency(text: str) -> MaxConcurrency:
    if text.strip() == "auto":
        return "auto"
    try:
        return _whole(1)(text)
    except ValueError:
        raise ValueError("needs a whole number, 1 or more, or `auto`") from None


def read_threshold(text: str) -> Threshold:
    """`accuracy=0.9` and `accuracy>=0.9` are gates from below, `toxic<=0.1` is one from above."""
    name, _, value = text.rpartition("=")
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    from_above = name.endswith("<")
    name = name.removesuffix("<").removesuffix(">").strip()
    if not name or name.endswith(("<", ">", "=")) or not math.isfinite(bound):
        raise ValueError(
            "needs NAME=VALUE or NAME<=VALUE, as in accuracy=0.9, accuracy.low=0.85 or toxic<=0.1"
        )
    return Threshold(name, bound, from_above)


def _tolerance(text: str) -> Tolerance:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text.strip())
    if match and float(match[1]) <= 100:
        return Tolerance(share=float(match[1]) / 100)
    if re.fullmatch(r"\d+", text.strip()):
        return Tolerance(count=int(text))
    raise ValueError("needs a number of samples, as in 3, or a share of them, as in 5%")


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.strip() not in words:
            raise ValueError(f"needs one of: {', '.join(words)}")
        return text.strip()

    return parse


def switched_on(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("needs true or false")


def _name(text: str) -> str:
    if not text.strip() or text.strip() == "latest":
        raise ValueError("needs a name that is not empty and not `latest`")
    return text.strip()


def _model(text: str) -> str:
    if not text.strip():
        raise ValueError("needs a model's name, as in anthropic/claude-sonnet-5 or local")
    return text.strip()


def _usd(text: str) -> float:
    try:
        value = float(text.strip().lstrip("$"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("needs an amount in USD, 0 or more")
    return value


def _batch(text: str) -> str:
    word = text.strip().lower()
    if word in ("on", "off", "auto"):
        return word
    try:
        return "on" if switched_on(word) else "off"
    except ValueError:
        raise ValueError("needs on, off or auto") from None


def _duration(text: str) -> float:
    """`90`, `90s`, `45m`, `2h`, `1d`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?", text.strip().lower())
    seconds = float(found[1]) * _UNITS_S[found[2] or "s"] if found else 0.0
    if seconds <= 0:
        raise ValueError("needs a time above 0, as in 90s, 45m, 2h or 1d")
    return seconds


_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


OPTIONS: tuple[Option, ...] = (
    Option("experiment", "experiment", _name, "record under NAME; the same name resumes", "NAME"),
    Option("samples", "samples", _whole(0), "evaluate N samples in total", "N", ("limit",)),
    Option(
        "max_concurrency",
        "max-concurrency",
        _max_concurrency,
        "how many samples at once: a number, or auto to let evalve find out",
        "N|auto",
        ("concurrency", "concurrent"),
    ),
    Option("throttle_s", "throttle", _seconds, "at least SECONDS between two starts", "SECONDS"),
    Option("timeout_s", "timeout", _timeout, "a sample that runs longer than SECONDS fails", "SECONDS"),
    Option("repeat", "repeat", _whole(1), "evaluate each sample K times", "K"),
    Option(
        "order",
        "order",
        _choice("auto", "dataset"),
        "auto: start the samples that took longest last time first",
        "auto|dataset",
    ),
    Option(
        "fail_under",
        "fail-under",
        read_threshold,
        "fail where NAME (metric, evaluator or evaluator.metric; .low or .high for an end of its interval)"
        " is below VALUE, or with NAME<=VALUE above it; repeatable, or with commas",
        "NAME=VALUE",
        many=True,
    ),
    Option("min_samples", "min-samples", _whole(1), "fail where a value is of fewer than N samples", "N"),
    Option(
        "allow_failures",
        "allow-failures",
        _tolerance,
        "pass although up to N samples, or a share as in 5%%, failed",
        "N|P%",
    ),
    Option("fresh", "fresh", switched_on, "start the experiment over: forget what it has recorded"),
    Option("accept_changes", "accept-changes", switched_on, "resume although the evaluation has changed"),
    Option("storage", "storage", str, "where records go: a path or URL (default .evalve/evalve.db)", "URL"),
    Option(
        "progress",
        "progress",
        _choice("auto", "plain", "workers", "off"),
        "how progress is shown; workers: with a line for each running sample",
        "auto|plain|workers|off",
    ),
    Option(
        "model",
        "model",
        _model,
        "evaluate with this model, as in anthropic/claude-sonnet-5; repeatable",
        "NAME",
        many=True,
    ),
    Option(
        "cache",
        "cache",
        _choice("on", "off", "read", "refresh"),
        "use answers that were paid for: on; off; read: ask nobody; refresh: ask anew and keep",
        "on|off|read|refresh",
    ),
    Option("no_cache", "no-cache", switched_on, "the same as --cache off"),
    Option("budget_usd", "budget-usd", _usd, "stop before calls cost more than this", "USD"),
    Option(
        "engine",
        "engine",
        _choice("auto", "processes"),
        "where samples run: auto: in this process; processes: in others, for sync functions that compute",
        "auto|processes",
    ),
    Option("workers", "workers", _whole(1), "how many processes --engine processes starts (cores)", "N"),
    Option(
        "trace",
        "trace",
        _choice("on", "off"),
        "whether what samples do (calls with request and answer, notes) is recorded",
        "on|off",
    ),
    Option(
        "gateway",
        "gateway",
        switched_on,
        "set ANTHROPIC_BASE_URL, OPENAI_BASE_URL … so that the calls of any SDK pass evalve's limits, cache,"
        " retries and budget, and count for their samples",
    ),
    Option(
        "batch",
        "batch",
        _batch,
        "send the calls of async evaluations in batches, at half price, within a day; auto: where that pays"
        " and the deadline allows it",
        "on|off|auto",
        bare="on",
    ),
    Option(
        "deadline_s",
        "deadline",
        _duration,
        "for --batch=auto: when the run must be over, as in 45m or 2h",
        "TIME",
    ),
)

_BY_KEY = {key: option for option in OPTIONS for key in option.keys}


def parse_text(option: Option, text: str, *, said_by: str) -> Any:
    """The option's value from text; `said_by` names the flag, variable or file in the error."""
    try:
        return option.parse(text)
    except ValueError as error:
        raise OptionError(f"{said_by}: {error}; got {text!r}") from None


def parse_texts(
    option: Option, texts: Iterable[str], *, said_by: str, separators: str = ","
) -> tuple[Any, ...]:
    """The values of an option that may be given several times; one text may also hold several.

    A separator within parentheses belongs to a name, as in `share_above(0.5, strict=True)=0.9`.
    """
    between = rf"[{separators}]+(?![^(]*\))"
    return tuple(
        parse_text(option, part, said_by=said_by)
        for text in texts
        for part in [part for part in re.split(between, text) if part.strip()] or [text]
    )


def from_environment(environ: Mapping[str, str]) -> Options:
    said: dict[str, Any] = {}
    for option in OPTIONS:
        text = environ.get(option.env)
        if text is None or text == "":
            continue
        if option.many:
            said[option.field] = parse_texts(option, [text], said_by=option.env, separators=r",\s")
        else:
            said[option.field] = parse_text(option, text, said_by=option.env)
    return Options(**said)


def from_mapping(values: Mapping[str, Any], *, said_by: str) -> Options:
    """Options from YAML or keyword arguments; an unknown key is an error that suggests a known one."""
    said: dict[str, Any] = {}
    for key, value in values.items():
        option = _BY_KEY.get(key)
        if option is None:
            raise OptionError(f"{said_by}: unknown option {key!r}{suggestion(str(key), _BY_KEY)}")
        if value is None:
            continue
        if option.field in said:
            raise OptionError(f"{said_by}: {option.field} is given twice, the second time as {key!r}")
        said[option.field] = _from_value(option, value, said_by=f"{said_by}: {key}")
    return Options(**said)


def _from_value(option: Option, value: Any, *, said_by: str) -> Any:
    if option.many:
        if isinstance(value, Mapping):
            gates = [
                f"{name}{number}" if str(name).rstrip().endswith("=") else f"{name}={number}"
                for name, number in value.items()
            ]
            return tuple(parse_text(option, gate, said_by=said_by) for gate in gates)
        items: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
        return tuple(one for item in items for one in _several(option, item, said_by=said_by))
    if isinstance(value, Threshold | Tolerance):
        return value
    if isinstance(value, bool) and option.bare:
        value = option.bare if value else "off"
    if value is False and option.metavar and "off" in option.metavar.split("|"):
        value = "off"  # which YAML reads as false
    if isinstance(value, bool) and not option.is_switch and not option.bare:
        raise OptionError(f"{said_by}: got {value!r}, where {option.metavar} is needed")
    return parse_text(option, str(value), said_by=said_by)


def _several(option: Option, item: Any, *, said_by: str) -> tuple[Any, ...]:
    if isinstance(item, str):
        return parse_texts(option, [item], said_by=said_by)
    return (_from_value(replace(option, many=False), item, said_by=said_by),)


def option_for(key: str) -> Option | None:
    return _BY_KEY.get(key)


def merged(*layers: Options) -> Options:
    """The first layer that says something wins, field by field."""
    result = layers[0]
    for layer in layers[1:]:
        missing = {
            name: value
            for name in _FIELDS
            if (value := getattr(layer, name)) is not None and getattr(result, name) is None
        }
        if missing:
            result = replace(result, **missing)
    return result


_FIELDS = tuple(f.name for f in fields(Options))


def said(options: Options) -> dict[str, Any]:
    """What was said, as plain values: for the record of a run."""
    plain: dict[str, Any] = {}
    for f in fields(Options):
        value = getattr(options, f.name)
        if isinstance(value, tuple):
            plain[f.name] = [str(item) for item in value]
        elif value is not None:
            plain[f.name] = str(value) if isinstance(value, Tolerance) else value
    return plain


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
