"""Values of usage series from the intervals and submissions of a job log, binned."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray, IntArray
from gpudemand.usage.bins import BinnedGpuTime
from gpudemand.usage.job_log_query import JobLogQuery


def binned_values(
    log: JobLogQuery, value: str, edges: pd.DatetimeIndex, n_keys: int, begin: int, until: int
) -> FloatArray:
    """Values as `usage_series` defines them, shape (n_keys, n_bins), from `begin` to `until` (microseconds)."""
    edges_us = edges.as_unit("us").asi8
    if value == "jobs":
        return _submissions(log, np.clip(edges_us, begin, until + 1), n_keys)
    if value == "gpus_peak":
        return _peaks(log, edges_us, n_keys, begin, until)
    held = BinnedGpuTime(edges_us, n_keys)
    for key, first, last, gpus in log.wanted(until) if value == "wanted" else log.held(until):
        held.add(key, np.clip(first, begin, until), np.clip(last, begin, until), gpus)
    gpu_hours = held.gpu_hours()
    return gpu_hours if value == "gpu_hours" else gpu_hours / (np.diff(edges_us) / 3.6e9)


def _peaks(log: JobLogQuery, edges_us: IntArray, n_keys: int, begin: int, until: int) -> FloatArray:
    """Peak of the GPUs held, shape (n_keys, n_bins)."""
    shape = (n_keys, edges_us.size)
    peak, last, at_edge = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    for key, t, level in _levels(log, begin, until):
        cell = key * edges_us.size + np.searchsorted(edges_us, t, side="right") - 1
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        place = cell[first]
        # The changes of a bin may lie in two batches.
        peak.flat[place] = np.maximum(peak.flat[place], np.maximum.reduceat(level, first))
        last.flat[place] = level[np.append(first[1:], cell.size) - 1]
        at_edge.flat[place] |= t[first] == edges_us[place % edges_us.size]
    held = pd.DataFrame(last).ffill(axis=1).fillna(0.0).to_numpy()
    entering = np.hstack([np.zeros((n_keys, 1)), held[:, :-1]])
    # A change exactly at an edge replaces the level before it: jobs that end there are not in the new bin.
    return np.maximum(peak, np.where(at_edge, 0.0, entering))[:, :-1]


def _levels(log: JobLogQuery, begin: int, until: int) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Batches of key code, time and GPUs held from then on, one a time and key, sorted."""
    level, pending = 0.0, None
    for batch in log.changes(begin, until):
        key, t, change = (
            batch if pending is None else (np.concatenate(pair) for pair in zip(pending, batch, strict=True))
        )
        # The changes at one time count together; those at the newest one may go on in the next batch.
        new = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(t, prepend=-1) != 0))
        pending = (key[new[-1] :], t[new[-1] :], change[new[-1] :])
        sums = np.cumsum(np.add.reduceat(change, new)[:-1]) + level
        if sums.size:
            yield key[new[:-1]], t[new[:-1]], np.round(sums, 9)
            level = float(sums[-1])
    if pending is not None:
        yield pending[0][:1], pending[1][:1], np.round([level + pending[2].sum()], 9)


def _submissions(log: JobLogQuery, edges_us: IntArray, n_keys: int) -> FloatArray:
    counts = np.zeros(n_keys * (edges_us.size - 1))
    for key, submit in log.submissions(edges_us):
        cell = key * (edges_us.size - 1) + np.searchsorted(edges_us, submit, side="right") - 1
        np.add.at(counts, cell, 1.0)
    return counts.reshape(n_keys, -1)
