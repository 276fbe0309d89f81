"""Two ways from usage to segments, with one face: features of users, and the probability of each segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.base.usage_matrix import Matrix
from gpudemand.segments.clustering.centres import Centres
from gpudemand.segments.clustering.consensus import VIEWS, Consensus, view_statistics
from gpudemand.segments.clustering.selection import Selection, select_n_segments
from gpudemand.segments.features.blocks import ALONGSIDE, FeatureTable, choose_blocks, has_days
from gpudemand.segments.features.space import UserSpace


class SegmentModel(Protocol):
    """What a segmenter needs of a method."""

    blocks: tuple[str, ...]

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the features of users, which `fit` and `probabilities` take."""

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose a number of segments."""

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> SegmentModel:
        """Find the segments."""

    def probabilities(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment, shape (n_users, n_segments)."""


class JointModel:
    """All blocks in one space, and centres in it.

    Parameters
    ----------
    blocks : sequence of str
        Blocks that count; others of `ALONGSIDE` are computed and stand in the table only.
    matrix : Matrix
        Usage that the blocks learn from.
    """

    def __init__(self, blocks: Sequence[str] | None, matrix: Matrix) -> None:
        self.blocks = choose_blocks(blocks, matrix)
        beside = ALONGSIDE if has_days(matrix) else ()
        self._table = FeatureTable(tuple(dict.fromkeys((*self.blocks, *beside)))).fit(matrix)

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the features of users."""
        return self._table.transform(matrix)

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose a number of segments."""
        space = UserSpace(self.blocks).fit(table)
        return select_n_segments(space.transform(table), max_segments, rng, floor=space.floor_)

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> JointModel:
        """Find the segments."""
        self._space = UserSpace(self.blocks).fit(table)
        self._centres = Centres(n_segments).fit(self._space.transform(table), rng)
        return self

    def probabilities(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment."""
        return self._centres.probabilities(self._space.transform(table))


class ConsensusModel:
    """The paper's way: three labelings by recency, frequency and monetary value, and a consensus of them.

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
        """Choose a number of segments, all views counting alike."""
        return select_n_segments(UserSpace(VIEWS).fit(table).transform(table), max_segments, rng)

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> ConsensusModel:
        """Find the segments."""
        self._spaces = [UserSpace([view]).fit(table) for view in VIEWS]
        self._consensus = Consensus(self.rule, n_segments).fit(self._positions(table), rng)
        return self

    def probabilities(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment."""
        return self._consensus.probabilities(self._positions(table))

    def _positions(self, table: pd.DataFrame) -> list[FloatArray]:
        return [space.transform(table) for space in self._spaces]
