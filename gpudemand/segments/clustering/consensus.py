"""Consensus of several labelings of the same users, such as those by recency, frequency and monetary value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from sklearn.mixture import GaussianMixture

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_choice
from gpudemand.segments.base.compiled import compiled
from gpudemand.segments.base.transformer import over_rows
from gpudemand.segments.base.usage_matrix import Matrix, sampling_step
from gpudemand.segments.clustering.centres import alike_users_allowed
from gpudemand.segments.features.days import moving_mean
from gpudemand.segments.features.rfm import PARTS
from gpudemand.segments.topology.sublevel import PersistenceStatistics

RULES = ("voting", "pairs")
#: Three series of each user, after the managers' framework.
VIEWS = PARTS
_DAY, _BINS = pd.Timedelta("1D"), 7


class Consensus:
    """Gaussian mixtures in several views of the users, and one set of segments that they agree on.

    Parameters
    ----------
    rule : {"voting", "pairs"}
        ``"voting"``: the labels of each view are matched with those of the first (so that most users agree), and each
        user goes where most views put it. ``"pairs"``: users are as near as there are views that put them into one
        component; average linkage makes the segments.
    n_segments : int
        Components of each mixture, and segments at most.

    Notes
    -----
    Users with the same label in every view are one *cell*, and segments are made of cells, so the number of users does
    not matter for the time. Somebody new gets the probabilities of the cells under the mixtures.

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
        self._mixtures = [self._mixture(view, rng) for view in views]
        labels = np.column_stack([mixture.predict(view) for mixture, view in zip(self._mixtures, views, strict=True)])
        self._cells, counts = np.unique(labels, axis=0, return_counts=True)
        merge = vote if self.rule == "voting" else pair_up
        self._segment = merge(self._cells, counts, self.n_segments)
        self._n_found = int(self._segment.max()) + 1
        return self

    def probabilities(self, views: Sequence[FloatArray]) -> FloatArray:
        """Return the probability of each segment, shape (n_users, n_segments)."""
        by_view = [np.log(m.predict_proba(view) + 1e-12) for m, view in zip(self._mixtures, views, strict=True)]
        logs = sum(scores[:, cell] for scores, cell in zip(by_view, self._cells.T, strict=True))
        weights = np.exp(logs - np.max(logs, axis=1, keepdims=True))
        member = self._segment[:, None] == np.arange(self._n_found)
        return np.asarray(weights @ member / weights.sum(axis=1, keepdims=True))

    def _mixture(self, view: FloatArray, rng: np.random.Generator) -> GaussianMixture:
        spread = max(float(view.var(axis=0).mean()), 1e-9)
        seed = int(rng.integers(2**31))
        mixture = GaussianMixture(
            self.n_segments, covariance_type="diag", n_init=3, reg_covar=0.01 * spread, random_state=seed
        )
        with alike_users_allowed():
            return mixture.fit(view)


def vote(cells: IntArray, counts: IntArray, n_labels: int) -> IntArray:
    """Return the segment of each cell: the label that most views give it, after matching their names.

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
        Numbers from 0, without holes. A tie goes to the first view.

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


def pair_up(cells: IntArray, counts: IntArray, n_segments: int) -> IntArray:
    """Return the segment of each cell, by average linkage on the share of views that tell two cells apart.

    Parameters are those of `vote`, with the number of segments wanted; fewer come back if there are fewer cells.

    Examples
    --------
    >>> pair_up(np.array([[0, 1, 0], [0, 1, 1], [1, 0, 2]]), np.array([5, 1, 5]), 2).tolist()
    [0, 0, 1]
    """
    if len(cells) <= 1 or n_segments == 1:
        return np.zeros(len(cells), dtype=np.int64)
    # Many users in one cell weigh as much as they do: a cell stands in the tree once for every percent of them.
    copies = np.repeat(np.arange(len(cells)), np.maximum(np.round(100 * counts / counts.sum()).astype(int), 1))
    apart = (cells[copies][:, None, :] != cells[copies][None, :, :]).mean(axis=2)
    tree = linkage(apart[np.triu_indices(len(copies), 1)], method="average")
    groups = fcluster(tree, n_segments, criterion="maxclust")[np.unique(copies, return_index=True)[1]]
    _, first, code = np.unique(groups, return_index=True, return_inverse=True)
    # Numbered in the order of the cells, whatever the tree calls them.
    return np.asarray(np.argsort(np.argsort(first))[code.ravel()])


def consensus_labels(
    labelings: Sequence[Sequence[int]], rule: str = "voting", n_segments: int | None = None
) -> IntArray:
    """Merge several labelings of the same users into one.

    Parameters
    ----------
    labelings : sequence of sequence of int, shape (n_labelings, n_users)
        Whatever labelings there are, such as quintiles of recency, frequency and monetary value.
    rule : {"voting", "pairs"}, default="voting"
        See `Consensus`.
    n_segments : int, optional
        Segments wanted of ``"pairs"``; as many as the richest labeling has, by default.

    Returns
    -------
    ndarray of int, shape (n_users,)

    Raises
    ------
    InputError
        If the labelings are of different lengths, or the rule is not known.

    Examples
    --------
    >>> consensus_labels([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]])
    array([0, 0, 1, 1])
    """
    check_choice("rule", rule, RULES)
    if len({len(labels) for labels in labelings}) != 1:
        raise InputError(f"labelings must be of equal length; got {[len(labels) for labels in labelings]}.")
    codes = np.column_stack([np.unique(np.asarray(labels), return_inverse=True)[1].ravel() for labels in labelings])
    cells, cell, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    n_labels = int(codes.max()) + 1
    merged = vote(cells, counts, n_labels) if rule == "voting" else pair_up(cells, counts, n_segments or n_labels)
    return np.asarray(merged[cell.ravel()])


def view_statistics(matrix: Matrix) -> pd.DataFrame:
    """Return persistence statistics of the three series of each user.

    Recency is the time since the last use at each point in time, frequency the share of bins in use in the week (for
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
    used = matrix.values > 0
    often = over_rows(mean_rows, used.astype(float), used.shape[1], _window(matrix))
    views = (time_since_use(used), often, matrix.values)
    parts = [_statistics(matrix, values, name) for name, values in zip(VIEWS, views, strict=True)]
    return pd.concat(parts, axis=1)


def time_since_use(used: BoolArray) -> FloatArray:
    """Return bins since the last use at each point in time; before the first use, since the beginning.

    Examples
    --------
    >>> time_since_use(np.array([[False, True, False, False]])).tolist()
    [[1.0, 0.0, 1.0, 2.0]]
    """
    places = np.arange(used.shape[1])
    last = np.maximum.accumulate(np.where(used, places, -1), axis=1)
    return np.asarray(places - last, dtype=float)


def _window(matrix: Matrix) -> int:
    """Return the bins in a day for hours, and seven for days and everything else."""
    step = sampling_step(matrix.ds)
    return _BINS if step is None or step >= _DAY else max(round(_DAY / step), 1)


@compiled
def mean_rows(values: FloatArray, width: int, out: FloatArray) -> None:
    """Write the centred moving mean of each row."""
    for row in range(len(values)):
        out[row] = moving_mean(values[row], width)


def _statistics(matrix: Matrix, values: FloatArray, view: str) -> pd.DataFrame:
    block = PersistenceStatistics().fit(matrix.values)
    columns = [f"{view}__{name}" for name in block.get_feature_names_out()]
    return pd.DataFrame(block.transform(values), index=matrix.ids, columns=columns)
