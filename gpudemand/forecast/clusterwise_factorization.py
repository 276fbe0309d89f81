"""`ClusterwiseFactorization`: initial partitions of series, and a factorization a cluster, with series reassigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from sklearn.utils.extmath import randomized_svd

from gpudemand._array import FloatArray, IntArray, one_thread
from gpudemand._validation import InputError, check_number, check_seed, shorten
from gpudemand.forecast.factorization import TemporalFactorization
from gpudemand.forecast.forecaster import Forecaster, positive_int
from gpudemand.forecast.panel import Panel, row_means, row_scales


def initial_labels(segmenter: Any, wide: pd.DataFrame) -> IntArray:
    """Labels of the users of a wide frame, consecutive from 0: by a segmenter, or looked up in a Series."""
    is_given = isinstance(segmenter, pd.Series)
    labels = _given_labels(segmenter, wide.index) if is_given else clone(segmenter).fit(wide).labels_
    return pd.factorize(np.asarray(labels), sort=True)[0].astype(np.int64)


def _given_labels(labels: pd.Series, ids: pd.Index) -> pd.Series:
    labels = labels.dropna()
    missing = ids.difference(labels.index[~labels.index.duplicated(keep=False)])
    if len(missing):
        raise InputError(
            f"labels name {len(labels)} users, but {shorten(str(missing[0]))!r} not once; give one to each."
        )
    return labels.loc[ids]


class BaselineSegmenter(ClusterMixin, BaseEstimator):
    """k-means on simple, scale-free features of each user's series."""

    def __init__(self, n_clusters: int = 4, *, season_length: int = 7, random_state: int = 0) -> None:
        self.n_clusters = n_clusters
        self.season_length = season_length
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: object = None) -> Self:
        """Cluster the users of a wide frame, shape (n_users, n_timestamps)."""
        scaled = StandardScaler().fit_transform(self._features(X))
        n = min(self.n_clusters, len(np.unique(scaled.round(9), axis=0)))
        self.labels_ = KMeans(n, n_init=3, random_state=self.random_state).fit(scaled).labels_.astype(np.int64)
        return self

    def _features(self, X: pd.DataFrame) -> FloatArray:
        y = np.nan_to_num(X.to_numpy(dtype=float))
        season, n = min(self.season_length, max(y.shape[1] - 1, 1)), y.shape[1]
        size, used = np.abs(y).mean(axis=1), y != 0
        unit, centred = np.where(size > 0, size, 1.0), y - y.mean(axis=1, keepdims=True)
        columns = [
            np.log1p(np.where(used.any(axis=1), used[:, ::-1].argmax(axis=1), n)),
            np.log(used.mean(axis=1) + 1 / n),
            _autocorrelation(centred, 1),
            _autocorrelation(centred, season),
            np.log(y.std(axis=1) / unit + 0.01),
            np.clip(np.abs(y[:, -season:]).mean(axis=1) / unit, 0, 3),
        ]
        return np.column_stack(columns)


def _autocorrelation(centred: FloatArray, lag: int) -> FloatArray:
    """Autocorrelation at a lag; 0 for a series that does not vary."""
    power = np.square(centred).mean(axis=1)
    product = (centred[:, lag:] * centred[:, :-lag]).mean(axis=1)
    return np.divide(product, power, out=np.zeros_like(power), where=power > 1e-12)


#: Gain that a pass must bring, relative to the sum of squares.
_LEAST_GAIN = 1e-6


class UserClusters(NamedTuple):
    """Clusters of the users, and the latent series of each."""

    labels: IntArray  # (n_users,)
    latent: FloatArray  # (n_clusters, rank, n_times)
    objective: tuple[float, ...]  # at the start and after each pass, never rising
    start: int  # place of the best start
    n_moved: int  # users who have left its clusters


def reassign_users(
    y: FloatArray, starts: Sequence[IntArray], rank: int, penalty: float, *, max_passes: int, random_state: int = 0
) -> UserClusters:
    """Factorize the users of each cluster by latent series of its own, and reassign users to the clusters.

    Minimises, over clusters, loadings f and latent series X of each cluster, the sum over users of
    ``|y - f X|^2 + penalty |f|^2``, plus ``penalty |X|^2``, by turns: each pass gives every user the cluster and the
    loadings of least cost, then solves for the latent series, until that gains nothing.

    `y`, shape (n_users, n_times), has about unit variance and no missing values. `starts` are initial labels,
    consecutive from 0; the one with the lowest objective in the end is taken.

    Two kinds of users with a factor each, from a start at random:

    >>> rng = np.random.default_rng(0)
    >>> kinds = np.repeat([0, 1], 20)
    >>> y = rng.normal(size=(2, 60))[kinds] * rng.uniform(1, 2, (40, 1)) + rng.normal(0, 0.1, (40, 60))
    >>> labels = reassign_users(y, [rng.integers(0, 2, 40)], rank=1, penalty=0.1, max_passes=50).labels
    >>> len(set(labels[:20])), len(set(labels))
    (1, 2)
    """
    runs = [_alternate(y, start, rank, penalty, max_passes, random_state) for start in starts]
    best = int(np.argmin([objective[-1] for _, _, objective in runs]))
    labels, latent, objective = runs[best]
    return UserClusters(labels, latent, tuple(objective), best, int((labels != starts[best]).sum()))


def _alternate(
    y: FloatArray, labels: IntArray, rank: int, penalty: float, max_passes: int, random_state: int
) -> tuple[IntArray, FloatArray, list[float]]:
    latent = np.zeros((int(labels.max()) + 1, rank, y.shape[1]))
    for cluster, own in enumerate(latent):
        share, right = randomized_svd(y[labels == cluster], rank, n_iter=4, random_state=random_state)[1:]
        own[: len(share)] = np.sqrt(np.maximum(share - penalty, 0.0))[:, None] * right
    objective, size = list[float](), np.square(y).sum(axis=1)
    for _ in range(max_passes + 1):
        loadings, gain = _loadings(y, latent, penalty)
        cheapest = gain.argmax(axis=0) if objective else labels
        cost = size - gain[cheapest, np.arange(len(y))]
        objective.append(float(cost.sum() + penalty * np.square(latent).sum()))
        if len(objective) > 1 and objective[-2] - objective[-1] <= _LEAST_GAIN * size.sum():
            break
        labels = cheapest.copy()
        # An empty cluster takes the user who is fitted worst, as in k-means.
        for cluster, worst in zip(np.setdiff1d(range(len(latent)), labels), np.argsort(-cost), strict=False):
            labels[worst], loadings[cluster, worst] = cluster, np.eye(1, rank)[0] * size[worst] ** 0.25
        for cluster in range(len(latent)):
            own = loadings[cluster, labels == cluster]
            latent[cluster] = np.linalg.solve(own.T @ own + penalty * np.eye(rank), own.T @ y[labels == cluster])
    return labels, latent, objective


def _loadings(y: FloatArray, latent: FloatArray, penalty: float) -> tuple[FloatArray, FloatArray]:
    """Loadings of each user in each cluster, (n_clusters, n_users, rank), and by how much they lower ``|y|^2``."""
    right = y @ latent.swapaxes(1, 2)
    gram = latent @ latent.swapaxes(1, 2) + penalty * np.eye(latent.shape[1])
    loadings = np.asarray(np.linalg.solve(gram, right.swapaxes(1, 2)).swapaxes(1, 2), dtype=np.float64)
    return loadings, np.asarray((right * loadings).sum(axis=2))


#: Penalty of the factorizations of clusters, and starts.
_PENALTY, _STARTS = 1.0, 20


class ClusterFits(NamedTuple):
    """Cluster of each series, shape (n_series,), what it comes from, and the model of each cluster."""

    labels: IntArray
    clusters: UserClusters
    models: tuple[TemporalFactorization, ...]

    def forecast(self, h: int) -> FloatArray:
        """Forecast of every series by the factorization of its cluster, shape (n_series, h)."""
        path = np.empty((len(self.labels), h))
        for label, model in enumerate(self.models):
            path[self.labels == label] = model.fitted_.forecast(h)
        return path


class ClusterwiseFactorization(Forecaster):
    """Clusterwise regression with matrix factorization: users in clusters, each with latent series of its own.

    Users are reassigned to clusters, to lower the squared error of low-rank factorizations of their *training* series
    (`reassign_users`); the best of several starts is kept, and a `TemporalFactorization` is fitted to each cluster. The
    in-sample error falls with the number of clusters, the error of forecasts need not: on five public sets the pooled
    RMSE is from three percent below that of one factorization for all (GenTD26, Venus) to twenty above it (M4;
    ``make bench-forecast ARGS="--track clusterwise"``). `ClusterwiseForecaster` uses one for all by default, and takes
    an instance of this class as its ``factorization``.

    Parameters
    ----------
    n_clusters : int, default=4
        One where there are fewer than four users for each.
    segmenter : clusterer, Series or None
        The only start, and the number of clusters: anything with ``fit`` and ``labels_`` on a wide frame (a row a
        user), such as `gpudemand.TopologicalSegmenter`, or labels by ``unique_id``. By default k-means on the
        standardized series, of twenty seeds.
    max_passes : int, default=50
        Most passes over the users; 0 keeps the start.
    rank : int, default=1
        Latent series of a cluster while users are reassigned.
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

    _max_origins = 4

    def __init__(
        self,
        n_clusters: int = 4,
        *,
        segmenter: Any = None,
        max_passes: int = 50,
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
        self.objective_, self.n_moved_ = fitted.clusters.objective, fitted.clusters.n_moved

    @one_thread()
    def factorize(self, y: FloatArray) -> ClusterFits:
        """Cluster and factorize a history of the training users, shape (n_series, n_times)."""
        # Users in the order of their series, so that the clusters do not depend on their names and rows.
        order = np.lexsort(np.nan_to_num(y).T)
        passes = int(check_number("max_passes", self.max_passes, 0, integer=True))
        rank = min(positive_int("rank", self.rank), *y.shape)
        seed, starts = check_seed(self.random_state), self._starts(y[order], self.panel_.ids[order])
        found = reassign_users(_standardized(y[order]), starts, rank, _PENALTY, max_passes=passes, random_state=seed)
        occupied, labels = np.unique(found.labels[np.argsort(order)], return_inverse=True)
        models = tuple(self._member(y[labels == k], k, labels) for k in range(len(occupied)))
        return ClusterFits(labels, found, models)

    def _path(self, y: FloatArray, h: int) -> FloatArray:
        return (self.fitted_ if y is self.panel_.values else self.factorize(y)).forecast(h)

    def _starts(self, y: FloatArray, ids: pd.Index) -> list[IntArray]:
        """Initial labels by the segmenter, or by k-means on the standardized series, of several seeds."""
        if self.segmenter is not None:
            return [initial_labels(self.segmenter, replace(self.panel_.with_history(y), ids=ids).wide())]
        number, scaled = positive_int("n_clusters", self.n_clusters), _standardized(y)
        if number == 1 or len(y) < 4 * number:
            return [np.zeros(len(y), dtype=np.int64)]
        number = min(number, len(np.unique(scaled.round(9), axis=0)))
        models = (KMeans(number, n_init=1, random_state=self.random_state + n) for n in range(_STARTS))
        return [model.fit(scaled).labels_.astype(np.int64) for model in models]

    def _member(self, y: FloatArray, label: int, labels: IntArray) -> TemporalFactorization:
        model = clone(self.factorization or TemporalFactorization(random_state=self.random_state))
        model._fit_panel(replace(self.panel_.with_history(y), ids=self.panel_.ids[labels == label]))
        return model


def _standardized(y: FloatArray) -> FloatArray:
    """Rows of mean 0 and standard deviation 1, missing values at the mean."""
    return np.nan_to_num((y - row_means(y)) / row_scales(y))
