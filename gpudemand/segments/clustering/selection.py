"""The number of clusters by subsampling stability and a gap statistic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.clustering.mixture import fit_kmeans

#: Least stability and gap of a number of clusters; the second pair where the total variance is large.
MIN_STABILITY, MIN_GAP = 0.9, 0.25
WIDE_MIN_STABILITY, WIDE_MIN_GAP = 0.6, 0.15
#: Total variance above which it is large, relative to the within-archetype variance.
_WIDE = 3.0
#: Sample size up to which `MIN_GAP` holds; above, it falls with the square root of the size.
_GAP_SIZE = 150
#: Scores within this share of the best count as equal.
TOLERANCE = 0.96
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
    - ``gap``: log of the same held-out distance in a Gaussian null reference of equal covariance over that in the data;
      the median with the neighbouring numbers is used.

    Among the numbers with a stability of at least 0.9 and a gap of at least 0.25, the smallest is chosen whose product
    of stability and log variance ratio is within 4 % of the largest. 0.6 and 0.15 suffice where the total variance
    exceeds three times `within_variance`. Above 150 users the least gap falls with the square root of their number.

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
    wide = 0.0 < _WIDE * within_variance < sample.var(axis=0).sum()
    stability, gap = (WIDE_MIN_STABILITY, WIDE_MIN_GAP) if wide else (MIN_STABILITY, MIN_GAP)
    gap *= min(np.sqrt(_GAP_SIZE / len(sample)), 1.0)
    return Selection(_choose(table, stability, gap), table.rename_axis("n_segments"))


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


def _choose(table: pd.DataFrame, min_stability: float, min_gap: float) -> int:
    several = table.loc[2:]
    gap = several["gap"].rolling(3, center=True).median().fillna(several["gap"])
    better = (several[["gap", "log_variance_ratio"]] > 0).all(axis=1)
    admissible = (gap >= min_gap) & better & (several["stability"] >= min_stability)
    score = (several["stability"] * several["log_variance_ratio"])[admissible]
    return int(score.index[score >= TOLERANCE * score.max()].min()) if admissible.any() else 1


def _score(
    sample: FloatArray, number: int, rng: np.random.Generator, within_variance: float
) -> tuple[float, float, float]:
    labels = fit_kmeans(sample, number, rng, 5).labels_
    draws = [_subsample(sample, number, rng, within_variance) for _ in range(_SUBSAMPLES)]
    recovery = np.mean([jaccard_recovery(labels, kmeans.predict(sample)) for kmeans, _ in draws], axis=0)
    spread = sample.std(axis=0)
    references = [rng.normal(size=sample.shape) * spread for _ in range(_NULL_REFERENCES)]
    repeats = range(_SUBSAMPLES // _NULL_REFERENCES)
    null = np.mean([_subsample(x, number, rng, within_variance)[1] for x in references for _ in repeats])
    held_out = np.mean([distance for _, distance in draws])
    total = _log_distance(float((spread**2).sum()), within_variance)
    return float(recovery[labels].mean()), float(null - held_out), total - float(held_out)


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
