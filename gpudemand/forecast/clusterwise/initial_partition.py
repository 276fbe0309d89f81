"""Initial partitions for clusterwise regression: k-means on shape, spectrum or recency features.

The recency and spectrum features repeat those of `gpudemand.segments`, which this package may not import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from gpudemand._typing import FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number, shorten

Self = TypeVar("Self", bound="BaselineSegmenter")

KINDS = ("shape", "spectrum", "rfm", "random")
_FREQUENCIES = 80


@dataclass(frozen=True)
class InitialPartition:
    """Initial labels, and the segmenter that assigns users to them.

    Attributes
    ----------
    labels : ndarray of int, shape (n_users,)
        Consecutive from 0.
    names : Index
        Names of the labels given by the segmenter.
    segmenter : clusterer or None
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

    Parameters
    ----------
    kind : {"shape", "spectrum", "rfm", "random"}, default="shape"
        ``"shape"``: recency, frequency, autocorrelation at one bin and one season, variation, and how the newest season
        compares with the rest, all scale-free. ``"spectrum"``: log-amplitudes of the first 80 frequencies. ``"rfm"``:
        recency, frequency and mean. ``"random"``: random numbers, as a control.
    n_clusters : int, default=4
    season_length : int, default=7
    random_state : int, default=0

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_users,)
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

        Parameters
        ----------
        X : DataFrame, shape (n_users, n_timestamps)
            NaN is a missing value.
        y : None
            Ignored.
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
