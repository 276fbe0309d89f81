"""The number of clusters by subsampling stability and a gap statistic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.clustering.mixture import fit_kmeans

#: Least gap of some number for there to be more than one cluster: of .06 to .15, what kept simulated populations of one
#: kind in one segment and told others apart most often on the whole.
MIN_GAP = 0.1
#: Scores within this share of the best count as equal.
TOLERANCE = 0.95
_COLUMNS = ("stability", "gap", "log_variance_ratio")
_SUBSAMPLES, _NULL_REFERENCES, _SUBSAMPLE_SHARE = 12, 6, 0.75
_MAX_SAMPLE, _MIN_USERS_PER_SEGMENT = 2000, 8


class Selection(NamedTuple):
    """The number of segments, and the scores of all numbers (index ``n_segments``)."""

    n_segments: int
    table: pd.DataFrame


def select_n_segments(
    positions: FloatArray, max_segments: int, rng: np.random.Generator, *, within_variance: float = 0.0
) -> Selection:
    """Choose the number of clusters by subsampling stability and a gap statistic; one if nothing beats the null.

    For each number, twelve subsamples of three quarters of the users are clustered by k-means.

    - ``stability``: mean Jaccard index of a user's cluster with the most similar cluster of the subsample.
    - ``log_variance_ratio``: log of the total variance over the mean square distance of held-out users to the nearest
      centre, that is -log(1 - explained variance).
    - ``gap``: log variance ratio less that in Gaussian null references of equal covariance.

    There is more than one cluster if the gap, as the median with the neighbouring numbers, reaches 0.1 anywhere. Then
    the smallest number is chosen whose product of stability and log variance ratio is within 5 % of the largest.

    Parameters
    ----------
    positions : ndarray, shape (n_users, n_dimensions)
        Uncorrelated coordinates, such as principal components. Of more than 2,000 users a sample is used.
    max_segments : int
        Largest number to try; also at most one for every eight users.
    rng : Generator
    within_variance : float, default=0
        Mean square distance of users of one class, added to all distances. 0 if unknown.

    Returns
    -------
    Selection

    References
    ----------
    C. Hennig, *Cluster-wise assessment of cluster stability*, CSDA 52, 2007; R. Tibshirani, G. Walther and T. Hastie,
    *Estimating the number of clusters in a data set via the gap statistic*, JRSS B 63, 2001.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one = rng.normal(size=(80, 3))
    >>> select_n_segments(one, 5, rng).n_segments
    1
    >>> select_n_segments(np.vstack([one, one + 9]), 5, rng).n_segments
    2
    """
    sample = _sample(positions, rng)
    largest = min(max_segments, len(sample) // _MIN_USERS_PER_SEGMENT)
    rows = {number: _score(sample, number, rng, within_variance) for number in range(2, largest + 1)}
    table = pd.DataFrame.from_dict({1: (1.0, 0.0, 0.0), **rows}, orient="index", columns=list(_COLUMNS))
    return Selection(_choose(table), table.rename_axis("n_segments"))


def jaccard_recovery(labels: IntArray, other: IntArray) -> FloatArray:
    """Return the largest Jaccard index of each cluster of `labels` with a cluster of `other`.

    Examples
    --------
    >>> jaccard_recovery(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 1])).round(2).tolist()
    [0.67, 0.5]
    """
    overlap = np.zeros((labels.max() + 1, other.max() + 1))
    np.add.at(overlap, (labels, other), 1)
    union = overlap.sum(axis=1, keepdims=True) + overlap.sum(axis=0, keepdims=True) - overlap
    return np.asarray((overlap / np.maximum(union, 1)).max(axis=1))


def _sample(positions: FloatArray, rng: np.random.Generator) -> FloatArray:
    if len(positions) <= _MAX_SAMPLE:
        return positions
    return positions[np.sort(rng.choice(len(positions), _MAX_SAMPLE, replace=False))]


def _choose(table: pd.DataFrame) -> int:
    several = table.loc[2:]
    gap = several["gap"].rolling(3, center=True, min_periods=1).median()
    score = (several["stability"] * several["log_variance_ratio"])[several["log_variance_ratio"] > 0]
    if score.empty or gap.max() < MIN_GAP:
        return 1
    return int(score.index[score >= TOLERANCE * score.max()].min())


def _score(
    sample: FloatArray, number: int, rng: np.random.Generator, within_variance: float
) -> tuple[float, float, float]:
    labels = fit_kmeans(sample, number, rng, 5).labels_
    fits, ratio = _log_variance_ratio(sample, number, rng, within_variance, _SUBSAMPLES)
    recovery = np.mean([jaccard_recovery(labels, kmeans.predict(sample)) for kmeans in fits], axis=0)
    references = [rng.normal(size=sample.shape) * sample.std(axis=0) for _ in range(_NULL_REFERENCES)]
    repeats = _SUBSAMPLES // _NULL_REFERENCES
    null = np.mean([_log_variance_ratio(x, number, rng, within_variance, repeats)[1] for x in references])
    return float(recovery[labels].mean()), float(ratio - null), ratio


def _log_variance_ratio(
    sample: FloatArray, number: int, rng: np.random.Generator, within_variance: float, n_subsamples: int
) -> tuple[list[KMeans], float]:
    """Fit k-means to subsamples; return the fits and the log of the total variance over held-out square distances."""
    draws = [_subsample(sample, number, rng, within_variance) for _ in range(n_subsamples)]
    total = _log_distance(float(sample.var(axis=0).sum()), within_variance)
    return [kmeans for kmeans, _ in draws], total - float(np.mean([distance for _, distance in draws]))


def _subsample(
    sample: FloatArray, number: int, rng: np.random.Generator, within_variance: float
) -> tuple[KMeans, float]:
    """Fit k-means to a subsample; return it and the log mean square distance of the held-out users."""
    order = rng.permutation(len(sample))
    n_train = int(_SUBSAMPLE_SHARE * len(sample))
    kmeans = fit_kmeans(sample[order[:n_train]], number, rng, 3)
    held_out = sample[order[n_train:]]
    return kmeans, _log_distance(-kmeans.score(held_out) / len(held_out), within_variance)


def _log_distance(square: float, within_variance: float) -> float:
    return float(np.log(max(within_variance + square, 1e-12)))
