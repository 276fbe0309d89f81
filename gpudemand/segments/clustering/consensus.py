"""Consensus clustering of Gaussian mixtures in three views: recency, frequency and monetary value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from sklearn.mixture import GaussianMixture

from gpudemand._compiled import compiled
from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import check_choice
from gpudemand.segments.base.transformer import map_rows
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.clustering.mixture import ignore_convergence_warnings
from gpudemand.segments.features.daily import moving_mean
from gpudemand.segments.features.rfm import PARTS
from gpudemand.segments.topology.sublevel import PersistenceStatistics

RULES = ("voting", "pairs")
VIEWS = PARTS
_DAY, _WINDOW = pd.Timedelta("1D"), 7


class Consensus:
    """Gaussian mixtures in several views of the users, merged to one clustering.

    Parameters
    ----------
    rule : {"voting", "pairs"}
        ``"voting"``: the labels of each view are matched with those of the first, and the majority decides.
        ``"pairs"``: average linkage on the co-association matrix.
    n_segments : int
        Components of each mixture, and maximum number of segments.

    Notes
    -----
    Users with the same label in every view form one *cell*, and cells are merged, so that the time does not depend on
    the number of users. New users get the probabilities of the cells under the mixtures.

    References
    ----------
    R. Rivera-Castro et al., arXiv:2009.03661 (the paper's abstract names the recency-frequency-monetary framework; its
    authors' public notebooks show a ``GMM_Voting`` and a ``GMM_Pair`` labeling, but not how they are made).
    """

    def __init__(self, rule: str, n_segments: int) -> None:
        self.rule = rule
        self.n_segments = n_segments

    def fit(self, views: Sequence[FloatArray], rng: np.random.Generator) -> Consensus:
        """Fit the mixtures, and merge their cells."""
        check_choice("rule", self.rule, RULES)
        self.mixtures_ = [self._mixture(view, rng) for view in views]
        labels = np.column_stack([mixture.predict(view) for mixture, view in zip(self.mixtures_, views, strict=True)])
        self.cells_, counts = np.unique(labels, axis=0, return_counts=True)
        merge = vote if self.rule == "voting" else average_linkage
        self.cell_labels_ = merge(self.cells_, counts, self.n_segments)
        return self

    def predict_proba(self, views: Sequence[FloatArray]) -> FloatArray:
        """Return the probability of each segment, shape (n_users, n_segments)."""
        by_view = [np.log(m.predict_proba(view) + 1e-12) for m, view in zip(self.mixtures_, views, strict=True)]
        logs = sum(scores[:, cell] for scores, cell in zip(by_view, self.cells_.T, strict=True))
        weights = np.exp(logs - np.max(logs, axis=1, keepdims=True))
        member = self.cell_labels_[:, None] == np.arange(int(self.cell_labels_.max()) + 1)
        return np.asarray(weights @ member / weights.sum(axis=1, keepdims=True))

    def _mixture(self, view: FloatArray, rng: np.random.Generator) -> GaussianMixture:
        variance = max(float(view.var(axis=0).mean()), 1e-9)
        seed = int(rng.integers(2**31))
        mixture = GaussianMixture(
            self.n_segments, covariance_type="diag", n_init=3, reg_covar=0.01 * variance, random_state=seed
        )
        with ignore_convergence_warnings():
            return mixture.fit(view)


def vote(cells: IntArray, counts: IntArray, n_labels: int) -> IntArray:
    """Return the majority label of each cell after matching the labels of the views.

    Parameters
    ----------
    cells : ndarray of int, shape (n_cells, n_views)
        The label of each view.
    counts : ndarray of int, shape (n_cells,)
        Users in each cell.
    n_labels : int
        Labels of a view.

    Returns
    -------
    ndarray of int, shape (n_cells,)
        Consecutive labels from 0. Ties go to the first view.

    Examples
    --------
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

    Parameters are those of `vote`, with the maximum number of segments.

    Examples
    --------
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


def view_statistics(matrix: Matrix) -> pd.DataFrame:
    """Compute persistence statistics of three series of each user.

    Recency is the time since the last use at each point in time, frequency the share of active bins in the week (for
    hours: the day) around it, monetary value the usage itself.

    Returns
    -------
    DataFrame, shape (n_users, 3 x 16)
        Columns ``recency__sublevel_count`` and so on.

    Examples
    --------
    >>> from gpudemand.segments.base.usage_matrix import as_matrix
    >>> table = view_statistics(as_matrix([[0.0, 8, 0, 0, 8, 0, 0, 8]]))
    >>> table.shape, table.columns[0]
    ((1, 48), 'recency__sublevel_count')
    """
    active = matrix.values > 0
    frequency = map_rows(mean_rows, active.astype(float), active.shape[1], _window(matrix))
    views = (time_since_use(active), frequency, matrix.values)
    return pd.concat([_statistics(matrix, values, name) for name, values in zip(VIEWS, views, strict=True)], axis=1)


def time_since_use(active: BoolArray) -> FloatArray:
    """Return bins since the last use at each point in time; before the first use, since the beginning.

    Examples
    --------
    >>> time_since_use(np.array([[False, True, False, False]])).tolist()
    [[1.0, 0.0, 1.0, 2.0]]
    """
    places = np.arange(active.shape[1])
    last = np.maximum.accumulate(np.where(active, places, -1), axis=1)
    return np.asarray(places - last, dtype=float)


def _window(matrix: Matrix) -> int:
    """Return the bins in a day for bins below a day, else seven."""
    step = sampling_step(matrix.ds)
    return _WINDOW if step is None or step >= _DAY else max(round(_DAY / step), 1)


@compiled
def mean_rows(values: FloatArray, width: int, out: FloatArray) -> None:
    """Write the centred moving mean of each row."""
    for row in range(len(values)):
        out[row] = moving_mean(values[row], width)


def _statistics(matrix: Matrix, values: FloatArray, view: str) -> pd.DataFrame:
    block = PersistenceStatistics().fit(matrix.values)
    columns = [f"{view}__{name}" for name in block.get_feature_names_out()]
    return pd.DataFrame(block.transform(values), index=matrix.ids, columns=columns)
