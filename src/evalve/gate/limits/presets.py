"""The limits that a person configured: environment over `evalve.yaml` over a tier's preset.

```yaml
limits:
  anthropic:
    tier: build                # 1 to 4, start, build, scale; of OpenAI 1 to 5
    rpm: 2000                  # requests a minute; also itpm, otpm, tpm; 450k and 2M are understood
    concurrency: 40
    batch_size: 10000          # requests of one batch; also batch_queue, of all that have not ended
    account: team-a            # whose limits these are, whatever key is used: for keys that are renewed
    burst_s: 1                 # how many seconds' worth may come at once; answers show it otherwise
    models:
      claude-opus-4-8: {itpm: 1M}
  "127.0.0.1:8080": {rpm: 600}
```

Every figure is the total for the key, however many processes use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evalve.errors import OptionError
from evalve.gate.limits.tiers import batch_figures, tier_figures, tiers_of
from evalve.gate.messages import Dimension, Limit, Limits
from evalve.options import suggestion
from evalve.variables import LIMITS

DIMENSIONS: dict[str, Dimension] = {
    "rpm": "requests",
    "itpm": "input_tokens",
    "otpm": "output_tokens",
    "tpm": "tokens",
}
_SHORT_NAMES = {"anthropic": "ANTHROPIC_RPM_LIMIT", "openai": "OPENAI_RPM_LIMIT"}
_KNOWN_PROVIDERS = ("anthropic", "openai", "gemini", "vertex", "bedrock", "cohere", "ollama")
_FILE = "evalve.yaml"
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and who said it."""

    value: Any
    source: str


Settings = Mapping[str, Setting]
"""By key: `tier`, `rpm`, `itpm`, `otpm`, `tpm`, `concurrency`, `burst_s`, `account`, `batch_size`,
`batch_queue`."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What `evalve.yaml` says about one provider or host."""

    own: Settings = field(default_factory=dict)
    models: Mapping[str, Settings] = field(default_factory=dict)

    def for_model(self, model: str, pool: str) -> Settings:
        """A model is named in full, by its pool, or by a beginning with `*`; the longest name wins."""
        fitting = [name for name in self.models if _fits(name, model, pool)]
        said = dict(self.own)
        for name in sorted(fitting, key=len):
            said |= self.models[name]
        return said


def limits_for(
    provider: str,
    model: str,
    pool: str,
    configured: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
) -> Limits:
    """The limits of a scope. Where nothing is configured they are empty, and answers' headers state them."""
    said = dict(configured.get(provider, ProviderSettings()).for_model(model, pool))
    said |= from_environment(provider, environ)
    preset = _preset(provider, pool, said.get("tier"))
    burst_s = said["burst_s"].value if "burst_s" in said else None
    limits: dict[Dimension, Limit] = {}
    for key, dimension in DIMENSIONS.items():
        setting = said.get(key) or preset.get(key)
        if setting is not None:
            burst = None if burst_s is None else max(1.0, setting.value / 60 * burst_s)
            limits[dimension] = Limit(setting.value, burst, setting.source)
    concurrency = said.get("concurrency")
    sources = [*(limit.source for limit in limits.values()), *([concurrency.source] if concurrency else [])]
    return Limits(limits, concurrency.value if concurrency else None, ", ".join(dict.fromkeys(sources)))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a provider takes of batches; `None` is its own maximum."""

    size: int | None = None
    queue: int | None = None


def batch_limits_for(
    provider: str, configured: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> BatchLimits:
    """Requests of one batch, and of all that have not ended: as a person says, else as the tier has it."""
    said = {**configured.get(provider, ProviderSettings()).own, **from_environment(provider, environ)}
    preset = batch_figures(provider, said["tier"].value) if "tier" in said else {}
    figures = {key: said[key].value if key in said else preset.get(key) for key in _OF_BATCHES}
    return BatchLimits(figures["batch_size"], figures["batch_queue"])


def account_for(
    provider: str, configured: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> str | None:
    """Whose limits a provider's are, where a person named that."""
    said = {**configured.get(provider, ProviderSettings()).own, **from_environment(provider, environ)}
    return said["account"].value if "account" in said else None


def read_limits(section: Any, where: str = f"{_FILE}: limits") -> dict[str, ProviderSettings]:
    """The `limits:` section; an unknown key is an error that suggests a known one."""
    providers: dict[str, ProviderSettings] = {}
    for name, body in _mapping(section, where).items():
        place = f"{where}.{name}"
        near = suggestion(str(name), _KNOWN_PROVIDERS)
        if near and name not in _KNOWN_PROVIDERS and not re.search(r"[.:]", str(name)):
            raise OptionError(f"{place}: unknown provider {name!r}{near} (or give a server's host:port)")
        content = dict(_mapping(body, place))
        models = _mapping(content.pop("models", None), f"{place}.models")
        providers[str(name)] = ProviderSettings(
            own=_settings(content, place, str(name), ("models",)),
            models={
                str(model): _settings(_mapping(said, f"{place}.models.{model}"), f"{place}.models.{model}")
                for model, said in models.items()
            },
        )
    return providers


def from_environment(provider: str, environ: Mapping[str, str]) -> dict[str, Setting]:
    """`EVALVE_LIMITS_ANTHROPIC_RPM` and the like; for a host, each sign that is no letter or digit is `_`."""
    prefix = LIMITS + re.sub(r"[^A-Z0-9]", "_", provider.upper()) + "_"
    said: dict[str, Setting] = {}
    older = _SHORT_NAMES.get(provider, "")
    if environ.get(older):
        said["rpm"] = _setting("rpm", environ[older], older, older, provider)
    for key in _PARSERS:
        name = prefix + key.upper()
        if environ.get(name):
            said[key] = _setting(key, environ[name], name, name, provider)
    return said


def check_variables(environ: Mapping[str, str]) -> None:
    """Every limit in the environment, whichever hosts will be called."""
    for provider in _KNOWN_PROVIDERS:
        from_environment(provider, environ)
    for name in environ:
        host, key = _host_and_key(name)
        if key and environ[name]:
            _setting(key, environ[name], name, name, host)


def _host_and_key(variable: str) -> tuple[str, str]:
    """Of `EVALVE_LIMITS_127_0_0_1_8080_RPM`; the key is empty for any other variable."""
    said = variable.removeprefix(LIMITS) if variable.startswith(LIMITS) else ""
    key = next((key for key in _PARSERS if said.endswith(f"_{key.upper()}")), "")
    return said[: -len(key) - 1].lower(), key


def _settings(
    body: Mapping[str, Any], where: str, provider: str | None = None, also: tuple[str, ...] = ()
) -> Settings:
    """`provider` is `None` for a model, which has no tier and no account of its own."""
    known = [key for key in _PARSERS if provider is not None or key not in ("tier", "account", *_OF_BATCHES)]
    said: dict[str, Setting] = {}
    for key, value in body.items():
        if key not in known:
            names = [*known, *also]
            raise OptionError(
                f"{where}: unknown key {key!r}{suggestion(str(key), names)} (known: {', '.join(names)})"
            )
        if value is not None:
            said[key] = _setting(key, value, f"{where}.{key}", _FILE, provider or "")
    return said


def _setting(key: str, value: Any, where: str, source: str, provider: str) -> Setting:
    try:
        parsed = _PARSERS[key](str(value).strip())
    except ValueError as error:
        raise OptionError(f"{where}: {error}; got {value!r}") from None
    if key == "tier":
        _check_tier(provider, parsed, where)
    return Setting(parsed, source)


def _check_tier(provider: str, tier: str, where: str) -> None:
    known = tiers_of(provider)
    if not known:
        raise OptionError(
            f"{where}: there are no presets for {provider}; "
            "give rpm and tpm, or nothing: its answers state them"
        )
    if tier not in known:
        raise OptionError(
            f"{where}: unknown tier {tier!r}{suggestion(tier, known)} (known: {', '.join(known)})"
        )


def _preset(provider: str, pool: str, tier: Setting | None) -> dict[str, Setting]:
    if tier is None:
        return {}
    source = f"{provider} tier {tier.value}"
    return {key: Setting(figure, source) for key, figure in tier_figures(provider, pool, tier.value).items()}


def _fits(name: str, model: str, pool: str) -> bool:
    if name.endswith("*"):
        return model.startswith(name[:-1])
    return name in (model, pool) or re.fullmatch(rf"{re.escape(name)}-\d[\d-]{{7,9}}", model) is not None


def _rate(text: str) -> float:
    found = re.fullmatch(r"(\d[\d_,]*(?:\.\d+)?)\s*([km]?)", text.lower())
    value = float(re.sub("[_,]", "", found[1])) * _FACTORS[found[2]] if found else 0.0
    if value <= 0:
        raise ValueError("needs a number a minute above 0, as in 2000, 450k or 2M")
    return value


def _concurrency(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("needs a whole number, 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(?:\.\d+)?", text) or float(text) <= 0:
        raise ValueError("needs a number of seconds above 0")
    return float(text)


def _name(text: str) -> str:
    if not text:
        raise ValueError("needs a name")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "tier": str.lower,
    "rpm": _rate,
    "itpm": _rate,
    "otpm": _rate,
    "tpm": _rate,
    "concurrency": _concurrency,
    "burst_s": _seconds,
    "account": _name,
    "batch_size": _concurrency,
    "batch_queue": _concurrency,
}
_OF_BATCHES = ("batch_size", "batch_queue")


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OptionError(f"{where} must be a mapping of names to values; got {type(value).__name__}")
    return value
