"""Segmentation of users by the shape of their usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpudemand._array import BoolArray, FloatArray, IntArray
from gpudemand._validation import InputError, check_choice, check_number, check_seed, told
from gpudemand.segments.clustering import RULES, ConsensusModel, JointModel, canonical_order
from gpudemand.segments.rips import RipsStatistics
from gpudemand.segments.usage_matrix import Matrix, as_matrix

METHODS = ("joint", *RULES)


class TopologicalSegmenter(ClusterMixin, TransformerMixin, BaseEstimator):
    """Cluster users by the shape of their usage; by default calendar features separate them, topology hardly matters.

    Segments do not depend on the scale of usage. Without `WeeklyPersistence`, its topological block, the default loses
    at most 0.02 of adjusted Rand index on simulated users. ``blocks=["multiscale_persistence"]`` is topology alone: on
    150 simulated users by day at even noise, told the number, 0.87 on four archetypes and 0.53 on seven, where the
    default has 0.91 and 0.72 (``make bench-segments``).

    Parameters
    ----------
    n_segments : int or "auto", default="auto"
        ``"auto"`` chooses the number by subsampling stability and a gap statistic (`select_n_segments`); it can be one.
        A consensus can leave fewer than a stated number.
    method : {"joint", "voting", "pairs"}, default="joint"
        ``"joint"`` clusters the concatenated blocks of features. The other two are the published method (see Notes),
        with a consensus by voting or by pairs; they need giotto-ph (extra ``tda``).
    blocks : sequence of str, optional
        Blocks of features of ``"joint"``: ``"rhythm"`` (`UsageRhythm`), ``"weekly_persistence"``
        (`WeeklyPersistence`), ``"multiscale_persistence"`` (`MultiscalePersistence`), ``"persistence_curves"``
        (`PersistenceCurves`), ``"presence"`` (`UserPresence`), ``"persistence"`` (`PersistenceStatistics`), ``"rips"``
        (`RipsStatistics`; slower, needs giotto-ph), ``"spectrum"`` (`LogSpectrum`), ``"calendar"``
        (`CalendarProfile`) and ``"rfm"`` (`RFM`, which depends on the level of usage). By default the first two;
        ``"persistence_curves"`` where the columns are not times, or more than a day apart.
    max_segments : int, default=10
        Largest number that ``"auto"`` tries.
    sample_size : int, default=2000
        Most users that ``"voting"`` and ``"pairs"`` cluster; a classifier assigns the others.
    rips : RipsStatistics, optional
        Homology of ``"voting"`` and ``"pairs"``. By default windows of 50 days (half of a shorter history) with 64
        landmarks; ``RipsStatistics(50, n_landmarks=None)`` takes every window, as published.
    random_state : int, RandomState or None

    Attributes
    ----------
    labels_ : ndarray of int, shape (n_users,)
        Segment of each user; 0 is the segment with the most GPU-hours.
    probabilities_ : ndarray, shape (n_users, ``n_segments_``)
        Membership probabilities.
    n_segments_ : int
    features_ : DataFrame, shape (n_users, n_features)
        Features by user, named ``block__feature``; ``rfm__...`` are there even where they are not used. Of ``"voting"``
        and ``"pairs"`` those of the classifier.
    rips_statistics_ : DataFrame
        Of ``"voting"`` and ``"pairs"``: Vietoris-Rips statistics of the clustered users, ``view__statistic``.
    blocks_ : tuple of str
        Blocks used.
    matrix_ : Matrix
        Usage that was fitted, not copied: ``values``, ``ids`` and the times ``ds`` (None where unknown).
    selection_ : DataFrame or None
        ``stability``, ``gap`` and ``log_variance_ratio`` by number of segments, if it was chosen.
    shares_ : ndarray, shape (``n_segments_``,)
        Share of users in each segment.

    Notes
    -----
    Users without use take no part in the fit. The membership posterior of a user with ``n`` active bins is shrunk to
    ``shares_`` with weight ``1 / (n + 1)``.

    Distances by daily features and by multiscale persistence were fitted on simulated users of known archetypes over 90
    to 365 days, and do not depend on the other users (`gpudemand.segments.features`). On other classes
    users may be separated less. On shorter logs distances are extrapolated: there is an `ExtrapolationWarning` where a
    feature of most users is beyond two standard deviations of what they were fitted on, as after 10 to 21 days.

    ``"voting"`` and ``"pairs"`` follow Rivera-Castro et al.: recency, frequency and monetary value as series of each
    user; windows of 50 days; their Vietoris-Rips homology in dimensions 0 and 1; the two published lifetime summaries
    (`diagram_statistics`); a Gaussian mixture for each of the three series; the consensus of the three labelings; and a
    classifier that assigns users who were not in the clustered sample. Two things differ: 64 landmarks stand for all
    windows, and the classifier sees sublevel statistics of the three series, not the raw series, so that it can assign
    users of other dates.

    Apart from the numbering of the segments, results are invariant to the order of the rows, to the scale of each user
    (except ``rfm__monetary``) and to shifts of the dates by whole weeks. Times must be in the users' time zone.

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
        sample_size: int = 2000,
        rips: RipsStatistics | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_segments = n_segments
        self.method = method
        self.blocks = blocks
        self.max_segments = max_segments
        self.sample_size = sample_size
        self.rips = rips
        self.random_state = random_state

    @told("Segmenting users")
    def fit(self, X: object, y: object = None) -> Self:
        """Cluster the users in `X`.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage, a row a user, as `gpudemand.to_wide` returns it; NaN is a missing value, also before the start of a
            history.
        y : None
            Ignored.

        Raises
        ------
        InputError
            If `X` is no usage matrix (see `as_matrix`), a parameter is out of range, or `n_segments` exceeds the number
            of users with any use.
        """
        matrix, rng = as_matrix(X), self._check()
        self.matrix_ = matrix
        active = _active(matrix)
        joint = self.method == "joint"
        consensus = ConsensusModel(self.method, int(self.sample_size), self.rips)
        self._model = JointModel(self.blocks, matrix) if joint else consensus
        self.features_ = self._model.features(matrix)
        order = np.flatnonzero(active)[canonical_order(matrix.values[active])]
        table = self._model.training_table(matrix, self.features_, order, rng)
        if not joint:
            self.rips_statistics_ = table
        self._fit_model(table, rng)
        self._number_segments(matrix)
        self.n_features_in_ = matrix.values.shape[1]
        return self

    @told("Assigning users to segments")
    def predict(self, X: object) -> IntArray:
        """Return the most probable segment of each user, also of users not seen in ``fit``.

        Parameters
        ----------
        X : DataFrame or array-like, shape (n_users, n_timestamps)
            Usage with the same step; it can be longer or shorter.
        """
        return np.asarray(self.predict_proba(X).argmax(axis=1))

    def predict_proba(self, X: object) -> FloatArray:
        """Return the membership probabilities, shape (n_users, ``n_segments_``)."""
        check_is_fitted(self, "labels_")
        matrix = as_matrix(X)
        _check_step(self.matrix_.ds, matrix.ds)
        return self._shrunk(matrix, self._posterior(self._model.features(matrix)))[:, self._order]

    def transform(self, X: object) -> pd.DataFrame:
        """Return the features of each user, as in ``features_``."""
        check_is_fitted(self, "labels_")
        return self._model.features(as_matrix(X))

    def _check(self) -> np.random.Generator:
        check_choice("method", self.method, METHODS)
        check_number("max_segments", self.max_segments, 1, integer=True)
        check_number("sample_size", self.sample_size, 1, integer=True)
        if self.n_segments != "auto":
            if isinstance(self.n_segments, str):
                raise InputError(f"n_segments must be a whole number or 'auto'; got {self.n_segments!r}.")
            check_number("n_segments", self.n_segments, 1, integer=True)
        return np.random.default_rng(check_random_state(check_seed(self.random_state)).randint(2**31 - 1))

    def _fit_model(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.selection_ = None
        number = 1 if self.n_segments == "auto" else int(self.n_segments)
        if number > max(len(table), 1):
            raise InputError(
                f"n_segments={self.n_segments} is more than the {len(table)} users with any use "
                f"(n_samples={len(table)}); take fewer."
            )
        if self.n_segments == "auto" and len(table) > 1:
            number, self.selection_ = self._model.select(table, int(self.max_segments), rng)
        self._single = number == 1
        if not self._single:
            self._model.fit(table, number, rng)

    def _number_segments(self, matrix: Matrix) -> None:
        """Number the segments by descending GPU-hours, without empty ones."""
        posterior, active = self._posterior(self.features_), _active(matrix)
        labels = posterior[active].argmax(axis=1) if active.any() else np.zeros(1, dtype=int)
        self._occupied, counts = np.unique(labels, return_counts=True)
        self._shares = counts / len(labels)
        shrunk = self._shrunk(matrix, posterior)
        size = np.nansum(matrix.values, axis=1)
        hours = np.bincount(shrunk.argmax(axis=1), weights=size, minlength=shrunk.shape[1])
        self._order = np.argsort(-hours, kind="stable")
        self.shares_ = self._shares[self._order]
        self.probabilities_ = shrunk[:, self._order]
        self.labels_ = self.probabilities_.argmax(axis=1)
        self.n_segments_ = len(self._order)
        self.blocks_ = self._model.blocks

    def _posterior(self, table: pd.DataFrame) -> FloatArray:
        """Return the probabilities of all segments of the model, in its order."""
        return np.ones((len(table), 1)) if self._single else self._model.predict_proba(table)

    def _shrunk(self, matrix: Matrix, posterior: FloatArray) -> FloatArray:
        """Return the posterior of the non-empty segments, shrunk to their shares for short histories."""
        occupied = posterior[:, self._occupied]
        occupied = occupied / np.maximum(occupied.sum(axis=1, keepdims=True), 1e-300)
        weight = _history_weight(matrix)[:, None]
        return weight * occupied + (1.0 - weight) * self._shares

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _check_step(fitted: pd.DatetimeIndex | None, given: pd.DatetimeIndex | None) -> None:
    """Raise an `InputError` for bins that are twice as wide as those that were fitted, or half as wide."""
    if fitted is None or given is None or min(len(fitted), len(given)) < 2:
        return
    was, now = (ds.to_series().diff().median() for ds in (fitted, given))
    if not 0.5 < now / was < 2:
        raise InputError(f"usage has bins of {now}, and the segments were fitted to bins of {was}; sum or split them.")


def _active(matrix: Matrix) -> BoolArray:
    return np.asarray((np.nan_to_num(matrix.values) != 0).any(axis=1))


def _history_weight(matrix: Matrix) -> FloatArray:
    """Return n / (n + 1) for n active bins; with negative values, where bins cannot be counted, 1 for any value."""
    if np.fmin.reduce(matrix.values, axis=None) < 0:
        return _active(matrix).astype(float)
    n_active = (matrix.values > 0).sum(axis=1)
    return np.asarray(n_active / (n_active + 1.0))
