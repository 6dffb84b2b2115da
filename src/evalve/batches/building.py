"""Puts the batch queue together, for the gate of this process and for the command `evalve batch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evalve.errors import OptionError
from evalve.experiments.file.configuration import read_configuration
from evalve.gate.background import SHARED
from evalve.gate.batches.anthropic import AnthropicBatches
from evalve.gate.batches.collecting import Collector
from evalve.gate.batches.minding import Minder, Pace
from evalve.gate.batches.openai import OpenAIBatches
from evalve.gate.batches.queue import BatchQueue
from evalve.gate.batches.shapes import Api
from evalve.gate.batches.store import BatchStore
from evalve.gate.dialects.finding import DIALECTS
from evalve.gate.dialects.request_parts import address
from evalve.gate.limits.presets import BatchLimits, batch_limits_for, read_limits

if TYPE_CHECKING:
    from evalve.gating import GateHouse

LINGER = "EVALVE_BATCH_LINGER_S"
_FILE = "batches.db"


def apis() -> dict[str, Api]:
    return {api.name: api for api in (AnthropicBatches(), OpenAIBatches())}


def store_in(folder: Path) -> BatchStore:
    return BatchStore(folder / _FILE)


def pace_in(environ: Mapping[str, str]) -> Pace:
    text = environ.get(LINGER, "")
    if not text:
        return Pace()
    try:
        linger_s = float(text)
    except ValueError:
        linger_s = -1.0
    if not 0 < linger_s < 86_400:
        raise OptionError(f"{LINGER}: needs a number of seconds above 0; got {text!r}")
    return Pace(linger_s)


def minder_of(house: GateHouse, store: BatchStore, environ: Mapping[str, str]) -> Minder:
    collector = Collector(
        store=store,
        cache=house.store,
        dialects={dialect.name: dialect for dialect in DIALECTS},
        price=house.prices.cost,
    )
    limits = _limits_reader(environ)
    return Minder(
        store=store,
        network=house.sender,
        apis=apis(),
        collector=collector,
        pace=pace_in(environ),
        queue_limit=lambda batch: limits(address(batch.lane.url)[0], batch.lane.dialect).queue,
    )


def _limits_reader(environ: Mapping[str, str]) -> Callable[[str, str], BatchLimits]:
    """By the server's host where it is named, else by the provider whose wire it speaks."""
    configured = read_limits(read_configuration(Path.cwd()).limits)

    def limits(host: str, dialect: str) -> BatchLimits:
        own = batch_limits_for(host, configured, environ)
        return own if own != BatchLimits() else batch_limits_for(dialect, configured, environ)

    return limits


def batch_queue(house: GateHouse, environ: Mapping[str, str]) -> BatchQueue:
    from evalve.gating import state_directory

    store = store_in(state_directory(environ))
    limits = _limits_reader(environ)
    return BatchQueue(
        store=store,
        minder=minder_of(house, store, environ),
        apis=apis(),
        pace=pace_in(environ),
        in_background=SHARED.start,
        is_cached=lambda key: house.store.get(key, only_look=True) is not None,
        largest=lambda call: limits(call.host, call.dialect).size,
    )
