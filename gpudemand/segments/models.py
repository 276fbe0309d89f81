"""Two ways from usage to segments, with one face: features of users, and the probability of each segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.blocks import ALONGSIDE, LEARNT, FeatureTable, choose_blocks, has_days
from gpudemand.segments.centres import Centres
from gpudemand.segments.consensus import Consensus
from gpudemand.segments.matrix import Matrix
from gpudemand.segments.selection import Selection, select_n_segments, stability
from gpudemand.segments.space import UserSpace
from gpudemand.segments.views import VIEWS, view_statistics

# With fewer users a segment there is nothing to split in halves.
_USERS_TO_COMPARE = 4


class SegmentModel(Protocol):
    """What a segmenter needs of a method: the blocks at hand, and those that count after `fit`."""

    blocks: tuple[str, ...]
    counted: tuple[str, ...] | None

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
        self.counted: tuple[str, ...] | None = None
        beside = ALONGSIDE if has_days(matrix) else ()
        self._table = FeatureTable(tuple(dict.fromkeys((*self.blocks, *beside)))).fit(matrix)

    def features(self, matrix: Matrix) -> pd.DataFrame:
        """Return the features of users."""
        return self._table.transform(matrix)

    def select(self, table: pd.DataFrame, max_segments: int, rng: np.random.Generator) -> Selection:
        """Choose a number of segments, and whether what simulated users taught counts."""
        found = {
            blocks: select_n_segments(self._positions(table, blocks), max_segments, rng) for blocks in self._ways()
        }
        self.counted = max(found, key=lambda blocks: found[blocks].strength)
        return found[self.counted]

    def fit(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> JointModel:
        """Find the segments."""
        self.counted = self.counted or self._steadiest(table, n_segments, rng)
        self._space = UserSpace(self.counted).fit(table)
        self._centres = Centres(n_segments).fit(self._space.transform(table), rng)
        return self

    def probabilities(self, table: pd.DataFrame) -> FloatArray:
        """Return the probability of each segment."""
        return self._centres.probabilities(self._space.transform(table))

    def _ways(self) -> list[tuple[str, ...]]:
        """Return the sets of blocks to choose from: without those learnt from simulated users, and with them."""
        plain = tuple(name for name in self.blocks if name not in LEARNT)
        return [plain, self.blocks] if 0 < len(plain) < len(self.blocks) else [self.blocks]

    def _steadiest(self, table: pd.DataFrame, n_segments: int, rng: np.random.Generator) -> tuple[str, ...]:
        if len(self._ways()) == 1 or len(table) < _USERS_TO_COMPARE * n_segments:
            return self.blocks
        return max(self._ways(), key=lambda way: stability(self._positions(table, way), n_segments, rng))

    def _positions(self, table: pd.DataFrame, blocks: tuple[str, ...]) -> FloatArray:
        return UserSpace(blocks).fit(table).transform(table)


class ConsensusModel:
    """The paper's way: three labelings by recency, frequency and monetary value, and a consensus of them.

    Parameters
    ----------
    rule : {"voting", "pairs"}
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        self.blocks: tuple[str, ...] = VIEWS
        self.counted: tuple[str, ...] | None = VIEWS

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
