"""`CombinedForecaster`: forecasts weighted by their errors at earlier origins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from gpudemand import _parallel
from gpudemand._array import FloatArray, IntArray
from gpudemand._validation import InputError, check_seed
from gpudemand.forecast.forecaster import Forecaster, adapt, check_horizon, positive_int
from gpudemand.forecast.naive import Naive, SeasonallyAdjustedNaive, SeasonalMedian, SeasonalNaive
from gpudemand.forecast.panel import Panel, fill_gaps, fill_missing, row_means, week_of
from gpudemand.forecast.regression import DecayedMeanRegression, History, LagRegression, RidgeAutoregression
from gpudemand.forecast.smoothing import DoubleSeasonalSmoothing


class PastLosses(NamedTuple):
    """Absolute errors of several forecasts from every origin, cumulated over their steps."""

    sums: FloatArray  # (n_forecasts, n_series, n_origins, n_steps)
    places: IntArray  # (n_origins,), bins known at each origin, ascending
    begins: IntArray  # (n_series,), first known bin

    @classmethod
    def of(cls, y: FloatArray, paths: FloatArray, places: IntArray) -> PastLosses:
        """Compare forecasts, shape (n_forecasts, n_series, n_origins, h), with a history."""
        h = paths.shape[-1]
        actual = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)[:, places[:, None] + np.arange(h)]
        errors = actual - paths
        np.abs(errors, out=errors)
        np.copyto(errors, 0.0, where=np.isnan(actual))
        return cls(np.cumsum(errors, axis=-1, out=errors), places, (~np.isnan(y)).argmax(axis=1))

    def known(
        self, origin: int, earlier: IntArray, step: int = 1, half_life: float = np.inf
    ) -> tuple[FloatArray, IntArray]:
        """Sums of the errors of `earlier` origins known at an origin, and bins since the first of these origins.

        `step`: bins in a step of the sums. Returns shapes (n_forecasts, n_series) and (n_series,).
        """
        age = origin - self.places[earlier]
        # Errors count only if the series had half of its present length.
        counted = 2 * self.places[earlier] >= self.begins[:, None] + origin
        sums = self.sums[:, :, earlier, np.minimum(age // step, self.sums.shape[-1]) - 1] * 0.5 ** (age / half_life)
        span = np.where(counted, age, 0).max(axis=1, initial=0)
        return (sums * counted).sum(axis=2), span


#: Exponent of the inverse loss, and disjoint horizons at which the losses of a series weigh as much as those of all.
#: Both lie on a plateau of the development half of the panels track: 2 to 5, and 3 to 100, change its WAPE by 1 %.
_POWER, _PRIOR_HORIZONS = 3.0, 3.0
#: Share of the weight that is trimmed at either end; .25, and .5 (the median), have .2 to .4 % larger errors there.
_TRIMMED = 1 / 3


def inverse_loss_weights(
    losses: FloatArray, n_horizons: FloatArray, scales: FloatArray, power: float = _POWER
) -> FloatArray:
    """Weights that fall with a power of the past loss of a forecast, relative to the others.

    The relative losses of a series are shrunk towards those of all scaled series, the more the less it has seen.

    `losses`, and what is returned: shape (n_forecasts, n_series). `n_horizons`: disjoint horizons in the past of each
    series. `scales`: units of the losses of each in the sum of all; infinite for a series without weight in it. The
    best forecast of a series has weight one; all are equal without any past.

    The first series has a long past, the second none:

    >>> inverse_loss_weights(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([1e9, 0.0]), np.ones(2)).round(4).tolist()
    [[1.0, 1.0], [0.125, 0.125]]
    """
    prior = _relative((losses / scales).sum(axis=1, keepdims=True))
    shrunk = prior + n_horizons / (n_horizons + _PRIOR_HORIZONS) * (_relative(losses) - prior)
    best = shrunk.min(axis=0)
    return np.where(best > 0, best / np.where(shrunk > 0, shrunk, 1.0), shrunk <= 0) ** power


def weighted_trimmed_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted mean, over the first axis, of the values in the middle, without a third of the weight at either end.

    >>> values = np.array([1.0, 2.0, 9.0, 10.0])
    >>> [float(weighted_trimmed_mean(values, np.array(weights)).round(6)) for weights in ([1, 1, 1, 1], [1, 1, 1, 9])]
    [5.5, 10.0]
    """
    order = np.argsort(values, axis=0, kind="stable")
    ascending = np.take_along_axis(values, order, axis=0)
    above = np.cumsum(np.take_along_axis(np.broadcast_to(weights, values.shape), order, axis=0), axis=0)
    inside = np.diff(
        np.clip(above, above[-1] * _TRIMMED, above[-1] * (1 - _TRIMMED)), axis=0, prepend=above[-1:] * _TRIMMED
    )
    middle = ascending[len(values) // 2]
    return middle + (inside * (ascending - middle)).sum(axis=0) / inside.sum(axis=0)


def _relative(losses: FloatArray) -> FloatArray:
    """Losses relative to the mean of all forecasts; 1 where there are none."""
    mean = losses.mean(axis=0)
    return np.divide(losses, mean, out=np.ones_like(losses), where=mean > 0)


def expected_levels(near_median: FloatArray, means: FloatArray, actual: FloatArray, now: int) -> FloatArray:
    """Expected means over the horizon, shape (n_series,), from two forecasts of them and how they did before.

    They are linear in both forecasts, and in the second one as it saturates at the mean of all series, because those
    who hold most hold less later. The coefficients, shrunk towards halves and zero, are those of all series at earlier
    origins. The sum is that of the two forecasts, weighted by the inverse absolute error of their sums there. Without
    earlier origins nothing tells that the first forecast is too low.

    `near_median`, `means`: shape (n_series, n_origins). `actual`: the same, NaN where not known at the origin in column
    `now`, the one that is forecast.
    """
    half, unit = (near_median + means) / 2, np.abs(means).mean(axis=0)
    use = ~np.isnan(actual) & (half > 0)
    if not use.any():
        return near_median[:, now]
    x = np.stack([near_median, means, means / (1 + np.abs(means) / np.where(unit > 0, unit, 1.0))], axis=-1)
    root = np.sqrt(half[use])
    rows = x[use] / root[:, None]
    size = np.sqrt(np.square(rows).mean(axis=0))
    size, rest = np.where(size > 0, size, 1.0), actual[use] / root - rows @ _LEVEL_PRIOR
    rows = rows / size
    change = np.linalg.solve(rows.T @ rows / len(rows) + _LEVEL_RIDGE * np.eye(3), rows.T @ rest / len(rows))
    levels = np.where(half[:, now] > 0, np.maximum(x[:, now] @ (_LEVEL_PRIOR + change / size), 0.0), half[:, now])
    past = use.any(axis=0)
    errors = [np.abs(np.nansum(actual - found, axis=0)[past]).mean() for found in (near_median, means)]
    share = errors[0] / sum(errors) if sum(errors) > 0 else 0.5
    total, found = (1 - share) * near_median[:, now].sum() + share * means[:, now].sum(), levels.sum()
    return np.asarray(levels * total / found if found > 0 < total else levels)


#: Prior coefficients, and their ridge: .03 to .3 are alike on KTH-SP2, Atlas and CDNOW of the track `means`.
_LEVEL_PRIOR, _LEVEL_RIDGE = np.array([0.5, 0.5, 0.0]), 0.1
#: Bins between the earlier origins that these are fitted to, as a share of the horizon, and most of them.
_LEVEL_STEP, _LEVEL_ORIGINS = 4, 12

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

    Notes
    -----
    Estimated weights of linear combinations, in all the variants tried on the development half of the panels track
    (``benchmarks/forecast/panels.py``), had larger errors than this rule. On 13 public traces errors are larger, with
    the standard error over traces in brackets, by 8 % (2) with equal weights, 5 % (2) without trimming, .6 % (.3) with
    weights from the losses of a series only, 3 % (1) without `Naive`, 2 % (1) without `LagRegression`, 1 % (.5) without
    `SeasonalNaive`, .8 % (.4) without the median of the phases of four weeks, and .5 % (.3) or less without any other
    member; errors of the mean over the horizon, for which capacity is planned, also by .9 % (.5) without
    `RidgeAutoregression` and .9 % (.6) without `DoubleSeasonalSmoothing` (``make bench-forecast ARGS="--track
    members"``). The forecast is nearly a median: of demand with rare bursts, such as GPUs submitted in each hour, it
    lies below the mean.

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

    def predict(self, h: int, level: Sequence[float] | float | None = None, *, mean: bool = False) -> pd.DataFrame:
        """Forecast the next bins.

        Parameters
        ----------
        h : int
            Horizon in bins.
        level : sequence of float, optional
            Levels of the prediction intervals in percent.
        mean : bool, default=False
            Add expected values, which add up over series where forecasts near the median do not: the same course, at
            the level that a regression over all series expects from it, from `DecayedMeanRegression` and from what came
            of both before, and scaled halfway to a forecast of the sum by itself. Sum them, or reconcile them by
            ``reconcile(..., model="CombinedForecaster-mean")``; for a single series of rare bursts the median is closer
            to most outcomes.

        Returns
        -------
        DataFrame
            As `Forecaster.predict`; with `mean`, also ``CombinedForecaster-mean``.
        """
        check_is_fitted(self, "panel_")
        h = check_horizon(h, len(self.panel_.times))
        frame = super().predict(h, level)
        if not mean:
            return frame
        steps, now = self.panel_.local_steps(h), np.array([self.panel_.values.shape[1]])
        expected = self.expected_paths(self.panel_, now, int(steps.max()) + 1)[:, 0, steps]
        return frame.assign(**{f"{self.column_name()}-mean": expected.ravel()})

    def expected_paths(self, panel: Panel, origins: IntArray, h: int) -> FloatArray:
        """Expected values from several origins, as `predict` adds them, shape (n_series, n_origins, h)."""
        y, step = panel.values, max(h // _LEVEL_STEP, 1)
        most = int(np.clip(_CELLS // (len(self.members_) * len(y) * h), 2, _LEVEL_ORIGINS))
        earlier = [np.arange(o - h, max(h, o // 4), -step)[:most] for o in origins]
        places = np.unique(np.concatenate([origins, *earlier]))
        paths = np.maximum(self._paths(y, places, h), self._floors(y, places)[..., None])
        regression = DecayedMeanRegression()
        regression._fit_panel(panel)
        near_median, means = paths.mean(axis=2), regression._paths(y, places, h)[..., 0]
        totals = self._levels_of_sum(panel, origins, h)
        actual = np.column_stack([row_means(y[:, place : place + h])[:, 0] for place in places])
        actual[~np.column_stack([(~np.isnan(y[:, place : place + h])).any(axis=1) for place in places])] = np.nan
        out = paths[:, places.searchsorted(origins)]
        for place, (origin, past) in enumerate(zip(origins, earlier, strict=True)):
            known = np.where(np.isin(places, past), actual, np.nan)
            level = expected_levels(near_median, means, known, int(places.searchsorted(origin)))
            found = level.sum()
            # Each is a fifth worse than the other on one of five logs; their mean is at most 7 % worse than the better.
            level = level * ((1 + totals[place] / found) / 2 if found > 0 < totals[place] else 1.0)
            out[:, place] += (level - out[:, place].mean(axis=1))[:, None]
        return np.maximum(out, self._floors(y, origins)[..., None])

    def _levels_of_sum(self, panel: Panel, origins: IntArray, h: int) -> FloatArray:
        """Forecasts of the mean of the sum of all series over the horizon, shape (n_origins,); 0 of a single series."""
        if len(panel.values) == 1:
            return np.zeros(origins.size)
        model, y = clone(self), np.nansum(fill_gaps(panel.values, self.season_length_), axis=0, keepdims=True)
        model._fit_panel(replace(panel, ids=panel.ids[:1], values=y))
        return np.asarray(model._paths(y, origins, h)[0].mean(axis=1))

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        members = self._default_members() if self.members is None else self.members
        if not isinstance(members, Sequence) or not members:
            raise InputError("members must be a list of at least one forecaster, or None for the default ones.")
        positive_int("max_origins", self.max_origins)
        seed = check_seed(self.random_state)
        self.members_ = [clone(adapt(member)) for member in members]
        filled = replace(panel, values=fill_missing(panel.values, self.season_length_))
        for member in self.members_:
            if "random_state" in member.get_params():
                member.set_params(random_state=seed)
            member._fit_panel(filled)

    @property
    def _fits_nothing(self) -> bool:
        # The default members fit nothing; an estimator in place of a list is refused when it is fitted.
        given = self.members or ()
        return not isinstance(given, BaseEstimator) and all(adapt(member)._fits_nothing for member in given)

    def _method(self) -> list[Any]:
        return [*super()._method(), *((type(member), member._method()) for member in self.members_)]

    def _default_members(self) -> list[Forecaster]:
        season, n_times = self.season_length_, self.panel_.values.shape[1]
        week = week_of(season, self.panel_.freq)
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
        losses, scales = PastLosses.of(y, paths, places), History.of(y, 1).scales(origins)
        out, half_life = np.empty((len(y), origins.size, h)), _HALF_LIFE * max(h, self.season_length_)
        for place, (origin, earlier) in enumerate(zip(origins, backtests, strict=True)):
            sums, span = losses.known(int(origin), np.searchsorted(places, earlier), half_life=half_life)
            weights = inverse_loss_weights(sums, span / h, scales[:, place])
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
        of_members = _parallel.stream(methodcaller("_paths", y, places, h), self.members_)
        for paths, of_member in zip(out, of_members, strict=True):
            np.maximum(of_member, floor, out=paths)
        return out
