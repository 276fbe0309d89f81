"""The space in which users are compared: every block counts alike, however many features it has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.blocks import columns_of

_FARTHEST = 4.0
_BLOCK_DIMENSIONS, _DIMENSIONS = 8, 10
#: Kinds are probabilities and comparable as they are; standardising would blow up differences in the last percent.
_AS_THEY_ARE = {"kinds": 2.0}


class _PrincipalAxes:
    """The directions in which users differ most; it is no error if they do not differ at all."""

    def __init__(self, n_axes: int) -> None:
        self.n_axes = n_axes

    def fit(self, points: FloatArray) -> _PrincipalAxes:
        self.mean_ = points.mean(axis=0)
        self.axes_ = np.linalg.svd(points - self.mean_, full_matrices=False)[2][: self.n_axes]
        return self

    def transform(self, points: FloatArray) -> FloatArray:
        return np.asarray((points - self.mean_) @ self.axes_.T)


class _BlockAxes:
    """Principal axes of one block after standardising, scaled to a total variance of one."""

    def fit(self, features: FloatArray) -> _BlockAxes:
        self.mean_, spread = features.mean(axis=0), features.std(axis=0)
        size = np.maximum(np.abs(features).max(axis=0), 1.0)
        self.scale_ = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * size)
        standard = self._standard(features)
        self.axes_ = _PrincipalAxes(_BLOCK_DIMENSIONS).fit(standard)
        total = float(np.sqrt(self.axes_.transform(standard).var(axis=0).sum()))
        self.unit_ = 1.0 / total if total > 0 else 0.0
        return self

    def transform(self, features: FloatArray) -> FloatArray:
        return np.asarray(self.axes_.transform(self._standard(features)) * self.unit_)

    def _standard(self, features: FloatArray) -> FloatArray:
        return np.clip((features - self.mean_) * self.scale_, -_FARTHEST, _FARTHEST)


class _Scaled:
    """A block whose unit is known."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def fit(self, features: FloatArray) -> _Scaled:
        return self

    def transform(self, features: FloatArray) -> FloatArray:
        return self.factor * features


class UserSpace:
    """Positions of users in at most ten dimensions, made from the blocks of a feature table.

    Each block is standardised, cut at four standard deviations and reduced to eight principal axes with a total
    variance of one; the block of kinds keeps its own unit. Ten principal axes of all of them are left.

    Parameters
    ----------
    blocks : sequence of str
        Blocks that count.
    """

    def __init__(self, blocks: Sequence[str]) -> None:
        self.blocks = tuple(blocks)

    def fit(self, table: pd.DataFrame) -> UserSpace:
        """Learn means, scales and axes from two users or more."""
        self.blocks_ = [self._axes(name).fit(columns_of(table, name)) for name in self.blocks]
        stacked = self._stack(table)
        self.axes_ = _PrincipalAxes(_DIMENSIONS).fit(stacked)
        return self

    def transform(self, table: pd.DataFrame) -> FloatArray:
        """Return positions, shape (n_users, n_dimensions)."""
        return self.axes_.transform(self._stack(table))

    def _axes(self, name: str) -> _BlockAxes | _Scaled:
        return _Scaled(_AS_THEY_ARE[name]) if name in _AS_THEY_ARE else _BlockAxes()

    def _stack(self, table: pd.DataFrame) -> FloatArray:
        parts = zip(self.blocks, self.blocks_, strict=True)
        return np.hstack([axes.transform(columns_of(table, name)) for name, axes in parts])
