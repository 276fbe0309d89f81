"""`RidgeAutoregression`: a direct regression for every step ahead, pooled over series."""

from __future__ import annotations

import numpy as np

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import check_choice, check_number
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.seasonality import by_clock
from gpudemand.forecast.regression.direct import Direct, History

ANCHORS = ("level", "value")


class RidgeAutoregression(Forecaster):
    """Ridge regression of every step ahead on the newest values, levels, and the same hour of other days and weeks.

    A simple forecast, the anchor, is corrected by a linear function of lags, rolling means, daily and weekly profiles
    and the panel's total. There is one regression a step, so errors do not build up as in a recursion; its weights are
    shared by all series, each in units of its own standard deviation, and every series may depart from them as far as
    its own history bears out.

    Parameters
    ----------
    anchor : {"value", "level"}, default="value"
        What is corrected, and what remains when the history says nothing: the newest value moved along the mean profile
        of the season (demand that behaves like a random walk, as training does), or the profile of the week at the
        level of the newest season (demand that has a rhythm, as serving does).
    penalty : float, default=0.3
        On squared weights, in units of each regressor's own variance.
    own_penalty : float, default=100
        On the departure of a series from the shared weights, in as many bins of history.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.

    Notes
    -----
    Missing values are filled from what came before them to make regressors, and are no targets.

    Examples
    --------
    A day of work follows a day of rest, at a level that wanders; the season alone does not know the level:

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
        own_penalty: float = 100.0,
        season_length: int | None = None,
    ) -> None:
        self.anchor = anchor
        self.penalty = penalty
        self.own_penalty = own_penalty
        self.season_length = season_length

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        check_choice("anchor", self.anchor, ANCHORS)
        penalty = check_number("penalty", self.penalty, 0, open_low=True)
        own = check_number("own_penalty", self.own_penalty, 0, open_low=True)
        out = np.empty((len(y), origins.size, h))
        for clock, chosen in by_clock(origins, self.season_length_, self.panel_.freq):
            history = History.of(y[:, : origins[chosen].max()], clock.season)
            direct = Direct(history, origins[chosen], clock, self.anchor, penalty, own)
            for step in range(1, h + 1):
                out[:, chosen, step - 1] = direct.forecast(step)
        return out
