"""`RidgeAutoregression`: direct ridge regressions with partial pooling over series."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import check_choice, check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.seasonality import group_by_seasonality
from gpudemand.forecast.base.windows import begun
from gpudemand.forecast.regression.direct import DirectRegression, History

ANCHORS = ("level", "value")


class RidgeAutoregression(Forecaster):
    """Direct ridge regression of every step on lags, rolling means and seasonal profiles, pooled over series.

    A simple forecast, the anchor, is corrected by a linear function of lags, rolling means, daily and weekly profiles
    and the panel's total. Each step has a regression of its own, so errors do not accumulate as in a recursion. The
    coefficients are shared by all series, each scaled by its standard deviation; the departures of a series are
    penalised (partial pooling).

    Parameters
    ----------
    anchor : {"value", "level"}, default="value"
        Forecast that is corrected: the newest value plus the change of the season's mean profile (for demand close to a
        random walk, such as training), or the week's profile at the level of the newest season (for demand with a
        regular pattern, such as serving).
    penalty : float, default=0.3
        On squared coefficients, in units of the variance of their regressor.
    series_penalty : float, default=100
        On the departures of a series from the shared coefficients, in bins of history.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.

    Notes
    -----
    Missing values are filled from earlier ones to make regressors, and are not used as targets.

    Examples
    --------
    A daily pattern on a random walk, of which a seasonal naive forecast does not know the level:

    >>> import pandas as pd
    >>> from gpudemand.forecast import SeasonalNaive, cross_validation
    >>> hours, rng = np.arange(24 * 60), np.random.default_rng(0)
    >>> y = 100 + 20 * np.sin(hours * np.pi / 12) + np.cumsum(rng.normal(0, 2, hours.size))
    >>> ds = pd.date_range("2026-03-01", periods=hours.size, freq="h")
    >>> usage = pd.DataFrame({"unique_id": "total", "ds": ds, "y": y})
    >>> models = [RidgeAutoregression(), SeasonalNaive()]
    >>> test = cross_validation(models, usage, h=24, n_windows=5)
    >>> error = test[["RidgeAutoregression", "SeasonalNaive"]].sub(test["y"], axis=0).abs().mean()
    >>> bool(error["RidgeAutoregression"] < 0.8 * error["SeasonalNaive"])
    True
    """

    _allow_missing = True

    def __init__(
        self,
        anchor: str = "value",
        *,
        penalty: float = 0.3,
        series_penalty: float = 100.0,
        season_length: int | None = None,
    ) -> None:
        self.anchor = anchor
        self.penalty = penalty
        self.series_penalty = series_penalty
        self.season_length = season_length

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        check_choice("anchor", self.anchor, ANCHORS)
        penalty = check_number("penalty", self.penalty, 0, open_low=True)
        own = check_number("series_penalty", self.series_penalty, 0, open_low=True)
        out = np.empty((len(y), origins.size, h))
        for seasonality, chosen in group_by_seasonality(origins, self.season_length_, self.panel_.freq):
            history = History.of(y[:, : origins[chosen].max()], seasonality.season)
            model = DirectRegression(history, origins[chosen], seasonality, self.anchor, penalty, own)
            out[:, chosen] = model.forecast(h)
        return np.where(begun(y, origins)[..., None], out, 0.0)
