"""Clusterings of users, their consensus, and the number of segments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from gpudemand._array import FloatArray, IntArray, one_thread
from gpudemand._validation import check_choice, told
from gpudemand.segments.features import (
    TABLES,
    FeatureTable,
    UserSpace,
    choose_blocks,
    columns_of,
    has_days,
    warn_outside,
)
from gpudemand.segments.rfm import PARTS, by_view, rfm_series
from gpudemand.segments.rips import RipsStatistics
from gpudemand.segments.topology import PersistenceStatistics
from gpudemand.segments.usage_matrix import Matrix


def fit_kmeans(points: FloatArray, n_clusters: int, rng: np.random.Generator, n_init: int = 1) -> KMeans:
    """Fit k-means in one thread, which is faster than several for tables of users."""
    seed = int(rng.integers(2**31))
    with ignore_convergence_warnings(), one_thread():
        return KMeans(n_clusters, n_init=n_init, random_state=seed).fit(points)


@contextmanager
def ignore_convergence_warnings() -> Iterator[None]:
    """Suppress scikit-learn's warning for fewer distinct points than clusters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


class SphericalMixture:
    """Gaussian mixture with one spherical covariance and equal weights."""

    def __init__(self, n_components: int) -> None:
        self.n_components = n_components

    def fit(self, points: FloatArray, rng: np.random.Generator) -> SphericalMixture:
        """Estimate the means by k-means and the variance from its inertia."""
        kmeans = fit_kmeans(points, self.n_components, rng, n_init=20)
        self.means_: FloatArray = kmeans.cluster_centers_
        degrees_of_freedom = max(len(points) - self.n_components, 1) * points.shape[1]
        self.variance_ = max(float(kmeans.inertia_) / degrees_of_freedom, 1e-12)
        return self

    def predict_proba(self, points: FloatArray) -> FloatArray:
        """Return the posterior of the components, shape (n_users, n_components)."""
        squares = ((points[:, None, :] - self.means_[None]) ** 2).sum(axis=2)
        weights = np.exp((squares.min(axis=1, keepdims=True) - squares) / (2.0 * self.variance_))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def canonical_order(values: FloatArray) -> IntArray:
    """Return a row order by the temporal moments of the rows, independent of their present order and of their scale."""
    filled = np.nan_to_num(values)
    time = np.arange(1.0, filled.shape[1] + 1) / filled.shape[1]
    size = np.abs(filled).sum(axis=1)
    share = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    moments = [((filled * power).sum(axis=1) * share).round(9) for power in (time**3, time**2, time)]
    return np.lexsort(moments)


RULES = ("voting", "pairs")


def consensus(views: Sequence[FloatArray], rule: str, n_segments: int, rng: np.random.Generator) -> IntArray:
    """Cluster users by Gaussian mixtures in several views of them, merged to at most `n_segments`.

    Rule ``"voting"``: the labels of each view are matched with those of the first, and the majority decides;
    ``"pairs"``: average linkage on the co-association matrix. Users with the same label in every view form one *cell*,
    and cells are merged, so that the time does not depend on the number of users. The public notebooks of
    arXiv:2009.03661 show a ``GMM_Voting`` and a ``GMM_Pair`` labeling, but not how they are made.
    """
    check_choice("rule", rule, RULES)
    labels = np.column_stack([_mixture_labels(view, n_segments, rng) for view in views])
    cells, cell, counts = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
    merge = vote if rule == "voting" else average_linkage
    return merge(cells, counts, n_segments)[cell.ravel()]


def _mixture_labels(view: FloatArray, n_segments: int, rng: np.random.Generator) -> IntArray:
    variance = max(float(view.var(axis=0).mean()), 1e-9)
    seed = int(rng.integers(2**31))
    mixture = GaussianMixture(
        n_segments, covariance_type="diag", n_init=3, reg_covar=0.01 * variance, random_state=seed
    )
    with ignore_convergence_warnings():
        return np.asarray(mixture.fit_predict(view))


def vote(cells: IntArray, counts: IntArray, n_labels: int) -> IntArray:
    """Return the majority label of each cell after matching the labels of the views.

    `cells`: shape (n_cells, n_views); the label of each view. `counts`: users in each cell. Ties go to the first view.

    >>> vote(np.array([[0, 1, 0], [1, 0, 1], [1, 1, 0]]), np.array([5, 5, 1]), 2)
    array([0, 1, 0])
    """
    matched = np.column_stack([_matched(cells[:, 0], other, counts, n_labels) for other in cells.T])
    votes = (matched[:, :, None] == np.arange(n_labels)).sum(axis=1).astype(float)
    votes[np.arange(len(cells)), matched[:, 0]] += 0.5
    return np.unique(votes.argmax(axis=1), return_inverse=True)[1].ravel()


def _matched(reference: IntArray, labels: IntArray, counts: IntArray, n_labels: int) -> IntArray:
    overlap = np.zeros((n_labels, n_labels))
    np.add.at(overlap, (labels, reference), counts)
    name = np.empty(n_labels, dtype=np.int64)
    rows, columns = linear_sum_assignment(-overlap)
    name[rows] = columns
    return name[labels]


def average_linkage(cells: IntArray, counts: IntArray, n_segments: int) -> IntArray:
    """Return the segment of each cell by average linkage on the share of views in which two cells differ.

    >>> average_linkage(np.array([[0, 1, 0], [0, 1, 1], [1, 0, 2]]), np.array([5, 1, 5]), 2).tolist()
    [0, 0, 1]
    """
    if len(cells) <= 1 or n_segments == 1:
        return np.zeros(len(cells), dtype=np.int64)
    # Weight by size: a cell occurs once for every percent of the users in it.
    copies = np.repeat(np.arange(len(cells)), np.maximum(np.round(100 * counts / counts.sum()).astype(int), 1))
    distances = (cells[copies][:, None, :] != cells[copies][None, :, :]).mean(axis=2)
    tree = linkage(distances[np.triu_indices(len(copies), 1)], method="average")
    groups = fcluster(tree, n_segments, criterion="maxclust")[np.unique(copies, return_index=True)[1]]
    _, first, code = np.unique(groups, return_index=True, return_inverse=True)
    # Numbered in the order of the cells.
    return np.asarray(np.argsort(np.argsort(first))[code.ravel()])


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


@told("Choosing the number of segments")
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


#: Bins in a window of the published method, and trees that assign users.
_WINDOW, _TREES = 50, 200


class JointModel:
    """A spherical mixture in the space of all blocks of features, fitted to usage.

    The RFM features are computed in any case where there are times, but not used.
    """

    def __init__(self, blocks: Sequence[str] | None, matrix: Matrix) -> None:
        self.blocks = choose_blocks(blocks, matrix)
        names = (*self.blocks, "rfm") if has_days(matrix) else self.blocks
        self._table = FeatureTable(tuple(dict.fromkeys(names))).fit(matrix)

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the features of users."""
        return self._table.transform(matrix)

    def training_table(
        self, matrix: Matrix, features: pd.DataFrame, rows: IntArray, rng: np.random.Generator
    ) -> pd.DataFrame:
        """Return the features of the users to cluster, in the order of `rows`; warn of extrapolated distances."""
        table = features.iloc[rows]
        for name in (name for name in self.blocks if name in TABLES):
            warn_outside(columns_of(table, name), name)
        return table

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose the number of segments."""
        space = UserSpace(self.blocks).fit(table)
        return select_n_segments(space.transform(table), max_segments, rng, within_variance=space.within_variance_)

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> JointModel:
        """Fit the segments."""
        self._space = UserSpace(self.blocks).fit(table)
        self._mixture = SphericalMixture(n_segments).fit(self._space.transform(table), rng)
        return self

    def predict_proba(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment."""
        return self._mixture.predict_proba(self._space.transform(table))


class ConsensusModel:
    """The method of Rivera-Castro et al.: homology of a sample of users, three clusterings, a classifier."""

    blocks: tuple[str, ...] = PARTS

    def __init__(self, rule: str, sample_size: int, rips: RipsStatistics | None = None) -> None:
        self.rule = rule
        self.sample_size = sample_size
        self.rips = rips

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the sublevel statistics of the three series of each user, which the classifier sees."""
        return by_view(PersistenceStatistics(), rfm_series(matrix), matrix.ids)

    def training_table(
        self, matrix: Matrix, features: pd.DataFrame, rows: IntArray, rng: np.random.Generator
    ) -> pd.DataFrame:
        """Return the Vietoris-Rips statistics of a sample of `rows`."""
        sample = rows
        if len(rows) > self.sample_size:
            sample = rows[np.sort(rng.choice(len(rows), self.sample_size, replace=False))]
        self._sublevel = features.iloc[sample]
        if not len(sample):
            return self._sublevel
        series = rfm_series(Matrix(matrix.values[sample], matrix.ids[sample], matrix.ds))
        window = min(_WINDOW, max(series["monetary"].shape[1] // 2, 1))
        block = RipsStatistics(window) if self.rips is None else clone(self.rips)
        return by_view(block, series, matrix.ids[sample])

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose the number of segments from all views with equal weight."""
        return select_n_segments(UserSpace(PARTS).fit(table).transform(table), max_segments, rng)

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> ConsensusModel:
        """Find the segments of the sample, and fit the classifier that assigns users to them."""
        views = [UserSpace([view]).fit(table).transform(table) for view in PARTS]
        labels = consensus(views, self.rule, n_segments, rng)
        # Without bootstrap and pruning the trees repeat the labels of the sample.
        trees = ExtraTreesClassifier(_TREES, random_state=int(rng.integers(2**31)))
        self._trees = trees.fit(self._sublevel.to_numpy(), labels)
        return self

    def predict_proba(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment by the classifier."""
        return np.asarray(self._trees.predict_proba(table.to_numpy()))
