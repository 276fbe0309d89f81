"""Forecast errors on arrays, and on the long frames of a backtest, pooled over series."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._array import FloatArray
from gpudemand._validation import InputError, check_choice, check_columns

KEYS = ("unique_id", "ds", "cutoff", "y")
_LEVEL = re.compile(r"(?P<model>.+)-(?P<side>lo|hi)-(?P<level>\d+(?:\.\d+)?)$")


def wape(y: FloatArray, forecast: FloatArray) -> float:
    """Sum of absolute errors over the sum of demand (also called ND); NaN where demand is zero throughout."""
    return _ratio(np.abs(forecast - y).sum(), np.abs(y).sum())


def bias(y: FloatArray, forecast: FloatArray) -> float:
    """Sum of errors over the sum of demand, positive for over-forecasts."""
    return _ratio((forecast - y).sum(), np.abs(y).sum())


def mae(y: FloatArray, forecast: FloatArray) -> float:
    """Mean absolute error, in the units of `y`."""
    return float(np.abs(forecast - y).mean())


def rmse(y: FloatArray, forecast: FloatArray) -> float:
    """Root of the mean squared error, in the units of `y`."""
    return float(np.sqrt(np.square(forecast - y).mean()))


def smape(y: FloatArray, forecast: FloatArray) -> float:
    """Symmetric MAPE in percent, 200 x mean of |error| / (|forecast| + |y|); 0 / 0 is no error."""
    scale = np.abs(forecast) + np.abs(y)
    return float(200 * np.divide(np.abs(forecast - y), scale, out=np.zeros_like(scale), where=scale > 0).mean())


def pinball(y: FloatArray, forecast: FloatArray, quantile: float) -> float:
    """Mean pinball (quantile) loss: `quantile` for a unit of under-forecast, ``1 - quantile`` of over-forecast.

    Values that are not known (NaN) are left out; without any the loss is NaN.

    >>> float(pinball(np.array([10.0]), np.array([8.0]), 0.9)), float(pinball(np.array([8.0]), np.array([10.0]), 0.9))
    (1.8, 0.2)
    """
    short = (y - forecast)[~np.isnan(y - forecast)]
    return float(np.maximum(quantile * short, (quantile - 1) * short).mean().round(12)) if short.size else np.nan


def coverage(y: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """Share of values that lie in the closed interval from `low` to `high`, of those where all three are known."""
    known = ~np.isnan(y + low + high)
    return float(((y >= low) & (y <= high))[known].mean()) if known.any() else np.nan


def seasonal_scale(history: pd.DataFrame, season_length: int = 1, *, squared: bool = False) -> pd.Series:
    """Mean absolute or squared seasonal difference of each training series, the scale of MASE and RMSSE.

    `history`: ``unique_id``, ``ds``, ``y``. `season_length`: lag of the difference. `squared`: mean square (for
    RMSSE) instead of mean absolute difference (for MASE). Returns naN for constant series, which are left out of
    scaled errors.
    """
    history = check_columns(history, ("unique_id", "ds", "y"), "history")
    ordered = history.sort_values(["unique_id", "ds"])
    difference = ordered.groupby("unique_id")["y"].diff(season_length)
    difference = difference**2 if squared else difference.abs()
    return difference.groupby(ordered["unique_id"]).mean().replace(0.0, np.nan)


_POINT = {metric.__name__: metric for metric in (wape, bias, mae, rmse, smape)}


def evaluate(
    backtest: pd.DataFrame,
    metrics: Sequence[str] = ("wape", "bias", "mae", "pinball", "coverage"),
    *,
    history: pd.DataFrame | None = None,
    season_length: int = 1,
    by: str | None = None,
) -> pd.DataFrame:
    """Score every model of a backtest, pooled over all rows.

    Errors are not averaged over clusters, because such an average of even a zero forecast falls with their number.

    Parameters
    ----------
    backtest : DataFrame
        As returned by `cross_validation`: ``unique_id, ds, cutoff, y``, a column a model, ``<model>-lo-80`` and so on.
    metrics : sequence of str
        Of ``wape, bias, mae, rmse, smape, mase, rmsse, pinball, coverage``. The last two use the interval columns: the
        mean loss over the quantiles present, and one column ``coverage_80`` a level.
    history : DataFrame, optional
        Training series, needed by ``mase`` and ``rmsse``; only rows up to the first cutoff are used.
    season_length : int, default=1
        Lag of the naive forecast that scales ``mase`` and ``rmsse``.
    by : str, optional
        Column (``"cutoff"``, ``"unique_id"``, ...) whose values are scored separately.

    Returns
    -------
    DataFrame
        A row a model (and value of `by`), a column a metric.

    Examples
    --------
    >>> frame = pd.DataFrame({"unique_id": "a", "ds": [1, 2], "cutoff": 0, "y": [8.0, 12.0], "Naive": [9.0, 10.0]})
    >>> evaluate(frame, ["wape", "bias"])
           wape  bias
    model
    Naive  0.15 -0.05
    """
    backtest = check_columns(backtest, KEYS, "backtest")
    for name in metrics:
        check_choice("metrics", name, (*_POINT, "mase", "rmsse", "pinball", "coverage"))
    scales = _scales(metrics, backtest, history, season_length)
    groups = [(None, backtest)] if by is None else list(backtest.groupby(by, sort=True))
    rows = [
        {"model": model, **({by: value} if by else {}), **_score(group, model, metrics, scales)}
        for value, group in groups
        for model in model_names(backtest)
    ]
    return pd.DataFrame(rows).set_index(["model", by] if by else "model")


def model_names(frame: pd.DataFrame) -> list[str]:
    """Columns of a forecast or backtest with a model's point forecast."""
    keys = {*KEYS, "h"}
    return [name for name in frame.columns if name not in keys and not _LEVEL.match(str(name))]


def forecast_names(forecast: pd.DataFrame) -> list[str]:
    """`model_names` of a forecast, of which there must be one."""
    names = model_names(forecast)
    if not names:
        raise InputError(f"the forecast has no model's column; it has {', '.join(map(str, forecast.columns))}.")
    return names


def levels(frame: pd.DataFrame, model: str) -> list[float]:
    """Interval levels, in percent and ascending, for which a frame has both bounds of a model."""
    sides: dict[str, set[str]] = {}
    for name in frame.columns:
        found = _LEVEL.match(str(name))
        if found and found["model"] == model:
            sides.setdefault(found["level"], set()).add(found["side"])
    return sorted(float(level) for level, found in sides.items() if found == {"lo", "hi"})


def _score(rows: pd.DataFrame, model: str, metrics: Sequence[str], scales: dict[str, pd.Series]) -> dict[str, float]:
    y, forecast = rows["y"].to_numpy(dtype=float), rows[model].to_numpy(dtype=float)
    seen = ~(np.isnan(y) | np.isnan(forecast))
    scores: dict[str, float] = {}
    for name in metrics:
        if name in _POINT:
            scores[name] = _POINT[name](y[seen], forecast[seen]) if seen.any() else np.nan
        elif name in scales:
            scores[name] = _scaled(name, rows, y - forecast, scales[name])
        else:
            intervals = {
                level: [rows.loc[seen, f"{model}-{side}-{level:g}"].to_numpy(dtype=float) for side in ("lo", "hi")]
                for level in levels(rows, model)
            }
            if name == "coverage":
                scores |= {f"coverage_{level:g}": coverage(y[seen], *bounds) for level, bounds in intervals.items()}
            else:
                losses = [pinball(y[seen], forecast[seen], 0.5)]
                for level, (low, high) in intervals.items():
                    losses += [pinball(y[seen], low, 0.5 - level / 200), pinball(y[seen], high, 0.5 + level / 200)]
                scores[name] = float(np.mean(losses))
    return scores


def _scales(
    metrics: Sequence[str], backtest: pd.DataFrame, history: pd.DataFrame | None, season_length: int
) -> dict[str, pd.Series]:
    scaled = [name for name in ("mase", "rmsse") if name in metrics]
    if not scaled:
        return {}
    if history is None:
        raise InputError(f"{' and '.join(scaled)} need history=, the series that the models were trained on.")
    past = history[history["ds"] <= backtest["cutoff"].min()]
    return {name: seasonal_scale(past, season_length, squared=name == "rmsse") for name in scaled}


def _scaled(name: str, rows: pd.DataFrame, error: FloatArray, scale: pd.Series) -> float:
    scales = rows["unique_id"].map(scale).to_numpy(dtype=float)
    if name == "mase":
        return float(np.nanmean(np.abs(error) / scales)) if np.isfinite(scales).any() else np.nan
    squares = pd.Series(error**2 / scales).groupby(rows["unique_id"].to_numpy()).mean()
    return float(np.sqrt(squares).mean())


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else np.nan
