"""Segmentation methods behind one interface: joint clustering of feature blocks, and consensus of RFM views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.clustering.consensus import VIEWS, Consensus, view_statistics
from gpudemand.segments.clustering.mixture import SphericalMixture
from gpudemand.segments.clustering.selection import Selection, select_n_segments
from gpudemand.segments.features.feature_space import UserSpace
from gpudemand.segments.features.feature_table import FeatureTable, choose_blocks, has_days


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
    """The paper's method: a clustering by each of recency, frequency and monetary value, and their consensus.

    Parameters
    ----------
    rule : {"voting", "pairs"}
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.blocks: tuple[str, ...] = VIEWS

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the persistence statistics of the three views of each user."""
        return view_statistics(matrix)

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose the number of segments from all views with equal weight."""
        return select_n_segments(UserSpace(VIEWS).fit(table).transform(table), max_segments, rng)

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> ConsensusModel:
        """Fit the segments."""
        self._spaces = [UserSpace([view]).fit(table) for view in VIEWS]
        self._consensus = Consensus(self.rule, n_segments).fit(self._coordinates(table), rng)
        return self

    def predict_proba(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment."""
        return self._consensus.predict_proba(self._coordinates(table))

    def _coordinates(self, table: pd.DataFrame) -> list[FloatArray]:
        return [space.transform(table) for space in self._spaces]
