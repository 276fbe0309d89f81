"""The space in which users are compared: traits count as far as kinds differ in them, other blocks alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from gpudemand._typing import FloatArray
from gpudemand.segments.features.blocks import columns_of
from gpudemand.segments.features.days import DAY_TRAITS
from gpudemand.segments.features.discriminants import FARTHEST, along
from gpudemand.segments.features.rfm import PRESENCE_TRAITS
from gpudemand.segments.features.rhythm import HOUR_TRAITS
from gpudemand.segments.features.weekly_persistence import WAVE_TRAITS

_BLOCK_DIMENSIONS, _DIMENSIONS = 8, 16
#: Mean square distance of users of one kind along the directions of days, and what hours add to it.
_ALIKE_DAYS, _ALIKE_HOURS = 3.0, 1.0
#: Steps of the other blocks that have their own, and the mean square distance of users of one kind.
_STEPS: Mapping[str, tuple[Mapping[str, tuple[float, float]], float]] = {
    "waves": (WAVE_TRAITS, 0.1),
    "presence": (PRESENCE_TRAITS, 0.45),
}


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

    #: Not known: how far users of one kind are apart depends on who else is there.
    alike = 0.0

    def fit(self, features: pd.DataFrame) -> _BlockAxes:
        values = features.to_numpy(dtype=float)
        self.mean_, spread = values.mean(axis=0), values.std(axis=0)
        size = np.maximum(np.abs(values).max(axis=0), 1.0)
        self.scale_ = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-9 * size)
        standard = self._standard(features)
        self.axes_ = _PrincipalAxes(_BLOCK_DIMENSIONS).fit(standard)
        total = float(np.sqrt(self.axes_.transform(standard).var(axis=0).sum()))
        self.unit_ = 1.0 / total if total > 0 else 0.0
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        return np.asarray(self.axes_.transform(self._standard(features)) * self.unit_)

    def _standard(self, features: pd.DataFrame) -> FloatArray:
        return np.clip((features.to_numpy(dtype=float) - self.mean_) * self.scale_, -FARTHEST, FARTHEST)


class _Steps:
    """Traits in steps that do not depend on who else is there."""

    def __init__(self, steps: Mapping[str, tuple[float, float]], alike: float) -> None:
        self.steps = steps
        self.alike = alike

    def fit(self, features: pd.DataFrame) -> _Steps:
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        usual, step = np.transpose([self.steps[str(name).partition("__")[2]] for name in features])
        return np.clip((features.to_numpy(dtype=float) - usual) / step, -FARTHEST, FARTHEST)


class _Rhythm:
    """Traits of days along the learned directions, and those of hours in steps."""

    def fit(self, features: pd.DataFrame) -> _Rhythm:
        hourly = features.shape[1] > len(DAY_TRAITS)
        self.hours_ = [_Steps(HOUR_TRAITS, _ALIKE_HOURS)] if hourly else []
        self.alike = _ALIKE_DAYS + sum(hours.alike for hours in self.hours_)
        return self

    def transform(self, features: pd.DataFrame) -> FloatArray:
        days, rest = features.iloc[:, : len(DAY_TRAITS)], features.iloc[:, len(DAY_TRAITS) :]
        return np.hstack([along(days.to_numpy(dtype=float)), *(hours.transform(rest) for hours in self.hours_)])


class UserSpace:
    """Positions of users in at most sixteen dimensions, made from the blocks of a feature table.

    Traits of days (``"rhythm"``) count along directions in which kinds of users differ (`along`), those of hours, of
    ``"waves"`` and of ``"presence"`` in steps of their own. Every other block is standardised and reduced to eight
    principal axes with a total variance of one. No feature counts for more than four steps or standard deviations.
    Sixteen principal axes of all blocks are left.

    Directions, steps and what counts as alike were found on simulated clusters and on series with noise added
    (`gpudemand.datasets.make_cluster`, seeds 1,000 to 1,006).

    Parameters
    ----------
    blocks : sequence of str
        Blocks that count.

    Attributes
    ----------
    floor_ : float
        Mean square distance of users of one kind; 0 where it is not known of any block.
    """

    def __init__(self, blocks: Sequence[str]) -> None:
        self.blocks = tuple(blocks)

    def fit(self, table: pd.DataFrame) -> UserSpace:
        """Learn means, scales and axes from two users or more."""
        self.blocks_ = [_axes(name).fit(columns_of(table, name)) for name in self.blocks]
        self.floor_ = sum(axes.alike for axes in self.blocks_)
        stacked = self._stack(table)
        self.axes_ = _PrincipalAxes(_DIMENSIONS).fit(stacked)
        return self

    def transform(self, table: pd.DataFrame) -> FloatArray:
        """Return positions, shape (n_users, n_dimensions)."""
        return self.axes_.transform(self._stack(table))

    def _stack(self, table: pd.DataFrame) -> FloatArray:
        parts = zip(self.blocks, self.blocks_, strict=True)
        return np.hstack([axes.transform(columns_of(table, name)) for name, axes in parts])


def _axes(name: str) -> _BlockAxes | _Rhythm | _Steps:
    if name == "rhythm":
        return _Rhythm()
    return _Steps(*_STEPS[name]) if name in _STEPS else _BlockAxes()
