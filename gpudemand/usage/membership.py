"""Assignment of jobs to usage series."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pandas as pd

from gpudemand._typing import IntArray
from gpudemand._validation import InputError, shorten

KEYS = ("gpu_type", "user", "group", "cluster", "partition", "qos")


def series_codes(jobs: pd.DataFrame, ids: Sequence[str]) -> IntArray:
    """Index of the series that each job belongs to, -1 for none, from the names of the series.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns.
    ids : sequence of str
        As `usage_series` names them: ``total``, users, groups, clusters, partitions, GPU types, or paths of those.

    Raises
    ------
    InputError
        If no column (or combination of them, for paths) holds the names.

    Returns
    -------
    ndarray of int, shape (n_jobs,)

    Examples
    --------
    >>> from gpudemand.jobs.table import as_jobs
    >>> submit = pd.to_datetime(["2026-03-01", "2026-03-02"], utc=True)
    >>> jobs = as_jobs(pd.DataFrame({"user": ["ada", None], "submit": submit, "gpus": 1}), kind="measured")
    >>> series_codes(jobs, ["ada", "unknown"]).tolist(), series_codes(jobs, ["total"]).tolist()
    ([0, 1], [0, 0])
    """
    names = pd.Index([str(name) for name in ids])
    if len(names) == 1 and names[0] == "total":
        return np.zeros(len(jobs), dtype=np.int64)
    known = [key for key in KEYS if key in jobs]
    depth = names[0].count("/") + 1
    found = [names.get_indexer(_names(jobs, keys)).astype(np.int64) for keys in permutations(known, min(depth, 4))]
    best = max(found, key=lambda codes: len(np.unique(codes[codes >= 0])))
    if not (best >= 0).any():
        raise InputError(
            f"no job belongs to the series {shorten(names[0])!r}; usage must come from usage_series(jobs, by=...) of "
            f"this log, with by=None, {', '.join(KEYS)} or a path of them."
        )
    return best


def _names(jobs: pd.DataFrame, keys: Sequence[str]) -> pd.Index:
    parts = [jobs[key].str.replace("/", "%2F", regex=False).fillna("unknown") for key in keys]
    names = parts[0]
    for part in parts[1:]:
        names = names.str.cat(part, sep="/")
    return pd.Index(names)
