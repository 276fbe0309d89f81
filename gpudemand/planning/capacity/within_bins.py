"""How demand varies within the bins of a forecast: ratios of the demand at a time to the mean of its bin."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand._validation import InputError, check_usage
from gpudemand.forecast.base.panel import infer_freq, mean_step

#: Quantiles that stand for the distribution of the ratios.
_SHARES = (np.arange(49) + 0.5) / 49


def ratios_to_mean(held: pd.DataFrame, forecast: pd.DataFrame) -> FloatArray:
    """Ratios of the demand at a time to the mean of its bin, for the bins of a forecast.

    Parameters
    ----------
    held : DataFrame
        ``unique_id``, ``ds``, ``y``: GPUs in bins finer than those of `forecast`, such as hours, of the same series; a
        single one serves all.
    forecast : DataFrame
        ``unique_id``, ``ds``.

    Returns
    -------
    ndarray of shape (n_rows, n_ratios)
        Quantiles of the ratios, with mean 1.

    Raises
    ------
    InputError
        If the bins of `held` are not finer, or a series of the forecast is missing.

    Examples
    --------
    >>> ds = pd.date_range("2026-03-01", periods=48, freq="h")
    >>> held = pd.DataFrame({"unique_id": "total", "ds": ds, "y": np.where(ds.hour < 12, 30.0, 10.0)})
    >>> days = pd.DataFrame({"unique_id": "total", "ds": pd.date_range("2026-03-03", periods=2)})
    >>> ratios_to_mean(held, days)[0, [0, -1]].round(1).tolist()
    [0.5, 1.5]
    """
    table, bins = check_usage(held), infer_freq(pd.DatetimeIndex(forecast["ds"].sort_values().unique()))
    if mean_step(bins) <= mean_step(infer_freq(pd.DatetimeIndex(table["ds"].sort_values().unique()))):
        raise InputError("the bins of held= are not finer than those of the forecast; use usage_series(..., freq='h').")
    known = {str(name): _quantiles(part, bins) for name, part in table.groupby("unique_id")}
    names = forecast["unique_id"].astype(str)
    if len(known) == 1:
        return np.tile(next(iter(known.values())), (len(names), 1))
    missing = [name for name in names.unique() if name not in known]
    if missing:
        raise InputError(f"held= has no series {missing[0]!r}, which the forecast has.")
    return np.stack([known[name] for name in names])


def _quantiles(part: pd.DataFrame, bins: pd.offsets.BaseOffset) -> FloatArray:
    y = part.set_index("ds")["y"]
    mean = y.resample(bins).transform("mean")
    if not mean.gt(0).any():
        return np.ones(len(_SHARES))
    ratios = np.quantile((y / mean)[mean > 0], _SHARES)
    return ratios / ratios.mean()
