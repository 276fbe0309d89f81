"""`ClusterwiseForecaster`: clusterwise regression of users on a temporal factorization and naive forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import FloatArray, IntArray
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.panel import Panel, week_length
from gpudemand.forecast.clusterwise.base_forecasts import base_forecasts, level_factor, mixture_forecast
from gpudemand.forecast.clusterwise.clusterwise_factorization import ClusterwiseFactorization
from gpudemand.forecast.clusterwise.evidence import Evidence
from gpudemand.forecast.clusterwise.exchange import exchange, membership_costs, membership_posterior
from gpudemand.forecast.clusterwise.initial_partition import InitialPartition, default_segmenters
from gpudemand.forecast.clusterwise.loss_comparison import bounded_losses, mean_square, naive_scale, select_method
from gpudemand.forecast.clusterwise.selection import GLOBAL, Choice, Selection
from gpudemand.forecast.clusterwise.weights import combination_weights
from gpudemand.forecast.factorization.temporal_factorization import TemporalFactorization

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
