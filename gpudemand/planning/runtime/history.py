"""What was known about a job when it was submitted: its request, and how its user's jobs had gone until then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand.jobs.as_of import begins, seconds_until

#: Whose past a job is compared with, from the widest to the narrowest.
PASTS: dict[str, tuple[str, ...]] = {
    "gpus": ("gpus",),
    "group": ("group", "gpu_type"),
    "user": ("user",),
    "own": ("user", "group", "gpu_type", "gpus"),
}
#: Newest finished jobs whose mean counts.
_RECENT = (3, 30)
_FROM_ENDS = (*(f"last_{n}" for n in _RECENT), "unfinished")
_HOUR_NS = 3_600_000_000_000


def needs_ends(feature: str) -> bool:
    """Whether a feature looks at how earlier jobs ended."""
    return feature.endswith(_FROM_ENDS)


def submission_features(jobs: pd.DataFrame, log: pd.DataFrame, pasts: Sequence[str] = tuple(PASTS)) -> pd.DataFrame:
    """Describe jobs by what was known when they were submitted.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns; neither ``start`` nor ``end`` nor ``status`` is read.
    log : DataFrame
        Canonical table of the past (it may hold `jobs` too): of it, for each job, only jobs submitted before count, and
        only run times of those that had **ended** before.
    pasts : sequence of str
        Of `PASTS`, whose past is looked up.

    Returns
    -------
    DataFrame of shape (n_jobs, n_features)
        Logarithms of GPUs and requested time (s), and for each of `PASTS`: mean logarithm of the run times (s) of the
        newest 3 and 30 finished jobs, how many were submitted in the hour before, and how many had been submitted but
        had not ended. NaN where there is no past, or where the log stops more than a day before the submission: what
        has not been recorded yet is not what did not happen. Pasts that the log cannot tell apart (a log without users)
        are NaN.

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
    seen: list[list[str]] = []
    stale = _stale(jobs, log)
    for name in pasts:
        told = [key for key in PASTS[name] if log[key].notna().any()]
        new = bool(told) and told not in seen
        seen.append(told)
        past = _past(jobs, log, told) if new else dict.fromkeys((*_FROM_ENDS, "last_hour"), np.full(len(jobs), np.nan))
        columns |= {f"{name}_last_hour": past["last_hour"]}
        columns |= {f"{name}_{what}": np.where(stale, np.nan, past[what]) for what in _FROM_ENDS}
    return pd.DataFrame(columns, index=jobs.index)


def _stale(jobs: pd.DataFrame, log: pd.DataFrame) -> BoolArray:
    """Jobs submitted more than a day after the newest end that the log had seen by then."""
    ends = np.sort(_nanoseconds(log["end"].dropna()))
    now = _nanoseconds(jobs["submit"])
    place = np.searchsorted(ends, now, side="left")
    newest = np.concatenate([[np.iinfo(np.int64).min // 2], ends])[place]
    return now - newest > 24 * _HOUR_NS


def _past(jobs: pd.DataFrame, log: pd.DataFrame, keys: Sequence[str]) -> dict[str, FloatArray]:
    both = pd.concat([log[list(keys)], jobs[list(keys)]], ignore_index=True)
    code = both.groupby(list(keys), dropna=False, sort=False).ngroup().to_numpy(dtype=np.int64)
    theirs, mine = code[: len(log)], code[len(log) :]
    now = _nanoseconds(jobs["submit"])
    begun, ended = begins(log), log["end"].notna().to_numpy()
    run = np.log(np.maximum(seconds_until(log["end"], begun)[ended], 1.0))
    ends = _Timeline(theirs[ended], _nanoseconds(log.loc[ended, "end"]), run)
    submits = _Timeline(theirs, _nanoseconds(log["submit"]), np.zeros(len(log)))
    finished, submitted = ends.count(mine, now), submits.count(mine, now)
    recent = {f"last_{n}": ends.mean_of_newest(mine, now, n) for n in _RECENT}
    return recent | {
        "last_hour": np.log1p(submitted - submits.count(mine, now - _HOUR_NS)),
        "unfinished": np.log1p(np.maximum(submitted - finished, 0)),
    }


def _nanoseconds(times: pd.Series) -> IntArray:
    return times.dt.as_unit("ns").astype("int64").to_numpy()


class _Timeline:
    """Events of many keys, sorted by key and time, asked what lies before a moment."""

    def __init__(self, key: IntArray, time: IntArray, value: FloatArray) -> None:
        order = np.lexsort((time, key))
        self._key, self._time = key[order], time[order]
        self._sums = np.concatenate([[0.0], np.cumsum(value[order])])

    def _place(self, key: IntArray, time: IntArray) -> tuple[IntArray, IntArray]:
        """First event of each key, and the first one of it that is not before `time`."""
        first = np.searchsorted(self._key, key, side="left")
        order = np.lexsort((time, key))
        asked_key, asked_time = key[order], time[order]
        # Merge the questions into the events: a question stands before events of the same time.
        merged = np.lexsort(
            (
                np.concatenate([np.zeros(key.size), np.ones(self._key.size)]),
                np.concatenate([asked_time, self._time]),
                np.concatenate([asked_key, self._key]),
            )
        )
        is_event = merged >= key.size
        place = np.empty(key.size, dtype=np.int64)
        place[order[merged[~is_event]]] = np.cumsum(is_event)[~is_event]
        return first, np.maximum(place, first)

    def count(self, key: IntArray, time: IntArray) -> IntArray:
        """Events of the key before the moment."""
        first, place = self._place(key, time)
        return place - first

    def mean_of_newest(self, key: IntArray, time: IntArray, n: int) -> FloatArray:
        """Mean value of the newest `n` events before the moment; NaN where there is none."""
        first, place = self._place(key, time)
        begin = np.maximum(first, place - n)
        total = self._sums[place] - self._sums[begin]
        return np.where(place > begin, total / np.maximum(place - begin, 1), np.nan)
