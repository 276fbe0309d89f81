"""Forecast errors on arrays, and on the long frames of a backtest, pooled over series."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from gpudemand._array import BoolArray, FloatArray, IntArray, unmasked
from gpudemand._validation import InputError, check_choice, check_columns, check_keys, check_number
from gpudemand.units import DAY, wall_clock

KEYS = ("unique_id", "ds", "cutoff", "y")
#: Columns of numbers that stand beside those of models: steps ahead, and what `bulk_forecast` writes.
_NO_MODELS = ("h", "segment")
_LEVEL = re.compile(r"(?P<model>.+)-(?P<side>lo|hi)-(?P<level>\d+(?:\.\d+)?)$")


def wape(y: ArrayLike, forecast: ArrayLike) -> float:
    """Sum of absolute errors over the sum of demand (also called ND); NaN where demand is zero throughout."""
    y, forecast = _numbers(y, forecast)
    return _ratio(np.abs(forecast - y).sum(), np.abs(y).sum())


def bias(y: ArrayLike, forecast: ArrayLike) -> float:
    """Sum of errors over the sum of demand, positive for over-forecasts."""
    y, forecast = _numbers(y, forecast)
    return _ratio((forecast - y).sum(), np.abs(y).sum())


def mae(y: ArrayLike, forecast: ArrayLike) -> float:
    """Mean absolute error, in the units of `y`."""
    y, forecast = _numbers(y, forecast)
    return _mean(np.abs(forecast - y))


def rmse(y: ArrayLike, forecast: ArrayLike) -> float:
    """Root of the mean squared error, in the units of `y`."""
    y, forecast = _numbers(y, forecast)
    return float(np.sqrt(_mean(np.square(forecast - y))))


def smape(y: ArrayLike, forecast: ArrayLike) -> float:
    """Symmetric MAPE in percent, 200 x mean of |error| / (|forecast| + |y|); 0 / 0 is no error."""
    y, forecast = _numbers(y, forecast)
    scale = np.abs(forecast) + np.abs(y)
    return 200 * _mean(np.divide(np.abs(forecast - y), scale, out=np.zeros_like(scale), where=scale > 0))


def pinball(y: ArrayLike, forecast: ArrayLike, quantile: float) -> float:
    """Mean pinball (quantile) loss: `quantile` for a unit of under-forecast, ``1 - quantile`` of over-forecast.

    Values that are not known (NaN) are left out; without any the loss is NaN.

    >>> round(pinball([10.0], [8.0], 0.9), 3), round(pinball([8.0], [10.0], 0.9), 3)
    (1.8, 0.2)
    """
    y, forecast = _numbers(y, forecast)
    short = (y - forecast)[~np.isnan(y - forecast)]
    return _mean(np.maximum(quantile * short, (quantile - 1) * short))


def coverage(y: ArrayLike, low: ArrayLike, high: ArrayLike) -> float:
    """Share of values that lie in the closed interval from `low` to `high`, of those where all three are known."""
    y, low, high = _numbers(y, low, high)
    known = ~np.isnan(y + low + high)
    return _mean(((y >= low) & (y <= high))[known])


def seasonal_scale(history: pd.DataFrame, season_length: int = 1, *, squared: bool = False) -> pd.Series:
    """Mean absolute or squared seasonal difference of each training series, the scale of MASE and RMSSE.

    `history`: ``unique_id``, ``ds`` (times or numbers of bins), ``y``. `season_length`: lag of the difference in bins;
    a bin without a row is one too, and leaves out its differences. `squared`: mean square (for RMSSE) instead of mean
    absolute difference (for MASE). Returns NaN for constant series, which are left out of scaled errors.
    """
    history = check_columns(history, ("unique_id", "ds", "y"), "history")
    lag = int(check_number("season_length", season_length, 1, integer=True))
    if history.duplicated(["unique_id", "ds"]).any():
        raise InputError("history has two rows of one series and time; sum or drop them.")
    place, times = pd.factorize(history["ds"], sort=True)
    numbers = _bin_numbers(pd.Index(times))[place]
    now, later = (pd.MultiIndex.from_arrays([history["unique_id"], numbers + ahead]) for ahead in (0, lag))
    y = history["y"].to_numpy(dtype=float)
    difference = pd.Series(y, now, name="y") - pd.Series(y, later, name="y")
    difference = difference**2 if squared else difference.abs()
    return difference.groupby(level="unique_id").mean().replace(0.0, np.nan)


def _bin_numbers(times: pd.Index) -> IntArray:
    """Number of the bin of each of some ascending times: those that are left out count, as in the forecasters.

    >>> _bin_numbers(pd.DatetimeIndex(["2026-01-01", "2026-02-01", "2026-03-01", "2026-06-01"])).tolist()
    [0, 1, 2, 5]
    """
    if isinstance(times, pd.DatetimeIndex):
        values = times.as_unit("ns").asi8
    elif pd.api.types.is_numeric_dtype(times):
        values = times.to_numpy()
    else:
        raise InputError("the column ds of history must hold datetimes, or numbers of bins.")
    steps = np.diff(values)
    if not steps.size:
        return np.zeros(1, dtype=np.int64)
    step = pd.Series(steps).mode().iloc[0]
    if isinstance(times, pd.DatetimeIndex) and step == DAY.value and steps.sum() > 14 * DAY.value:
        days = wall_clock(times)
        if (days.day_of_week < 5).all():
            return np.asarray(np.busday_count(days[0].date(), days.to_numpy().astype("datetime64[D]")))
    # Months, and days of 23 hours, are one step each though their lengths differ.
    return np.append(0, np.cumsum(np.round(steps / step))).astype(np.int64)


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
    backtest = check_columns(backtest, (*KEYS, by) if by else KEYS, "backtest")
    metrics = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in metrics:
        check_choice("metrics", name, (*_POINT, "mase", "rmsse", "pinball", "coverage"))
    models = forecast_names(backtest.drop(columns=by) if by and by not in KEYS else backtest, "backtest", means=True)
    scales = _scales(metrics, backtest, history, season_length)
    # Not `list`, which asks for the number of groups: pandas 2 does not know it where one is of missing values.
    groups = [(None, backtest)] if by is None else [*iter(backtest.groupby(by, sort=True, dropna=False))]
    rows = [
        {"model": model, **({by: value} if by else {}), **_score(group, model, metrics, scales)}
        for value, group in groups
        for model in models
    ]
    return pd.DataFrame(rows).set_index(["model", by] if by else "model")


def model_names(frame: pd.DataFrame) -> list[str]:
    """Columns of a forecast or backtest with a model's point forecast: numbers that are no key, bound or segment."""
    keys = {*KEYS, *_NO_MODELS}
    names = [name for name in frame.columns if name not in keys and not _LEVEL.match(str(name))]
    return [name for name in names if _holds_numbers(frame[name])]


def _holds_numbers(column: pd.Series) -> bool:
    kind = pd.api.types.infer_dtype(column, skipna=True) if column.dtype == object else column.dtype.kind
    return kind in ("i", "u", "f", "integer", "floating", "mixed-integer-float", "decimal", "empty")


def check_forecast(forecast: object) -> pd.DataFrame:
    """Return a forecast as pandas; raise for names or times as in `check_usage`, and for bounds that are swapped."""
    frame = check_keys(check_columns(forecast, ("unique_id", "ds"), "forecast"), "forecast")
    for model in model_names(frame):
        for bounds in interval_columns(frame, model).values():
            low, high = (pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=float) for name in bounds)
            # Quantiles that were fitted one by one may cross in some rows.
            if (low > high).sum() > (low < high).sum():
                raise InputError(f"the forecast has {bounds[0]} above {bounds[1]} in most rows; were they swapped?")
    return frame


def forecast_names(forecast: pd.DataFrame, what: str = "forecast", *, means: bool = False) -> list[str]:
    """`model_names` of a forecast, of which there must be one, with or without ``<model>-mean`` beside a model."""
    names = model_names(forecast)
    if not names:
        has = ", ".join(map(str, forecast.columns))
        raise InputError(f"the {what} has no model's column, which must hold numbers; it has {has}.")
    return [name for name in names if means or str(name).removesuffix("-mean") not in {*names} - {name}]


def interval_columns(frame: pd.DataFrame, model: str) -> dict[float, tuple[str, str]]:
    """Columns of the lower and upper bounds of a model by level, in percent and ascending, where both are there.

    >>> interval_columns(pd.DataFrame(columns=["M", "M-lo-80.0", "M-hi-80.0", "M-lo-95"]), "M")
    {80.0: ('M-lo-80.0', 'M-hi-80.0')}
    """
    sides: dict[float, dict[str, str]] = {}
    for name in frame.columns:
        found = _LEVEL.match(str(name))
        if found and found["model"] == str(model):
            sides.setdefault(float(found["level"]), {})[found["side"]] = name
    return {level: (sides[level]["lo"], sides[level]["hi"]) for level in sorted(sides) if len(sides[level]) == 2}


def levels(frame: pd.DataFrame, model: str) -> list[float]:
    """Interval levels, in percent and ascending, for which a frame has both bounds of a model."""
    return list(interval_columns(frame, model))


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
                level: [rows.loc[seen, bound].to_numpy(dtype=float) for bound in bounds]
                for level, bounds in interval_columns(rows, model).items()
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


def _numbers(y: ArrayLike, *others: ArrayLike) -> list[FloatArray]:
    """Arrays of floats, of which no difference overflows, that fit the first of them row by row."""
    given = [value for value in (y, *others) if isinstance(value, pd.Series)]
    if any(not value.index.equals(given[0].index) for value in given):
        raise InputError("these series have different indexes; align them, or pass arrays with .to_numpy().")
    arrays = [
        value.to_numpy(dtype=float, na_value=np.nan)
        if isinstance(value, pd.Series)
        else np.asarray(unmasked(value), dtype=float)
        for value in (y, *others)
    ]
    shapes = [array.shape for array in arrays]
    try:
        fit = np.broadcast_shapes(*shapes) == shapes[0]
    except ValueError:
        fit = False
    if not fit:
        raise InputError(f"actual values and forecasts have different shapes: {', '.join(map(str, shapes))}.")
    return arrays


def _mean(values: FloatArray | BoolArray) -> float:
    return float(values.mean()) if values.size else np.nan


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else np.nan
