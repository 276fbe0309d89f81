"""Mix of reserved and on-demand GPUs of least expected cost: the newsvendor problem."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.planning.capacity.inputs import broadcast_by_series
from gpudemand.planning.capacity.quantiles import QuantileTable


def purchase_mix(
    ids: pd.Series,
    quantiles: QuantileTable,
    hours: FloatArray,
    required: FloatArray,
    reserved: float | Mapping[str, float],
    on_demand: float | Mapping[str, float],
) -> pd.DataFrame:
    """Mix of reserved and on-demand GPUs of least expected cost for each series.

    A further reserved GPU pays off while the share of hours in which it would be busy exceeds the ratio of the prices,
    the break-even share (the newsvendor's critical ratio).

    Parameters
    ----------
    ids : Series of length n_rows
    quantiles : QuantileTable of n_rows
        GPUs busy.
    hours, required : ndarray of shape (n_rows,)
        Width of each bin, and GPUs required at the service level.
    reserved, on_demand : float or mapping of str to float
        Price of a GPU-hour, for every series or by series.

    Returns
    -------
    DataFrame
        Index ``unique_id``; ``break_even_share``, ``reserve`` (GPUs), ``on_demand_gpu_hours`` (expected, beyond the
        reserve), ``cost`` of that mix over all bins, ``cost_reserved`` of reserving the highest requirement,
        ``cost_on_demand`` of reserving nothing.
    """
    prices = broadcast_by_series("reserved", reserved, ids), broadcast_by_series("on_demand", on_demand, ids)
    demand = quantiles.demand()
    rows = {}
    for name in ids.unique():
        mine = (ids == name).to_numpy()
        rows[name] = _mix(demand[mine], hours[mine], required[mine], *(price[mine][0] for price in prices))
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("unique_id")


def _mix(
    demand: FloatArray, hours: FloatArray, required: FloatArray, reserved: float, on_demand: float
) -> dict[str, float]:
    weight = np.repeat(hours / demand.shape[1], demand.shape[1])
    total = float(hours.sum())
    share = reserved / on_demand
    reserve = _exceeded(demand.ravel(), weight, share)
    beyond = float((np.maximum(demand.ravel() - reserve, 0) * weight).sum())
    return {
        "break_even_share": share,
        "reserve": reserve,
        "on_demand_gpu_hours": beyond,
        "cost": reserved * reserve * total + on_demand * beyond,
        "cost_reserved": reserved * float(required.max()) * total,
        "cost_on_demand": on_demand * float((demand.ravel() * weight).sum()),
    }


def _exceeded(demand: FloatArray, weight: FloatArray, share: float) -> float:
    """Number of GPUs that demand reaches in a share of the time."""
    if share >= 1:
        return 0.0
    order = np.argsort(demand)[::-1]
    busy = np.cumsum(weight[order]) / weight.sum()
    place = min(int(np.searchsorted(busy, share)), demand.size - 1)
    return float(np.floor(demand[order][place]))
