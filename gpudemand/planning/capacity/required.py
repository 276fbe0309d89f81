"""GPUs required by series and bin, from the quantiles of demand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.quantiles import QuantileTable

#: Quantiles that a plan lists.
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
#: Share of the bins of a week that have to be short before GPUs are ordered: more than one day, less than two.
SHORT_SHARE = 0.25
_WEEK = pd.Timedelta("7D")


def first_crossing(ds: pd.Series, short: pd.Series, short_share: float = SHORT_SHARE) -> pd.Timestamp:
    """First short bin from which on a share of the bins of a week is short.

    A single bin is often the noise of an upper quantile. Bins in the last week are judged by that week.

    Parameters
    ----------
    ds : Series of datetime
        Bins of a plan, ascending.
    short : Series of bool
        Whether more GPUs are required than installed.
    short_share : float in [0, 1], default=0.25
        0 lets a single bin decide, as does any share for bins of a week or longer.

    Returns
    -------
    Timestamp
        NaT if there is none.

    Examples
    --------
    >>> ds = pd.Series(pd.date_range("2026-03-01", periods=14, freq="D"))
    >>> short = pd.Series([0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1], dtype=bool)
    >>> [str(first_crossing(ds, short, share).date()) for share in (0, 0.25)]
    ['2026-03-03', '2026-03-10']
    """
    times, total = pd.DatetimeIndex(ds), np.append(0, np.cumsum(short))
    last_week = int(times.searchsorted(times[-1] - _WEEK, side="right"))
    start = np.minimum(np.arange(len(times)), last_week)
    stop = times.searchsorted(times[start] + _WEEK)
    lasting = (total[stop] - total[start]) >= short_share * (stop - start)
    return ds[short.to_numpy() & lasting].min()


def required_table(
    forecast: pd.DataFrame,
    quantiles: QuantileTable,
    installed: FloatArray,
    target_utilization: float,
    service_level: float,
    ratios: FloatArray | None = None,
) -> pd.DataFrame:
    """Table of a plan, sorted by series and time; see `CapacityPlan.to_frame`."""
    demand = {name: _demand(quantiles, share) for name, share in SHARES.items()}
    required = _required(_demand(quantiles, service_level), target_utilization)
    columns = {f"demand_{name}": gpus for name, gpus in demand.items()}
    columns |= {f"required_{name}": _required(gpus, target_utilization) for name, gpus in demand.items()}
    columns |= {"required": required, "installed": installed, "shortfall": np.maximum(required - installed, 0.0)}
    columns["p_over"] = quantiles.exceedance(installed)
    if ratios is not None:
        columns["share_over"] = quantiles.share_over(installed, ratios)
    table = pd.DataFrame({"unique_id": forecast["unique_id"], "ds": forecast["ds"], **columns})
    return table.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def _demand(quantiles: QuantileTable, share: float) -> FloatArray:
    # Forecasts may be negative, demand is not.
    return np.maximum(quantiles.quantile(share), 0.0)


def _required(demand: FloatArray, target_utilization: float) -> FloatArray:
    # Rounded so that no GPU is added for a rounding error: 85.0 / 0.85 is 100.00000000000001.
    return np.ceil(np.round(demand / target_utilization, 9))
