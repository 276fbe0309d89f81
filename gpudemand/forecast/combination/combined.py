"""`CombinedForecaster`: several methods, each as far as it has been right lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.base import clone

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError
from gpudemand.forecast.base.forecaster import Forecaster
from gpudemand.forecast.base.panel import Panel, week_length
from gpudemand.forecast.base.windows import without_gaps
from gpudemand.forecast.classical.baselines import LastValueProfile, Naive, SeasonalNaive
from gpudemand.forecast.classical.double_seasonal import DoubleSeasonalSmoothing
from gpudemand.forecast.classical.intermittent import TSB, HistoricMean
from gpudemand.forecast.combination.base_forecasts import agreed_factor
from gpudemand.forecast.combination.stacking import Spans, blend_weights
from gpudemand.forecast.regression.direct import History
from gpudemand.forecast.regression.ridge import RidgeAutoregression

#: Share of empty bins above which methods for intermittent demand join.
_OFTEN_EMPTY = 0.3
#: Forecasts (members x series x origins x steps) held in memory at once, and errors weighed at once.
_CELLS, _WEIGHED = 6e7, 3e6
#: Earlier origins that are enough when they lie less than a season apart; half as many are when they do not.
_FEWEST = 12
#: How far the level of series that are often zero follows what came of late: not all of that lasts.
_TRUST = 0.75


class CombinedForecaster(Forecaster):
    """A blend of several methods, weighted by what each got wrong at earlier origins.

    No single method wins everywhere: training clusters behave like a random walk with slow changes of level, serving
    has the shape of a week, and a single user may do nothing for a month. So all members are run at earlier origins
    inside the history, and blended with the weights (not negative, summing to one) that would have served each series
    best there, for near and far steps separately, shrunk towards what serves all series. Series that are often zero
    know too little of their level each; all of them together are moved to the one that they have had lately.

    Parameters
    ----------
    members : sequence of Forecaster, optional
        By default `Naive`, `SeasonalNaive` of a season and of a week, `LastValueProfile`, `DoubleSeasonalSmoothing`,
        and `RidgeAutoregression` from both anchors; where many bins are empty, also `TSB`
        and `HistoricMean` of all and of the newest bins.
    max_origins : int, default=56
        Earlier origins, whole seasons before the forecast where there are enough of them; fewer for very large panels.
    season_length : int, optional
        Bins in a season; by default a day for bins below a day, a week for days, a year above.
    random_state : int, default=0
        Handed to members that take one; the default members do not draw.

    Attributes
    ----------
    members_ : list of Forecaster

    References
    ----------
    Bates and Granger, "The combination of forecasts", Operational Research Quarterly 20 (1969); Breiman, "Stacked
    regressions", Machine Learning 24 (1996).

    Examples
    --------
    One series has a daily rhythm, the other wanders. One blend serves both:

    >>> from gpudemand.forecast import Naive, SeasonalNaive, cross_validation
    >>> hours, rng = np.arange(24 * 40), np.random.default_rng(0)
    >>> y = {"rhythm": 50 + 20 * np.sin(hours * np.pi / 12), "walk": 500 + np.cumsum(rng.normal(0, 5, hours.size))}
    >>> y["rhythm"] = y["rhythm"] + rng.normal(0, 5, hours.size)
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

    def fit(self, usage: pd.DataFrame, freq: object = None) -> CombinedForecaster:
        """Remember the training series, and let every member do so.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y``; rows may be missing, and so may values.
        freq : str or offset, optional
            Frequency of the stamps; inferred when not given.

        Returns
        -------
        CombinedForecaster
            This object.
        """
        super().fit(usage, freq)
        self.members_ = [clone(member) for member in self._chosen()]
        if not self.members_:
            raise InputError("members is empty; hand in at least one forecaster, or None for the default ones.")
        panel = replace(self.panel_, values=without_gaps(self.panel_.values, self.season_length_))
        for member in self.members_:
            if "random_state" in member.get_params():
                member.set_params(random_state=self.random_state)
            _teach(member, panel)
        return self

    def _chosen(self) -> Sequence[Forecaster]:
        if self.members is not None:
            return self.members
        season, week, values = self.season_length_, week_length(self.panel_.freq), self.panel_.values
        members: list[Forecaster] = [
            Naive(),
            DoubleSeasonalSmoothing(season),
            RidgeAutoregression("value", season_length=season),
            RidgeAutoregression("level", penalty=0.1, season_length=season),
        ]
        # A season counts when the earlier origins, the first of which has half of the history, show it too.
        if 1 < season <= values.shape[1] // 2:
            members += [SeasonalNaive(season), LastValueProfile(season)]
        if season < week <= values.shape[1] // 2:
            members.append(SeasonalNaive(week))
        if (values == 0).mean() > _OFTEN_EMPTY:
            members += [TSB(), HistoricMean(), HistoricMean(4 * max(week, 7))]
        return members

    def _paths(self, y: FloatArray, origins: IntArray, h: int) -> FloatArray:
        rehearsals = [self._rehearsals(int(origin), len(y), h) for origin in origins]
        places = np.unique(np.concatenate([origins, *rehearsals]))
        paths = self._member_paths(y, places, h)
        errors, out = _targets(y, places, h) - paths, np.empty((len(y), origins.size, h))
        steady = _steady(y, origins)
        for some in np.array_split(np.arange(origins.size), self._batches(errors, rehearsals)):
            past = [rehearsals[place] for place in some]
            weights = _weights(y, errors, places, origins[some], past, steady[some])
            out[:, some] = np.einsum("gnhm,mngh->ngh", weights, paths[:, :, np.searchsorted(places, origins[some])])
            for place, own in zip(some, weights, strict=True):
                rare, earlier = np.flatnonzero(~steady[place]), rehearsals[place]
                seen = errors[:, rare[:, None], np.searchsorted(places, earlier)]
                out[rare, place] *= _level(y[rare], seen, earlier, int(origins[place]), own[rare])
        return out

    def _batches(self, errors: FloatArray, rehearsals: Sequence[IntArray]) -> int:
        """Parts in which origins are weighted, so that copies of the errors known at all of one part stay small."""
        cells = errors.size / errors.shape[2] * sum(len(rehearsal) for rehearsal in rehearsals)
        return int(np.clip(np.ceil(cells / _WEIGHED), 1, len(rehearsals)))

    def _rehearsals(self, origin: int, n_series: int, h: int) -> IntArray:
        """Earlier origins: whole seasons before this one where the history holds enough, else simple parts of them."""
        most = int(np.clip(_CELLS // (len(self.members_) * n_series * h), 4, self.max_origins))
        season = self.season_length_
        first = max(origin // 2, 1)
        span = origin - first
        # Origins that lie seasons apart share those earlier ones that lie whole parts of a season before them.
        parts = [step for step in range(1, season) if season % step == 0 and span // step >= min(_FEWEST, most)]
        step = season if span // season >= min(_FEWEST // 2, most) else max(parts, default=1)
        return np.arange(origin - step, first - 1, -step)[:most][::-1]

    def _member_paths(self, y: FloatArray, places: IntArray, h: int) -> FloatArray:
        """Forecasts of every member, shape (n_members, n_series, n_places, h), never below the floor of a series."""
        floor = self._floors(y, places)[..., None]
        return np.stack([np.maximum(member._paths(y, places, h), floor) for member in self.members_])


def _teach(member: Forecaster, panel: Panel) -> None:
    if type(member).fit is Forecaster.fit:
        member._remember(panel)
    else:
        member.fit(panel.long_frame(panel.times, {"y": panel.values}), freq=panel.freq)


def _steady(y: FloatArray, origins: IntArray) -> BoolArray:
    """Series that are rarely zero, as far as is known at each origin, shape (n_origins, n_series)."""
    happened = np.cumsum(np.nan_to_num(y) != 0, axis=1)[:, origins - 1]
    return np.asarray((happened >= (1 - _OFTEN_EMPTY) * (origins - History.of(y, 1).begins[:, None])).T)


def _weights(
    y: FloatArray,
    errors: FloatArray,
    places: IntArray,
    origins: IntArray,
    rehearsals: Sequence[IntArray],
    steady: BoolArray,
) -> FloatArray:
    """Weights of the members at each origin, shape (n_origins, n_series, h, n_members)."""
    h, n_times = errors.shape[-1], y.shape[1]
    history = History.of(y, 1)
    begins = history.begins[:, None]
    happened = np.cumsum(np.nan_to_num(y) != 0, axis=1)
    past = _padded([np.searchsorted(places, rehearsal) for rehearsal in rehearsals], n_times)
    at = np.where(past < n_times, places[np.minimum(past, places.size - 1)], n_times)
    known = (at[..., None] + np.arange(h) < origins[:, None, None])[:, None]
    # A method is judged by what it made of at least half of the history there is now.
    grown = at[:, None] >= (begins + origins[:, None, None]) / 2
    judged = np.moveaxis(errors[:, :, np.minimum(past, places.size - 1)], 1, 2)
    judged = np.where(known & grown[..., None], judged, np.nan)
    first = np.array(
        [rehearsal[0] if rehearsal.size else origin for rehearsal, origin in zip(rehearsals, origins, strict=True)]
    )
    evidence = (happened[:, origins - 1] - happened[:, first - 1]).T.astype(float)
    spans = Spans.of(h)
    return blend_weights(judged, spans, history.scales(origins).T, evidence, steady)[:, :, spans.of_step]


def _level(y: FloatArray, errors: FloatArray, rehearsal: IntArray, origin: int, weights: FloatArray) -> float:
    """What the blends of series that are often zero must be multiplied by to sum to what came of late.

    None of them has seen enough to know that all of them are leaving.
    """
    h = errors.shape[-1]
    at = rehearsal[:, None] + np.arange(h)
    late = (at < origin) & (at >= origin - 2 * h)
    truth = np.where(late, _targets(y, rehearsal, h), np.nan)
    blends = truth - np.einsum("nhm,mngh->ngh", weights, errors)
    unit = History.of(y[:, :origin], 1).scales(np.array([origin]))[..., None]
    return float(agreed_factor(truth, blends, unit) ** _TRUST)


def _padded(rows: Sequence[IntArray], filler: int) -> IntArray:
    """Rows of different lengths as a matrix."""
    longest = max(max((row.size for row in rows), default=0), 1)
    return np.array([np.r_[row, np.full(longest - row.size, filler)] for row in rows], dtype=np.int64)


def _targets(y: FloatArray, places: IntArray, h: int) -> FloatArray:
    """What came after each place, shape (n_series, n_places, h); NaN where unknown."""
    longer = np.concatenate([y, np.full((len(y), h), np.nan)], axis=1)
    return longer[:, places[:, None] + np.arange(h)]
