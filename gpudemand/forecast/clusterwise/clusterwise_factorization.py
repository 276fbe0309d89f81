"""`ClusterwiseFactorization`: a temporal factorization for each cluster of users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from gpudemand._linalg import one_thread
from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import check_number
from gpudemand.forecast.base.forecaster import Forecaster, positive_int
from gpudemand.forecast.base.panel import Panel, row_means, row_scales
from gpudemand.forecast.clusterwise.factor_exchange import ExchangedClusters, cheapest_cluster, exchange_users
from gpudemand.forecast.clusterwise.initial_partition import InitialPartition, default_segmenters
from gpudemand.forecast.factorization.temporal_factorization import TemporalFactorization

#: Penalty of the exchange, users that take part in it, and its starts at random.
_PENALTY, _MAX_SAMPLE, _RANDOM_STARTS = 1.0, 1000, 5


class ClusterFits(NamedTuple):
    """Cluster of each series, shape (n_series,), what the exchange found, and the factorization of each cluster."""

    labels: IntArray
    exchanged: ExchangedClusters
    models: tuple[TemporalFactorization, ...]

    def forecast(self, h: int) -> FloatArray:
        """Forecast of every series by the factorization of its cluster, shape (n_series, h)."""
        path = np.empty((len(self.labels), h))
        for label, model in enumerate(self.models):
            path[self.labels == label] = model.fitted_.forecast(h)
        return path


class ClusterwiseFactorization(Forecaster):
    """Clusterwise regression with matrix factorization: users in clusters, each with latent series of its own.

    Users are exchanged between clusters one at a time, to lower the squared error of low-rank factorizations of their
    *training* series (`exchange_users`); the best of several starts is kept, and a `TemporalFactorization` is fitted to
    each cluster. The in-sample error falls with the number of clusters, the error of forecasts need not: on five public
    sets the pooled RMSE is at most one percent below that of one factorization for all (CDNOW, GenTD26), and up to
    eleven percent above it (``make bench-forecast ARGS="--track clusterwise"``). `ClusterwiseForecaster` uses one for
    all by default, and takes an instance of this class as its ``factorization``.

    Parameters
    ----------
    n_clusters : int, default=4
        One where there are fewer than four users for each.
    segmenter : clusterer, Series or None
        The only start, and the number of clusters: anything with ``fit`` and ``labels_`` on a wide frame (a row a
        user), such as `gpudemand.TopologicalSegmenter`, or labels by ``unique_id``. By default k-means on shape,
        spectrum and recency-frequency features, and five starts at random.
    max_passes : int, default=10
        Most passes over the users; 0 keeps the start.
    rank : int, default=1
        Latent series of a cluster in the exchange.
    factorization : TemporalFactorization, optional
        An estimator with the parameters to use in every cluster.
    random_state : int, default=0

    Attributes
    ----------
    labels_ : Series
        Cluster by ``unique_id``.
    n_clusters_ : int
    models_ : tuple of TemporalFactorization
        Fitted to each cluster.
    objective_ : tuple of float
        Of the best start, and after each pass over the users; never rising.
    n_moved_ : int
        Users whose cluster is not the one of the best start.

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979); R. Rivera-Castro et al.,
    *Topology-based clusterwise regression for user segmentation and demand forecasting*, DSAA 2019, arXiv:2009.03661
    (which moves users by their error on the test period; here only training data are used).

    Examples
    --------
    Two kinds of users share a random course each:

    >>> rng, days = np.random.default_rng(0), pd.date_range("2026-01-05", periods=120, name="ds")
    >>> courses = 20 + np.cumsum(rng.normal(size=(2, 120)), axis=1)
    >>> y = courses.repeat(15, axis=0) * rng.uniform(1, 2, (30, 1)) + rng.normal(0, 0.2, (30, 120))
    >>> usage = pd.DataFrame(y, columns=days).rename_axis("unique_id").stack(future_stack=True).rename("y")
    >>> model = ClusterwiseFactorization(2).fit(usage.reset_index())
    >>> model.labels_[:15].nunique(), model.labels_[15:].nunique(), model.labels_.nunique()
    (1, 1, 2)
    """

    _allow_missing = True
    _max_origins = 4

    def __init__(
        self,
        n_clusters: int = 4,
        *,
        segmenter: Any = None,
        max_passes: int = 10,
        rank: int = 1,
        factorization: TemporalFactorization | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.segmenter = segmenter
        self.max_passes = max_passes
        self.rank = rank
        self.factorization = factorization
        self.random_state = random_state

    def _fit_panel(self, panel: Panel) -> None:
        super()._fit_panel(panel)
        self.fitted_ = fitted = self.factorize(self.panel_.values)
        self.labels_ = pd.Series(fitted.labels, index=self.panel_.ids, name="cluster")
        self.models_, self.n_clusters_ = fitted.models, len(fitted.models)
        self.objective_, self.n_moved_ = fitted.exchanged.objective, fitted.exchanged.n_moved

    @one_thread()
    def factorize(self, y: FloatArray) -> ClusterFits:
        """Cluster and factorize a history of the training users, shape (n_series, n_times)."""
        # Users in the order of their series, so that the clusters do not depend on their names and rows.
        order = np.lexsort(np.nan_to_num(y).T)
        starts = self._starts(y[order], self.panel_.ids[order])
        passes = int(check_number("max_passes", self.max_passes, 0, integer=True))
        found, labels = self._exchanged(_standardized(y[order]), starts, passes)
        if passes == 0:
            labels = starts[found.start]
        occupied, labels = np.unique(labels[np.argsort(order)], return_inverse=True)
        found = found._replace(latent=found.latent[occupied])
        return ClusterFits(labels, found, tuple(self._member(y[labels == k], k, labels) for k in range(len(occupied))))

    def _exchanged(self, scaled: FloatArray, starts: list[IntArray], passes: int) -> tuple[ExchangedClusters, IntArray]:
        """Exchange a sample of the users; return what it found, and the labels of all users."""
        sample, seed = np.arange(len(scaled)), self.random_state
        if len(sample) > _MAX_SAMPLE:
            sample = np.sort(np.random.default_rng(seed).choice(len(sample), _MAX_SAMPLE, replace=False))
        rank = min(positive_int("rank", self.rank), *scaled.shape)
        some = [start[sample] for start in starts]
        found = exchange_users(scaled[sample], some, rank, _PENALTY, max_passes=passes, random_state=seed)
        labels = cheapest_cluster(scaled, found.latent, _PENALTY)
        labels[sample] = found.labels
        return found, labels

    def predict_new(self, usage: pd.DataFrame, h: int) -> pd.DataFrame:
        """Forecast users who were not in training by the factorization that fits their history best.

        Parameters
        ----------
        usage : DataFrame
            ``unique_id``, ``ds``, ``y`` of the new users, at the timestamps of the training series.
        h : int
            Bins after the training period.

        Returns
        -------
        DataFrame
            ``unique_id``, ``ds`` and ``ClusterwiseFactorization``, users in ascending order.
        """
        check_is_fitted(self, "models_")
        panel = self.panel_.aligned(usage)
        labels = cheapest_cluster(_standardized(panel.values), self.fitted_.exchanged.latent, _PENALTY)
        cluster = usage["unique_id"].map(pd.Series(labels, index=panel.ids))
        parts = [self.models_[k].predict_new(usage[cluster == k], h) for k in np.unique(labels)]
        names = {type(self.models_[0]).__name__: type(self).__name__}
        return pd.concat(parts).rename(columns=names).sort_values(["unique_id", "ds"], ignore_index=True)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return (self.fitted_ if y is self.panel_.values else self.factorize(y)).forecast(h)

    def _starts(self, y: FloatArray, ids: pd.Index) -> list[IntArray]:
        """Initial labels by the segmenter or by simple features, and at random."""
        wide = pd.DataFrame(y, ids, self._times(y.shape[1]))
        if self.segmenter is not None:
            return [InitialPartition.of(self.segmenter, wide).labels]
        number = positive_int("n_clusters", self.n_clusters)
        if number == 1 or len(y) < 4 * number:
            return [np.zeros(len(y), dtype=np.int64)]
        kinds = default_segmenters([number], len(y), self.season_length_, self.random_state)
        rng = np.random.default_rng(self.random_state)
        at_random = [rng.integers(0, number, len(y)) for _ in range(_RANDOM_STARTS)]
        return [*(InitialPartition.of(segmenter, wide).labels for segmenter in kinds), *at_random]

    def _times(self, n_times: int) -> pd.DatetimeIndex:
        """Times of a history that may be shorter or longer than the training series."""
        return pd.date_range(self.panel_.times[0], periods=n_times, freq=self.panel_.freq)

    def _member(self, y: FloatArray, label: int, labels: IntArray) -> TemporalFactorization:
        panel = self.panel_
        model = clone(self.factorization or TemporalFactorization(random_state=self.random_state))
        model._fit_panel(replace(panel, ids=panel.ids[labels == label], times=self._times(y.shape[1]), values=y))
        return model


def _standardized(y: FloatArray) -> FloatArray:
    """Rows of mean 0 and standard deviation 1, missing values at the mean."""
    return np.nan_to_num((y - row_means(y)) / row_scales(y))
