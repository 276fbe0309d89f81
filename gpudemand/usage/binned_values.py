"""Values of usage series from the intervals and submissions of a job log, binned."""

from __future__ import annotations

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
    for key, first, last, gpus in log.held(until):
        held.add(key, np.clip(first, begin, until), np.clip(last, begin, until), gpus)
    gpu_hours = held.gpu_hours()
    return gpu_hours if value == "gpu_hours" else gpu_hours / (np.diff(edges_us) / 3.6e9)


def _peaks(log: JobLogQuery, edges_us: IntArray, n_keys: int, begin: int, until: int) -> FloatArray:
    """Peak of the GPUs held, shape (n_keys, n_bins)."""
    peak, last = np.zeros((n_keys, edges_us.size)), np.full((n_keys, edges_us.size), np.nan)
    at_edge = np.zeros(peak.shape, dtype=bool)
    for key, bins, highest, newest, first in log.peaks(edges_us, begin, until):
        peak[key, bins], last[key, bins], at_edge[key, bins] = highest, newest, first == edges_us[bins]
    held = pd.DataFrame(last).ffill(axis=1).fillna(0.0).to_numpy()
    entering = np.hstack([np.zeros((n_keys, 1)), held[:, :-1]])
    # A change exactly at an edge replaces the level before it: jobs that end there are not in the new bin.
    return np.maximum(peak, np.where(at_edge, 0.0, entering))[:, :-1]


def _submissions(log: JobLogQuery, edges_us: IntArray, n_keys: int) -> FloatArray:
    counts = np.zeros(n_keys * (edges_us.size - 1))
    for key, submit in log.submissions(edges_us):
        cell = key * (edges_us.size - 1) + np.searchsorted(edges_us, submit, side="right") - 1
        counts += np.bincount(cell, minlength=counts.size)
    return counts.reshape(n_keys, -1)
