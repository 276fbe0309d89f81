"""Segmentation methods behind one interface: joint clustering of feature blocks, and consensus of RFM views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier

from gpudemand._typing import FloatArray, IntArray
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.clustering.consensus import Consensus
from gpudemand.segments.clustering.mixture import SphericalMixture
from gpudemand.segments.clustering.selection import Selection, select_n_segments
from gpudemand.segments.features.discriminants import TABLES, warn_outside
from gpudemand.segments.features.feature_space import UserSpace
from gpudemand.segments.features.feature_table import FeatureTable, choose_blocks, columns_of, has_days
from gpudemand.segments.features.rfm import PARTS
from gpudemand.segments.features.rfm_series import by_view, rfm_series
from gpudemand.segments.topology.rips import RipsStatistics
from gpudemand.segments.topology.sublevel import PersistenceStatistics

#: Bins in a window of the published method, and trees that assign users.
_WINDOW, _TREES = 50, 200


class JointModel:
    """A spherical mixture in the space of all blocks of features.

    Parameters
    ----------
    blocks : sequence of str or None
        Blocks to use. The RFM features are computed in any case where there are times, but not used.
    matrix : Matrix
        Usage to fit the blocks on.
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
            warn_outside(columns_of(table, name), name, stacklevel=4)
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
    """The method of Rivera-Castro et al.: homology of a sample of users, consensus of three clusterings, a classifier.

    Vietoris-Rips statistics of the windows of the recency, the frequency and the monetary series of a sample of users
    are clustered by a Gaussian mixture each; the consensus of the three labelings are the segments. A classifier on the
    sublevel statistics of the three series, which take microseconds, assigns all users to them.

    Parameters
    ----------
    rule : {"voting", "pairs"}
    sample_size : int
        Most users whose homology is computed.
    rips : RipsStatistics or None
        By default with windows of 50 days, or of half of a shorter history.
    """

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
        labels = Consensus(self.rule, n_segments).fit(views, rng).predict_proba(views).argmax(axis=1)
        # Without bootstrap and pruning the trees repeat the labels of the sample.
        trees = ExtraTreesClassifier(_TREES, random_state=int(rng.integers(2**31)))
        self._trees = trees.fit(self._sublevel.to_numpy(), labels)
        return self

    def predict_proba(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment by the classifier."""
        return np.asarray(self._trees.predict_proba(table.to_numpy()))
