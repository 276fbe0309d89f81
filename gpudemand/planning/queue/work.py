"""Jobs that are known to come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.jobs.as_of import seconds_since

WEEK_S = 7 * 86400


class Work(NamedTuple):
    """Jobs that are known to come, beside those that are drawn.

    Attributes
    ----------
    submit_s : ndarray of shape (n_jobs,)
        Since the beginning of the time ahead; those of the week before may still run then.
    run_s, gpus : ndarray of shape (n_jobs,)
    weeks : int
        Weeks ahead.
    mean : float
        Mean GPUs wanted over the time ahead.
    """

    submit_s: FloatArray
    run_s: FloatArray
    gpus: FloatArray
    weeks: int
    mean: float

    @classmethod
    def from_jobs(cls, jobs: pd.DataFrame, begin: pd.Timestamp, ahead_s: float) -> Work:
        """Jobs of a time that begins at `begin`."""
        weeks, submit_s = int(np.ceil(ahead_s / WEEK_S)), seconds_since(jobs["submit"], begin)
        end_s, gpus = seconds_since(jobs["end"], begin), jobs["gpus"].to_numpy(dtype=float)
        held_s = np.clip(end_s, 0, ahead_s) - np.clip(submit_s, 0, ahead_s)
        there = submit_s >= -WEEK_S
        mean = float((held_s * gpus).sum() / ahead_s)
        return cls(submit_s[there], (end_s - submit_s)[there], gpus[there], weeks, mean)
