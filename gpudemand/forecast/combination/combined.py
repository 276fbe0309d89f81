"""`CombinedForecaster`: a weighted combination of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.base import clone

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel, week_length
from gpudemand.forecast.base.windows import fill_missing
from gpudemand.forecast.classical.baselines import Naive, SeasonallyAdjustedNaive, SeasonalNaive
from gpudemand.forecast.classical.double_seasonal import DoubleSeasonalSmoothing
from gpudemand.forecast.classical.intermittent import TSB, HistoricMean
from gpudemand.forecast.combination.base_forecasts import shrunk_level_factor
from gpudemand.forecast.combination.stacking import Spans, stacking_weights
from gpudemand.forecast.regression.direct import History
from gpudemand.forecast.regression.ridge import RidgeAutoregression

#: Share of empty bins above which demand is intermittent.
_INTERMITTENT = 0.3
#: Most forecasts (members x series x origins x steps), and errors, in memory at once.
_CELLS, _ERRORS = 6e7, 3e6
#: Fewest origins when they lie less than a season apart; half as many when they do not.
_MIN_ORIGINS = 12
#: Exponent of the level factor of intermittent series, which shrinks it towards 1.
_LEVEL_SHRINKAGE = 0.75


class CombinedForecaster(Forecaster):
    """Combination of several methods with weights from backtest errors.

    All members are backtested inside the history. Their weights, which are not negative and sum to one, minimise the
    combined errors of each series, separately for near and far steps, shrunk towards the weights that are best for all
    series. The level of all intermittent series together is corrected by their recent forecast bias.

    Parameters
    ----------
    members : sequence of Forecaster, optional
        By default `Naive`, `SeasonalNaive` of a season and of a week, `SeasonallyAdjustedNaive`,
        `DoubleSeasonalSmoothing`, and `RidgeAutoregression` with both anchors; for intermittent demand also `TSB` and
        `HistoricMean` of all and of the newest bins.
    max_origins : int, default=56
        Origins of the backtest, whole seasons before the forecast where there are enough; fewer for very large panels.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    random_state : int, default=0
        Passed to members that have one; the default members are deterministic.

    Attributes
    ----------
    members_ : list of Forecaster

    References
    ----------
    Bates and Granger, "The combination of forecasts", Operational Research Quarterly 20 (1969); Breiman, "Stacked
    regressions", Machine Learning 24 (1996).

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
        self.members_ = [clone(m) for m in (self._default_members() if self.members is None else self.members)]
        if not self.members_:
            raise InputError("members is empty; pass at least one forecaster, or None for the default ones.")
        filled = replace(panel, values=fill_missing(panel.values, self.season_length_))
        for member in self.members_:
            if "random_state" in member.get_params():
                member.set_params(random_state=self.random_state)
            member._fit_panel(filled)

    def _default_members(self) -> list[Forecaster]:
        season, week, values = self.season_length_, week_length(self.panel_.freq), self.panel_.values
        members: list[Forecaster] = [
            Naive(),
            DoubleSeasonalSmoothing(season),
            RidgeAutoregression("value", season_length=season),
            RidgeAutoregression("level", penalty=0.1, season_length=season),
        ]
        # The first origin of the backtest, which has half of the history, must show the season too.
        if 1 < season <= values.shape[1] // 2:
            members += [SeasonalNaive(season), SeasonallyAdjustedNaive(season)]
        if season < week <= values.shape[1] // 2:
            members.append(SeasonalNaive(week))
        if (values == 0).mean() > _INTERMITTENT:
            members += [TSB(), HistoricMean(), HistoricMean(4 * max(week, 7))]
        return members

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        backtests = [self._backtest_origins(int(origin), len(y), h) for origin in origins]
        places = np.unique(np.concatenate([origins, *backtests]))
        paths = self._member_paths(y, places, h)
        errors, out = _targets(y, places, h) - paths, np.empty((len(y), origins.size, h))
        regular = _regular(y, origins)
        for some in np.array_split(np.arange(origins.size), self._n_batches(errors, backtests)):
            past = [backtests[place] for place in some]
            weights = _weights(y, errors, places, origins[some], past, regular[some])
            out[:, some] = np.einsum("gnhm,mngh->ngh", weights, paths[:, :, np.searchsorted(places, origins[some])])
            for place, own in zip(some, weights, strict=True):
                rare, earlier = np.flatnonzero(~regular[place]), backtests[place]
                past_errors = errors[:, rare[:, None], np.searchsorted(places, earlier)]
                out[rare, place] *= _level_correction(y[rare], past_errors, earlier, int(origins[place]), own[rare])
        return out

    def _n_batches(self, errors: FloatArray, backtests: Sequence[IntArray]) -> int:
        """Number of batches of origins that keeps copies of their errors small."""
        cells = errors.size / errors.shape[2] * sum(map(len, backtests))
        return int(np.clip(np.ceil(cells / _ERRORS), 1, len(backtests)))

    def _backtest_origins(self, origin: int, n_series: int, h: int) -> IntArray:
        """Earlier origins: whole seasons before this one where the history holds enough, else divisors of a season."""
        most = int(np.clip(_CELLS // (len(self.members_) * n_series * h), 4, self.max_origins))
        season = self.season_length_
        first = max(origin // 2, 1)
        span = origin - first
        # Steps that divide the season let origins that lie seasons apart share their earlier origins.
        divisors = [s for s in range(1, season) if season % s == 0 and span // s >= min(_MIN_ORIGINS, most)]
        step = season if span // season >= min(_MIN_ORIGINS // 2, most) else max(divisors, default=1)
        return np.arange(origin - step, first - 1, -step)[:most][::-1]

    def _member_paths(self, y: FloatArray, places: IntArray, h: int) -> FloatArray:
        """Forecasts of every member, shape (n_members, n_series, n_origins, h), not below the floor of a series."""
        floor = self._floors(y, places)[..., None]
        return np.stack([np.maximum(member._paths(y, places, h), floor) for member in self.members_])


def _regular(y: FloatArray, origins: IntArray) -> BoolArray:
    """Series that are not intermittent up to each origin, shape (n_origins, n_series)."""
    n_events = np.cumsum(np.nan_to_num(y) != 0, axis=1)[:, origins - 1]
    return np.asarray((n_events >= (1 - _INTERMITTENT) * (origins - History.of(y, 1).begins[:, None])).T)


def _weights(
    y: FloatArray,
    errors: FloatArray,
    places: IntArray,
    origins: IntArray,
    backtests: Sequence[IntArray],
    regular: BoolArray,
) -> FloatArray:
    """Weights of the members at each origin, shape (n_origins, n_series, h, n_members)."""
    h, n_times = errors.shape[-1], y.shape[1]
    history = History.of(y, 1)
    begins = history.begins[:, None]
    n_events = np.cumsum(np.nan_to_num(y) != 0, axis=1)
    past = _padded([np.searchsorted(places, earlier) for earlier in backtests], n_times)
    at = np.where(past < n_times, places[np.minimum(past, places.size - 1)], n_times)
    known = (at[..., None] + np.arange(h) < origins[:, None, None])[:, None]
    # Errors count only if the origin had at least half of the present history.
    long_enough = at[:, None] >= (begins + origins[:, None, None]) / 2
    usable = np.moveaxis(errors[:, :, np.minimum(past, places.size - 1)], 1, 2)
    usable = np.where(known & long_enough[..., None], usable, np.nan)
    first = np.array(
        [earlier[0] if earlier.size else origin for earlier, origin in zip(backtests, origins, strict=True)]
    )
    evidence = (n_events[:, origins - 1] - n_events[:, first - 1]).T.astype(float)
    spans = Spans.of(h)
    return stacking_weights(usable, spans, history.scales(origins).T, evidence, regular)[:, :, spans.of_step]


def _level_correction(y: FloatArray, errors: FloatArray, earlier: IntArray, origin: int, weights: FloatArray) -> float:
    """Factor on the forecasts of intermittent series that removes their recent common bias, in part."""
    h = errors.shape[-1]
    at = earlier[:, None] + np.arange(h)
    recent = (at < origin) & (at >= origin - 2 * h)
    actual = np.where(recent, _targets(y, earlier, h), np.nan)
    combined = actual - np.einsum("nhm,mngh->ngh", weights, errors)
    unit = History.of(y[:, :origin], 1).scales(np.array([origin]))[..., None]
    return float(shrunk_level_factor(actual, combined, unit) ** _LEVEL_SHRINKAGE)


def _padded(rows: Sequence[IntArray], filler: int) -> IntArray:
    """Rows of different lengths as a matrix."""
    longest = max(max((row.size for row in rows), default=0), 1)
    return np.array([np.r_[row, np.full(longest - row.size, filler)] for row in rows], dtype=np.int64)


def _targets(y: FloatArray, places: IntArray, h: int) -> FloatArray:
    """Actuals after each origin, shape (n_series, n_origins, h); NaN where unknown."""
    longer = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)
    return longer[:, places[:, None] + np.arange(h)]
