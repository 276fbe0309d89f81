"""Partitions of series for clusterwise regression: the first one, and exchanges that improve it.

The recency and spectrum features repeat those of `gpudemand.segments`, which this package may not import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from gpudemand._array import BoolArray, FloatArray, IntArray, solve_each
from gpudemand._validation import InputError, check_choice, check_number, shorten

Self = TypeVar("Self", bound="BaselineSegmenter")

KINDS = ("shape", "spectrum", "rfm", "random")
_FREQUENCIES = 80


@dataclass(frozen=True)
class InitialPartition:
    """Initial labels, and the segmenter that assigns users to them.

    `labels`: shape (n_users,); consecutive from 0. `names`: names of the labels given by the segmenter.
    """

    labels: IntArray
    names: pd.Index
    segmenter: Any

    @classmethod
    def of(cls, segmenter: Any, wide: pd.DataFrame) -> InitialPartition:
        """Segment the users of a wide frame, or look up their given labels."""
        fitted = None if isinstance(segmenter, pd.Series) else clone(segmenter).fit(wide)
        given = _given_labels(segmenter, wide.index) if fitted is None else fitted.labels_
        labels, names = pd.factorize(np.asarray(given), sort=True)
        return cls(labels.astype(np.int64), pd.Index(names), fitted)

    def labels_at(self, wide: pd.DataFrame) -> IntArray:
        """Labels of the same users at an earlier time, from the data known then; the current ones where unknown.

        Clusterers with one feature a column, such as those of scikit-learn, cannot predict from shorter histories.
        """
        if getattr(self.segmenter, "n_features_in_", wide.shape[1]) != wide.shape[1]:
            return self.labels
        earlier = self.labels_of_new(wide)
        return np.where(earlier >= 0, earlier, self.labels)

    def labels_of_new(self, wide: pd.DataFrame) -> IntArray:
        """Labels of users who were not in training, -1 where unknown."""
        if not hasattr(self.segmenter, "predict"):
            return np.full(len(wide), -1)
        return np.asarray(self.names.get_indexer(self.segmenter.predict(wide)), dtype=np.int64)

    def means_of_new(self, wide: pd.DataFrame, values: FloatArray) -> FloatArray:
        """For users who were not in training, mean rows of the training users with their label, or of all of them."""
        means = np.vstack([values[self.labels == label].mean(axis=0) for label in range(self.labels.max() + 1)])
        labels = self.labels_of_new(wide)
        return np.where(labels[:, None] >= 0, means[labels], values.mean(axis=0))


def _given_labels(labels: pd.Series, ids: pd.Index) -> pd.Series:
    missing = ids.difference(labels.index)
    if len(missing):
        raise InputError(f"labels name {len(labels)} users, but not {shorten(str(missing[0]))!r}; give one to each.")
    return labels.loc[ids]


class BaselineSegmenter(ClusterMixin, BaseEstimator):
    """k-means on simple features of each user's series.

    `kind`: {"shape", "spectrum", "rfm", "random"}; ``"shape"``: recency, frequency, autocorrelation at one bin and
    one season, variation, and how the newest season compares with the rest, all scale-free. ``"spectrum"``:
    log-amplitudes of the first 80 frequencies. ``"rfm"``: recency, frequency and mean. ``"random"``: random numbers,
    as a control. `labels_`: shape (n_users,).
    """

    def __init__(
        self, kind: str = "shape", n_clusters: int = 4, *, season_length: int = 7, random_state: int = 0
    ) -> None:
        self.kind = kind
        self.n_clusters = n_clusters
        self.season_length = season_length
        self.random_state = random_state

    def fit(self: Self, X: pd.DataFrame, y: object = None) -> Self:
        """Cluster the users of a wide frame.

        `X`: shape (n_users, n_timestamps); naN is a missing value. `y`: ignored.
        """
        # Half of the history, so that earlier times can be predicted from equally long windows.
        self._n_times = max(X.shape[1] // 2, 2)
        features = self._features(X)
        self._centre, scale = features.mean(axis=0), features.std(axis=0)
        self._scale = np.where(scale > 0, scale, 1.0)
        n = min(self.n_clusters, len(np.unique(self._scaled(features).round(9), axis=0)))
        self._model = KMeans(n, n_init=3, random_state=self.random_state).fit(self._scaled(features))
        self.labels_ = self._model.labels_.astype(np.int64)
        return self

    def predict(self, X: pd.DataFrame) -> IntArray:
        """Cluster of each user of a wide frame, who need not have been in training."""
        return np.asarray(self._model.predict(self._scaled(self._features(X))), dtype=np.int64)

    def _scaled(self, features: FloatArray) -> FloatArray:
        return np.ascontiguousarray((features - self._centre) / self._scale)

    def _features(self, X: pd.DataFrame) -> FloatArray:
        kind = check_choice("kind", self.kind, KINDS)
        y = np.nan_to_num(X.to_numpy(dtype=float))
        if kind == "random":
            return check_random_state(self.random_state).random_sample((len(y), 1))
        if kind == "spectrum":
            return _spectrum(y, self._n_times)
        return _rfm(y) if kind == "rfm" else _shape(y, min(self.season_length, max(y.shape[1] - 1, 1)))


def default_segmenters(numbers: Sequence[int], n_users: int, season_length: int, random_state: int) -> list[Any]:
    """Segmenters of every kind but random, with every number of clusters of at least four users on average."""
    whole = [int(check_number("n_clusters", number, 2, integer=True)) for number in numbers]
    options = {"season_length": season_length, "random_state": random_state}
    some = [number for number in whole if 4 * number <= n_users]
    return [BaselineSegmenter(kind, number, **options) for kind in KINDS if kind != "random" for number in some]


def _rfm(y: FloatArray) -> FloatArray:
    level = y.mean(axis=1)
    least = level[level > 0].min(initial=1.0)
    return np.column_stack([_recency_frequency(y), np.log(np.maximum(level, least))])


def _recency_frequency(y: FloatArray) -> FloatArray:
    """Log of bins since the last use, and of the share of bins with use."""
    used, n = y != 0, y.shape[1]
    recency = np.where(used.any(axis=1), used[:, ::-1].argmax(axis=1), n)
    return np.column_stack([np.log1p(recency), np.log(used.mean(axis=1) + 1 / n)])


def _shape(y: FloatArray, season: int) -> FloatArray:
    size = np.abs(y).mean(axis=1)
    unit = np.where(size > 0, size, 1.0)
    centred = y - y.mean(axis=1, keepdims=True)
    newest = np.abs(y[:, -season:]).mean(axis=1) / unit
    columns = [
        _autocorrelation(centred, 1),
        _autocorrelation(centred, season),
        np.log(y.std(axis=1) / unit + 0.01),
        np.clip(newest, 0, 3),
    ]
    return np.column_stack([_recency_frequency(y), *columns])


def _autocorrelation(centred: FloatArray, lag: int) -> FloatArray:
    """Autocorrelation at a lag; 0 for a series that does not vary."""
    power = np.square(centred).mean(axis=1)
    product = (centred[:, lag:] * centred[:, :-lag]).mean(axis=1)
    return np.divide(product, power, out=np.zeros_like(power), where=power > 1e-12)


def _spectrum(y: FloatArray, n_times: int) -> FloatArray:
    """Log-amplitudes of the newest `n_times`, padded where there are fewer."""
    newest = y[:, -n_times:]
    centred = newest - newest.mean(axis=1, keepdims=True)
    size = centred.std(axis=1, keepdims=True)
    unit = centred / np.where(size > 1e-12, size, 1.0)
    amplitude = np.abs(np.fft.rfft(unit, n=n_times, axis=1)[:, 1 : _FREQUENCIES + 1])
    return np.asarray(np.log1p(amplitude * np.sqrt(n_times / newest.shape[1])))


_MAX_ITERATIONS = 30


class NormalEquations(NamedTuple):
    """Normal equations of each unit.

    `gram`: shape (n_units, n_columns, n_columns). `right`: shape (n_units, n_columns). `size`: shape (n_units,); sum
    of squared targets.
    """

    gram: FloatArray
    right: FloatArray
    size: FloatArray

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
        """Ridge weights of each cluster, shape (n_clusters, n_columns), shrunk towards given ones.

        `members`: shape (n_units, n_clusters); membership of each unit in each cluster. `towards`: shape
        (n_columns,).
        """
        ridge = penalty * np.eye(towards.size)
        gram = np.einsum("nk,npq->kpq", members, self.gram, optimize=True) + ridge
        right = members.T @ self.right + penalty * towards
        return solve_each(gram, right)


@dataclass(frozen=True)
class Clusters:
    """Regressions and members of the clusters.

    `weights`: shape (n_clusters, n_columns). `reassigned`: shape (n_users,); cluster to which a user was reassigned,
    -1 for users in the cluster of their segment. `objective`: after each iteration; never rising.
    """

    weights: FloatArray
    reassigned: IntArray
    objective: tuple[float, ...]


def exchange(
    equations: NormalEquations,
    segments: IntArray,
    n_clusters: int,
    *,
    switching_cost: float,
    penalty: float,
    towards: FloatArray,
) -> Clusters:
    """Alternate between fitting the regressions and reassigning all users at once, until no user moves.

    A user is in the cluster of the segment, which may differ between origins, or is reassigned to one cluster. The
    objective, which neither step can raise, is half the squared errors, plus `switching_cost` for every reassigned
    user, plus the penalty on weights.

    `equations`: of every user at every origin, ``n_users * n_origins`` of them. `segments`: shape (n_users,
    n_origins); segment of each user at each origin. `switching_cost`: cost of reassigning a user; with infinity none
    is. `penalty`: on the squared distance of a cluster's weights from `towards`. `towards`: shape (n_columns,).

    References
    ----------
    H. Späth, "Algorithm 39: Clusterwise linear regression", Computing 22 (1979), which moves one unit at a time.
    """
    reassigned, values = np.full(len(segments), -1), []
    for _ in range(_MAX_ITERATIONS):
        labels = np.where(reassigned[:, None] >= 0, reassigned[:, None], segments)
        weights = equations.fit(np.eye(n_clusters)[labels.ravel()], penalty, towards)
        cost = membership_costs(equations, weights, segments, switching_cost)
        values.append(float(cost.min(axis=1).sum() + penalty * np.square(weights - towards).sum() / 2))
        moved = cost.argmin(axis=1) - 1
        if (moved == reassigned).all():
            break
        reassigned = moved
    return Clusters(weights, reassigned, tuple(values))


def membership_costs(
    equations: NormalEquations, weights: FloatArray, segments: IntArray, switching_cost: float
) -> FloatArray:
    """Cost of staying with the segment and of each cluster, shape (n_users, 1 + n_clusters)."""
    loss = equations.losses(weights).reshape(*segments.shape, -1) / 2
    stay = np.take_along_axis(loss, segments[..., None], axis=2).sum(axis=1)
    return np.concatenate([stay, loss.sum(axis=1) + switching_cost], axis=1)


def membership_posterior(cost: FloatArray, segment: IntArray) -> FloatArray:
    """Posterior probability of each cluster for each user, given the costs and the current segment."""
    posterior = np.exp(cost.min(axis=1, keepdims=True) - cost)
    posterior /= posterior.sum(axis=1, keepdims=True)
    return posterior[:, 1:] + posterior[:, :1] * np.eye(cost.shape[1] - 1)[segment]


class Choice(NamedTuple):
    """One global regression, or clusters: index of the initial segmenter, and the cost of leaving a segment."""

    kind: str
    segmenter: int = -1
    switching_cost: float = np.inf


#: One regression for all users.
GLOBAL = Choice("global")


class Selection(NamedTuple):
    """What is chosen from a history.

    `horizon`: bins of the training errors. `losses`: of every choice on held-out time, relative to the global
    regression. `weights`: shape (n_users, 3); of the component forecasts.
    """

    horizon: int
    losses: pd.DataFrame
    choice: Choice
    weights: FloatArray


#: Failures after which one weight is corrected at a time, most corrections, and the tolerance.
_TRIES, _MOST_PIVOTS, _ROUNDING = 3, 100, 1e-9


def minimise_on_simplex(form: FloatArray, slope: FloatArray) -> FloatArray:
    """Minimise ``w' form w / 2 - slope' w`` over weights that are not negative and sum to one, many forms at once.

    On the simplex the slope can be made part of the form. The resulting linear complementarity problem is solved by
    block principal pivoting: all negative weights and multipliers are exchanged at once while their number falls, and
    one at a time after that.

    `form`: shape (..., m, m); symmetric, positive definite (or 0). `slope`: shape (..., m). Returns ndarray of shape
    (..., m).

    References
    ----------
    Júdice and Pires, "A block principal pivoting algorithm for large-scale strictly monotone linear complementarity
    problems", Computers and Operations Research 21 (1994).

    Examples
    --------
    >>> minimise_on_simplex(np.diag([1.0, 3.0, 99.0]), np.array([0.0, 0.0, -9.0])).round(2).tolist()
    [0.75, 0.25, 0.0]
    """
    m = form.shape[-1]
    flat = _homogeneous(form.reshape(-1, m, m), slope.reshape(-1, m))
    inside = np.ones(flat.shape[:2], dtype=bool)
    weights, fewest, tries = np.zeros(flat.shape[:2]), np.full(len(flat), m + 1), np.full(len(flat), _TRIES)
    left = np.arange(len(flat))
    for _ in range(_MOST_PIVOTS):
        found, violated = _solved(flat[left], inside[left])
        weights[left] = np.maximum(found, 0.0)
        left, violated = left[violated.any(axis=1)], violated[violated.any(axis=1)]
        if not left.size:
            break
        n_violated = violated.sum(axis=1)
        fewer = n_violated < fewest[left]
        tries[left] = np.where(fewer, _TRIES, tries[left] - 1)
        fewest[left] = np.minimum(n_violated, fewest[left])
        only_last = np.arange(m) == m - 1 - violated[:, ::-1].argmax(axis=1)[:, None]
        inside[left] ^= np.where(tries[left, None] >= 0, violated, only_last)
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(slope.shape)


def _homogeneous(form: FloatArray, slope: FloatArray) -> FloatArray:
    """Positive definite form without slope that equals the given objective on the simplex up to a constant."""
    own = np.diagonal(form, axis1=1, axis2=2)
    largest, best = own.max(axis=1, keepdims=True), np.where(own > 0, own, np.inf).min(axis=1, keepdims=True)
    # Scaled by the best member: beside a diverging one all others would be equal within rounding.
    unit = np.where(largest > 0, np.maximum(best, _ROUNDING**2 * largest), 1.0)
    # Members without errors, or with equal ones, make the form singular.
    ridge = _ROUNDING * (1 + own / unit)
    form, slope = form / unit[..., None] + ridge[..., None] * np.eye(form.shape[-1]), slope / unit
    reach = 1 + 2 * np.einsum("bi,bi->b", slope, solve_each(form, slope))
    return form - slope[:, None] - slope[..., None] + reach[:, None, None]


def _solved(form: FloatArray, inside: BoolArray) -> tuple[FloatArray, BoolArray]:
    """Weights of a support, up to their sum, and mask of negative weights inside and negative multipliers outside."""
    both = inside[:, :, None] & inside[:, None]
    found = solve_each(np.where(both, form, np.eye(form.shape[-1])), inside.astype(float))
    slack = np.einsum("bij,bj->bi", form, found) - 1
    return found, np.where(inside, found, slack) < -_ROUNDING
