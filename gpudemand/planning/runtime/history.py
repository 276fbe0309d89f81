"""Features of jobs known at submission: the request, and the run times of earlier jobs with the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.jobs.as_of import seconds_since, start_times

#: Sets of columns by which earlier jobs are matched, from the widest to the narrowest.
HISTORY_KEYS: dict[str, tuple[str, ...]] = {
    "gpus": ("gpus",),
    "group": ("group", "gpu_type"),
    "user": ("user",),
    "own": ("user", "group", "gpu_type", "gpus"),
}
#: Numbers of newest finished jobs whose run times are averaged.
_RECENT = (3, 30)
_FROM_OUTCOMES = (*(f"last_{n}" for n in _RECENT), "unfinished")
_HOUR_NS = 3_600_000_000_000


def uses_outcomes(feature: str) -> bool:
    """Whether a feature depends on the ends of earlier jobs."""
    return feature.endswith(_FROM_OUTCOMES)


def submission_features(
    jobs: pd.DataFrame, log: pd.DataFrame, history_keys: Sequence[str] = tuple(HISTORY_KEYS)
) -> pd.DataFrame:
    """Features of jobs from information available when each was submitted.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns; ``start``, ``end`` and ``status`` are not used.
    log : DataFrame
        Canonical table of the history, which may contain `jobs`. For each job only earlier submissions count, and only
        the run times of jobs that had **ended** before its submission.
    history_keys : sequence of str
        Keys of `HISTORY_KEYS` by which earlier jobs are matched.

    Returns
    -------
    DataFrame of shape (n_jobs, n_features)
        Logarithms of GPUs and requested time (s), and for each of `history_keys`: mean logarithm of the run times (s)
        of the newest 3 and 30 finished jobs, and logarithms of one plus the numbers of jobs submitted in the hour
        before, and submitted but unfinished. NaN where there is no earlier job, where the newest recorded end is more
        than a day before the submission (the log is not up to date), and for keys without values in the log.

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> times = pd.to_datetime(["2026-03-01 00:00", "2026-03-01 05:00", "2026-03-01 06:00"], utc=True)
    >>> ends = pd.to_datetime(["2026-03-01 01:00", "2026-03-01 07:00", None], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"user": "ada", "submit": times, "end": ends, "gpus": 1.0}), kind="measured")
    >>> features = submission_features(jobs, jobs)
    >>> np.exp(features["user_last_3"]).round(0).tolist()
    [nan, 3600.0, 3600.0]
    """
    columns = {
        "gpus": np.log2(np.maximum(jobs["gpus"].to_numpy(dtype=float), 0.125)),
        "requested": np.log(np.maximum(jobs["requested_time"].to_numpy(dtype=float), 1.0)),
    }
    unknown = np.full(len(jobs), np.nan)
    used: list[list[str]] = []
    stale = _stale(jobs, log)
    for name in history_keys:
        keys = [key for key in HISTORY_KEYS[name] if log[key].notna().any()]
        is_new = bool(keys) and keys not in used
        used.append(keys)
        history = _history(jobs, log, keys) if is_new else dict.fromkeys((*_FROM_OUTCOMES, "last_hour"), unknown)
        columns |= {f"{name}_last_hour": history["last_hour"]}
        columns |= {f"{name}_{what}": np.where(stale, np.nan, history[what]) for what in _FROM_OUTCOMES}
    return pd.DataFrame(columns, index=jobs.index)


def _stale(jobs: pd.DataFrame, log: pd.DataFrame) -> BoolArray:
    """Jobs submitted more than a day after the newest end recorded by then."""
    ends = np.sort(_nanoseconds(log["end"].dropna()))
    now = _nanoseconds(jobs["submit"])
    place = np.searchsorted(ends, now, side="left")
    newest = np.concatenate([[np.iinfo(np.int64).min // 2], ends])[place]
    return now - newest > 24 * _HOUR_NS


def _history(jobs: pd.DataFrame, log: pd.DataFrame, keys: Sequence[str]) -> dict[str, FloatArray]:
    """Features of each job from the earlier jobs in the log with the same keys."""
    both = pd.concat([log[list(keys)], jobs[list(keys)]], ignore_index=True)
    code = both.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy(dtype=np.int64)
    log_code, job_code = code[: len(log)], code[len(log) :]
    now = _nanoseconds(jobs["submit"])
    ended = log["end"].notna().to_numpy()
    run = np.log(np.maximum(seconds_since(log["end"], start_times(log))[ended], 1.0))
    ends = _EventLog(log_code[ended], _nanoseconds(log.loc[ended, "end"]), run)
    submits = _EventLog(log_code, _nanoseconds(log["submit"]), np.zeros(len(log)))
    finished, submitted = ends.before(job_code, now), submits.before(job_code, now)
    in_last_hour = submitted.place - submits.before(job_code, now - _HOUR_NS).place
    unfinished = np.maximum((submitted.place - submitted.first) - (finished.place - finished.first), 0)
    return {f"last_{n}": ends.mean_of_newest(finished, n) for n in _RECENT} | {
        "last_hour": np.log1p(in_last_hour),
        "unfinished": np.log1p(unfinished),
    }


def _nanoseconds(times: pd.Series) -> IntArray:
    return times.dt.as_unit("ns").astype("int64").to_numpy()


class _Range(NamedTuple):
    """First event of each queried key, and its first event that is not before a time."""

    first: IntArray
    place: IntArray


class _EventLog:
    """Events sorted by key and time, for queries about the events of a key before a time."""

    def __init__(self, key: IntArray, time: IntArray, value: FloatArray) -> None:
        order = np.lexsort((time, key))
        self._key, self._times = key[order], np.sort(time)
        self._place = self._rank(key, time)[order]
        self._sums = np.concatenate([[0.0], np.cumsum(value[order])])

    def _rank(self, key: IntArray, time: IntArray) -> IntArray:
        """Order of keys and times as one number, the same for times between which no event is."""
        return key * (len(self._times) + 1) + np.searchsorted(self._times, time, side="left")

    def before(self, key: IntArray, time: IntArray) -> _Range:
        """Events of the key before the time."""
        first = np.searchsorted(self._key, key, side="left")
        return _Range(first, np.searchsorted(self._place, self._rank(key, time), side="left"))

    def mean_of_newest(self, events: _Range, n: int) -> FloatArray:
        """Mean value of the newest `n` of the events; NaN where there is none."""
        first, place = events
        begin = np.maximum(first, place - n)
        total = self._sums[place] - self._sums[begin]
        return np.where(place > begin, total / np.maximum(place - begin, 1), np.nan)
