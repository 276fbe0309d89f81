"""Runs of a job table in memory: what each held and wanted, by series, and how long open ones are expected to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.jobs import schema
from gpudemand.jobs.columns import path_part
from gpudemand.usage.query import KEYS, Bounds

#: What pandas has for a missing time.
_NEVER = np.iinfo(np.int64).min
#: Changes of the GPUs held that are handed on at once.
_BATCH = 500_000


@dataclass(frozen=True, eq=False)
class Runs:
    """Times of the jobs of a table that `check_jobs` returned, in microseconds since 1970; each of shape (n_jobs,).

    `submit`: the start where it is unknown. `begin`, `end`: of holding GPUs; `_NEVER` while a job runs, and the begin
    where the end of a finished job is unknown. `gpus`, `asked`: GPUs, and requested microseconds; NaN where unknown.
    `waiting`: pending. `unknown_end`: finished, with no end. `gave_up`: cancelled while it waited.
    """

    submit: IntArray
    begin: IntArray
    end: IntArray
    gpus: FloatArray
    asked: FloatArray
    waiting: BoolArray
    unknown_end: BoolArray
    gave_up: BoolArray
    _expected: dict[int, tuple[IntArray, FloatArray]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, jobs: pd.DataFrame, *, pending: bool = False) -> Runs:
        """Runs of a table; with `pending`, each begins at its submission."""
        submit, start, end = (jobs[name].dt.as_unit("us").array.asi8 for name in ("submit", "start", "end"))
        submit = np.where(submit == _NEVER, start, submit)
        cancelled, is_pending = ((jobs["status"] == word).to_numpy(dtype=bool) for word in ("cancelled", "pending"))
        # Where a log has starts, a cancelled job without one never held anything, until its end.
        known = np.where(cancelled & (start == _NEVER), end, start) if (start != _NEVER).any() else start
        began = np.where(known == _NEVER, submit, known)
        unknown_end = (end == _NEVER) & jobs["status"].isin(schema.FINISHED).to_numpy(dtype=bool)
        begin = submit if pending else began
        asked = jobs["requested_time"].to_numpy(dtype=float)
        return cls(
            submit,
            begin,
            np.where(unknown_end, begin, end),
            jobs["gpus"].to_numpy(dtype=float),
            1e6 * np.where(asked > 0, asked, np.nan),
            # A pending job holds nothing: its missing start must not default to the submit.
            is_pending & (start == _NEVER) & (not pending),
            unknown_end,
            cancelled & (end != _NEVER) & (end <= began),
        )

    @property
    def is_open(self) -> BoolArray:
        """Jobs that have not ended."""
        return self.end == _NEVER

    def expected(self, until: int) -> tuple[IntArray, FloatArray]:
        """Open jobs that were submitted before `until`, the end of the log, and microseconds that they will have run.

        Such a job runs for the share of its request that others took that took at least as much of theirs. The others
        were submitted before the first that still waits: of later ones the short have passed the long. Requests count
        as the longest run at most. Where there is none, jobs run as long as others of as many GPUs did on average that
        ran at least as long; those that wait longer, by a factor with which the later ones are as long on average.
        """
        if until not in self._expected:
            self._expected[until] = self._expect(until)
        return self._expected[until]

    def _expect(self, until: int) -> tuple[IntArray, FloatArray]:
        rows = np.flatnonzero((self.gpus > 0) & ~self.gave_up & (self.submit < until))
        waiting, gpus, submit = self.waiting[rows], self.gpus[rows], self.submit[rows]
        ends = np.where(self.is_open[rows], until, self.end[rows])
        length = np.where(waiting, 0, ends - self.begin[rows]).astype(float)
        started = submit < submit[waiting].min(initial=until)
        asked = np.round(np.minimum(self.asked[rows], length[started].max(initial=0.0)))
        asked[~(asked > 0) | (not started.any())] = np.nan
        chosen = np.flatnonzero(self.is_open[rows])
        # Those that still wait are no shorter than the others: as many as they and those that passed them are.
        mean = length[started].mean() if started.any() else length[~waiting].mean() if not waiting.all() else np.nan
        passed = length[~started].sum() / mean if mean > 0 else 0.0
        factor = (np.sum(~started) - passed) / max(waiting[~started].sum(), 1)
        expected = _mean_of_longer(length, gpus, started, chosen)
        expected = np.where(np.isnan(expected), np.fmax(length[chosen], mean), expected)
        expected *= np.where(waiting[chosen], max(factor, 1.0), 1.0)
        share = _share_of_longer(length, asked, started, chosen) * asked[chosen]
        return rows[chosen], np.where(np.isnan(share), expected, np.fmax(length[chosen], share))


def _mean_of_longer(length: FloatArray, gpus: FloatArray, started: BoolArray, chosen: IntArray) -> FloatArray:
    """Mean length of the jobs that started, of as many GPUs and at least as long as each chosen one; NaN for none."""
    means = np.full(len(chosen), np.nan)
    for size in np.unique(gpus[chosen]):
        others, own = np.sort(length[started & (gpus == size)]), gpus[chosen] == size
        first = np.searchsorted(others, length[chosen][own])
        sums, counts = np.r_[np.cumsum(others[::-1])[::-1], 0.0][first], len(others) - first
        means[own] = np.divide(sums, counts, out=np.full(len(first), np.nan), where=counts > 0)
    return means


def _share_of_longer(length: FloatArray, asked: FloatArray, started: BoolArray, chosen: IntArray) -> FloatArray:
    """Share of their requests that jobs took that took at least as much of theirs as each chosen one; NaN for none."""
    own = length[chosen] / asked[chosen]
    others = np.flatnonzero(started & (asked > 0))
    if not others.size or np.isnan(own).all():
        return np.full(len(chosen), np.nan)
    share = length[others] / asked[others]
    order = np.argsort(share)
    took, requested = (np.r_[np.cumsum(values[others[order]][::-1])[::-1], 0.0] for values in (length, asked))
    first = np.searchsorted(share[order], own)
    return np.divide(took[first], requested[first], out=np.full(len(own), np.nan), where=requested[first] > 0)


class RunsQuery:
    """What `JobLogQuery` answers of a file, of a table that `check_jobs` returned; see there."""

    def __init__(self, jobs: pd.DataFrame, by: Sequence[str], runs: Runs) -> None:
        self._jobs, self._runs = jobs, runs
        self._codes, self._names = _series_of(jobs, by)

    def bounds(self) -> Bounds:
        """Period of the log, and counts of unknown values."""
        runs = self._runs
        if not len(runs.begin):
            raise InputError("the job log has no rows; there is nothing to add up.")
        begin, until = min(runs.begin.min(), runs.submit.min()), max(runs.begin.max(), runs.submit.max())
        return Bounds(
            int(begin),
            int(max(until, runs.end.max())),
            int(np.isnan(runs.gpus).sum()),
            int(runs.unknown_end.sum()),
            int((runs.gave_up & (runs.gpus > 0)).sum()),
            int((runs.is_open & ~runs.waiting).sum()),
        )

    def named(self, columns: Sequence[str] = KEYS) -> list[str]:
        """Those of some columns, by default of all `KEYS`, that have a value for some job."""
        return [name for name in columns if name in self._jobs and self._jobs[name].notna().any()]

    def keys(self) -> list[str]:
        """Names of the series, sorted."""
        return self._names

    def held(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """Key code, begin and end in microseconds, and GPUs."""
        yield self._held(until)

    def _held(self, until: int) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        runs = self._runs
        rows = ~runs.waiting & (runs.gpus > 0)
        ends = np.where(runs.is_open, until, runs.end)
        return self._codes[rows], runs.begin[rows], ends[rows], runs.gpus[rows]

    def wanted(self, until: int) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray]]:
        """As `held`, each job from its submission for as long as it ran, or is expected to; see `Runs.expected`."""
        runs = self._runs
        rows = (runs.gpus > 0) & ~runs.gave_up & ~runs.waiting & (runs.submit < until) & ~runs.is_open
        submit = runs.submit[rows]
        yield self._codes[rows], submit, submit + runs.end[rows] - runs.begin[rows], runs.gpus[rows]
        if runs.is_open.any():
            places, lengths = runs.expected(until)
            submit = runs.submit[places]
            ends = np.minimum(submit + np.round(lengths), until).astype(np.int64)
            yield self._codes[places], submit, ends, runs.gpus[places]

    def changes(self, begin: int, until: int) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
        """Batches of key code, time and change of the GPUs held, sorted; those of a key sum to zero."""
        codes, first, last, gpus = self._held(until)
        first, last = np.maximum(first, begin), np.minimum(last, until)
        some = last > first
        codes, t = np.tile(codes[some], 2), np.r_[first[some], last[some]]
        if codes.size:
            span = int(t.max() - t.min()) + 1
            # One sort of whole numbers takes a quarter of the time of one by two keys, where they fit.
            fits = (len(self._names) + 1) * span < np.iinfo(np.int64).max
            order = np.argsort(codes * span + (t - t.min())) if fits else np.lexsort((t, codes))
            change = np.r_[gpus[some], -gpus[some]]
            # Batches, which bound the memory of what is made of them.
            for rows in np.array_split(order, -(-order.size // _BATCH)):
                yield codes[rows], t[rows], change[rows]

    def submissions(self, edges: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
        """Key code and submit time in microseconds, inside the edges."""
        inside = (self._runs.submit >= edges[0]) & (self._runs.submit < edges[-1])
        yield self._codes[inside], self._runs.submit[inside]


def _series_of(jobs: pd.DataFrame, by: Sequence[str]) -> tuple[IntArray, list[str]]:
    """Number of the series of each job, and the names of the series, sorted."""
    codes, names = np.zeros(len(jobs), dtype=np.int64), np.array([""], dtype=object)
    for place, column in enumerate(by):
        values = jobs[column] if column in jobs else pd.Series(np.nan, jobs.index, dtype=object)
        found, unique = pd.factorize(values)
        parts = [path_part(str(name)) for name in unique] + ["unknown"]
        codes, both = pd.factorize(codes * len(parts) + np.where(found < 0, len(parts) - 1, found))
        names = np.array(
            [f"{names[pair // len(parts)]}{'/' if place else ''}{parts[pair % len(parts)]}" for pair in both],
            dtype=object,
        )
    if not len(by):
        names = np.array(["total"], dtype=object)
    # Two names may be one series: a missing one is "unknown", as some user may be.
    unique_names, same = np.unique(names.astype(str), return_inverse=True)
    return same[codes], unique_names.tolist()
