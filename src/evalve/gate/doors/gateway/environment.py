"""The variables that lead a program's calls to the gateway, and what they were before."""

from __future__ import annotations

import json
from collections.abc import Mapping

from evalve.contracts import GatewayLease
from evalve.gate.doors.gateway.upstreams import KNOWN

BEHIND = "EVALVE_GATEWAY_BEHIND"
"""By variable: the gateway's address, and the one that it stands for. Processes that are started below read
it, so that no gateway stands behind another."""
_UNPROXIED = "127.0.0.1,localhost"


def leading_to(lease: GatewayLease, environ: Mapping[str, str]) -> dict[str, str]:
    """What to set so that clients that read their address from the environment call the gateway."""
    addresses = base_urls(lease, environ)
    real = behind(environ)
    told = {name: {"gateway": url, "before": real.get(name, "")} for name, url in addresses.items()}
    unproxied = {
        name: ",".join(part for part in (environ.get(name), _UNPROXIED) if part)
        for name in ("NO_PROXY", "no_proxy")
    }
    return {**addresses, **unproxied, BEHIND: json.dumps(told)}


def base_urls(lease: GatewayLease, environ: Mapping[str, str]) -> dict[str, str]:
    """By variable, what to set; a provider without a usual address only where one is set."""
    return {
        variable: lease.base_url(known.name) + known.suffix
        for known in KNOWN
        for variable in known.url_variables
        if known.usual_url or environ.get(variable)
    }


def behind(environ: Mapping[str, str]) -> dict[str, str]:
    """The addresses of providers as they were before a gateway stood in front of them; nothing else."""
    try:
        told = json.loads(environ.get(BEHIND) or "{}")
    except ValueError:
        told = {}
    variables = [variable for known in KNOWN for variable in known.url_variables]
    real = {}
    for name in variables:
        value, entry = environ.get(name, ""), told.get(name)
        if isinstance(entry, dict) and value and entry.get("gateway") == value:
            value = str(entry.get("before", ""))
        if value:
            real[name] = value
    return real


def seen_from_behind(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with those addresses."""
    variables = {variable for known in KNOWN for variable in known.url_variables}
    return {name: environ[name] for name in environ if name not in variables} | behind(environ)
