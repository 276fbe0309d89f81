"""Segments of users by the shape of their usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpudemand._typing import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number
from gpudemand.segments.base.usage_matrix import Matrix, as_matrix
from gpudemand.segments.clustering.centres import canonical_order
from gpudemand.segments.clustering.consensus import RULES
from gpudemand.segments.clustering.models import ConsensusModel, JointModel, SegmentModel

Self = TypeVar("Self", bound="TopologicalSegmenter")

METHODS = ("joint", *RULES)


class TopologicalSegmenter(ClusterMixin, BaseEstimator):
    """Segments of users who use GPUs alike, however much they use.

    Parameters
    ----------
    n_segments : int or "auto", default="auto"
        ``"auto"`` takes as many as come back in other users of the same cluster and hold together better than one
        crowd would (`select_n_segments`); that can be one.
    method : {"joint", "voting", "pairs"}, default="joint"
        ``"joint"`` compares users by several blocks of features at once. The other two are the paper's: Gaussian
        mixtures by recency, frequency and monetary value on persistence statistics, merged by voting or by pairs.
    blocks : sequence of str, optional
        What ``"joint"`` compares users by: ``"rhythm"`` (which days and hours, how even, growing or not), ``"waves"``
        (lifetimes of the peaks of the weekly level), ``"presence"`` (how often, and still there or not; on its own the
        best for forecasts), ``"persistence"`` (lifetimes of the series' ups and downs), ``"rips"`` (of the cloud of its
        windows, on landmarks; slower, needs giotto-tda or giotto-ph), ``"spectrum"``, ``"calendar"`` and ``"rfm"`` (how
        recent, often and much: the only one that minds how much). By default the first two; ``"persistence"`` and
        ``"spectrum"`` where the columns are no times, or more than a day apart.
    max_segments : int, default=10
        Most segments that ``"auto"`` tries.
    random_state : int, RandomState or None

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_users,)
        Segment of each user; 0 is the segment with the most GPU-hours.
    probabilities_ : ndarray, shape (n_users, n_segments_)
        How probable each segment is for each user.
    n_segments_ : int
    features_ : DataFrame, shape (n_users, n_features)
        Features by user, named ``block__feature``. The level features ``rfm__...`` stand beside the others even where
        users are not compared by them.
    blocks_ : tuple of str
        Blocks that the segments were made by.
    selection_ : DataFrame or None
        ``stability``, ``gain`` and ``closeness`` by number of segments, if it was chosen.
    shares_ : ndarray, shape (n_segments_,)
        Share of each segment in the users.

    Notes
    -----
    Who has used nothing yet takes no part in the fit and gets ``shares_`` as probabilities. A short history is mixed
    with them: somebody with ``n`` bins of use keeps ``n / (n + 1)`` of what the features say.

    How far apart two users are by their rhythm was learned on simulated users of known kinds and does not depend on who
    else is there (`gpudemand.segments.features.discriminants`). Other kinds may come out less clearly.

    The order of the rows does not matter, and neither does a user's scale, but for the numbering: multiplying a series
    by a constant changes ``rfm__monetary`` only. Dates that are later by whole weeks change nothing. Times must be in
    the time zone in which users live.

    References
    ----------
    R. Rivera-Castro et al., *Topology-based clusterwise regression for user segmentation and demand forecasting*,
    DSAA 2019, arXiv:2009.03661.

    Examples
    --------
    >>> import gpudemand as gd
    >>> jobs, truth = gd.make_cluster(60, 120, archetypes=["nightly", "burst"], random_state=0)
    >>> wide = gd.to_wide(gd.usage_series(jobs, by="user", freq="D"))
    >>> segmenter = TopologicalSegmenter(random_state=0).fit(wide)
    >>> pd.crosstab(truth.set_index("user")["archetype"].loc[wide.index].to_numpy(), segmenter.labels_).to_numpy()
    array([[ 0, 30],
           [30,  0]])
    """

    def __init__(
        self,
        n_segments: int | str = "auto",
        *,
        method: str = "joint",
        blocks: Sequence[str] | None = None,
        max_segments: int = 10,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_segments = n_segments
        self.method = method
        self.blocks = blocks
        self.max_segments = max_segments
        self.random_state = random_state

    def fit(self: Self, X: object, y: object = None) -> Self:
        """Find the segments of the users in `X`.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage, a row a user, as `gpudemand.to_wide` returns it; NaN is a missing value. Histories that begin late
            are NaN before.
        y : None
            Ignored.

        Raises
        ------
        InputError
            If `X` is no usage matrix (see `as_matrix`), a parameter is out of range, or `n_segments` is more than there
            are users with any use.
        """
        matrix, rng = as_matrix(X), self._check()
        active = _active(matrix)
        self._model = self._new_model(matrix)
        self.features_ = self._model.features(matrix)
        order = np.flatnonzero(active)[canonical_order(matrix.values[active])]
        self._learn(self.features_.iloc[order], rng)
        self._number(matrix)
        return self

    def predict(self, X: object) -> IntArray:
        """Return the most probable segment of each user, who need not have been there at ``fit``.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage with the same step; it can be longer or shorter.
        """
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def predict_proba(self, X: object) -> FloatArray:
        """Return the probability of each segment, shape (n_users, n_segments_).

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
        """
        check_is_fitted(self, "labels_")
        matrix = as_matrix(X)
        return self._mixed(matrix, self._known(self._model.features(matrix)))[:, self._order]

    def transform(self, X: object) -> pd.DataFrame:
        """Return the features of each user, as in ``features_``.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
        """
        check_is_fitted(self, "labels_")
        return self._model.features(as_matrix(X))

    def _check(self) -> np.random.Generator:
        check_choice("method", self.method, METHODS)
        check_number("max_segments", self.max_segments, 1, integer=True)
        if self.n_segments != "auto":
            if isinstance(self.n_segments, str):
                raise InputError(f"n_segments must be a whole number or 'auto'; got {self.n_segments!r}.")
            check_number("n_segments", self.n_segments, 1, integer=True)
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))

    def _new_model(self, matrix: Matrix) -> SegmentModel:
        return JointModel(self.blocks, matrix) if self.method == "joint" else ConsensusModel(self.method)

    def _learn(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.selection_ = None
        if self.n_segments != "auto" and int(self.n_segments) > max(len(table), 1):
            raise InputError(
                f"n_segments={self.n_segments} is more than the {len(table)} users with any use; ask for fewer."
            )
        wanted = self.n_segments
        if wanted == "auto":
            wanted = 1
            if len(table) > 1:
                selection = self._model.select(table, int(self.max_segments), rng)
                wanted, self.selection_ = selection.n_segments, selection.table
        self._single = int(wanted) == 1
        if self._single:
            return
        self._model.fit(table, int(wanted), rng)

    def _number(self, matrix: Matrix) -> None:
        """Number the segments by GPU-hours, the largest first, leaving out those that nobody is in."""
        known, active = self._known(self.features_), _active(matrix)
        labels = known[active].argmax(axis=1) if active.any() else np.zeros(1, dtype=int)
        self._kept, counts = np.unique(labels, return_counts=True)
        self._shares = counts / len(labels)
        mixed = self._mixed(matrix, known)
        size = np.nansum(matrix.values, axis=1)
        hours = np.bincount(mixed.argmax(axis=1), weights=size, minlength=mixed.shape[1])
        self._order = np.argsort(-hours, kind="stable")
        self.shares_ = self._shares[self._order]
        self.probabilities_ = mixed[:, self._order]
        self.labels_ = self.probabilities_.argmax(axis=1)
        self.n_segments_ = len(self._order)
        self.blocks_ = self._model.blocks

    def _known(self, table: pd.DataFrame) -> FloatArray:
        """Return what the features say: the probabilities of all segments of the model, in its order."""
        return np.ones((len(table), 1)) if self._single else self._model.probabilities(table)

    def _mixed(self, matrix: Matrix, known: FloatArray) -> FloatArray:
        """Return the probabilities of the segments that somebody is in, mixed with the shares where little is known."""
        kept = known[:, self._kept]
        kept = kept / np.maximum(kept.sum(axis=1, keepdims=True), 1e-300)
        trust = _trust(matrix)[:, None]
        return trust * kept + (1.0 - trust) * self._shares

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _active(matrix: Matrix) -> BoolArray:
    return np.asarray((np.nan_to_num(matrix.values) != 0).any(axis=1))


def _trust(matrix: Matrix) -> FloatArray:
    """Return how much of what the features say counts; bins of use can be told only where nothing is below zero."""
    if np.fmin.reduce(matrix.values, axis=None) < 0:
        return _active(matrix).astype(float)
    n_used = (matrix.values > 0).sum(axis=1)
    return np.asarray(n_used / (n_used + 1.0))
