"""`evalve limits`, `cache`, `gateway` and `simulate`: from the command line to the gate and back."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType

from evalve.errors import NotFound, OptionError, StorageError
from evalve.gate.cache.store import CacheStore
from evalve.gate.cache.upkeep import parse_age_s
from evalve.gate.limits.booking import ScopeState
from evalve.gate.limits.bucket import Bucket
from evalve.gate.limits.state import ScopeView
from evalve.gate.limits.state_sqlite import SqliteState
from evalve.gate.messages import Dimension
from evalve.gating import cache_directory, limits_path
from evalve.options import Options, suggestion
from evalve.secrecy import Environment
from evalve.show.calls import caching
from evalve.show.calls.gateway import closed_json, closed_line, opened_json, opened_lines
from evalve.show.calls.limits import (
    STATED,
    HolderNow,
    LimitNow,
    ScopeNow,
    forgotten_line,
    limits_json,
    limits_lines,
)

OK, FAILED = 0, 1
_DIMENSIONS: tuple[Dimension, ...] = ("requests", "input_tokens", "output_tokens", "tokens")


# -- limits


def limits(said: argparse.Namespace, *, width: int) -> int:
    """What every scope holds now; with `--forget`, one of them is dropped."""
    path = limits_path(Environment(os.environ))
    _refuse_what_is_no_directory(path.parent)
    views = _views(path)
    if said.forget is not None:
        return _forget(path, views, said.forget)
    now_at = datetime.now(UTC)
    scopes = [scope_now(view, now_at) for view in views]
    if said.json:
        return _say([limits_json(scopes, path=str(path))])
    if not scopes and os.environ.get("EVALVE_LIMITS_STATE") == "memory":
        return _say(["nothing to show: with EVALVE_LIMITS_STATE=memory every process has limits of its own"])
    return _say(limits_lines(scopes, path=str(path), width=width))


def _views(path: Path) -> list[ScopeView]:
    if not path.exists() or path.stat().st_size == 0:
        return []  # nothing is made for the sake of looking
    state = SqliteState(path, only_look=True)

    async def look() -> list[ScopeView]:
        try:
            return await state.views()
        finally:
            await state.close()

    with _told_as_ours(path):
        return asyncio.run(look())


def _forget(path: Path, views: Sequence[ScopeView], text: str) -> int:
    view = scope_meant(views, text)
    state = SqliteState(path)

    async def forget() -> None:
        try:
            await state.forget(view.scope)
        finally:
            await state.close()

    with _told_as_ours(path):
        asyncio.run(forget())
    return _say([forgotten_line(view.scope, _in_flight(view.state))])


def scope_meant(views: Sequence[ScopeView], text: str) -> ScopeView:
    """The scope of that name, else the only one that has the text in it."""
    named = [view for view in views if view.scope == text]
    found = named or [view for view in views if text and text in view.scope]
    if not found:
        near = suggestion(text, [view.scope for view in views])
        raise NotFound(f"no scope {text!r}{near or '; `evalve limits` shows those that exist'}")
    if len(found) > 1:
        raise OptionError(f"{text!r} is in several scopes: {', '.join(view.scope for view in found)}")
    return found[0]


def scope_now(view: ScopeView, now_at: datetime) -> ScopeNow:
    """A scope in words and figures, with its instants told by the calendar instead of the machine's clock."""
    state = view.state
    host, key_hash, pool = (*view.scope.split("/", 2), "", "")[:3]
    paused_for_s = max(0.0, state.pause_until_s - view.now_s)
    ramp_share = state.ramp_share(view.now_s)
    return ScopeNow(
        scope=view.scope,
        host=host,
        key_hash=key_hash,
        pool=pool,
        limits=[_limit_now(state, name, view.now_s) for name in _DIMENSIONS if _has(state, name)],
        in_flight=_in_flight(state),
        concurrency=state.concurrency,
        paused_until_at=now_at + timedelta(seconds=paused_for_s) if paused_for_s else None,
        paused_for_s=paused_for_s,
        paused_by=state.pause_reason if paused_for_s else "",
        ramp_share=ramp_share if ramp_share < 1 else None,
        unlimited=state.unlimited,
        holders=[
            HolderNow(
                view.holders.get(name, name),
                held.in_flight,
                {dimension: round(amount, 3) for dimension, amount in held.uncharged.items()},
            )
            for name, held in state.holders.items()
            if held.in_flight
        ],
    )


def _has(state: ScopeState, dimension: Dimension) -> bool:
    return dimension in state.buckets or dimension in state.stated


def _limit_now(state: ScopeState, dimension: Dimension, now_s: float) -> LimitNow:
    bucket: Bucket | None = state.buckets.get(dimension)
    if bucket is None:  # since the machine has started again, nobody has called
        return LimitNow(dimension, state.stated[dimension][0] * 60, STATED)
    return LimitNow(
        dimension,
        round(bucket.per_s * 60, 3),
        bucket.source,
        burst=bucket.depth,
        level=round(bucket.level(now_s), 3),
        in_flight=round(sum(held.uncharged.get(dimension, 0.0) for held in state.holders.values()), 3),
        others_per_minute=round(bucket.others_per_s * 60, 3),
        next_in_s=round(max(0.0, bucket.earliest_s(1.0) - now_s), 3),
    )


def _in_flight(state: ScopeState) -> int:
    return sum(held.in_flight for held in state.holders.values())


# -- cache


def cache(said: argparse.Namespace, *, agreed: Callable[[str], bool], width: int) -> int:
    """`stats`, `clear`, `path` and `verify`; `agreed` asks the person."""
    directory = cache_directory(Environment(os.environ))
    _refuse_what_is_no_directory(directory)
    store = CacheStore(directory, inline=True)
    try:
        with _told_as_ours(store.path):
            match said.action:
                case "stats":
                    return _stats(store, as_json=said.json, width=width)
                case "clear":
                    return _clear(store, said, agreed)
                case "verify":
                    return _verify(store, as_json=said.json)
                case _:
                    return _say([str(store.path)])
    finally:
        store.close()


def _stats(store: CacheStore, *, as_json: bool, width: int) -> int:
    stats = store.stats()
    return _say([caching.stats_json(stats)] if as_json else caching.stats_lines(stats, width=width))


def _clear(store: CacheStore, said: argparse.Namespace, agreed: Callable[[str], bool]) -> int:
    older_than_s = None if said.older_than is None else parse_age_s(said.older_than)
    question = caching.clearing_question(
        str(store.path), model=said.model, older_than=said.older_than, experiment=said.experiment
    )
    if not said.yes and not agreed(question):
        sys.stderr.write("nothing was removed\n")
        return FAILED
    cleared = store.clear(model=said.model, older_than_s=older_than_s, experiment=said.experiment)
    return _say([caching.cleared_line(cleared)])


def _verify(store: CacheStore, *, as_json: bool) -> int:
    verified = store.verify()
    _say([caching.verified_json(verified)] if as_json else caching.verified_lines(verified))
    return FAILED if verified.corrupt or verified.file_damage else OK


# -- gateway


def gateway(said: argparse.Namespace) -> int:
    """Serves until it is interrupted; the token is good for as long."""
    from evalve import gateways, gating  # with a web server

    options = Options(cache=said.cache, budget_usd=said.budget_usd)
    served = gateways.build(port=said.port)
    known = list(gateways.upstreams())
    with gating.calls_between_runs(options) as calls, _until_interrupted() as interrupted:
        lease = served.lent_to_process()
        try:
            is_json = said.json
            _say([opened_json(lease, known)] if is_json else opened_lines(lease, known, cache=said.cache))
            sys.stdout.flush()
            interrupted.wait()
        finally:
            served.close()
        totals = calls.totals()
    return _say([closed_json(totals)] if said.json else ["", closed_line(totals)])


@contextmanager
def _until_interrupted() -> Iterator[threading.Event]:
    """Set by Ctrl-C, and by whoever ends programs gently."""
    interrupted = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        interrupted.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- simulate


def simulate(arguments: Sequence[str]) -> int:
    """Serves until it is interrupted; what it prints on stdout is JSON, a line at its start and its end."""
    from evalve.simulator.command import main  # brings a web server along

    return main(arguments, ready=_hint if sys.stderr.isatty() else lambda url: None)


def _hint(url: str) -> None:
    sys.stderr.write(
        "\nIt serves; what it saw is printed when it ends (Ctrl-C). Point a client at it from another\n"
        "terminal; any key will do unless --key names some:\n"
        f"  export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY=any\n"
        f"  export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY=any\n"
        f"  export GOOGLE_GEMINI_BASE_URL={url} GEMINI_API_KEY=any\n"
        f"  curl {url}/_simulator/stats\n\n"
    )
    sys.stderr.flush()


# -- saying


def _say(lines: Iterable[str]) -> int:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return OK


def _refuse_what_is_no_directory(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is not a directory, so nothing can be kept in it")


@contextmanager
def _told_as_ours(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"{path}: cannot be used ({error})") from error
