"""The pools that waits are planned for: their jobs, and the GPUs that a forecast says these want."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from gpudemand._validation import InputError, check_number, nearest, shorten
from gpudemand.planning.capacity.mean_demand import deviation, time_step
from gpudemand.planning.capacity.quantiles import QuantileTable
from gpudemand.planning.queue.pools import pool_names
from gpudemand.usage.membership import series_codes
from gpudemand.usage.series import usage_series

_TOTAL = "total"


class WaitPool(NamedTuple):
    """Interchangeable GPUs, the jobs that want them, and how many these will want.

    Attributes
    ----------
    name : str
    installed : float
    jobs : DataFrame
        Canonical columns; every job has an end.
    quantiles : QuantileTable
        GPUs wanted by bin.
    """

    name: str
    installed: float
    jobs: pd.DataFrame
    quantiles: QuantileTable


def split_pools(
    forecast: pd.DataFrame,
    jobs: pd.DataFrame,
    installed: float | Mapping[str, float],
    until: pd.Timestamp,
    model: str | None,
) -> list[WaitPool]:
    """Jobs and forecast of each pool.

    Parameters
    ----------
    forecast : DataFrame
        Of one series, or of one a pool. One series of several pools is split by their shares of the GPU-hours wanted;
        the intervals are widened, relatively, as much as demand around its profile is in the pool.
    jobs : DataFrame
        Canonical columns; every job has an end.
    installed : float or mapping of str to float
    until : Timestamp
        End of the log.
    model : str, optional

    Returns
    -------
    list of WaitPool

    Raises
    ------
    InputError
        If the forecast has other series than pools.
    """
    series = {str(name): rows.sort_values("ds") for name, rows in forecast.groupby("unique_id", sort=False)}
    tables = {name: QuantileTable.from_forecast(rows, model) for name, rows in series.items()}
    name, one = next(iter(tables.items()))
    if not isinstance(installed, (Mapping, pd.Series)):
        gpus = check_number("installed", installed, 0, open_low=True)
        if len(tables) > 1:
            raise InputError(f"the forecast has {len(tables)} series; give installed= by pool, or plan each by itself.")
        return [WaitPool(_TOTAL, gpus, jobs[series_codes(jobs, [name]) == 0], one)]
    counts = {str(pool): check_number(f"installed[{pool!r}]", n, 0, open_low=True) for pool, n in installed.items()}
    names = pool_names(jobs, counts, "installed")
    parts = {pool: jobs[names == pool] for pool in counts}
    if len(tables) == 1 and name not in counts:
        step = time_step(forecast["ds"])
        tables = {pool: _share_of(one, part, jobs, until, step) for pool, part in parts.items()}
    missing = [pool for pool in counts if pool not in tables]
    if missing:
        hint = nearest(missing[0], tables)
        raise InputError(f"the forecast has no series of the pool {shorten(missing[0])!r}.{hint} It needs one a pool.")
    return [WaitPool(pool, counts[pool], parts[pool], tables[pool]) for pool in counts]


def _share_of(
    total: QuantileTable, part: pd.DataFrame, jobs: pd.DataFrame, until: pd.Timestamp, step: pd.Timedelta
) -> QuantileTable:
    share = _wanted(part, until) / _wanted(jobs, until)
    own, all_, middle = deviation(part, until, step), deviation(jobs, until, step), total.quantile(0.5)[:, None]
    wider = max(np.sqrt(own / all_), share) if all_ > 0 else share
    return QuantileTable(total.z, share * middle + wider * (total.values - middle))


def _wanted(jobs: pd.DataFrame, until: pd.Timestamp) -> float:
    return float(usage_series(jobs, by=None, value="wanted", until=until)["y"].sum())
