"""How test cases are run: DeepEval's words for evalve's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from evalve.errors import OptionError

CacheMode = Literal["on", "off", "refresh"]


@dataclass(frozen=True, slots=True)
class AsyncConfig:
    """How many cases at once, and how far apart they start."""

    run_async: bool = True
    max_concurrent: int = 20
    throttle_value: float = 0
    """Seconds between two starts."""

    def options(self) -> dict[str, Any]:
        if type(self.run_async) is not bool:
            raise OptionError(f"AsyncConfig: run_async is True or False; got {self.run_async!r}")
        if type(self.max_concurrent) is not int or self.max_concurrent < 1:
            raise OptionError(
                f"AsyncConfig: max_concurrent is a whole number, 1 or more; got {self.max_concurrent!r}"
            )
        throttle = self.throttle_value
        if isinstance(throttle, bool) or not isinstance(throttle, int | float) or throttle < 0:
            raise OptionError(
                f"AsyncConfig: throttle_value is a number of seconds, 0 or more; got {throttle!r}"
            )
        return {
            "max_concurrency": self.max_concurrent if self.run_async else 1,
            **({"throttle_s": throttle} if throttle else {}),
        }


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """Whether answers of models that were paid for are used, and whether new ones are kept."""

    use_cache: bool = True
    write_cache: bool = True

    def mode(self) -> CacheMode:
        if self.use_cache and not self.write_cache:
            raise OptionError(
                "CacheConfig(use_cache=True, write_cache=False): evalve keeps every answer that it pays for;"
                " leave write_cache out, or pass cache='read' to evaluate() to use the cache and ask nobody"
            )
        if self.use_cache:
            return "on"
        return "refresh" if self.write_cache else "off"
