"""Puts the batch queue together, for the gate of this process and for the command `evalve batch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evalve.errors import OptionError
from evalve.gate.background import SHARED
from evalve.gate.batches.anthropic import AnthropicBatches
from evalve.gate.batches.collecting import Collector
from evalve.gate.batches.minding import Minder, Pace
from evalve.gate.batches.openai import OpenAIBatches
from evalve.gate.batches.queue import BatchQueue
from evalve.gate.batches.shapes import Api
from evalve.gate.batches.store import BatchStore
from evalve.gate.dialects.finding import DIALECTS

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
    return Minder(store=store, network=house.sender, apis=apis(), collector=collector, pace=pace_in(environ))


def batch_queue(house: GateHouse, environ: Mapping[str, str]) -> BatchQueue:
    from evalve.gating import state_directory

    store = store_in(state_directory(environ))
    return BatchQueue(
        store=store,
        minder=minder_of(house, store, environ),
        apis=apis(),
        pace=pace_in(environ),
        in_background=SHARED.start,
    )
