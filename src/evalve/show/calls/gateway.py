"""What `evalve gateway` says: where it listens, what to export, and at the end what passed it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evalve.contracts import GatewayLease
from evalve.show.figures import plural

_EXPORTS = (
    ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
)


def opened_lines(lease: GatewayLease, upstreams: Sequence[str], *, cache: str) -> Iterator[str]:
    """For a person, who will copy the exports."""
    environment = lease.environment()
    yield f"The gateway listens at {lease.url.partition('/t/')[0]} until Ctrl-C; the cache is {cache}."
    yield "Programs that are started so call through it, under the limits of the keys that it has itself:"
    yield ""
    for variables in _EXPORTS:
        yield "  export " + " ".join(f"{name}={environment[name]}" for name in variables)
    yield ""
    others = [name for name in upstreams if name not in ("anthropic", "openai", "gemini")]
    if others:
        yield f"Others are below {lease.url}/NAME: {', '.join(others)}."


def opened_json(lease: GatewayLease, upstreams: Sequence[str]) -> str:
    addresses = {name: lease.base_url(name) for name in upstreams}
    return json.dumps(
        {"url": lease.url, "token": lease.token, "upstreams": addresses, "environment": lease.environment()}
    )


def closed_line(totals: Mapping[str, Any]) -> str:
    """`12 calls, 3 cached, 1 refused, 4,210 tokens in, 380 out, 0.021 USD`."""
    parts = [plural(int(totals["requests"] + totals["cached"]), "call")]
    for name, words in (("cached", "cached"), ("refusals", "refused"), ("ungated", "passed ungated")):
        if totals[name]:
            parts.append(f"{int(totals[name]):,} {words}")
    parts.append(f"{int(totals['input_tokens']):,} tokens in, {int(totals['output_tokens']):,} out")
    if totals["cost_usd"]:
        parts.append(f"{totals['cost_usd']:.3f} USD")
    return ", ".join(parts)


def closed_json(totals: Mapping[str, Any]) -> str:
    return json.dumps({"calls": dict(totals)})
