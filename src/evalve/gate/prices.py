"""What calls cost, from the table that comes with evalve (`prices.json`) and what a person puts over it.

```yaml
prices:                                # USD per million tokens
  my-model: {input: 1.5, output: 6}    # also cache_read, cache_write, cache_write_1h
  "SmolLM2*": {input: 0, output: 0}    # every model whose name begins so
```

`EVALVE_PRICES` names a JSON or YAML file of the same form, which holds over `evalve.yaml`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from evalve.errors import OptionError
from evalve.gate.dialects.request_parts import undated
from evalve.gate.messages import Usage
from evalve.options import suggestion

VARIABLE = "EVALVE_PRICES"
_KEYS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "up_to_input_tokens")
_AN_HOUR_OF_FIVE_MINUTES = 1.6
"""Anthropic writes its cache for an hour at twice the price of input, for five minutes at 1.25 times."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens; `None` is not known."""

    input_usd: float
    output_usd: float
    cache_read_usd: float | None
    cache_write_usd: float | None
    long_cache_write_usd: float | None = None
    """For an hour."""
    up_to_input_tokens: float = math.inf

    def cost_usd(self, usage: Usage) -> float | None:
        if usage.total_input_tokens > self.up_to_input_tokens:
            return None
        cost = usage.input_tokens * self.input_usd + usage.output_tokens * self.output_usd
        long = min(usage.long_cache_write_tokens, usage.cache_write_tokens)
        for tokens, rate in (
            (usage.cache_read_tokens, self.cache_read_usd),
            (usage.cache_write_tokens - long, self.cache_write_usd),
            (long, self.long_cache_write_usd),
        ):
            if tokens and rate is None:
                return None
            cost += tokens * (rate or 0.0)
        return cost / _MILLION


class Prices:
    """Prices by model: the exact name, else without its date, else the longest `beginning*` that fits."""

    def __init__(self, by_model: Mapping[str, Price], *, as_of: str = "") -> None:
        self.as_of = as_of
        self._by_model = dict(by_model)
        self._beginnings = sorted(
            (name[:-1] for name in by_model if name.endswith("*")), key=len, reverse=True
        )

    def price(self, model: str) -> Price | None:
        found = self._by_model.get(model) or self._by_model.get(undated(model))
        if found is None:
            beginning = next((name for name in self._beginnings if model.startswith(name)), None)
            found = self._by_model.get(f"{beginning}*") if beginning is not None else None
        return found

    def cost(self, model: str, usage: Usage) -> float | None:
        """USD; `None` where the price is not known, which is not the same as free."""
        price = self.price(model)
        return price.cost_usd(usage) if price is not None else None


def prices_from(section: Any, environ: Mapping[str, str], *, said_by: str = "evalve.yaml") -> Prices:
    """The shipped table, over it the `prices:` section, over that the file that the environment names."""
    shipped = json.loads(files("evalve.gate").joinpath("prices.json").read_text(encoding="utf-8"))
    by_model = read_prices(shipped["models"], "prices.json")
    by_model |= read_prices(section, f"{said_by}: prices")
    if environ.get(VARIABLE):
        by_model |= _from_file(Path(environ[VARIABLE]))
    return Prices(by_model, as_of=str(shipped["as_of"]))


def read_prices(section: Any, where: str) -> dict[str, Price]:
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise OptionError(f"{where} must be a mapping of models to prices; got {type(section).__name__}")
    return {str(model): _price(body, f"{where}.{model}") for model, body in section.items()}


def _from_file(path: Path) -> dict[str, Price]:
    import yaml

    where = f"{VARIABLE}={path}"
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionError(f"{where} cannot be read as JSON or YAML: {error}") from None
    for key in ("models", "prices"):
        if isinstance(document, Mapping) and isinstance(document.get(key), Mapping):
            document = document[key]
    return read_prices(document, where)


def _price(body: Any, where: str) -> Price:
    if not isinstance(body, Mapping):
        raise OptionError(f"{where} must have input and output; got {body!r}")
    for key, value in body.items():
        if key not in _KEYS:
            raise OptionError(
                f"{where}: unknown key {key!r}{suggestion(str(key), _KEYS)} (known: {', '.join(_KEYS)})"
            )
        unknown_allowed = key.startswith("cache_") and value is None
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        if not unknown_allowed and not is_number:
            raise OptionError(f"{where}.{key}: needs USD per million tokens, 0 or more; got {value!r}")
    for key in ("input", "output"):
        if key not in body:
            raise OptionError(f"{where}: {key} is missing; a price needs input and output")
    written = body.get("cache_write")
    an_hour = body["input"] if written is None else written * _AN_HOUR_OF_FIVE_MINUTES
    return Price(
        input_usd=body["input"],
        output_usd=body["output"],
        cache_read_usd=body.get("cache_read", body["input"]),
        cache_write_usd=body.get("cache_write", body["input"]),
        long_cache_write_usd=body.get(
            "cache_write_1h", None if "cache_write" in body and written is None else an_hour
        ),
        up_to_input_tokens=body.get("up_to_input_tokens", math.inf),
    )
