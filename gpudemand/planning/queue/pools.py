"""GPUs in service over time, by pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, as_numbers, check_number, nearest, shorten
from gpudemand.jobs.as_of import to_nanoseconds

#: GPUs: a number, or a number from each time on.
Gpus: TypeAlias = float | pd.Series
#: GPUs of the cluster, or of each pool.
Capacity: TypeAlias = Gpus | Mapping[str, Gpus]

POOLED_BY = ("gpu_type", "partition", "cluster")


class Pool(NamedTuple):
    """Interchangeable GPUs, and the jobs that wait for them.

    Attributes
    ----------
    name : str
        Empty if there is only one.
    rows : ndarray of int, shape (n_jobs,)
        Rows of the job table.
    change_at : ndarray of int, shape (n_changes,)
        Times in nanoseconds since 1970, ascending, from which on `gpus` holds.
    gpus : ndarray of shape (n_changes,)
    node_gpus : float
        Infinite for GPUs that are not on nodes.
    """

    name: str
    rows: IntArray
    change_at: IntArray
    gpus: FloatArray
    node_gpus: float


def pools_of(
    jobs: pd.DataFrame, capacity: Capacity, gpus_per_node: float | Mapping[str, float] | None = None
) -> list[Pool]:
    """Split jobs into pools with their capacity over time.

    Parameters
    ----------
    jobs : DataFrame
        Canonical columns, and ``partition`` where pools are partitions.
    capacity : number, Series or mapping
        See `gpudemand.planning.queue.simulate.simulate_queue`.
    gpus_per_node : number or mapping, optional

    Raises
    ------
    InputError
        If a capacity is not a positive number, or a series over time of numbers; or says nothing about some job.

    Returns
    -------
    list of Pool
    """
    by_pool: dict[str, Any] = {"": capacity}
    names = np.full(len(jobs), "", dtype=object)
    if _is_mapping(capacity):
        by_pool = dict(capacity)
        names = pool_names(jobs, by_pool)
    pools = []
    for name, gpus in by_pool.items():
        label = f"capacity[{name!r}]" if name else "capacity"
        nodes = gpus_per_node.get(name) if isinstance(gpus_per_node, Mapping) else gpus_per_node
        size = np.inf if nodes is None else check_number("gpus_per_node", nodes, 0, open_low=True)
        pools.append(Pool(str(name), np.flatnonzero(names == str(name)), *_over_time(label, gpus), size))
    return pools


def _is_mapping(capacity: Capacity) -> TypeGuard[Mapping[str, Gpus]]:
    is_over_time = isinstance(capacity, pd.Series) and isinstance(capacity.index, pd.DatetimeIndex)
    return isinstance(capacity, (Mapping, pd.Series)) and not is_over_time


def pool_names(jobs: pd.DataFrame, pools: Iterable[str], label: str = "capacity") -> NDArray[np.object_]:
    """Pool of each job, from the first column of `POOLED_BY` whose names are all pools.

    Raises
    ------
    InputError
        If there is none; `label` is what the sentence calls the given pools.
    """
    known, missing = {str(name) for name in pools}, {}
    for column in POOLED_BY:
        if column in jobs and jobs[column].notna().any():
            names = jobs[column].fillna("unknown").astype(str)
            strange = names[~names.isin(known)]
            if strange.empty:
                return names.to_numpy(dtype=object)
            missing[column] = strange
    if not missing:
        raise InputError(f"{label} is given by pool, but no job has a {' or '.join(POOLED_BY)}; give one number.")
    column = min(missing, key=lambda name: len(missing[name]))
    name = missing[column].iloc[0]
    hint = nearest(name, known)
    raise InputError(f"{label} says nothing about {column} {shorten(name)!r}.{hint} It needs a number for each pool.")


def _over_time(label: str, gpus: Gpus) -> tuple[IntArray, FloatArray]:
    if not isinstance(gpus, pd.Series):
        return np.array([np.iinfo(np.int64).min]), np.array([check_number(label, gpus, 0, open_low=True)])
    if not isinstance(gpus.index, pd.DatetimeIndex) or gpus.index.tz is None:
        raise InputError(f"{label} over time needs times with a zone as its index; use .tz_localize.")
    numbers = as_numbers(gpus, label)
    if not len(gpus) or not (numbers >= 0).all() or not numbers.any() or not gpus.index.is_unique:
        raise InputError(f"{label} over time needs numbers of at least 0, one of them above, at distinct times.")
    order = np.argsort(gpus.index.asi8, kind="stable")
    change_at = to_nanoseconds(pd.Series(gpus.index))[order]
    change_at[0] = np.iinfo(np.int64).min
    return change_at, numbers[order]
