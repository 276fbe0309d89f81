"""`ETS`: damped Holt-Winters smoothing, one series at a time."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpudemand import _parallel
from gpudemand._typing import FloatArray
from gpudemand.forecast.base.forecaster import Forecaster, last_known
from gpudemand.forecast.base.windows import begun, fill_missing
from gpudemand.forecast.classical.holt_winters import START, fit_and_forecast


class ETS(Forecaster):
    """Exponential smoothing with a damped trend and an additive season, fitted by least squares.

    Parameters
    ----------
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above. A history of fewer than
        two seasons is smoothed without one.
    max_seasons : int, default=24
        Only the newest seasons are fitted; the cost grows with their number.
    n_jobs : int, optional
        Series fitted in parallel; None is 1.

    References
    ----------
    Hyndman, Koehler, Ord and Snyder, "Forecasting with Exponential Smoothing" (2008). The model is statsmodels'
    ``ExponentialSmoothing`` with its heuristic initial state; the tests compare the two.

    Examples
    --------
    >>> import pandas as pd
    >>> ds = pd.date_range("2026-03-02", periods=56, freq="D")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": np.tile([5.0, 5, 5, 5, 5, 1, 1], 8)})
    >>> ETS().fit(usage).predict(h=7)["ETS"].round(1).tolist()
    [5.0, 5.0, 5.0, 5.0, 5.0, 1.0, 1.0]
    """

    _max_origins = 16
    _allow_missing = True

    def __init__(self, season_length: int | None = None, max_seasons: int = 24, n_jobs: int | None = None) -> None:
        self.season_length = season_length
        self.max_seasons = max_seasons
        self.n_jobs = n_jobs

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        season = self.season_length_
        # Gaps are filled, so that phases stay where they are; what lies before a series stays unknown.
        y = np.where(begun(y, np.arange(1, y.shape[1] + 1)), fill_missing(y, season), np.nan)
        recent = y[:, -season * self.max_seasons :] if season > 1 else y
        smooth = partial(_smooth, h=h, season=season)
        return np.vstack(_parallel.run(smooth, list(recent), n_jobs=self.n_jobs))


def _smooth(y: FloatArray, h: int, season: int) -> FloatArray:
    y = y[~np.isnan(y)]
    if y.size < START or np.ptp(y) == 0:
        return np.repeat(last_known(y[None, :]) if y.size else np.zeros((1, 1)), h)
    path = fit_and_forecast(y, h, season if y.size >= 2 * season + START else 1)
    return path if np.isfinite(path).all() else np.repeat(y[-1], h)
