"""What a direct call of an evaluation returns: its metrics and its records."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal

from evalve.contracts import INSUFFICIENT, EvaluationInfo, Store
from evalve.errors import OptionError
from evalve.records import Record
from evalve.show.breakdown.counting import Breakdown
from evalve.show.experiment import overview_text
from evalve.show.exports.exporting import KEYS, export_row, flat_scores, score_columns
from evalve.show.figures import text_of
from evalve.show.html import overview_html
from evalve.show.overview import Overview, failure_kinds, repeats_of, skip_reasons, status_of
from evalve.show.samples import Choice, samples_text
from evalve.show.tables import visible
from evalve.summary import as_table
from evalve.tallies import MetricValue

_SAMPLES_SHOWN = 10
_WIDTH = 100


class EvaluationResult:
    """The outcome of one evaluation. Records are read from the store as they are asked for."""

    def __init__(
        self,
        store: Store,
        info: EvaluationInfo,
        metrics: Sequence[MetricValue],
        report: Mapping[str, Any],
        verdict: Sequence[str] = (),
    ) -> None:
        self.storage = self._store = store
        self._info = info
        self.metrics = list(metrics)
        self.report = dict(report)
        self.problems = list(verdict)
        """Why the evaluation did not pass; empty if it did."""

    @property
    def experiment(self) -> str:
        return self._info.spec.experiment

    @property
    def evaluation(self) -> str:
        return self._info.spec.name

    @property
    def done(self) -> int:
        return self._info.done

    @property
    def failed(self) -> int:
        return self._info.failed

    @property
    def failed_by_class(self) -> dict[str, int]:
        """How many failed, by failure class: `{"provider": 2, "timeout": 1}`."""
        return dict(self._info.failures)

    @property
    def skipped(self) -> int:
        """Samples whose function called `pytest.skip`: neither done nor failed."""
        return self._info.skipped

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def outcome(self) -> Literal["pass", "fail", "insufficient"]:
        """`insufficient` where nothing is missed, and there is too little to say that it is reached."""
        if self.passed:
            return "pass"
        return "insufficient" if all(one.startswith(INSUFFICIENT) for one in self.problems) else "fail"

    @property
    def summary(self) -> dict[str, dict[str, float | None]]:
        """`summary["exact_match"]["accuracy"]`."""
        return as_table(self.metrics)

    @property
    def misses(self) -> dict[str, dict[str, int]]:
        """How often which kind of thing was wrong: `misses["tool_call_match"]["missing"]`."""
        return {name: dict(counts) for name, counts in self._breakdown().misses.items()}

    def _breakdown(self) -> Breakdown:
        repeats = repeats_of(self._store.runs(self._info.id))
        return Breakdown(partial(self._store.observations, self._info.id), repeats=repeats).read_all()

    def __iter__(self) -> Iterator[Record]:
        return self._store.records(self._info)

    def __await__(self) -> Generator[None, None, EvaluationResult]:
        """It is there at once: files that were written for doteval await sync evaluations, too."""
        yield from ()
        return self

    def __len__(self) -> int:
        return self.done + self.failed + self.skipped

    def __bool__(self) -> bool:
        """A result is there although it has no records."""
        return True

    @property
    def records(self) -> list[Record]:
        return list(self)

    @property
    def results(self) -> list[Record]:
        """The same, by the name that doteval gives them."""
        return self.records

    @property
    def failures(self) -> list[Record]:
        return list(self._store.records(self._info, status="failed"))

    def trace(self, record: Record) -> list[dict[str, Any]]:
        """What the record's sample did, event by event; empty where tracing was off."""
        return self._store.trace(record.id)

    def __repr__(self) -> str:
        lines = list(overview_text(self._overview()))
        lines += [f"  not passed: {visible(problem)}" for problem in self.problems]
        choice = Choice(limit=_SAMPLES_SHOWN)
        samples = samples_text(self._store, self._info, choice, width=_WIDTH, hints=False)
        return "\n".join([*lines, "", *samples])

    def _repr_html_(self) -> str:
        shown = islice(iter(self), _SAMPLES_SHOWN)
        return overview_html(self._overview(), verdict=self.problems, records=shown)

    def _overview(self) -> Overview:
        breakdown = self._breakdown()
        return Overview(
            label=f"{self.evaluation} in experiment {self.experiment}",
            info=self._info,
            status=status_of(self._info, (), None),
            metrics=self.metrics,
            failure_kinds=failure_kinds(self._store, self._info),
            skip_reasons=skip_reasons(self._store, self._info),
            runs=self._store.runs(self._info.id),
            misses=breakdown.misses,
            groups=breakdown.groups,
            passes=breakdown.passes,
        )

    def to_pandas(self) -> Any:
        """A pandas DataFrame: a row per sample and repeat, a column per score."""
        try:
            import pandas
        except ImportError:
            raise OptionError("to_pandas() needs pandas: `pip install pandas`") from None
        return pandas.DataFrame(
            {name: [_encodable(cell) for cell in cells] for name, cells in self._columns().items()}
        )

    def to_polars(self) -> Any:
        """A polars DataFrame of the same; what is neither text, number nor truth value is JSON text."""
        try:
            import polars
        except ImportError:
            raise OptionError("to_polars() needs polars: `pip install polars`") from None
        return polars.DataFrame({name: _uniform(column) for name, column in self._columns().items()})

    def _columns(self) -> dict[str, list[Any]]:
        rows = [export_row(record, self.evaluation) for record in self]
        score_names = list(dict.fromkeys(score["name"] for row in rows for score in row["scores"]))
        keys = [key for key in KEYS if key != "scores"]
        columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in keys}
        columns["failure"] = [_failure_text(row["failure"]) for row in rows]
        flat = [flat_scores(row["scores"], score_names) for row in rows]
        for place, column in enumerate(score_columns(score_names, keys)):
            columns[column] = [values[place] for values in flat]
        return columns


def _failure_text(failure: Mapping[str, str] | None) -> str | None:
    return f"{failure['kind']}: {failure['message']}" if failure else None


def _uniform(column: list[Any]) -> list[Any]:
    """A column that polars can give one type: all truth values, all numbers, or all text."""
    kinds = {type(cell) for cell in column if cell is not None}
    if kinds <= {bool} or (kinds <= {int} and all(cell is None or abs(cell) < 2**63 for cell in column)):
        return column
    if kinds <= {bool, int, float} and all(cell is None or _fits_float(cell) for cell in column):
        return [None if cell is None else float(cell) for cell in column]
    return [None if cell is None else _encodable(text_of(cell)) for cell in column]


def _fits_float(number: float) -> bool:
    try:
        float(number)
    except OverflowError:
        return False
    return True


def _encodable(cell: Any) -> Any:
    """Text with lone surrogates, which a model may send and Arrow cannot hold, written out."""
    if not isinstance(cell, str) or cell.isascii():
        return cell
    return cell.encode("utf-8", "backslashreplace").decode()
