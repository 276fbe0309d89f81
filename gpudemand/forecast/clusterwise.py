"""`ClusterwiseForecaster`: clusterwise regression on temporal factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student_t
from sklearn.base import clone

from gpudemand._array import FloatArray, IntArray, solve_each
from gpudemand._validation import InputError, check_number, check_seed
from gpudemand.forecast.clusterwise_factorization import BaselineSegmenter, ClusterwiseFactorization, initial_labels
from gpudemand.forecast.combination import inverse_loss_weights, weighted_trimmed_mean
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.forecaster import Forecaster, last_known, positive_int
from gpudemand.forecast.naive import seasonal_profile
from gpudemand.forecast.panel import Panel, row_means, week_of

_MAX_ITERATIONS = 30


class NormalEquations(NamedTuple):
    """Normal equations of each unit."""

    gram: FloatArray  # (n_units, n_columns, n_columns)
    right: FloatArray  # (n_units, n_columns)
    size: FloatArray  # (n_units,), sum of squared targets

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray) -> NormalEquations:
        """Of regressors `x`, shape (n_units, n_rows, n_columns), and targets `y`; missing targets are left out."""
        known = ~np.isnan(y)
        x, y = x * known[..., None], np.where(known, y, 0.0)
        transposed = x.swapaxes(1, 2)
        right = (transposed @ y[..., None])[..., 0]
        return cls(transposed @ x, right, np.square(y).sum(axis=1))

    def losses(self, weights: FloatArray) -> FloatArray:
        """Sum of squared errors of each unit under each cluster's weights, shape (n_units, n_clusters)."""
        fitted = np.einsum("npq,kp,kq->nk", self.gram, weights, weights, optimize=True)
        return np.maximum(self.size[:, None] - 2 * self.right @ weights.T + fitted, 0.0)

    def fit(self, members: FloatArray, penalty: float, towards: FloatArray) -> FloatArray:
        """Ridge weights of each cluster, shape (n_clusters, n_columns); `members`: shape (n_units, n_clusters)."""
        ridge = penalty * np.eye(towards.size)
        gram = np.einsum("nk,npq->kpq", members, self.gram, optimize=True) + ridge
        right = members.T @ self.right + penalty * towards
        return solve_each(gram, right)


class Clusters(NamedTuple):
    """Regressions and members of the clusters."""

    weights: FloatArray  # (n_clusters, n_columns)
    labels: IntArray  # (n_users,)
    objective: tuple[float, ...]  # after each iteration, never rising


def exchange(
    equations: NormalEquations, segments: IntArray, *, switching_cost: float, penalty: float, towards: FloatArray
) -> Clusters:
    """Alternate between fitting the regressions and reassigning all users at once, until no user moves.

    The objective, which neither step can raise, is half the squared errors, plus `switching_cost` for every user who is
    not in the cluster of the segment, plus the penalty on the squared distance of weights from `towards`. The algorithm
    of Späth (1979), which this one follows, moves one unit at a time.

    `equations`: of every user. `segments`: shape (n_users,), consecutive from 0.
    """
    labels, values = segments, list[float]()
    for _ in range(_MAX_ITERATIONS):
        weights = equations.fit(np.eye(int(segments.max()) + 1)[labels], penalty, towards)
        cost = membership_costs(equations, weights, segments, switching_cost)
        values.append(float(cost.min(axis=1).sum() + penalty * np.square(weights - towards).sum() / 2))
        moved = cost.argmin(axis=1)
        if (moved == labels).all():
            break
        labels = moved
    return Clusters(weights, labels, tuple(values))


def membership_costs(
    equations: NormalEquations, weights: FloatArray, segments: IntArray, switching_cost: float
) -> FloatArray:
    """Cost of each cluster for each user, shape (n_users, n_clusters)."""
    cost = equations.losses(weights) / 2
    return cost + np.where(np.arange(cost.shape[1]) == segments[:, None], 0.0, switching_cost)


def membership_posterior(cost: FloatArray) -> FloatArray:
    """Posterior probability of each cluster for each user, given the costs."""
    posterior = np.exp(cost.min(axis=1, keepdims=True) - cost)
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


#: Bounds of the level factor, and the absolute log factor below which it is 1.
_BOUNDS = (0.5, 2.0)
_DEADBAND = 0.1
#: Seasons in the mean season.
_SEASONS = 7


def base_forecasts(y: FloatArray, h: int, season: int, week: int) -> FloatArray:
    """Simple forecasts of each series from its own history, shape (n_series, h, n_forecasts).

    The newest value; the values one season and, if it is longer, one week ago; the mean season and its value at the
    newest bin (whose difference, added to the newest value, is `SeasonallyAdjustedNaive`); the means of one season, of
    four, and of all. The number of forecasts does not depend on the length of the history.
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
    """Forecast of each user by the regressions of the clusters, averaged over the membership probabilities."""
    return np.asarray(np.einsum("n...p,np->n...", by_horizon(forecasts), probabilities @ weights, optimize=True))


def level_factor(actual: FloatArray, path: FloatArray) -> float:
    """Ratio of the sums of actuals and forecasts, clipped: regressions on bounded errors under-forecast bursts."""
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
    """Mean squared errors relative to their mean over methods and a scale, (n_methods, n_users): none decides alone."""
    return errors / (np.square(scale) + errors.mean(axis=0))


def select_method(losses: FloatArray, pooled: FloatArray) -> int:
    """Index of the method with the lowest mean loss among those significantly better than the first one, else 0.

    The loss must be lower by a t-test over blocks of time (users share the events of a block, so that they are no
    independent evidence), and the pooled error lower on average. Both have the shape (n_blocks, n_methods).

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
    """Forecasts from earlier origins, actuals, and the normal equations of their regressions."""

    past: FloatArray  # (n_users, n_origins, h, n_forecasts)
    actual: FloatArray  # (n_users, n_origins, h)
    equations: NormalEquations  # of every user, over all origins
    shared: FloatArray  # (n_columns,), coefficients of one regression for all users

    @classmethod
    def of(cls, y: FloatArray, past: FloatArray, origins: IntArray, season: int, penalty: float) -> Evidence:
        """Compare forecasts from `origins` with a history, shape (n_users, n_times); `penalty` is on coefficients."""
        actual = np.stack([y[:, origin : origin + past.shape[2]] for origin in origins], axis=1)
        # Scales use data before the origin only, to avoid leakage.
        scales = np.column_stack([naive_scale(y[:, :origin], season) for origin in origins])
        # Adding the squared error of the factorization keeps bursts from dominating.
        misfit = mean_square((actual - past[..., 0]).reshape(len(y), -1))[:, None]
        scales = np.sqrt(np.square(scales) + misfit) * np.sqrt(past.shape[2] / min(_EFFECTIVE_ERRORS, past.shape[2]))
        x, target = by_horizon(past) / scales[..., None, None], actual / scales[..., None]
        equations = NormalEquations.of(x.reshape(len(y), -1, x.shape[3]), target.reshape(len(y), -1))
        # The prior is the factorization, at all steps.
        prior = np.zeros(equations.right.shape[1])
        prior[[0, prior.size // 2]] = 1.0
        return cls(past, actual, equations, equations.fit(np.ones((len(equations.size), 1)), penalty, prior)[0])


#: Place, among the initial partitions, of one regression for all users.
GLOBAL = 0


def _with_global(choice: int) -> list[int]:
    return [GLOBAL] if choice == GLOBAL else [GLOBAL, choice]


class Selection(NamedTuple):
    """What is chosen from a history."""

    horizon: int  # bins of the training errors
    losses: pd.DataFrame  # of every initial partition on held-out time, relative to the global regression
    choice: int  # place of the initial partition
    weights: FloatArray  # (n_components, n_users)


#: Ridge penalty of the cluster regressions, and the cost of leaving the cluster of a segment.
_PENALTY, _SWITCHING_COST = 10.0, 4.0
#: Earlier origins to which the regressions are fitted, and newest horizons on which the choices are validated.
_ORIGINS, _VALIDATION_BLOCKS = 4, 6
#: Forecasts that are combined; without clusters only the first two.
_COMPONENTS = ["factorization", "global", "clusters"]
_LOSSES = ["partition", "n_clusters", "loss"]


class ClusterwiseForecaster(Forecaster):
    """Clusterwise combination of a temporal factorization with naive forecasts.

    A forecast is a linear combination of a factorization with the user's newest value, season and means. The
    coefficients are those of the user's cluster: starting from an initial partition, users are reassigned to clusters
    at a switching cost, to lower the squared errors at earlier origins. The initial partition and the number of
    clusters (or one global regression) are chosen on held-out time before the end of training; by the errors there,
    clusters, global regression and factorization are combined for each user as in `CombinedForecaster`. The common
    level is corrected by the recent forecast bias.

    On public usage data clusters do not pay: they change the pooled RMSE of one regression for all by less than two
    percent on each of five sets (``make bench-forecast ARGS="--track clusterwise"``). `CombinedForecaster`, the
    recommended forecaster, uses none.

    Parameters
    ----------
    segmenter : clusterer, Series, mapping or None
        Initial partition: anything with ``fit`` and ``labels_`` on a wide frame (a row a user), such as
        `gpudemand.TopologicalSegmenter`, or labels by ``unique_id``. By default k-means on simple
        features.
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
        Held-out loss of every initial partition relative to the global regression: ``partition``, ``n_clusters``,
        ``loss``.
    weights_ : DataFrame
        Weights of ``factorization``, ``global`` and ``clusters`` in a trimmed mean, by ``unique_id``; they sum to one.
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
        y = panel.values
        self.factorization_ = clone(
            self.factorization or TemporalFactorization(random_state=check_seed(self.random_state))
        )
        self.factorization_._fit_panel(panel)
        self._memo: dict[tuple[object, ...], Any] = {("factorize", y.shape[1]): self.factorization_.fitted_}
        given = [pd.Series(self.segmenter) if isinstance(self.segmenter, Mapping) else self.segmenter]
        if not (given[0] is None or isinstance(given[0], pd.Series) or hasattr(given[0], "fit")):
            kind = type(given[0]).__name__
            raise InputError(f"segmenter must be a clusterer, or labels by unique_id; {kind} names no users.")
        if self.segmenter is None:
            given = self._default_segmenters(len(y))
        self._segmenters = [pd.Series(0, panel.ids), *given]
        h, self.selection_, self.choice_, weights = self._once(self._select, y)
        named = pd.DataFrame(weights.T, index=panel.ids, columns=_COMPONENTS[: len(weights)])
        self.weights_ = named.reindex(columns=_COMPONENTS, fill_value=0.0)
        posterior = np.ones((len(y), 1))
        if self.choice_ != GLOBAL:
            posterior = self._fit_clusters(y, self._evidence(y, h), self.choice_)[1]
        self.probabilities_ = pd.DataFrame(posterior, index=panel.ids)
        self.labels_ = pd.Series(posterior.argmax(axis=1), index=panel.ids, name="cluster")
        self.n_clusters_ = posterior.shape[1]

    def _default_segmenters(self, n_users: int) -> list[BaselineSegmenter]:
        """k-means with every number of clusters of at least four users on average."""
        numbers = [int(check_number("n_clusters", number, 2, integer=True)) for number in self.n_clusters]
        options = {"season_length": self.season_length_, "random_state": check_seed(self.random_state)}
        return [BaselineSegmenter(number, **options) for number in numbers if 4 * number <= n_users]

    def _once(self, compute: Callable[..., Any], y: FloatArray, *options: int) -> Any:
        """What is computed from a history, once: backtest, evidence and validation share their earlier origins."""
        key = (compute.__name__, y.shape[1], *options)
        if key not in self._memo:
            self._memo[key] = compute(y, *options)
        return self._memo[key]

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        if not self._origins(y.shape[1], h).size:
            return self._factorized(y, h)
        # At earlier origins the choices are those made there, as everything else.
        selection = self._once(self._select, y)
        paths = self._component_forecasts(y, h, _with_global(selection.choice))
        return weighted_trimmed_mean(paths, selection.weights[..., None])

    def _component_forecasts(self, y: FloatArray, h: int, choices: Sequence[int]) -> FloatArray:
        """Forecasts by the factorization and by every choice, shape (1 + n_choices, n_series, h)."""
        forecasts, evidence = self._with_base_forecasts(self._factorized(y, h), y), self._evidence(y, h)
        fits = (self._fit_clusters(y, evidence, choice) for choice in choices)
        return np.stack([forecasts[..., 0], *(mixture_forecast(forecasts, *found) for found in fits)])

    def _evidence(self, y: FloatArray, h: int) -> Evidence:
        origins = self._origins(y.shape[1], h)
        known = [y[:, :origin] for origin in origins]
        past = np.stack([self._with_base_forecasts(self._factorized(early, h), early) for early in known], axis=1)
        return Evidence.of(y, past, origins, self.season_length_, _PENALTY)

    def _fit_clusters(self, y: FloatArray, evidence: Evidence, choice: int) -> tuple[FloatArray, FloatArray]:
        """Coefficients of each cluster from earlier origins of a history, and its probability for each user."""
        past, actual, equations, shared = evidence
        segments, cost = self._once(self._partition, y, choice), _SWITCHING_COST
        weights = exchange(equations, segments, switching_cost=cost, penalty=_PENALTY, towards=shared).weights
        posterior = membership_posterior(membership_costs(equations, weights, segments, cost))
        return weights * level_factor(actual, mixture_forecast(past, weights, posterior)), posterior

    def _partition(self, y: FloatArray, place: int) -> IntArray:
        # To choose the number of segments takes most of the time of a segmenter: again when the history has doubled.
        doubled = 1 << (y.shape[1].bit_length() - 1)
        segmenter = self._once(self._with_number, y[:, :doubled], place)
        return initial_labels(segmenter, self.panel_.with_history(y).wide())

    def _with_number(self, y: FloatArray, place: int) -> Any:
        """An initial segmenter, with the number of segments in a history if it chooses it itself."""
        segmenter = self._segmenters[place]
        if getattr(segmenter, "n_segments", None) != "auto":
            return segmenter
        found = clone(segmenter).fit(self.panel_.with_history(y).wide())
        return clone(segmenter).set_params(n_segments=found.n_segments_)

    def _origins(self, n_times: int, h: int) -> IntArray:
        origins = n_times - h - max(h // 2, 1) * np.arange(_ORIGINS)
        return origins[origins >= max(n_times // 2, 2)]

    def _factorized(self, y: FloatArray, h: int) -> FloatArray:
        return np.asarray(self._once(self.factorization_.factorize, y).forecast(h))

    def _with_base_forecasts(self, point: FloatArray, y: FloatArray) -> FloatArray:
        season = self.season_length_
        others = base_forecasts(y, point.shape[1], season, max(season, week_of(season, self.panel_.freq)))
        return np.concatenate([point[..., None], others], axis=-1)

    def _select(self, y: FloatArray) -> Selection:
        """Compare all choices on the newest blocks, each fitted to the data before it, and weight the components."""
        n_times = y.shape[1]
        wanted = self.season_length_ if self.horizon is None else positive_int("horizon", self.horizon)
        h = max(min(wanted, n_times // 4), 1)
        newest = [n_times - h * back for back in range(_VALIDATION_BLOCKS)]
        ends = [end for end in newest if self._origins(end - h, h).size]
        if not ends:
            return Selection(h, pd.DataFrame(columns=_LOSSES), GLOBAL, np.full((2, len(y)), 0.5))
        choices = range(len(self._segmenters))
        errors = np.stack([self._held_out_errors(y[:, :end], h, choices) for end in ends])
        squares = mean_square(errors[:, 1:].reshape(-1, h)).reshape(len(ends), len(choices), -1)
        scales = [naive_scale(y[:, : end - h], self.season_length_) for end in ends]
        losses = np.stack([bounded_losses(*block).mean(axis=1) for block in zip(squares, scales, strict=True)])
        best = select_method(losses, squares.mean(axis=2))
        components = errors[:, [0, *(1 + choice for choice in _with_global(best))]]
        sums, scale = np.nansum(np.abs(components), axis=(0, 3)), naive_scale(y, self.season_length_)
        weights = inverse_loss_weights(sums, np.full(len(y), len(ends)), scale)
        return Selection(h, self._loss_table(y, losses.mean(axis=0)), best, weights / weights.sum(axis=0))

    def _held_out_errors(self, y: FloatArray, h: int, choices: Sequence[int]) -> FloatArray:
        """Errors of the factorization and of every choice on the newest bins, shape (1 + n_choices, n_series, h)."""
        early = y[:, :-h]
        paths = np.maximum(self._component_forecasts(early, h, choices), self._floors(early))
        return np.asarray(y[:, -h:] - paths)

    def _loss_table(self, y: FloatArray, losses: FloatArray) -> pd.DataFrame:
        names = ["global", *map(str, self._segmenters[1:])]
        counts = [int(self._once(self._partition, y, n).max()) + 1 for n in range(len(names))]
        share = np.divide(losses, losses[0], out=np.ones_like(losses), where=losses[0] > 0)
        return pd.DataFrame(dict(zip(_LOSSES, (names, counts, share), strict=True)))
