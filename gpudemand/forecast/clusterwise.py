"""`ClusterwiseForecaster`: clusterwise regression on temporal factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student_t
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import FloatArray, IntArray
from gpudemand.forecast.clusterwise_factorization import ClusterwiseFactorization
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.forecaster import Forecaster, last_known, positive_int
from gpudemand.forecast.naive import seasonal_profile
from gpudemand.forecast.panel import Panel, row_means, week_length
from gpudemand.forecast.partition import (
    GLOBAL,
    Choice,
    InitialPartition,
    NormalEquations,
    Selection,
    default_segmenters,
    exchange,
    membership_costs,
    membership_posterior,
    minimise_on_simplex,
)

#: Bounds of the level factor, and the absolute log factor below which it is 1.
_BOUNDS = (0.5, 2.0)
_DEADBAND = 0.1
#: Seasons in the mean season.
_SEASONS = 7


def base_forecasts(y: FloatArray, h: int, season: int, week: int) -> FloatArray:
    """Simple forecasts of each series from its own history.

    The newest value; the values one season and one week ago; the mean season and its value at the newest bin (whose
    difference, added to the newest value, is `SeasonallyAdjustedNaive`); the means of one season, of four, and of all.

    `y`: shape (n_series, n_times); naN where missing. `season`, `week`: bins; `week` counts when it is longer than
    `season`. Returns shape (n_series, h, n_forecasts): the number of forecasts does not depend on the length of the
    history.
    """
    newest = last_known(y)
    filled = np.where(np.isnan(y), row_means(y), y)
    profile = _profile(filled, season)
    flat = [newest, profile[:, -1:], *(row_means(y[:, -n:]) for n in (season, 4 * season, y.shape[1]))]
    paths = [_repeated(filled, season, h), profile[:, np.arange(h) % season]]
    if week > season:
        paths.append(_repeated(filled, week, h))
    return np.stack([*(np.repeat(column, h, axis=1) for column in flat), *paths], axis=-1)


def by_horizon(forecasts: FloatArray) -> FloatArray:
    """Forecasts times weights that fall, and rise, linearly with the step, shape (..., h, 2 * n_forecasts)."""
    h = forecasts.shape[-2]
    late = (np.arange(h) / max(h - 1, 1))[:, None]
    return np.concatenate([forecasts * (1 - late), forecasts * late], axis=-1)


def mixture_forecast(forecasts: FloatArray, weights: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Forecast of each user by the regressions of the clusters, averaged over the membership probabilities.

    `forecasts`: shape (n_series, ..., h, n_forecasts). `weights`: shape (n_clusters, 2 * n_forecasts).
    `probabilities`: shape (n_series, n_clusters). Returns ndarray of shape (n_series, ..., h).
    """
    return np.asarray(np.einsum("n...p,np->n...", by_horizon(forecasts), probabilities @ weights, optimize=True))


def level_factor(actual: FloatArray, path: FloatArray) -> float:
    """Ratio of the sums of actuals and forecasts: regressions on bounded errors under-forecast bursts.

    Clipped to [0.5, 2]; 1 where it is within ten percent of that, and where series are negative.
    """
    total = np.where(np.isnan(actual), 0.0, np.maximum(path, 0.0)).sum()
    if total <= 0 or np.nanmin(actual) < 0:
        return 1.0
    factor = float(np.clip(np.nansum(actual) / total, *_BOUNDS))
    return factor if abs(np.log(factor)) > _DEADBAND else 1.0


def _repeated(y: FloatArray, season: int, h: int) -> FloatArray:
    last = y[:, -min(season, y.shape[1]) :]
    return last[:, np.arange(h) % last.shape[1]]


def _profile(y: FloatArray, season: int) -> FloatArray:
    whole = min(y.shape[1] // season, _SEASONS)
    return seasonal_profile(y[:, -whole * season :], season) if whole else np.repeat(row_means(y), season, axis=1)


#: Smallest scale of the errors of a series, as a share of its level.
_MIN_SHARE = 0.05
#: Confidence of the test of a gain.
_CONFIDENCE = 0.95


def naive_scale(y: FloatArray, season: int) -> FloatArray:
    """Root mean squared error of naive forecasts of each series, bounded below, shape (n_series,)."""
    errors = [mean_square(y[:, lag:] - y[:, :-lag]) for lag in {1, season} if lag < y.shape[1]]
    level = np.abs(np.nan_to_num(y)).mean(axis=1)
    scale = np.sqrt(np.min(errors, axis=0) + np.square(_MIN_SHARE * level))
    return np.where(scale > 0, scale, 1.0)


def mean_square(y: FloatArray) -> FloatArray:
    """Mean square of each row without missing values, shape (n_rows,); 0 for rows without a value."""
    return row_means(np.square(y))[:, 0]


def bounded_losses(errors: FloatArray, scale: FloatArray) -> FloatArray:
    """Mean squared errors of several methods, each user's scaled by their mean over methods and a given scale.

    The scaled losses are bounded by the number of methods, so that no single user decides.

    `errors`: shape (n_methods, n_users). `scale`: shape (n_users,). Returns ndarray of shape (n_methods, n_users).
    """
    return errors / (np.square(scale) + errors.mean(axis=0))


def select_method(losses: FloatArray, pooled: FloatArray) -> int:
    """Index of the method with the lowest mean loss among those significantly better than the first one, else 0.

    The loss must be lower by a t-test over blocks of time (users share the events of a block, so that they are no
    independent evidence), and the pooled error lower on average.

    `losses`: shape (n_blocks, n_methods); mean loss of the users in each block of time. `pooled`: shape (n_blocks,
    n_methods); pooled squared error in each block.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> plain = rng.uniform(1, 2, 6)
    >>> noisy, better = plain * rng.uniform(0.7, 1.2, 6), plain * rng.uniform(0.85, 0.95, 6)
    >>> select_method(np.stack([plain, noisy], axis=1), np.stack([plain, noisy], axis=1))
    0
    >>> select_method(np.stack([plain, better], axis=1), np.stack([plain, better], axis=1))
    1
    """
    gain = _gains(losses)
    n_blocks = len(gain)
    if n_blocks < 2:
        return 0
    error = gain.std(axis=0, ddof=1) / np.sqrt(n_blocks)
    better = gain.mean(axis=0) > student_t.ppf(_CONFIDENCE, n_blocks - 1) * error
    better &= _gains(pooled).mean(axis=0) > 0
    return int(np.where(better, losses.mean(axis=0), np.inf).argmin()) if better.any() else 0


def _gains(losses: FloatArray) -> FloatArray:
    """Relative gain of each method on the first one, shape (n_blocks, n_methods)."""
    first = losses[:, :1]
    return np.divide(first - losses, first, out=np.zeros_like(losses), where=first > 0)


#: Effective number of independent errors at one origin.
_EFFECTIVE_ERRORS = 2.0


class Evidence(NamedTuple):
    """Forecasts from earlier origins, actuals, and the normal equations of their regressions.

    `past`: shape (n_users, n_origins, h, n_forecasts). `actual`: shape (n_users, n_origins, h). `equations`: of every
    user at every origin. `shared`: shape (n_columns,); coefficients of one regression for all users.
    """

    past: FloatArray
    actual: FloatArray
    equations: NormalEquations
    shared: FloatArray

    @classmethod
    def of(cls, y: FloatArray, past: FloatArray, origins: IntArray, season: int, penalty: float) -> Evidence:
        """Compare forecasts from `origins` with a history, shape (n_users, n_times); `penalty` is on coefficients."""
        actual = np.stack([y[:, origin : origin + past.shape[2]] for origin in origins], axis=1)
        scales = _scales(y, past, actual, origins, season)
        x, target = by_horizon(past) / scales[..., None, None], actual / scales[..., None]
        equations = NormalEquations.of(x.reshape(-1, *x.shape[2:]), target.reshape(-1, actual.shape[2]))
        # The prior is the factorization, at all steps.
        prior = np.zeros(equations.right.shape[1])
        prior[[0, prior.size // 2]] = 1.0
        return cls(past, actual, equations, equations.fit(np.ones((len(equations.size), 1)), penalty, prior)[0])


def _scales(y: FloatArray, past: FloatArray, actual: FloatArray, origins: IntArray, season: int) -> FloatArray:
    """Scale of the errors of each user at each origin, shape (n_users, n_origins)."""
    h = actual.shape[2]
    # Scales use data before the origin only, to avoid leakage.
    scales = np.column_stack([naive_scale(y[:, :origin], season) for origin in origins])
    # Adding the squared error of the factorization keeps bursts from dominating.
    misfit = mean_square((actual - past[..., 0]).reshape(len(y), -1))[:, None]
    return np.asarray(np.sqrt(np.square(scales) + misfit) * np.sqrt(h / min(_EFFECTIVE_ERRORS, h)))


def combination_weights(errors: FloatArray, prior: FloatArray, strength: float) -> FloatArray:
    """Combination weights of each user with the smallest squared error, shrunk towards prior weights.

    `errors`: shape (n_users, n_times, n_forecasts); on held-out time; NaN where the actual is unknown. `prior`: shape
    (n_forecasts,); prior weights, which sum to one. `strength`: shrinkage towards them, relative to the squared error
    of the best forecast of a user. Returns shape (n_users, n_forecasts): not negative, summing to one; independent of
    the units of a user.

    Examples
    --------
    The first forecast of one user was better; the other user has no data:

    >>> errors = np.array([[[1.0, -4.0], [-1.0, -4.0]], [[np.nan, np.nan], [np.nan, np.nan]]])
    >>> combination_weights(errors, np.array([0.5, 0.5]), 0.3).round(2).tolist()
    [[0.93, 0.07], [0.5, 0.5]]
    """
    known = np.nan_to_num(errors)
    form = known.swapaxes(1, 2) @ known / max(errors.shape[1], 1)
    own = np.diagonal(form, axis1=1, axis2=2)
    pull = strength * own.min(axis=1)[:, None]
    weights = minimise_on_simplex(form + pull[..., None] * np.eye(prior.size), pull * prior)
    return np.where(own.max(axis=1)[:, None] > 0, weights, prior)


#: Ridge penalty of the cluster regressions, and the switching costs that are tried.
_PENALTY = 10.0
_SWITCHING_COSTS = (np.inf, 4.0)
#: Earlier origins to which the regressions are fitted, and newest horizons on which the choices are validated.
_ORIGINS, _VALIDATION_BLOCKS = 4, 6
#: Prior weights of the component forecasts: the factorization, one regression for all users, and the clusters.
_PRIOR_WEIGHTS = {"factorization": 0.1, "global": 0.45, "clusters": 0.45}


class ClusterwiseForecaster(Forecaster):
    """Clusterwise combination of a temporal factorization with naive forecasts.

    A forecast is a linear combination of a factorization with the user's newest value, season and means. The
    coefficients are those of the user's cluster: starting from an initial partition, users are reassigned to clusters
    at a switching cost, to lower the squared errors at earlier origins. The initial partition, the number of clusters
    (or one global regression) and each user's weights of clusters, global regression and factorization are chosen on
    held-out time before the end of training. The common level is corrected by the recent forecast bias.

    On public usage data clusters do not pay: they change the pooled RMSE of one regression for all by less than one
    percent on each of five sets (``make bench-forecast ARGS="--track clusterwise"``). `CombinedForecaster`, the
    recommended forecaster, uses none.

    Parameters
    ----------
    segmenter : clusterer, Series or None
        Initial partition: anything with ``fit`` and ``predict`` on a wide frame (a row a user), such as
        `gpudemand.TopologicalSegmenter`, or labels by ``unique_id``. By default `BaselineSegmenter` with shape,
        spectrum and recency-frequency features.
    factorization : TemporalFactorization or ClusterwiseFactorization, optional
        An estimator with the parameters to use, by default one factorization for all users.
    n_clusters : tuple of int, default=(2, 4, 8)
        Numbers of clusters tried by default.
    horizon : int, optional
        Horizon, in bins, of the training errors; by default one season.
    random_state : int, default=0

    Attributes
    ----------
    labels_ : Series
        Most probable cluster by ``unique_id``; all 0 for one global regression.
    probabilities_ : DataFrame
        Posterior probability of each cluster by ``unique_id``.
    n_clusters_ : int
    selection_ : DataFrame
        Held-out loss of every choice relative to the global regression: ``partition``, ``n_clusters``,
        ``switching_cost``, ``loss``.
    weights_ : DataFrame
        Combination weights of ``factorization``, ``global`` and ``clusters`` by ``unique_id``.
    factorization_ : TemporalFactorization or ClusterwiseFactorization

    Notes
    -----
    Choices are compared on up to six blocks of held-out time by bounded squared errors with equal weights of the users.
    Clusters must be better than the global regression by a t-test over the blocks, whose users are no independent
    evidence, and have a lower pooled error. A history of less than two horizons is forecast by the factorization alone.

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979); R. Rivera-Castro et al.,
    *Topology-based clusterwise regression for user segmentation and demand forecasting*, DSAA 2019, arXiv:2009.03661
    (which assigns users by their error on the test period; here only training data are used).

    Examples
    --------
    Half of the users repeat every week, the other half keep the newest level:

    >>> rng, days = np.random.default_rng(0), np.arange(140)
    >>> weekly = 5 + 4 * np.sin(2 * np.pi * (days + rng.integers(0, 7, (30, 1))) / 7)
    >>> walks = 50 + np.cumsum(rng.normal(0, 1, (30, 140)), axis=1)
    >>> y = np.vstack([weekly + rng.normal(0, 0.5, weekly.shape), walks])
    >>> ds = pd.date_range("2026-01-05", periods=140, name="ds")
    >>> usage = pd.DataFrame(y, columns=ds).rename_axis("unique_id").stack(future_stack=True).rename("y").reset_index()
    >>> model = ClusterwiseForecaster().fit(usage)
    >>> model.n_clusters_ > 1, len(set(model.labels_[:30]) & set(model.labels_[30:]))
    (True, 0)
    """

    _allow_missing = True
    _max_origins = 4

    def __init__(
        self,
        segmenter: Any = None,
        *,
        factorization: TemporalFactorization | ClusterwiseFactorization | None = None,
        n_clusters: tuple[int, ...] = (2, 4, 8),
        horizon: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.segmenter = segmenter
        self.factorization = factorization
        self.n_clusters = n_clusters
        self.horizon = horizon
        self.random_state = random_state

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        template = self.factorization or TemporalFactorization(random_state=self.random_state)
        self.factorization_ = clone(template)
        self.factorization_._fit_panel(panel)
        self._fitted = {self.panel_.values.shape[1]: self.factorization_.fitted_}
        self._partitions: dict[tuple[int, int], InitialPartition] = {}
        self._selections: dict[int, Selection] = {}
        defaults = default_segmenters(self.n_clusters, len(self.panel_.ids), self.season_length_, self.random_state)
        self._segmenters = defaults if self.segmenter is None else [self.segmenter]
        _, self.selection_, self.choice_, weights = self._selection(self.panel_.values)
        self.weights_ = pd.DataFrame(weights, index=self.panel_.ids, columns=list(_PRIOR_WEIGHTS))
        self._set_labels(self.panel_.values)

    def predict_new(self, usage: pd.DataFrame, h: int) -> pd.DataFrame:
        """Forecast users who were not in training by the clusters of their segment.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new users, at the timestamps of the training series.
        h : int
            Bins after the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds`` and ``ClusterwiseForecaster``.
        """
        check_is_fitted(self, "choice_")
        panel = self.panel_.aligned(usage)
        y, steps = panel.values, panel.local_steps(positive_int("h", h))
        ahead, wide = int(steps.max()) + 1, pd.DataFrame(panel.values, panel.ids, panel.times)
        point = np.maximum(self.factorization_.fold_in(y).forecast(ahead), 0.0)
        if self._origins(y.shape[1], ahead).size:
            forecasts, seen = self._with_base_forecasts(point, y), self._evidence(self.panel_.values, ahead)
            paths = []
            for choice in (GLOBAL, self.choice_):
                weights, posterior = self._fit_clusters(self.panel_.values, seen, choice)
                paths.append(mixture_forecast(forecasts, weights, self._posterior_of_new(wide, posterior, choice)))
            point = np.stack([point, *paths], axis=-1) @ self.weights_.to_numpy().mean(axis=0)
        return panel.long_frame(panel.future(h), {type(self).__name__: np.maximum(point, 0.0)[:, steps]})

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        if not self._origins(y.shape[1], h).size:
            return self._factorized(y, h)
        # At earlier origins the choices are those made there, as everything else.
        _, _, choice, weights = self._selection(y)
        return np.asarray(np.einsum("nhp,np->nh", self._component_forecasts(y, h, choice), weights))

    def _selection(self, y: FloatArray) -> Selection:
        n_times = y.shape[1]
        if n_times not in self._selections:
            h = self._fit_horizon(n_times)
            losses, choice = self._select(y, h)
            self._selections[n_times] = Selection(h, losses, choice, self._combination_weights(y, h, choice))
        return self._selections[n_times]

    def _component_forecasts(self, y: FloatArray, h: int, choice: Choice) -> FloatArray:
        """Forecasts by the factorization, the global regression and the clusters, shape (n_series, h, 3)."""
        forecasts, seen = self._forecasts(y, h), self._evidence(y, h)
        paths = {c: mixture_forecast(forecasts, *self._fit_clusters(y, seen, c)) for c in {GLOBAL, choice}}
        return np.stack([forecasts[..., 0], paths[GLOBAL], paths[choice]], axis=-1)

    def _evidence(self, y: FloatArray, h: int) -> Evidence:
        origins = self._origins(y.shape[1], h)
        past = np.stack([self._forecasts(y[:, :origin], h) for origin in origins], axis=1)
        return Evidence.of(y, past, origins, self.season_length_, _PENALTY)

    def _fit_clusters(self, y: FloatArray, seen: Evidence, choice: Choice) -> tuple[FloatArray, FloatArray]:
        """Coefficients of each cluster from earlier origins of a history, and its probability for each user."""
        past, actual, equations, shared = seen
        segments, newest = self._segments(y, actual.shape[2], choice)
        n, switching_cost = int(max(segments.max(), newest.max())) + 1, choice.switching_cost
        found = exchange(equations, segments, n, switching_cost=switching_cost, penalty=_PENALTY, towards=shared)
        costs = membership_costs(equations, found.weights, segments, switching_cost)
        posterior = membership_posterior(costs, newest)
        factor = level_factor(actual, mixture_forecast(past, found.weights, posterior))
        return found.weights * factor, posterior

    def _segments(self, y: FloatArray, h: int, choice: Choice) -> tuple[IntArray, IntArray]:
        """Segment of each user at each earlier origin, from the data known there, and now."""
        origins = self._origins(y.shape[1], h)
        if choice.kind == "global":
            return np.zeros((len(y), origins.size), dtype=np.int64), np.zeros(len(y), dtype=np.int64)
        partition = self._partition(y, choice.segmenter)
        earlier = [partition.labels_at(self._wide(y[:, :origin])) for origin in origins]
        return np.column_stack(earlier), partition.labels

    def _wide(self, y: FloatArray) -> pd.DataFrame:
        panel = self.panel_
        return pd.DataFrame(y, panel.ids, pd.date_range(panel.times[0], periods=y.shape[1], freq=panel.freq))

    def _origins(self, n_times: int, h: int) -> IntArray:
        origins = n_times - h - max(h // 2, 1) * np.arange(_ORIGINS)
        return origins[origins >= max(n_times // 2, 2)]

    def _forecasts(self, y: FloatArray, h: int) -> FloatArray:
        return self._with_base_forecasts(self._factorized(y, h), y)

    def _with_base_forecasts(self, point: FloatArray, y: FloatArray) -> FloatArray:
        season = self.season_length_
        others = base_forecasts(y, point.shape[1], season, max(season, week_length(self.panel_.freq)))
        return np.concatenate([point[..., None], others], axis=-1)

    def _factorized(self, y: FloatArray, h: int) -> FloatArray:
        if y.shape[1] not in self._fitted:
            self._fitted[y.shape[1]] = self.factorization_.factorize(y)
        return self._fitted[y.shape[1]].forecast(h)

    def _partition(self, y: FloatArray, place: int) -> InitialPartition:
        key = (y.shape[1], place)
        if key not in self._partitions:
            self._partitions[key] = InitialPartition.of(self._segmenters[place], self._wide(y))
        return self._partitions[key]

    def _combination_weights(self, y: FloatArray, h: int, choice: Choice) -> FloatArray:
        """Weights of the component forecasts of each user from their errors on the validation blocks."""
        prior, ends = np.array(list(_PRIOR_WEIGHTS.values())), self._validation_ends(y.shape[1], h)
        if not ends:
            return np.tile(prior, (len(y), 1))
        errors = np.concatenate([self._component_errors(y[:, :end], h, choice) for end in ends], axis=1)
        # The prior has the weight of one block.
        return combination_weights(errors, prior, 1 / len(ends))

    def _component_errors(self, y: FloatArray, h: int, choice: Choice) -> FloatArray:
        """Errors of the component forecasts on the newest bins, shape (n_series, h, 3)."""
        early, actual = y[:, :-h], y[:, -h:]
        floor = self._floors(early, np.array([early.shape[1]]))[..., None]
        return actual[..., None] - np.maximum(self._component_forecasts(early, h, choice), floor)

    def _validation_ends(self, n_times: int, h: int) -> list[int]:
        """Ends of the newest validation blocks that have earlier origins to fit."""
        ends = [n_times - h * back for back in range(_VALIDATION_BLOCKS)]
        return [end for end in ends if self._origins(end - h, h).size]

    def _select(self, y: FloatArray, h: int) -> tuple[pd.DataFrame, Choice]:
        """Losses of all choices on the validation blocks, each fitted to the data before it, and the selected one."""
        columns, ends = ["partition", "n_clusters", "switching_cost", "loss"], self._validation_ends(y.shape[1], h)
        choices = [GLOBAL, *(Choice("clusters", n, c) for n in range(len(self._segmenters)) for c in _SWITCHING_COSTS)]
        if not ends:
            return pd.DataFrame(columns=columns), GLOBAL
        losses, pooled = np.stack([self._losses(y[:, :end], h, choices) for end in ends], axis=1)
        mean = losses.mean(axis=0)
        share = np.divide(mean, mean[0], out=np.ones_like(mean), where=mean[0] > 0)
        rows = [(*self._named(c, y), c.switching_cost, loss) for c, loss in zip(choices, share, strict=True)]
        return pd.DataFrame(rows, columns=columns), choices[select_method(losses, pooled)]

    def _losses(self, y: FloatArray, h: int, choices: list[Choice]) -> FloatArray:
        """Bounded loss and plain squared error of each choice on the newest bins, means over users, (2, n_choices)."""
        early, actual = y[:, :-h], y[:, -h:]
        forecasts, seen = self._forecasts(early, h), self._evidence(early, h)
        floor = self._floors(early, np.array([early.shape[1]]))
        paths = (mixture_forecast(forecasts, *self._fit_clusters(early, seen, choice)) for choice in choices)
        errors = np.stack([mean_square(actual - np.maximum(path, floor)) for path in paths])
        losses = bounded_losses(errors, naive_scale(early, self.season_length_))
        return np.stack([losses.mean(axis=1), errors.mean(axis=1)])

    def _named(self, choice: Choice, y: FloatArray) -> tuple[str, int]:
        if choice.segmenter < 0:
            return choice.kind, 1
        return str(self._segmenters[choice.segmenter]), int(self._partition(y, choice.segmenter).labels.max()) + 1

    def _set_labels(self, y: FloatArray) -> None:
        posterior = np.ones((len(y), 1))
        if self.choice_.kind == "clusters":
            posterior = self._fit_clusters(y, self._evidence(y, self._selection(y).horizon), self.choice_)[1]
        self.probabilities_ = pd.DataFrame(posterior, index=self.panel_.ids)
        self.labels_ = pd.Series(posterior.argmax(axis=1), index=self.panel_.ids, name="cluster")
        self.n_clusters_ = posterior.shape[1]

    def _posterior_of_new(self, wide: pd.DataFrame, posterior: FloatArray, choice: Choice) -> FloatArray:
        """Mean posterior of the training users in the same segment, shape (n_users, n_clusters)."""
        if choice.kind == "global":
            return np.ones((len(wide), 1))
        return self._partition(self.panel_.values, choice.segmenter).means_of_new(wide, posterior)

    def _fit_horizon(self, n_times: int) -> int:
        wanted = self.season_length_ if self.horizon is None else positive_int("horizon", self.horizon)
        return max(min(wanted, n_times // 4), 1)
