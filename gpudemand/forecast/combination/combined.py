"""`CombinedForecaster`: the weighted trimmed mean of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from gpudemand import _parallel
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.external import as_forecaster
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel, week_length
from gpudemand.forecast.base.windows import fill_missing
from gpudemand.forecast.classical.baselines import Naive, SeasonallyAdjustedNaive, SeasonalMedian, SeasonalNaive
from gpudemand.forecast.classical.double_seasonal import DoubleSeasonalSmoothing
from gpudemand.forecast.combination.trimmed_mean import inverse_loss_weights, weighted_trimmed_mean
from gpudemand.forecast.regression.direct import History
from gpudemand.forecast.regression.lag_regression import LagRegression
from gpudemand.forecast.regression.ridge import RidgeAutoregression

#: Most forecasts (members x series x origins x steps) in memory at once; fewest origins, as far as there are bins.
_CELLS, _MIN_ORIGINS = 3e7, 8
#: Half-life of an error in the weights, in horizons, or in seasons where they are longer. Without it the errors of the
#: panels track are the same, but 80 % of a step of level is followed after up to 13 days instead of 8.
_HALF_LIFE = 3.0


class CombinedForecaster(Forecaster):
    """Weighted trimmed mean of several methods, which one of them that goes astray does not move.

    All members are backtested in the newest half of the history. Each is weighted by the inverse cube of its
    absolute errors there, of which old ones count less, those of a series shrunk towards those of all series.

    Parameters
    ----------
    members : sequence of Forecaster, optional
        By default `Naive`, `SeasonalNaive`, `SeasonallyAdjustedNaive`, `SeasonalMedian` of the newest season and of
        each phase of four weeks (or of 28 longer bins), `DoubleSeasonalSmoothing`, `LagRegression` and
        `RidgeAutoregression`.
    max_origins : int, default=56
        Origins of the backtest, whole seasons before the forecast where there are enough; fewer for very large panels.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    random_state : int, default=0
        Passed to members that have one; the default members are deterministic.

    Attributes
    ----------
    members_ : list of Forecaster

    Notes
    -----
    Estimated weights of linear combinations, in all the variants tried on the development half of the panels track
    (``benchmarks/forecast/panels.py``), had larger errors than this rule. A weighted median has errors .2 % larger
    there and .4 % on the other half, weighted means without trimming 4 %. The forecast is nearly a median: of demand
    with rare bursts, such as GPUs submitted in each hour, it lies below the mean.

    References
    ----------
    Stock and Watson, "Combination forecasts of output growth in a seven-country data set", Journal of Forecasting 23
    (2004), for weights by inverse losses and the median.

    Examples
    --------
    One series has a daily pattern, the other is a random walk:

    >>> import pandas as pd
    >>> from gpudemand.forecast import Naive, SeasonalNaive, cross_validation
    >>> hours, rng = np.arange(24 * 40), np.random.default_rng(0)
    >>> y = {"daily": 50 + 20 * np.sin(hours * np.pi / 12), "walk": 500 + np.cumsum(rng.normal(0, 5, hours.size))}
    >>> y["daily"] = y["daily"] + rng.normal(0, 5, hours.size)
    >>> ds = pd.date_range("2026-03-01", periods=hours.size, freq="h")
    >>> usage = pd.concat([pd.DataFrame({"unique_id": name, "ds": ds, "y": y[name]}) for name in y])
    >>> models = [CombinedForecaster(), Naive(), SeasonalNaive()]
    >>> test = cross_validation(models, usage, h=24, n_windows=6)
    >>> names = ["CombinedForecaster", "Naive", "SeasonalNaive"]
    >>> error = test[names].sub(test["y"], axis=0).abs().groupby(test["unique_id"]).mean()
    >>> bool((error["CombinedForecaster"] < 1.1 * error[names[1:]].min(axis=1)).all())
    True
    """

    _allow_missing = True

    def __init__(
        self,
        members: Sequence[Forecaster] | None = None,
        *,
        max_origins: int = 56,
        season_length: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.members = members
        self.max_origins = max_origins
        self.season_length = season_length
        self.random_state = random_state

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        members = self._default_members() if self.members is None else self.members
        self.members_ = [clone(as_forecaster(member)) for member in members]
        if not self.members_:
            raise InputError("members is empty; pass at least one forecaster, or None for the default ones.")
        filled = replace(panel, values=fill_missing(panel.values, self.season_length_))
        for member in self.members_:
            if "random_state" in member.get_params():
                member.set_params(random_state=self.random_state)
            member._fit_panel(filled)

    def _default_members(self) -> list[Forecaster]:
        season, week, n_times = self.season_length_, week_length(self.panel_.freq), self.panel_.values.shape[1]
        members: list[Forecaster] = [
            Naive(),
            SeasonalMedian(1, max(season, 7)),
            SeasonalMedian(week, 4) if week > 1 else SeasonalMedian(1, 28),
            DoubleSeasonalSmoothing(season),
            LagRegression((season, max(season, week))),
            RidgeAutoregression("value", season_length=season),
        ]
        # The first origin of the backtest, which has half of the history, must show the season too.
        if 1 < season <= n_times // 2:
            members += [SeasonalNaive(season), SeasonallyAdjustedNaive(season)]
        return members

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        backtests = [self._backtest_origins(int(origin), len(y), h) for origin in origins]
        places = np.unique(np.concatenate([origins, *backtests]))
        paths = self._member_paths(y, places, h)
        losses, scales = _Losses.of(y, paths, places), History.of(y, 1).scales(origins)
        out, half_life = np.empty((len(y), origins.size, h)), _HALF_LIFE * max(h, self.season_length_)
        for place, (origin, earlier) in enumerate(zip(origins, backtests, strict=True)):
            weights = losses.weights(int(origin), np.searchsorted(places, earlier), scales[:, place], half_life)
            out[:, place] = weighted_trimmed_mean(paths[:, :, np.searchsorted(places, origin)], weights[..., None])
        return out

    def _backtest_origins(self, origin: int, n_series: int, h: int) -> IntArray:
        """Origins in the newest half, a season apart, or the largest divisor that skips no bin and leaves enough."""
        most = int(np.clip(_CELLS // (len(self.members_) * n_series * h), 4, self.max_origins))
        # A season that the history does not show twice has no phase.
        season = self.season_length_ if origin >= 2 * self.season_length_ else 1
        first = max(origin // 2, 1)
        # Steps that divide the season let origins that lie seasons apart share their earlier origins.
        furthest = min(season, h, (origin - first) // _MIN_ORIGINS)
        divisors = [s for s in range(1, furthest + 1) if season % s == 0]
        step = max(divisors, default=1)
        return np.arange(origin - step, first - 1, -step)[:most][::-1]

    def _member_paths(self, y: FloatArray, places: IntArray, h: int) -> FloatArray:
        """Forecasts of every member, shape (n_members, n_series, n_origins, h), not below the floor of a series."""
        floor, out = self._floors(y, places)[..., None], np.empty((len(self.members_), len(y), places.size, h))
        calls = [(member, y, places, h) for member in self.members_]
        for paths, of_member in zip(out, _parallel.stream(_paths_of, calls), strict=True):
            np.maximum(of_member, floor, out=paths)
        return out


def _paths_of(call: tuple[Forecaster, FloatArray, IntArray, int]) -> FloatArray:
    member, y, places, h = call
    return member._paths(y, places, h)


class _Losses(NamedTuple):
    """Absolute errors of the members from every origin, summed from the first step on.

    Attributes
    ----------
    sums : ndarray of shape (n_members, n_series, n_origins, h)
    places : ndarray of shape (n_origins,)
        Bins known at each origin.
    begins : ndarray of shape (n_series,)
        First known bin.
    """

    sums: FloatArray
    places: IntArray
    begins: IntArray

    @classmethod
    def of(cls, y: FloatArray, paths: FloatArray, places: IntArray) -> _Losses:
        """Compare forecasts, shape (n_members, n_series, n_origins, h), with a history."""
        h = paths.shape[-1]
        actual = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)[:, places[:, None] + np.arange(h)]
        errors = actual - paths
        np.abs(errors, out=errors)
        np.copyto(errors, 0.0, where=np.isnan(actual))
        return cls(np.cumsum(errors, axis=-1, out=errors), places, (~np.isnan(y)).argmax(axis=1))

    def weights(self, origin: int, earlier: IntArray, scales: FloatArray, half_life: float) -> FloatArray:
        """Weights of the members at an origin from the errors known there, shape (n_members, n_series)."""
        begins, h, age = self.begins[:, None], self.sums.shape[-1], origin - self.places[earlier]
        # Errors count only if the series had half of its present length.
        counted = 2 * self.places[earlier] >= begins + origin
        known = self.sums[:, :, earlier, np.minimum(age, h) - 1] * 0.5 ** (age / half_life)
        first = np.where(counted, self.places[earlier], origin).min(axis=1, initial=origin)
        return inverse_loss_weights((known * counted).sum(axis=2), (origin - first) / h, scales)
