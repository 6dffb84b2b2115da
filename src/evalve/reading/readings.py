"""The records that tests read: whoever comes first runs the evaluation, the others wait, or run the next.

Nobody who holds a group waits for another one, so nobody waits for ever. Who dies gives back what it held.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from evalve.concurrency import Sharing
from evalve.contracts import EvaluationInfo, Progress, Runnable, Store
from evalve.declare.foreach import as_called
from evalve.errors import EvalveError, NotFound
from evalve.gate.budget import SharedBudget
from evalve.reading.claims import Claim, Claims
from evalve.reading.marks import Reading, reading_of
from evalve.reading.wanted import (
    Group,
    Wanted,
    fixtures_of,
    following,
    grouped,
    parametrised_model,
    places_for,
    strategy_of,
)
from evalve.records import Record
from evalve.runner.evaluation import Outcome
from evalve.runner.interruption import forwarding_interrupts
from evalve.show.live.progress import OnceTold
from evalve.show.pytest_summary import Told

if TYPE_CHECKING:
    from evalve.plugin.session import EvalveSession

BROKE: pytest.StashKey[bool] = pytest.StashKey()
"""Of a test whose record is not there: it says nothing about what was evaluated."""


class Readings:
    """What the tests of one pytest process read."""

    def __init__(
        self,
        session: EvalveSession,
        items: Sequence[pytest.Item],
        *,
        folder: Path,
        claims: Claims,
        is_worker: bool,
    ) -> None:
        self._session = session
        self._folder = folder
        self._claims = claims
        self._wanted: dict[str, Wanted] = {}
        self._scores: dict[str, set[str]] = {}
        """What records must have, by the key of their evaluation."""
        for item in items:
            self._wanted_by(item)
        # in a batch they belong together, and only one process can put them there
        asked = [session.options_for(one.evaluation) for one in self._wanted.values()]
        is_batched = any(getattr(options, "batch", None) not in (None, "off") for options in asked)
        self._groups = grouped(self._wanted.values(), together=not is_worker or is_batched)
        self._ended: dict[str, str] = {}
        self._store_infos: dict[str, tuple[Store, EvaluationInfo]] = {}

    # -- what there is to read

    @property
    def evaluations(self) -> list[Wanted]:
        return list(self._wanted.values())

    def record(self, request: pytest.FixtureRequest) -> Record:
        """The record of the sample that the test reads; an error where it has none, or a failed one."""
        reading, wanted = self._read_by(request)
        if reading.sample is None:
            _fail(
                request, f"reads({wanted.evaluation.name}) names no sample: add its id, or ask for `records`"
            )
        self._run_before(wanted, request)
        store, info = self._recorded(wanted, request)
        sample = str(reading.sample)
        try:
            record = store.record_of(info, sample, reading.repeat)
        except NotFound:
            request.node.stash[BROKE] = True
            _fail(
                request, f"{info.spec.name} has no record of a sample {sample!r}: is it an id in its dataset?"
            )
        if record.status == "skipped":
            pytest.skip(
                f"{info.spec.name}: sample {sample}: {record.failure.message if record.failure else ''}"
            )
        if not record.ok:
            request.node.stash[BROKE] = True
            whose = f" ({record.failure_class})" if record.failure_class else ""
            _fail(request, f"{info.spec.name}: sample {sample} failed{whose}: {record.error}")
        request.node.user_properties.extend(
            [("evalve.experiment", info.spec.experiment), ("evalve.evaluation", info.spec.name)]
        )
        return record

    def records(self, request: pytest.FixtureRequest) -> list[Record]:
        """Those of all samples, in the order of the dataset."""
        _, wanted = self._read_by(request)
        self._run_before(wanted, request)
        store, info = self._recorded(wanted, request)
        return list(store.records(info))

    @contextmanager
    def begun_by_item(self, key: str) -> Iterator[bool]:
        """An evaluation's own item runs it: whether tests read it, in which case nothing is forgotten."""
        wanted = self._wanted.get(key)
        if wanted is None:
            yield False
            return
        with self._claims.taken(self._group_of(wanted).name) as claim:
            assert claim is not None
            yield True
            self._note(claim, key)

    # -- finding out what is wanted

    def _read_by(self, request: pytest.FixtureRequest) -> tuple[Reading, Wanted]:
        reading = reading_of(request.node)
        if reading is None:
            _fail(
                request,
                "record and records are what a test reads from an evaluation: say from which, with"
                " @evalve.reads(eval_x, SAMPLE_ID)",
            )
        return reading, self._wanted_by(request.node)

    def _wanted_by(self, item: pytest.Item) -> Wanted:
        reading = reading_of(item)
        assert reading is not None
        evaluation, model = as_called(reading.evaluation), parametrised_model(item)
        fixtures = fixtures_of(reading.evaluation)
        has_ours = "model" in fixtures and _is_ours(item, "model")
        variant = self._session.variant_by_model(model) if has_ours else ""
        key = evaluation.key(self._folder, variant)
        self._scores.setdefault(key, set()).update(reading.scores)
        return self._wanted.setdefault(key, Wanted(key, evaluation, variant, fixtures, model))

    def _group_of(self, wanted: Wanted) -> Group:
        for group in self._groups:
            if wanted in group.members:
                return group
        return Group(wanted.key, (wanted,))  # a mark that was added after the collection

    # -- running

    def _run_before(self, wanted: Wanted, request: pytest.FixtureRequest) -> None:
        """Whatever process runs it: after this it has ended, or the test has failed."""
        own = self._group_of(wanted)
        while wanted.key not in self._ended:
            if self._ran(own, wanted, request, wait=False):
                continue
            others = following(self._groups, own)
            if not any(
                self._ran(other, None, request, wait=False) for other in others if self._is_left(other)
            ):
                self._ran(own, wanted, request, wait=True)
        if why := self._ended[wanted.key]:
            request.node.stash[BROKE] = True
            _fail(request, f"{wanted.evaluation.name} broke, so there is nothing to read: {why}")

    def _is_left(self, group: Group) -> bool:
        return any(one.key not in self._ended for one in group.members)

    def _ran(self, group: Group, own: Wanted | None, request: pytest.FixtureRequest, *, wait: bool) -> bool:
        """Whether this process ran something of it now, or its own evaluation has ended."""
        with self._claims.taken(group.name, wait=wait) as claim:
            if claim is None:
                return False
            self._ended.update(claim.ended)
            left = [one for one in group.members if one.key not in self._ended]
            bound = {one.key: (one, runnable) for one, runnable in self._bound(left, own, request)}
            if bound:
                for key, why in self._run(list(bound.values()), request.node.nodeid).items():
                    self._note(claim, key, why)
            return bool(bound) or (own is not None and own.key in self._ended)

    def _note(self, claim: Claim, key: str, why: str = "") -> None:
        claim.note_ended(key, why)
        self._ended[key] = why

    def _bound(
        self, left: Sequence[Wanted], own: Wanted | None, request: pytest.FixtureRequest
    ) -> Iterator[tuple[Wanted, Runnable]]:
        """Those whose fixtures this test can have; the others are left to tests of their own."""
        for one in left:
            try:
                fixtures = {name: request.getfixturevalue(name) for name in one.fixtures}
            except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
                if one == own:
                    request.node.stash[BROKE] = not isinstance(error, pytest.skip.Exception)
                    raise
                continue
            parameters = {"model": one.variant[1:-1]} if one.variant else {}
            runnable = self._session.bound(
                one.evaluation, one.variant, fixtures, parameters=parameters, resumes=True
            )
            yield one, replace(runnable, runs_again=self._lacking(one))

    def _lacking(self, wanted: Wanted) -> frozenset[tuple[str, int]]:
        """Samples of earlier runs without a score that some test reads, each with its repeat."""
        scores = self._scores.get(wanted.key)
        store = self._session.store_of(wanted.evaluation)
        info = self._info(wanted, store) if scores else None
        if info is None or not scores:
            return frozenset()
        records = store.records(info, status="done")
        return frozenset(
            (one.sample_id, one.repeat) for one in records if scores - {score.name for score in one.scores}
        )

    def _run(self, bound: Sequence[tuple[Wanted, Runnable]], nodeid: str) -> dict[str, str]:
        """Side by side, sharing one window; why each broke, or nothing, by key."""
        self._session.refuse_if_told_so()
        outcomes: list[_Ended] = []

        async def run_all() -> None:
            outcomes.extend(await self._run_together(bound))

        with forwarding_interrupts() as context:
            self._session.run_for_tests(run_all(), context)
        told = [one.to_plain() for _, one, _, _ in outcomes]
        self._session.ran_for.setdefault(nodeid, []).extend(told)
        for _, _, outcome, _ in outcomes:
            if outcome is not None and (outcome.interrupted or outcome.stop_reason):
                reason = outcome.stop_reason or "interrupted"
                raise pytest.exit.Exception(reason, returncode=int(pytest.ExitCode.INTERRUPTED))
        return {key: why for key, _, _, why in outcomes}

    async def _run_together(self, bound: Sequence[tuple[Wanted, Runnable]]) -> list[_Ended]:
        places = places_for([(one.evaluation, runnable.options) for one, runnable in bound])
        progress = OnceTold(self._session.showing(bound[0][1].options))
        with self._session.spending.together([runnable.options for _, runnable in bound]) as budget:
            if places is None:
                return [await self._run_one(one, runnable, progress, budget) for one, runnable in bound]
            shared = asyncio.Semaphore(places)
            return await asyncio.gather(
                *(
                    self._run_one(one, _sharing(one, runnable, shared), progress, budget)
                    for one, runnable in bound
                )
            )

    async def _run_one(
        self, one: Wanted, runnable: Runnable, progress: Progress, budget: SharedBudget | None
    ) -> _Ended:
        label = f"{one.key} in {os.getpid()}"
        try:
            told, outcome = await self._session.recorded(
                runnable, one.evaluation, label=label, progress=progress, budget=budget
            )
        except Exception as error:  # the boundary of one evaluation
            said = str(error) if isinstance(error, EvalveError) else f"{type(error).__name__}: {error}"
            return one.key, Told(**self._session.told[label]), None, said
        return one.key, told, outcome, ""

    # -- reading

    def _recorded(self, wanted: Wanted, request: pytest.FixtureRequest) -> tuple[Store, EvaluationInfo]:
        if wanted.key not in self._store_infos:
            store = self._session.store_of(wanted.evaluation)
            info = self._info(wanted, store)
            if info is None:
                request.node.stash[BROKE] = True
                _fail(
                    request,
                    f"{wanted.evaluation.name} has run in another process, and {store.url} has no records of"
                    " it: use a storage that processes share",
                )
            self._store_infos[wanted.key] = store, info
        return self._store_infos[wanted.key]

    def _info(self, wanted: Wanted, store: Store) -> EvaluationInfo | None:
        try:
            found = store.evaluations(self._session.experiment)
        except NotFound:
            return None
        return next((one for one in found if one.spec.key == wanted.key), None)


_Ended = tuple[str, Told, Outcome | None, str]
"""Key, what to tell, what came of it, and why it broke or nothing."""


def _sharing(one: Wanted, runnable: Runnable, places: asyncio.Semaphore) -> Runnable:
    return replace(runnable, strategy=Sharing(strategy_of(one.evaluation, runnable.options), places))


def _is_ours(item: pytest.Item, fixture: str) -> bool:
    """Whether the test would get the plugin's fixture of the name, and not a person's own."""
    found = item.session._fixturemanager.getfixturedefs(fixture, item)
    return found is not None and len(found) > 0 and found[-1].func.__module__ == "evalve.plugin.fixtures"


def _fail(request: pytest.FixtureRequest, text: str) -> NoReturn:
    raise pytest.fail.Exception(f"{request.node.nodeid}: {text}", pytrace=False)
