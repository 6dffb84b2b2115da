"""`evalve batch list | status | wait | cancel | fetch`: from the command line to the desk and back."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from evalve.batches import asking
from evalve.batches.building import apis
from evalve.batches.desk import Desk, desk, only_looking
from evalve.errors import OptionError
from evalve.gate.batches.store import BatchRow, BatchStore
from evalve.gate.batches.words import batch_in_words
from evalve.gate.limits.holders import in_words, is_alive
from evalve.show.calls.batches import BatchNow, batch_json, batch_lines, batches_json, batches_lines, instant

OK, FAILED = 0, 1
_NONE = ["no batch is under way"]


def batch(said: argparse.Namespace, *, width: int) -> int:
    """One of the verbs."""
    verbs: dict[str, Callable[[argparse.Namespace, int], int]] = {
        "list": _list,
        "status": _status,
        "wait": _wait,
        "cancel": _cancel,
        "fetch": _fetch,
    }
    return verbs[said.action](said, width)


def _list(said: argparse.Namespace, width: int) -> int:
    store = only_looking()
    shown = [now(store, one) for one in store.batches()]
    return _say([batches_json(shown)] if said.json else batches_lines(shown, width=width))


def _status(said: argparse.Namespace, width: int) -> int:
    """As the provider shows it now; what has ended is collected by the way."""
    at = desk()
    found = at.found(said.id)
    if found.state not in ("collected", "intent"):
        try:
            found = asyncio.run(at.stepped(found))
        except OptionError as error:  # another process looks after it, or there is no key for it here
            sys.stderr.write(f"evalve: as it was last seen: {error}\n")
    return _show(at.store, found, as_json=said.json)


def _wait(said: argparse.Namespace, width: int) -> int:
    """Until every one of them is collected."""
    at = desk()
    wanted = [at.found(text) for text in said.ids] or at.open()
    if not wanted:
        return _say(["[]"] if said.json else _NONE)
    told = _Teller(is_quiet=said.json)

    async def wait() -> list[BatchRow]:
        return list(
            await asyncio.gather(*(at.until(one.intent, ("collected",), tell=told) for one in wanted))
        )

    try:
        ended = asyncio.run(wait())
    except KeyboardInterrupt:
        ids = " ".join(one.intent for one in wanted)
        sys.stderr.write(f"evalve: they go on at the provider; `evalve batch wait {ids}` comes back\n")
        raise
    shown = [now(at.store, one) for one in ended]
    if said.json:
        _say([batches_json(shown)])
    else:
        for one in shown:
            _say(batch_lines(one))
    return OK if all(not one.told for one in ended) else FAILED


def _cancel(said: argparse.Namespace, width: int) -> int:
    at = desk()
    found = asyncio.run(at.cancelled(at.found(said.id)))
    if found.state != "collected" and not said.json:
        _say(
            [
                f"{found.provider_id} is being cancelled; `evalve batch fetch {found.intent}` brings what was"
                " done until then"
            ]
        )
        return OK
    return _show(at.store, found, as_json=said.json)


def _fetch(said: argparse.Namespace, width: int) -> int:
    """Put the results of a batch that has ended into the cache; with `--output`, into a file as well."""
    at = desk()
    found = at.found(said.id)
    if found.state != "collected":
        found = asyncio.run(_looked(at, found))
    if found.state != "collected":
        why = f": {found.told}" if found.told else ""
        sys.stderr.write(f"evalve: {found.intent} has not ended yet ({found.status or found.state}){why}\n")
        return FAILED
    if said.output is not None:
        return _write(at, found, said.output)
    return _show(at.store, found, as_json=said.json)


async def _looked(at: Desk, batch: BatchRow) -> BatchRow:
    """A lost id needs a step of its own before there is anything to look at."""
    for _ in range(2):
        batch = await at.stepped(batch)
        if batch.state in ("collected", "intent"):
            break
    return batch


def _write(at: Desk, batch: BatchRow, output: str) -> int:
    lines = (json.dumps(one) for one in asyncio.run(asking.results_async(batch.intent, resend=False)))
    if output == "-":
        return _say(lines)
    count = 0
    with Path(output).open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line + "\n")
            count += 1
    return _say([f"wrote {count} results to {output}"])


class _Teller:
    """Says on stderr how far a batch is, when that has changed."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._told: dict[str, tuple[str, str, str]] = {}

    def __call__(self, batch: BatchRow) -> None:
        what = (batch.state, batch.status, batch.told)
        if not self._is_quiet and self._told.get(batch.intent) != what and batch.state != "collected":
            self._told[batch.intent] = what
            told = batch_in_words(batch, batch.intent)
            count = f"{batch.count:,} request{'s wait' if batch.count != 1 else ' waits'}"
            sys.stderr.write(f"evalve: {count} for {told}\n")


def now(store: BatchStore, batch: BatchRow) -> BatchNow:
    """A batch for people and machines."""
    api = apis().get(batch.lane.dialect)
    kept_s = None if api is None or batch.submitted_s is None else batch.submitted_s + api.kept_s
    return BatchNow(
        id=batch.intent,
        provider_id=batch.provider_id,
        provider=batch.lane.dialect,
        state="cancelled" if batch.is_cancelled and batch.state == "collected" else batch.state,
        status=batch.status,
        requests=batch.count,
        name=batch.name,
        counts=store.counts(batch.intent),
        created_at=instant(batch.created_s),
        submitted_at=instant(batch.submitted_s),
        ended_at=instant(batch.ended_s),
        expires_at=instant(batch.expires_s),
        kept_until_at=instant(kept_s),
        cost_usd=batch.cost_usd,
        told=batch.told,
        held_by=in_words(batch.holder) if batch.holder and is_alive(batch.holder) else "",
    )


def _show(store: BatchStore, batch: BatchRow, *, as_json: bool) -> int:
    shown = now(store, batch)
    return _say([batch_json(shown)] if as_json else batch_lines(shown))


def _say(lines: Iterable[str]) -> int:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return OK
